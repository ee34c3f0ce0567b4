//! Which programs this kernel takes, found by trying: BTF tracepoints with socket storage, then
//! with a hash, then raw tracepoints; without any BTF classic tracepoints, which tell less. One
//! program that cannot load does not take the others along.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use keelson_abi::layout;
use keelson_model::{CoverageReason, ProgramState, ProgramStatus, limits};
use libbpf_rs::{ErrorKind, Link, Object, ObjectBuilder, OpenObject, PrintLevel, set_print};
use zerocopy::IntoBytes;

use crate::{classic, config::TcpProbeConfig};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tcp.bpf.o"));
const CLASSIC_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/classic.bpf.o"));
/// Before the layout's number, in the name of its directory.
const LAYOUTS: &str = "tcp-";
/// Maps that outlive an agent.
const PINNED: [&str; 8] = [
    "tcp_conn_storage",
    "tcp_conn_hash",
    "tcp_series",
    "tcp_peers",
    "tcp_pin_set",
    "tcp_ledger",
    "tcp_settled",
    "tcp_numbers",
];

/// What one program serves.
struct Function {
    /// For example `retransmits`.
    name: &'static str,
    /// Name of the BTF form; the others have `_raw` or `_classic` behind it.
    program: &'static str,
    tracepoint: &'static str,
}

const FUNCTIONS: [Function; 8] = [
    Function { name: "state", program: "tcp_set_state", tracepoint: "inet_sock_set_state" },
    Function { name: "rtt", program: "tcp_probe", tracepoint: "tcp_probe" },
    Function { name: "retransmits", program: "tcp_retransmit", tracepoint: "tcp_retransmit_skb" },
    Function { name: "resets_sent", program: "tcp_send_reset", tracepoint: "tcp_send_reset" },
    Function {
        name: "resets_received",
        program: "tcp_receive_reset",
        tracepoint: "tcp_receive_reset",
    },
    Function {
        name: "synack_retransmits",
        program: "tcp_retransmit_synack",
        tracepoint: "tcp_retransmit_synack",
    },
    Function { name: "cgroup_made", program: "tcp_cgroup_mkdir", tracepoint: "cgroup_mkdir" },
    Function { name: "cgroup_removed", program: "tcp_cgroup_rmdir", tracepoint: "cgroup_rmdir" },
];

/// The forms in which the programs may run, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    BtfWithStorage,
    BtfWithHash,
    RawWithHash,
    /// Needs no BTF at all.
    Classic,
}

/// Those that need BTF.
const MODES: [Mode; 3] = [Mode::BtfWithStorage, Mode::BtfWithHash, Mode::RawWithHash];

/// A loaded object whose programs do not run yet.
pub(crate) struct Loaded {
    pub object: Object,
    mode: Mode,
    /// By function.
    refused: Vec<Option<Refusal>>,
    first_choice: Refusal,
}

/// What runs, and what could not.
#[derive(Default)]
pub(crate) struct Attached {
    pub links: Vec<Link>,
    pub programs: Vec<ProgramStatus>,
    pub reasons: Vec<CoverageReason>,
}

/// Nothing can run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Not one form of the first program was taken.
    #[error("no kernel program can run: {reason}")]
    Nothing {
        /// The last answer, with the remedy.
        reason: String,
        /// Its kind, where it has one.
        coverage: Option<CoverageReason>,
    },
    /// The object itself is broken, or a directory cannot be used.
    #[error("cannot prepare the kernel programs: {what}")]
    Prepare {
        /// What was tried.
        what: &'static str,
        /// The cause.
        source: libbpf_rs::Error,
    },
    /// The BTF file that was named cannot be read.
    #[error(
        "cannot read the BTF file {path}; name one of this very kernel, or none where /sys/kernel/btf/vmlinux is there"
    )]
    Btf {
        /// As given.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The directory for pins cannot be made.
    #[error("cannot use {path} for pinned maps; is a bpffs mounted there?")]
    PinDirectory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Another agent holds the pins.
    #[error("{path} is in use by another agent of this node")]
    PinsInUse {
        /// The directory.
        path: PathBuf,
    },
}

/// Loads all that this kernel takes; nothing runs yet.
pub(crate) fn load(config: &TcpProbeConfig) -> Result<Loaded, LoadError> {
    if let Some(path) = &config.btf {
        // libbpf would only say that relocations failed.
        std::fs::File::open(path)
            .map_err(|source| LoadError::Btf { path: path.clone(), source })?;
    }
    let previous = set_print(Some((PrintLevel::Warn, keep_text)));
    let loaded = load_quietly(config);
    set_print(previous);
    loaded
}

fn load_quietly(config: &TcpProbeConfig) -> Result<Loaded, LoadError> {
    let mut refusal = Refusal::default();
    for mode in MODES {
        match try_load(config, mode, &[FUNCTIONS[0].program]) {
            Ok(_) => return load_mode(config, mode, refusal),
            Err(found) => refusal = found,
        }
    }
    if refusal.reason == Some(CoverageReason::NoKernelBtf) {
        match try_load(config, Mode::Classic, &[FUNCTIONS[0].program]) {
            Ok(_) => return load_mode(config, Mode::Classic, refusal),
            Err(classic) => {
                let text = format!("{}; without it: {}", refusal.text, classic.text);
                refusal.text = bounded(&text);
            }
        }
    }
    Err(refusal.into())
}

/// Why a program was not taken.
#[derive(Clone, Debug, Default)]
struct Refusal {
    text: String,
    reason: Option<CoverageReason>,
}

impl From<Refusal> for LoadError {
    fn from(refusal: Refusal) -> Self {
        Self::Nothing { reason: refusal.text, coverage: refusal.reason }
    }
}

fn load_mode(
    config: &TcpProbeConfig,
    mode: Mode,
    first_choice: Refusal,
) -> Result<Loaded, LoadError> {
    let mut refused: Vec<Option<Refusal>> = Vec::new();
    for function in &FUNCTIONS {
        refused.push(match mode == Mode::Classic && !classic::has(function.program) {
            // What it would read stands in no field of a classic tracepoint.
            true => Some(first_choice.clone()),
            false => try_load(config, mode, &[function.program]).err(),
        });
    }
    let good: Vec<&str> = FUNCTIONS
        .iter()
        .zip(&refused)
        .filter(|(_, refusal)| refusal.is_none())
        .map(|(function, _)| function.program)
        .collect();
    let object = open(config, mode, &good, true)
        .and_then(OpenObject::load)
        .map_err(|error| LoadError::from(explain(&error, config)))?;
    Ok(Loaded { object, mode, refused, first_choice })
}

// === impl Loaded ===

impl Loaded {
    /// Lets the programs run.
    pub(crate) fn attach(&self, config: &TcpProbeConfig) -> Attached {
        let previous = set_print(Some((PrintLevel::Warn, keep_text)));
        let mut attached = Attached::default();
        for (function, refusal) in FUNCTIONS.iter().zip(&self.refused) {
            let refusal = match refusal {
                Some(refusal) => Some(refusal.clone()),
                None => match attach(&self.object, function, self.mode) {
                    Ok(link) => {
                        attached.links.push(link);
                        None
                    }
                    Err(error) => Some(explain(&error, config)),
                },
            };
            let status = status(function, self.mode, refusal.as_ref(), &self.first_choice);
            attached.note(status, refusal);
        }
        set_print(previous);
        attached
    }
}

// === impl Attached ===

impl Attached {
    fn note(&mut self, status: ProgramStatus, refusal: Option<Refusal>) {
        self.programs.push(status);
        let Some(refusal) = refusal else { return };
        for reason in [Some(CoverageReason::ProgramMissing), refusal.reason].into_iter().flatten() {
            if !self.reasons.contains(&reason) {
                self.reasons.push(reason);
            }
        }
    }
}

fn status(
    function: &Function,
    mode: Mode,
    refusal: Option<&Refusal>,
    first_choice: &Refusal,
) -> ProgramStatus {
    let (state, reason) = match (refusal, mode) {
        (Some(refusal), _) => (ProgramState::Missing, refusal.text.clone()),
        (None, Mode::BtfWithStorage) => (ProgramState::Attached, String::new()),
        (None, _) => (ProgramState::Fallback, first_choice.text.clone()),
    };
    ProgramStatus {
        program: program_name(function.program, mode),
        function: function.name.to_owned(),
        state,
        reason,
        hook: format!("{}/{}", mode.section(), function.tracepoint),
    }
}

/// Whether the kernel takes these programs alone; nothing stays loaded.
fn try_load(config: &TcpProbeConfig, mode: Mode, programs: &[&str]) -> Result<(), Refusal> {
    if mode == Mode::Classic {
        for program in programs {
            classic::check(program).map_err(|error| Refusal {
                text: bounded(&error.to_string()),
                reason: Some(CoverageReason::NoKernelBtf),
            })?;
        }
    }
    open(config, mode, programs, false)
        .and_then(OpenObject::load)
        .map(drop)
        .map_err(|error| explain(&error, config))
}

fn open(
    config: &TcpProbeConfig,
    mode: Mode,
    programs: &[&str],
    with_pins: bool,
) -> libbpf_rs::Result<OpenObject> {
    take_text();
    let mut builder = ObjectBuilder::default();
    if let Some(btf) = &config.btf {
        builder.btf_custom_path(btf)?;
    }
    let bytes = if mode == Mode::Classic { CLASSIC_OBJECT } else { OBJECT };
    let mut object = builder.name("keelson_tcp")?.open_memory(bytes)?;
    for mut program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let is_wanted = programs.iter().any(|wanted| name == program_name(wanted, mode));
        program.set_autoload(is_wanted);
    }
    let settings = config.kernel_config(mode == Mode::BtfWithStorage);
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == ".rodata.config" {
            map.set_initial_value(settings.as_bytes())?;
        }
        if let Some(directory) = &config.pin_dir
            && with_pins
            && PINNED.contains(&name.as_str())
        {
            map.set_pin_path(directory.join(&name))?;
        }
    }
    Ok(object)
}

fn attach(object: &Object, function: &Function, mode: Mode) -> libbpf_rs::Result<Link> {
    take_text();
    let name = program_name(function.program, mode);
    let found = object.progs_mut().find(|program| program.name().to_string_lossy() == name);
    match found {
        Some(program) => program.attach(),
        None => Err(libbpf_rs::Error::from(std::io::Error::from_raw_os_error(2))),
    }
}

fn program_name(program: &str, mode: Mode) -> String {
    match mode {
        Mode::RawWithHash => format!("{program}_raw"),
        Mode::Classic => format!("{program}_classic"),
        Mode::BtfWithStorage | Mode::BtfWithHash => program.to_owned(),
    }
}

impl Mode {
    fn section(self) -> &'static str {
        match self {
            Self::RawWithHash => "raw_tp",
            Self::Classic => "tp",
            Self::BtfWithStorage | Self::BtfWithHash => "tp_btf",
        }
    }
}

/// The kernel's answer in words, with what helps.
fn explain(error: &libbpf_rs::Error, config: &TcpProbeConfig) -> Refusal {
    let log = take_text();
    let has_btf = config.btf.is_some() || std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    // The verifier's refusals are EACCES too, but it says what it dislikes.
    let is_verifier = log.contains("BEGIN PROG LOAD LOG");
    let (text, reason) = if error.kind() == ErrorKind::PermissionDenied && !is_verifier {
        let text =
            "the kernel does not permit it: add the capabilities BPF and PERFMON to the container";
        (text.to_owned(), Some(CoverageReason::MissingCapability))
    } else if !has_btf && !is_verifier {
        let text = "the kernel has no BTF (/sys/kernel/btf/vmlinux): name a BTF file with --btf";
        (text.to_owned(), Some(CoverageReason::NoKernelBtf))
    } else {
        (format!("{error}: {}", telling_line(&log)), None)
    };
    Refusal { text: bounded(&text), reason }
}

/// The line of libbpf's text that says most: the verifier's last before its statistics.
fn telling_line(log: &str) -> &str {
    let is_noise = |line: &str| {
        line.is_empty()
            || line.starts_with("processed ")
            || line.contains("-- END PROG LOAD LOG --")
    };
    let before_end = log.split("-- END PROG LOAD LOG --").next().unwrap_or(log);
    before_end.lines().map(str::trim).rfind(|line| !is_noise(line)).unwrap_or("no further word")
}

fn bounded(text: &str) -> String {
    let clean = text.chars().map(|c| if keelson_model::steers_terminal(c) { ' ' } else { c });
    let mut bounded = String::new();
    for c in clean {
        if bounded.len() + c.len_utf8() > limits::REASON_TEXT_BYTES {
            break;
        }
        bounded.push(c);
    }
    bounded
}

/// What libbpf said since the last attempt; it offers no other way to get the verifier's text.
static TEXT: Mutex<String> = Mutex::new(String::new());
/// Verifier logs can be long; the end tells.
const TEXT_BYTES: usize = 256 * 1024;

fn keep_text(_: PrintLevel, text: String) {
    let mut held = TEXT.lock().unwrap_or_else(PoisonError::into_inner);
    if held.len() + text.len() <= TEXT_BYTES {
        held.push_str(&text);
    } else if text.len() <= TEXT_BYTES {
        *held = text;
    }
}

fn take_text() -> String {
    std::mem::take(&mut TEXT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Directory of this layout's pins below a node's.
pub(crate) fn layout_directory() -> String {
    format!("{LAYOUTS}{}", layout::VERSION)
}

/// The layout whose pins lie in a directory of that name; none: it is not ours.
pub(crate) fn layout_of(directory: &str) -> Option<u16> {
    directory.strip_prefix(LAYOUTS)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use libbpf_rs::{
        HasSize,
        btf::{Btf, types},
    };

    use super::*;

    #[test]
    fn user_space_mirrors_every_shared_struct_field_by_field() {
        let path = concat!(env!("OUT_DIR"), "/tcp.bpf.o");
        let btf = Btf::from_path(path).unwrap();
        for (name, size, fields) in [
            ("tcp_header", size_of::<layout::TcpHeader>(), layout::TcpHeader::FIELDS),
            ("tcp_record", size_of::<layout::TcpRecord>(), layout::TcpRecord::FIELDS),
            (
                "tcp_cgroup_record",
                size_of::<layout::TcpCgroupRecord>(),
                layout::TcpCgroupRecord::FIELDS,
            ),
            ("tcp_series_key", size_of::<layout::TcpSeriesKey>(), layout::TcpSeriesKey::FIELDS),
            (
                "tcp_series_value",
                size_of::<layout::TcpSeriesValue>(),
                layout::TcpSeriesValue::FIELDS,
            ),
            ("tcp_config", size_of::<layout::TcpConfig>(), layout::TcpConfig::FIELDS),
            ("tcp_pin_set", size_of::<layout::TcpPinSet>(), layout::TcpPinSet::FIELDS),
        ] {
            let kernel: types::Struct<'_> = btf.type_by_name(name).expect(name);
            assert_eq!(kernel.size(), size, "{name}");
            let offset = |member: &types::StructMember<'_>| match member.attr {
                types::MemberAttr::Normal { offset } => offset as usize / 8,
                types::MemberAttr::BitField { .. } => panic!("{name} has a bit field"),
            };
            let members: Vec<(String, usize)> = kernel
                .iter()
                .map(|member| {
                    (member.name.unwrap().to_string_lossy().into_owned(), offset(&member))
                })
                .collect();
            let ours: Vec<(String, usize)> =
                fields.iter().map(|(field, offset)| ((*field).to_owned(), *offset)).collect();
            assert_eq!(members, ours, "{name}");
        }
    }

    #[test]
    fn the_verifiers_last_word_is_found() {
        let log = "libbpf: prog 'a': -- BEGIN PROG LOAD LOG --\n0: R1=ctx()\nunknown func bpf_x#9\n\
                   processed 41 insns (limit 1000000)\n-- END PROG LOAD LOG --\nlibbpf: failed to load\n";
        assert_eq!(telling_line(log), "unknown func bpf_x#9");
        assert_eq!(telling_line(""), "no further word");
    }

    #[test]
    fn a_reason_is_bounded_and_has_no_control_characters() {
        let text = bounded(&format!("a\u{1b}[31m{}", "ü".repeat(500)));
        assert!(text.len() <= limits::REASON_TEXT_BYTES && !text.contains('\u{1b}'));
    }
}
