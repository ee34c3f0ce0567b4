//! Every program on every kernel line, in guests: loaded, attached, and counting exactly. The table
//! is `docs/kernels.md`; `UPDATE=1` writes it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{env, fs, path::Path, process::Command};

use keelson_integration_tests::{
    guest::{self, Kernel},
    paths,
};

const CONNECTIONS: u64 = 20;
const HEAD: &str = "# Kernels\n\nWritten by `UPDATE=1 ./justw kernel`: every program of the probe `tcp` on Debian's cloud kernels in QEMU guests, where\neach also counted 20 of 20 connections over loopback exactly at both ends.\n\n";

/// The static program, built as the images are.
fn probe() -> std::path::PathBuf {
    let load = Path::new(env!("CARGO_BIN_EXE_keelson-load"));
    let status = Command::new("cargo")
        .args([
            "build",
            "--quiet",
            "--profile",
            "ci",
            "-p",
            "keelson-probes",
            "--bin",
            "keelson-probe",
        ])
        .arg("--target-dir")
        .arg(load.ancestors().nth(3).unwrap())
        .current_dir(paths::tree())
        .status()
        .unwrap();
    assert!(status.success(), "cargo could not build keelson-probe");
    load.with_file_name("keelson-probe")
}

#[test]
fn all_programs_load_on_all_kernels_and_count_exactly() {
    let program = probe();
    let kernels = guest::kernels().unwrap_or_else(|error| panic!("{error:#}"));
    let mut columns = Vec::new();
    for kernel in &kernels {
        let lines = guest::boot(kernel, &program, &format!("--self-test {CONNECTIONS}"))
            .unwrap_or_else(|error| panic!("{error:#}"));
        for side in ["Outbound", "Inbound"] {
            let (sent, received) = if side == "Outbound" { (64, 1024) } else { (1024, 64) };
            let expected = format!(
                "self-test {side} opened={CONNECTIONS} closed={CONNECTIONS} sent={} received={}",
                sent * CONNECTIONS,
                received * CONNECTIONS
            );
            assert!(lines.contains(&expected), "{}: no {expected:?} in {lines:#?}", kernel.release);
        }
        let ledger = format!("ledger produced={0} received={0} lost=0", 2 * CONNECTIONS);
        assert!(lines.contains(&ledger), "{}: no {ledger:?} in {lines:#?}", kernel.release);
        columns.push(programs(kernel, &lines));
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

/// Function and how it runs, in the order of the probe's table.
fn programs(kernel: &Kernel, lines: &[String]) -> Vec<(String, String)> {
    let program = |line: &String| {
        let mut words = line.strip_prefix("program ")?.split(' ');
        let (function, state, hook) = (words.next()?, words.next()?, words.next()?);
        assert_ne!(state, "missing", "{}: {line}", kernel.release);
        // The one fallback of BTF tracepoints is the hash in place of socket storage.
        let how = match (state, hook.split('/').next()) {
            ("attached", _) => "yes",
            (_, Some("tp_btf")) => "yes, state in a hash",
            _ => "raw tracepoint",
        };
        Some((function.to_owned(), how.to_owned()))
    };
    lines.iter().filter_map(program).collect()
}

fn table(kernels: &[Kernel], columns: &[Vec<(String, String)>]) -> String {
    let heads: Vec<String> =
        kernels.iter().map(|kernel| format!("{} ({})", kernel.line, kernel.release)).collect();
    let mut text =
        format!("| function | {} |\n|{}\n", heads.join(" | "), "---|".repeat(kernels.len() + 1));
    for (index, (function, _)) in columns[0].iter().enumerate() {
        let cells: Vec<&str> = columns.iter().map(|column| column[index].1.as_str()).collect();
        text.push_str(&format!("| `{function}` | {} |\n", cells.join(" | ")));
    }
    text
}
