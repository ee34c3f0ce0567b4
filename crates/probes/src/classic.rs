//! Whether a classic tracepoint has its fields where `classic.bpf.c` reads them.

use std::{fs, path::PathBuf};

/// Where tracefs may be mounted; libbpf looks there too.
const TRACEFS: [&str; 2] = ["/sys/kernel/debug/tracing", "/sys/kernel/tracing"];

/// A field of a tracepoint: name, offset, size in bytes.
type Field = (&'static str, usize, usize);

/// What a program reads.
struct Tracepoint {
    program: &'static str,
    path: &'static str,
    fields: &'static [Field],
}

/// The structs of `classic.bpf.c`.
const TRACEPOINTS: [Tracepoint; 3] = [
    Tracepoint {
        program: "tcp_set_state",
        path: "sock/inet_sock_set_state",
        fields: &[
            ("skaddr", 8, 8),
            ("oldstate", 16, 4),
            ("newstate", 20, 4),
            ("dport", 26, 2),
            ("protocol", 30, 2),
            ("daddr_v6", 56, 16),
        ],
    },
    Tracepoint {
        program: "tcp_retransmit",
        path: "tcp/tcp_retransmit_skb",
        fields: &[("skaddr", 16, 8), ("state", 24, 4)],
    },
    Tracepoint {
        program: "tcp_receive_reset",
        path: "tcp/tcp_receive_reset",
        fields: &[("skaddr", 8, 8)],
    },
];

/// Why a classic tracepoint cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClassicError {
    /// Nothing is mounted there, or the kernel has no such tracepoint.
    #[error("tracepoint {0} is not to be found: mount tracefs at /sys/kernel/tracing")]
    NoFormat(&'static str),
    /// A kernel that has it elsewhere.
    #[error("tracepoint {0} has no field {1} where it is looked for; name a BTF file with --btf")]
    Field(&'static str, &'static str),
}

/// Whether a program has a classic form.
pub(crate) fn has(program: &str) -> bool {
    TRACEPOINTS.iter().any(|tracepoint| tracepoint.program == program)
}

/// Whether this kernel has all that a program reads where it reads it.
pub(crate) fn check(program: &str) -> Result<(), ClassicError> {
    let Some(tracepoint) = TRACEPOINTS.iter().find(|known| known.program == program) else {
        return Ok(());
    };
    let Tracepoint { path, fields, .. } = tracepoint;
    let file = |root: &str| PathBuf::from(root).join("events").join(path).join("format");
    let format =
        TRACEFS.iter().map(|root| file(root)).find_map(|file| fs::read_to_string(file).ok());
    check_fields(path, fields, &format.ok_or(ClassicError::NoFormat(path))?)
}

fn check_fields(path: &'static str, fields: &[Field], format: &str) -> Result<(), ClassicError> {
    let found: Vec<(&str, usize, usize)> = format.lines().filter_map(field).collect();
    match fields.iter().find(|field| !found.contains(field)) {
        Some((name, ..)) => Err(ClassicError::Field(path, name)),
        None => Ok(()),
    }
}

/// A line such as `field:__u8 saddr[4]; offset:32; size:4; signed:0;`.
fn field(line: &str) -> Option<(&str, usize, usize)> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let name = parts.next()?.rsplit([' ', '*']).next()?;
    let name = name.split('[').next()?;
    let number = |part: Option<&str>, key: &str| part?.strip_prefix(key)?.parse().ok();
    Some((name, number(parts.next(), "offset:")?, number(parts.next(), "size:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: tcp_receive_reset\nID: 2279\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\tfield:const void * skaddr;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:__u8 saddr[4];\toffset:22;\tsize:4;\tsigned:0;\n\nprint fmt: \"x\"\n";

    #[test]
    fn fields_are_found_where_the_kernel_says_that_they_are() {
        let check = |fields: &[Field]| check_fields("tcp/x", fields, FORMAT);
        assert_eq!(check(&[("skaddr", 8, 8), ("saddr", 22, 4)]), Ok(()));
        assert_eq!(check(&[("skaddr", 16, 8)]), Err(ClassicError::Field("tcp/x", "skaddr")));
        assert_eq!(check(&[("state", 24, 4)]), Err(ClassicError::Field("tcp/x", "state")));
        assert_eq!(
            check_fields("tcp/x", &[("skaddr", 8, 8)], "field:;;\nfield:a b"),
            Err(ClassicError::Field("tcp/x", "skaddr"))
        );
    }
}
