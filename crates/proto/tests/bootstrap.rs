//! Regenerates the wire's code and fails when what is checked in differs. `UPDATE=1` writes it.

use std::{env, fs, path::Path};

const PROTOS: [&str; 2] =
    ["keelson/telemetry/v1alpha1/telemetry.proto", "keelson/query/v1alpha1/query.proto"];
const DESCRIPTORS: &str = "descriptors.bin";

#[test]
fn the_generated_code_is_that_of_the_protos() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().unwrap();
    let descriptors = protox::compile(PROTOS, [root.join("../../proto")]).unwrap();
    fs::write(out.path().join(DESCRIPTORS), prost_types_bytes(&descriptors)).unwrap();
    tonic_prost_build::configure().out_dir(out.path()).compile_fds(descriptors).unwrap();

    let checked_in = root.join("src/gen");
    let is_update = env::var_os("UPDATE").is_some();
    let mut stale = Vec::new();
    for entry in fs::read_dir(out.path()).unwrap() {
        let name = entry.unwrap().file_name();
        let fresh = fs::read(out.path().join(&name)).unwrap();
        let target = checked_in.join(&name);
        if is_update {
            fs::create_dir_all(&checked_in).unwrap();
            fs::write(&target, &fresh).unwrap();
        } else if fs::read(&target).ok().as_deref() != Some(&fresh) {
            stale.push(name);
        }
    }
    assert!(stale.is_empty(), "stale: {stale:?}; run `UPDATE=1 cargo test -p keelson-proto`");
}

fn prost_types_bytes(descriptors: &prost_types::FileDescriptorSet) -> Vec<u8> {
    use prost::Message;
    descriptors.encode_to_vec()
}
