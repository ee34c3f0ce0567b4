//! Every program on every kernel line, in guests: loaded, attached, and counting exactly. The table
//! is `docs/kernels.md`; `UPDATE=1` writes it.

use std::{env, fs};

use keelson_integration_tests::{
    guest::{self, Kernel},
    images, paths,
};

const CONNECTIONS: u64 = 20;
const HEAD: &str = "# Kernels\n\nWritten by `UPDATE=1 ./justw kernel`: every program of the probe `tcp` on Debian's cloud kernels in QEMU guests, where\neach also counted 20 of 20 connections over loopback exactly at both ends. Behind the semicolon: where the kernel's BTF is hidden\nand none given, by classic tracepoints (20 of 20 outbound connections; `-`: not there, and named in the node's coverage).\n\n";

/// Between what the probe says with the kernel's BTF and what it says without.
const WITHOUT: &str = "without BTF";

fn script() -> String {
    let probe = format!("/program --self-test {CONNECTIONS}");
    format!("{probe}\necho {WITHOUT}\n/bin/busybox mount -t tmpfs none /sys/kernel/btf\n{probe}\n")
}

#[test]
fn all_programs_load_on_all_kernels_and_count_exactly() {
    let program = images::program("keelson-probe").unwrap();
    let kernels = guest::kernels().unwrap_or_else(|error| panic!("{error:#}"));
    let mut columns = Vec::new();
    for kernel in &kernels {
        let lines = guest::boot(kernel, &program, &script());
        let lines = lines.unwrap_or_else(|error| panic!("{error:#}"));
        let at = lines.iter().position(|line| line == WITHOUT).unwrap();
        let (with, without) = lines.split_at(at);
        let says = |lines: &[String], expected: String| {
            assert!(lines.contains(&expected), "{}: no {expected:?} in {lines:#?}", kernel.release);
        };
        for (side, sent, received) in [("Outbound", 64, 1024), ("Inbound", 1024, 64)] {
            let (sent, received) = (sent * CONNECTIONS, received * CONNECTIONS);
            let counts = format!("opened={CONNECTIONS} closed={CONNECTIONS}");
            says(with, format!("self-test {side} {counts} sent={sent} received={received}"));
        }
        // A connection that is open when a period ends gives a progress record besides.
        let produced = with.iter().find_map(|line| line.strip_prefix("ledger produced="));
        let produced = produced.and_then(|rest| rest.split(' ').next()?.parse().ok());
        let produced: u64 = produced.unwrap_or(0);
        assert!(produced >= 2 * CONNECTIONS, "{}: {with:#?}", kernel.release);
        says(with, format!("ledger produced={produced} received={produced} lost=0"));
        let counts = format!("opened={CONNECTIONS} closed={CONNECTIONS} sent=0 received=0");
        says(without, format!("self-test Outbound {counts}"));
        let classic = programs(without);
        let with = programs(with);
        assert!(with.iter().all(|(_, how)| how != MISSING), "{}: {with:?}", kernel.release);
        columns.push(with.into_iter().zip(classic).collect());
    }
    let table = table(&kernels, &columns);
    let path = paths::tree().join("docs/kernels.md");
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, format!("{HEAD}{table}")).unwrap();
    }
    // Releases move on; what runs how on which line must not without being written down.
    let held = fs::read_to_string(&path).unwrap_or_default();
    let rows = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("| `")).map(String::from).collect()
    };
    assert_eq!(rows(&held), rows(&table), "docs/kernels.md is stale; run UPDATE=1 ./justw kernel");
}

const MISSING: &str = "-";

/// Function and how it runs, in the order of the probe's table.
fn programs(lines: &[String]) -> Vec<(String, String)> {
    let program = |line: &String| {
        let mut words = line.strip_prefix("program ")?.split(' ');
        let (function, state, hook) = (words.next()?, words.next()?, words.next()?);
        // The one fallback of BTF tracepoints is the hash in place of socket storage.
        let how = match (state, hook.split('/').next()) {
            ("missing", _) => MISSING,
            ("attached", _) => "yes",
            (_, Some("tp_btf")) => "yes, state in a hash",
            (_, Some("tp")) => "outbound only",
            _ => "raw tracepoint",
        };
        Some((function.to_owned(), how.to_owned()))
    };
    lines.iter().filter_map(program).collect()
}

/// A function with how it runs, and the same without BTF.
type Row = ((String, String), (String, String));

fn table(kernels: &[Kernel], columns: &[Vec<Row>]) -> String {
    let heads: Vec<String> =
        kernels.iter().map(|kernel| format!("{} ({})", kernel.line, kernel.release)).collect();
    let mut text =
        format!("| function | {} |\n|{}\n", heads.join(" | "), "---|".repeat(kernels.len() + 1));
    for (index, ((function, _), _)) in columns[0].iter().enumerate() {
        let cell = |column: &Vec<Row>| {
            let ((_, with), (_, without)) = &column[index];
            format!("{with}; {without}")
        };
        let cells: Vec<String> = columns.iter().map(cell).collect();
        text.push_str(&format!("| `{function}` | {} |\n", cells.join(" | ")));
    }
    text
}
