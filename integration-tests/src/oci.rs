//! An OCI archive of one layer, made without a docker daemon: the same input gives the same bytes.

use std::fs::File;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use flate2::{Compression, GzBuilder};
use serde_json::json;
use sha2::{Digest, Sha256};

/// What an image holds.
#[derive(Debug, Clone)]
pub struct Image {
    /// Full name with tag.
    pub name: String,
    /// The command that runs.
    pub entrypoint: Vec<String>,
    /// Files and links, in order.
    pub entries: Vec<Entry>,
}

/// One thing in an image, at an absolute path.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A program, copied from the host.
    Program { at: String, from: PathBuf },
    /// A symbolic link.
    Link { at: String, to: String },
    /// An empty directory.
    Directory { at: String },
}

/// Writes `image` to `archive` and returns the digest of its manifest.
///
/// # Errors
/// When a file cannot be read or the archive not be written.
pub fn write(image: &Image, archive: &Path) -> anyhow::Result<String> {
    let layer = layer(image)?;
    let mut packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::fast());
    packed.write_all(&layer)?;
    let packed = packed.finish()?;
    let configuration = serde_json::to_vec(&json!({
        "architecture": "amd64", "os": "linux",
        "config": {"Entrypoint": image.entrypoint, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    }))?;
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                   "digest": digest(&configuration), "size": configuration.len()},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                    "digest": digest(&packed), "size": packed.len()}],
    }))?;
    let tag = image.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    let index = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json",
                       "digest": digest(&manifest), "size": manifest.len(),
                       "annotations": {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": tag},
                       "platform": {"architecture": "amd64", "os": "linux"}}],
    }))?;
    let file = File::create(archive).with_context(|| format!("make {}", archive.display()))?;
    let mut out = tar::Builder::new(file);
    append(&mut out, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut out, "index.json", &index)?;
    for blob in [&configuration, &manifest, &packed] {
        append(&mut out, &format!("blobs/sha256/{}", digest(blob).trim_start_matches("sha256:")), blob)?;
    }
    out.into_inner()?.flush()?;
    Ok(digest(&manifest))
}

fn layer(image: &Image) -> anyhow::Result<Vec<u8>> {
    let mut out = tar::Builder::new(Vec::new());
    let mut made = std::collections::BTreeSet::new();
    for entry in &image.entries {
        let (Entry::Program { at, .. } | Entry::Link { at, .. } | Entry::Directory { at }) = entry;
        let at = at.trim_start_matches('/');
        let parents: Vec<&Path> = Path::new(at).ancestors().skip(1).filter(|path| *path != Path::new("")).collect();
        for parent in parents.into_iter().rev() {
            if made.insert(parent.to_path_buf()) {
                append_directory(&mut out, &parent.to_string_lossy(), 0o755)?;
            }
        }
        match entry {
            Entry::Program { from, .. } => {
                let data = std::fs::read(from).with_context(|| format!("read {}", from.display()))?;
                append(&mut out, at, &data)?;
            }
            Entry::Link { to, .. } => {
                let mut header = header(tar::EntryType::Symlink, 0o777, 0);
                out.append_link(&mut header, at, to)?;
            }
            Entry::Directory { .. } => {
                made.insert(PathBuf::from(at));
                append_directory(&mut out, at, 0o1777)?;
            }
        }
    }
    Ok(out.into_inner()?)
}

fn header(kind: tar::EntryType, mode: u32, size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn append(out: &mut tar::Builder<impl Write>, at: &str, data: &[u8]) -> std::io::Result<()> {
    let mut header = header(tar::EntryType::Regular, 0o755, data.len());
    out.append_data(&mut header, at, Cursor::new(data))
}

fn append_directory(out: &mut tar::Builder<impl Write>, at: &str, mode: u32) -> std::io::Result<()> {
    let mut header = header(tar::EntryType::Directory, mode, 0);
    out.append_data(&mut header, format!("{at}/"), std::io::empty())
}

fn digest(data: &[u8]) -> String {
    let hex: String = Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_input_gives_the_same_archive() {
        let home = std::env::temp_dir().join(format!("keelson-oci-{}", std::process::id()));
        std::fs::create_dir_all(&home).expect("a directory");
        let program = home.join("program");
        std::fs::write(&program, "content").expect("a file");
        let image = Image {
            name: "localhost/test:1".into(),
            entrypoint: vec!["/bin/program".into()],
            entries: vec![
                Entry::Program { at: "/bin/program".into(), from: program },
                Entry::Link { at: "/bin/alias".into(), to: "program".into() },
                Entry::Directory { at: "/tmp".into() },
            ],
        };
        let (one, two) = (home.join("one.tar"), home.join("two.tar"));
        assert_eq!(write(&image, &one).expect("written"), write(&image, &two).expect("written"));
        assert_eq!(std::fs::read(one).expect("read"), std::fs::read(two).expect("read"));
        std::fs::remove_dir_all(home).expect("ours");
    }
}
