//! Running a program to its end, with an error that says which one and what it printed.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};

/// Runs `command` and returns its standard output.
///
/// # Errors
/// When it cannot be started or does not succeed; the error carries what it printed.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let done = command.stdin(Stdio::null()).output().with_context(|| format!("start {}", shown(command)))?;
    finished(command, &done)
}

/// As [`output`], with `input` on standard input.
///
/// # Errors
/// As [`output`].
pub fn output_of_input(command: &mut Command, input: &str) -> anyhow::Result<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", shown(command)))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends before it has read everything says why on standard error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let done = child.wait_with_output().with_context(|| format!("wait for {}", shown(command)))?;
    finished(command, &done)
}

fn finished(command: &Command, done: &Output) -> anyhow::Result<String> {
    if !done.status.success() {
        let printed = String::from_utf8_lossy(&done.stderr);
        let tail: Vec<&str> = printed.lines().rev().take(20).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        bail!("{} failed ({}): {}", shown(command), done.status, tail.join("\n"));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}
