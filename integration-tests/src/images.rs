//! OCI archives without a docker daemon: one static binary each, `FROM scratch`, the same bytes for
//! the same content.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use flate2::{Compression, GzBuilder};
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::{paths, step::step};

/// An image's content.
#[derive(Clone, Debug)]
pub struct Image {
    /// Full name with tag.
    pub name: String,
    /// What it runs.
    pub entrypoint: Vec<String>,
    /// Path in the image to file on this machine.
    pub files: Vec<(String, PathBuf)>,
    /// Path in the image to target.
    pub links: Vec<(String, String)>,
}

/// Binaries of ours that run in the cluster.
const BINARIES: [&str; 4] =
    ["keelson-operator", "keelson-collector", "keelson-agent", "keelson-load"];

/// Builds the binaries with the profile `ci` and gives their images.
///
/// # Errors
/// They cannot be built.
pub fn build() -> anyhow::Result<Vec<Image>> {
    step("building the programs (profile ci)", build_programs)?;
    let directory = directory();
    let image = |binary: &&str| Image {
        name: format!("keelson.dev/{binary}:dev"),
        entrypoint: vec![format!("/{binary}")],
        files: vec![(format!("/{binary}"), directory.join(binary))],
        links: Vec::new(),
    };
    Ok(BINARIES.iter().map(image).collect())
}

/// Builds the programs as the images are built, and gives one's file.
///
/// # Errors
/// They cannot be built.
pub fn program(binary: &str) -> anyhow::Result<PathBuf> {
    build_programs()?;
    Ok(directory().join(binary))
}

/// With the same words as the `justfile`, so that nothing is built twice.
fn build_programs() -> anyhow::Result<()> {
    let arguments = ["build", "--quiet", "--locked", "--profile", "ci", "--workspace", "--bins"];
    let mut command = Command::new("cargo");
    // What cargo tells a test of its package, a build within the test would take for a change of its
    // own: ring and all that stands on it would be built anew, and anew again outside.
    let told = std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        let is_setting = name == "CARGO_HOME" || name.starts_with("CARGO_TARGET");
        name == "LD_LIBRARY_PATH" || (name.starts_with("CARGO") && !is_setting)
    });
    for name in told {
        command.env_remove(name);
    }
    let status = command.args(arguments).current_dir(paths::tree()).status();
    if !status.context("cannot run cargo")?.success() {
        bail!("cargo could not build the programs");
    }
    Ok(())
}

fn directory() -> PathBuf {
    target().join("x86_64-unknown-linux-gnu/ci")
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| paths::tree().join("target"), PathBuf::from)
}

/// Writes an image as an OCI archive and gives its digest.
///
/// # Errors
/// A file cannot be read or the archive not written.
pub fn write_archive(image: &Image, archive: &Path) -> anyhow::Result<String> {
    let layer = layer(image)?;
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::fast());
    gzip.write_all(&layer)?;
    let compressed = gzip.finish()?;
    let config = serde_json::to_vec(&json!({
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": image.entrypoint, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    }))?;
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &compressed)],
    }))?;
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    entry["annotations"] = json!({"io.containerd.image.name": image.name});
    entry["platform"] = json!({"architecture": "amd64", "os": "linux"});
    let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": [entry]}))?;
    let mut builder = Builder::new(File::create(archive)?);
    append(&mut builder, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
    append(&mut builder, "index.json", &index, 0o644)?;
    for blob in [&config, &manifest, &compressed] {
        let name = digest(blob).replace(':', "/");
        append(&mut builder, &format!("blobs/{name}"), blob, 0o644)?;
    }
    builder.finish()?;
    Ok(digest(&manifest))
}

fn layer(image: &Image) -> anyhow::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for (path, source) in &image.files {
        let content =
            fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        append(&mut builder, path.trim_start_matches('/'), &content, 0o755)?;
    }
    for (path, target) in &image.links {
        let mut header = header(0, 0o777);
        header.set_entry_type(EntryType::Symlink);
        builder.append_link(&mut header, path.trim_start_matches('/'), target)?;
    }
    Ok(builder.into_inner()?)
}

fn append<W: Write>(
    builder: &mut Builder<W>,
    path: &str,
    content: &[u8],
    mode: u32,
) -> anyhow::Result<()> {
    let mut header = header(content.len() as u64, mode);
    Ok(builder.append_data(&mut header, path, content)?)
}

fn header(size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header
}

fn descriptor(media_type: &str, blob: &[u8]) -> serde_json::Value {
    json!({"mediaType": media_type, "digest": digest(blob), "size": blob.len()})
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_gives_the_same_digest() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a");
        fs::write(&file, "program").unwrap();
        let image = Image {
            name: "keelson.dev/a:dev".into(),
            entrypoint: vec!["/a".into()],
            files: vec![("/a".into(), file.clone())],
            links: vec![("/b".into(), "a".into())],
        };
        let archive = directory.path().join("a.tar");
        let first = write_archive(&image, &archive).unwrap();
        assert_eq!(write_archive(&image, &archive).unwrap(), first);
        fs::write(&file, "other").unwrap();
        assert_ne!(write_archive(&image, &archive).unwrap(), first);
    }
}
