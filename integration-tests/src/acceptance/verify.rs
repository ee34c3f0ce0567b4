//! `keelson-dev verify [LINE]`: the long form, recorded in `docs/verification.md`.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::bail;

use super::{Form, Outcome, bad_input, faults, fuzz, identity, installed, quiet, restart, values};
use crate::{cluster::Cluster, paths, process::run, step::say};

#[derive(Clone, Copy)]
enum Line {
    OnCluster(fn(&Cluster, Form) -> anyhow::Result<Outcome>),
    Alone(fn() -> anyhow::Result<Outcome>),
}

use Line::{Alone, OnCluster};

/// Lines with what they say.
const LINES: [(&str, &str, Line); 7] = [
    ("3.2", "ten faults of each kind: the right pod, in time, and nobody else", OnCluster(faults)),
    ("3.3", "what is observed adds up to what the traffic logged", OnCluster(values::values)),
    ("3.5", "twenty Applications, five minutes: no write", OnCluster(quiet::quiet)),
    ("3.6", "restarts under traffic and a fault", OnCluster(restart::restarts)),
    ("3.7", "bad input is answered with the remedy", OnCluster(bad_input::bad_input)),
    ("4.3", "who may send and who may see", OnCluster(identity::identity)),
    ("4.6", "fuzz targets, ten minutes each, without a finding", Alone(fuzz::fuzz)),
];

const HEAD: &str = "# Verification\n\nWritten by `./justw verify [LINE]`; each row is the last run of its line.\n\n| line | what | command | commit | date | held | figures |\n|---|---|---|---|---|---|---|\n";

/// The lines there are.
#[must_use]
pub fn names() -> [&'static str; LINES.len()] {
    LINES.map(|(name, _, _)| name)
}

/// Runs the lines asked for, all without one, and records what was seen.
///
/// # Errors
/// A line does not hold.
pub fn verify(wanted: &[String]) -> anyhow::Result<()> {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|line| line == name);
    let mut cluster = None;
    let mut failed = Vec::new();
    for (name, what, line) in LINES.into_iter().filter(|(name, ..)| is_wanted(name)) {
        say(&format!("== {name} {what}"));
        let outcome = match line {
            Alone(line) => line()?,
            OnCluster(line) => {
                let cluster: &Cluster = match &mut cluster {
                    Some(cluster) => cluster,
                    none => none.insert(installed()?),
                };
                line(cluster, Form::Long)?
            }
        };
        for text in outcome.figures.iter().chain(&outcome.failures) {
            say(&format!("   {text}"));
        }
        record(name, what, &outcome)?;
        if !outcome.failures.is_empty() {
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("did not hold: {}", failed.join(", "));
    }
    Ok(())
}

fn record(name: &str, what: &str, outcome: &Outcome) -> anyhow::Result<()> {
    let path: PathBuf = paths::tree().join("docs/verification.md");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let row_name = |row: &str| row.split('|').nth(1).map(|cell| cell.trim().to_owned());
    let mut rows: BTreeMap<String, String> = text
        .lines()
        .filter(|line| line.starts_with("| 3.") || line.starts_with("| 4."))
        .filter_map(|line| Some((row_name(line)?, line.to_owned())))
        .collect();
    let commit =
        run("git", &["-C", &paths::tree().to_string_lossy(), "rev-parse", "--short", "HEAD"])?;
    let date = jiff::Zoned::now().date();
    let held = if outcome.failures.is_empty() { "yes" } else { "NO" };
    let cells: Vec<String> = outcome
        .figures
        .iter()
        .chain(&outcome.failures)
        .map(|text| text.replace('|', "/").replace('\n', " "))
        .collect();
    let row = format!(
        "| {name} | {what} | `./justw verify {name}` | {} | {date} | {held} | {} |",
        commit.trim(),
        cells.join("<br>")
    );
    rows.insert(name.to_owned(), row);
    let rows: Vec<String> = rows.into_values().collect();
    Ok(fs::write(&path, format!("{HEAD}{}\n", rows.join("\n")))?)
}
