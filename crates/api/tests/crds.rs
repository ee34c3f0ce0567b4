//! The checked-in CRDs are those of the types; `UPDATE=1` writes them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{env, fs, path::Path};

use keelson_api::crds;
use serde_yaml::Value;

#[test]
fn the_checked_in_crds_are_those_of_the_types() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    for (name, fresh) in crds::all().unwrap() {
        let path = directory.join(&name);
        if env::var_os("UPDATE").is_some() {
            fs::create_dir_all(&directory).unwrap();
            fs::write(&path, &fresh).unwrap();
        }
        let held = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            held == fresh,
            "{} is stale; run `UPDATE=1 cargo test -p keelson-api`",
            path.display()
        );
        assert!(fresh.len() < 200_000, "{name} has {} bytes", fresh.len());
    }
}

#[test]
fn every_field_has_a_description() {
    for (name, text) in crds::all().unwrap() {
        let crd: Value = serde_yaml::from_str(&text).unwrap();
        let versions = crd["spec"]["versions"].as_sequence().unwrap();
        for version in versions {
            let schema = &version["schema"]["openAPIV3Schema"];
            assert_described(schema, &format!("{name}: "));
        }
    }
}

fn assert_described(schema: &Value, path: &str) {
    if let Some(properties) = schema["properties"].as_mapping() {
        for (key, property) in properties {
            let path = format!("{path}.{}", key.as_str().unwrap());
            assert!(property["description"].is_string(), "{path} has no description");
            assert_described(property, &path);
        }
    }
    if schema["items"].is_mapping() {
        assert_described(&schema["items"], &format!("{path}[]"));
    }
}
