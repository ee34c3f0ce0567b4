//! ARCHITECTURE.md against the tree: its files exist, and its table of crates is what cargo says.

use std::{collections::BTreeMap, fs};

use serde_json::Value;

use crate::{paths::tree, process::run};

fn text() -> String {
    fs::read_to_string(tree().join("ARCHITECTURE.md")).unwrap()
}

#[test]
fn every_file_that_is_named_exists() {
    let text = text();
    let is_path_char = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
    let words = text.split(|c| !is_path_char(c)).map(|word| word.trim_matches('.'));
    let roots = ["crates/", "ebpf-src/", "docs/", "deploy/", "proto/", "integration-tests/"];
    let named: Vec<&str> =
        words.filter(|word| roots.iter().any(|root| word.starts_with(root))).collect();
    assert!(named.len() > 20, "{named:?}");
    let missing: Vec<_> = named.iter().filter(|path| !tree().join(path).exists()).collect();
    assert!(missing.is_empty(), "not in the tree: {missing:?}");
}

#[test]
fn the_table_of_crates_is_what_cargo_says() {
    let text = text();
    let cell = |row: &str, index: usize| row.split('|').nth(index).unwrap().trim().to_owned();
    let names = |cell: String| {
        let mut names: Vec<String> =
            cell.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        names.sort();
        names
    };
    let written: BTreeMap<String, Vec<String>> = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|row| (cell(row, 1).trim_matches('`').to_owned(), names(cell(row, 3))))
        .collect();
    let manifest = tree().join("Cargo.toml").to_string_lossy().into_owned();
    let metadata = run(
        "cargo",
        &["metadata", "--no-deps", "--locked", "--format-version=1", "--manifest-path", &manifest],
    )
    .unwrap();
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let ours = |name: &Value| name.as_str().unwrap().strip_prefix("keelson-").map(str::to_owned);
    let is_normal = |dependency: &&Value| dependency["kind"].is_null();
    let found: BTreeMap<String, Vec<String>> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let dependencies = dependencies.filter(is_normal);
            let mut dependencies: Vec<String> =
                dependencies.filter_map(|dependency| ours(&dependency["name"])).collect();
            dependencies.sort();
            (ours(&package["name"]).unwrap(), dependencies)
        })
        .collect();
    assert_eq!(written, found);
}
