//! The images of the project and of the test workloads: built from static binaries, loaded into nodes.
//!
//! A node keeps the digest of each archive it has taken, so that an unchanged image costs nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::layout::{Layout, NODES, cache_dir, source_dir, target_dir};
use crate::node::ctr;
use crate::oci::{self, Entry, Image};
use crate::{command, progress};

/// The build target of the whole tree, as `.cargo/config.toml` sets it.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// What the busybox image calls by short names.
const APPLETS: [&str; 12] =
    ["sh", "cat", "echo", "httpd", "id", "ip", "ls", "nc", "nslookup", "sleep", "wget", "true"];

/// (package, binary) of each image `keelson.dev/<binary>:dev`.
const BINARIES: [(&str, &str); 4] = [
    ("keelson-operator", "keelson-operator"),
    ("keelson-agent", "keelson-agent"),
    ("keelson-collector", "keelson-collector"),
    ("keelson-integration-tests", "keelson-load"),
];

/// Builds the named images, or all, into archives of the cache.
///
/// # Errors
/// When a name is unknown, a build fails or an archive cannot be written.
pub fn build(names: &[String]) -> anyhow::Result<()> {
    if let Some(unknown) = names.iter().find(|name| BINARIES.iter().all(|(_, binary)| binary != name)) {
        let known: Vec<&str> = BINARIES.iter().map(|(_, binary)| *binary).collect();
        bail!("no image named {unknown}; there are {}", known.join(", "));
    }
    let wanted: Vec<_> =
        BINARIES.iter().filter(|(_, binary)| names.is_empty() || names.iter().any(|name| name == binary)).collect();
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--profile", "ci", "--target-dir"]).arg(target_dir()).current_dir(source_dir());
    for (package, binary) in &wanted {
        cargo.args(["--package", package, "--bin", binary]);
    }
    progress::step("cargo build --profile ci", || command::output(&mut cargo))?;
    for (_, binary) in wanted {
        let image = Image {
            name: format!("keelson.dev/{binary}:dev"),
            entrypoint: vec![format!("/bin/{binary}")],
            entries: vec![
                Entry::Program {
                    at: format!("/bin/{binary}"),
                    from: target_dir().join(TARGET).join("ci").join(binary),
                },
                Entry::Directory { at: "/tmp".into() },
            ],
        };
        progress::step(&format!("image {}", image.name), || store(&image))?;
    }
    Ok(())
}

/// Imports every built image into both nodes; one whose digest a node has is skipped.
///
/// # Errors
/// When an import fails.
pub fn load(layout: &Layout) -> anyhow::Result<()> {
    for node in NODES {
        for (_, binary) in BINARIES {
            let archive = archive(&format!("keelson.dev/{binary}:dev"));
            if archive.exists() {
                import(layout, node.name, &archive)?;
            }
        }
    }
    Ok(())
}

/// Imports the images that a node cannot do without: the sandbox's and busybox.
///
/// # Errors
/// When busybox is missing or an import fails.
pub fn load_base(layout: &Layout, node: &str) -> anyhow::Result<()> {
    let busybox = Entry::Program { at: "/bin/busybox".into(), from: "/bin/busybox".into() };
    let sleep = || ["/bin/busybox", "sleep", "infinity"].map(String::from).to_vec();
    let mut entries = vec![busybox.clone()];
    entries.extend(APPLETS.map(|applet| Entry::Link { at: format!("/bin/{applet}"), to: "busybox".into() }));
    entries.push(Entry::Directory { at: "/tmp".into() });
    let images = [
        // A sandbox's first process only has to stay; the runtime kills it.
        Image { name: "localhost/pause:1".into(), entrypoint: sleep(), entries: vec![busybox] },
        Image { name: "localhost/busybox:1".into(), entrypoint: sleep(), entries },
    ];
    for image in images {
        if !archive(&image.name).exists() {
            store(&image)?;
        }
        import(layout, node, &archive(&image.name))?;
    }
    Ok(())
}

fn store(image: &Image) -> anyhow::Result<()> {
    let archive = archive(&image.name);
    std::fs::create_dir_all(archive.parent().unwrap_or(Path::new("/")))?;
    let fresh = archive.with_extension(format!("{}.tar", std::process::id()));
    let digest = oci::write(image, &fresh).with_context(|| format!("build image {}", image.name))?;
    std::fs::write(digest_of(&archive), digest)?;
    Ok(std::fs::rename(fresh, archive)?)
}

fn import(layout: &Layout, node: &str, archive: &Path) -> anyhow::Result<()> {
    let taken = layout.node(node).join("images.json");
    let mut digests: BTreeMap<PathBuf, String> =
        std::fs::read(&taken).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let digest = std::fs::read_to_string(digest_of(archive))?;
    if digests.get(archive) == Some(&digest) {
        return Ok(());
    }
    progress::step(&format!("import {} into {node}", archive.display()), || {
        ctr(layout, node, &["images", "import", &archive.display().to_string()])
    })?;
    digests.insert(archive.to_path_buf(), digest);
    Ok(std::fs::write(taken, serde_json::to_vec(&digests)?)?)
}

fn archive(image: &str) -> PathBuf {
    cache_dir().join("images").join(format!("{}.tar", image.replace(['/', ':'], "_")))
}

fn digest_of(archive: &Path) -> PathBuf {
    archive.with_extension("digest")
}
