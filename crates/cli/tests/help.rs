//! `docs/cli.md` is the help of every command, word for word; `UPDATE=1` writes it anew.

#![allow(clippy::expect_used, reason = "a broken expectation is a failed test")]

use std::{fmt::Write as _, path::Path};

use clap::CommandFactory;
use keelson_cli::args::Cli;

fn document() -> String {
    let mut text = String::from(
        "# `keelson` on the command line\n\nGenerated from the program's own help by \
         `UPDATE=1 cargo test -p keelson-cli --test help`; also reached as `kubectl keelson`.\n",
    );
    let mut root = Cli::command().term_width(100);
    root.build();
    section(&mut text, &mut root, "keelson");
    text
}

fn section(text: &mut String, command: &mut clap::Command, path: &str) {
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    write!(text, "\n## `{path}`\n\n```text\n{}\n```\n", lines.join("\n").trim_end())
        .expect("a string takes everything");
    let names: Vec<String> =
        command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names.iter().filter(|name| *name != "help") {
        if let Some(sub) = command.find_subcommand_mut(name) {
            section(text, sub, &format!("{path} {name}"));
        }
    }
}

#[test]
fn the_documented_help_is_the_programs_own() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let fresh = document();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &fresh).expect("docs/cli.md can be written");
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == fresh,
        "docs/cli.md is stale; run: UPDATE=1 cargo test -p keelson-cli --test help"
    );
}
