//! Programs built once from pinned Go modules into the cache, keyed by version and recipe.
//!
//! A recipe is a directory of `hack/tools` (go.mod, go.sum, perhaps main.go) and the flags below;
//! any change of it makes a new key, so an old cache is never mistaken for a new one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use sha2::{Digest, Sha256};

use crate::{command, layout, progress};

/// How one program is built.
struct Recipe {
    name: &'static str,
    version: &'static str,
    package: &'static str,
    linker_flags: &'static str,
}

const KUBERNETES: Recipe = Recipe {
    name: "kubernetes",
    version: "v1.34.4",
    package: ".",
    // Without a version in it kubectl cannot parse its own.
    linker_flags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.4 \
                   -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34",
};
const ETCD: Recipe = Recipe { name: "etcd", version: "v3.6.4", package: ".", linker_flags: "-s -w" };
const COREDNS: Recipe = Recipe {
    name: "coredns",
    version: "v1.12.4",
    package: "github.com/coredns/coredns",
    linker_flags: "-s -w",
};

/// The built programs.
#[derive(Debug, Clone)]
pub struct Tools {
    /// All of Kubernetes; the first argument picks the program.
    pub kubernetes: PathBuf,
    /// The etcd server.
    pub etcd: PathBuf,
    /// The DNS server.
    pub coredns: PathBuf,
}

// === impl Tools ===

impl Tools {
    /// Builds what the cache lacks.
    ///
    /// # Errors
    /// When Go is missing or a build fails.
    pub fn ensure() -> anyhow::Result<Self> {
        Ok(Self { kubernetes: KUBERNETES.ensure()?, etcd: ETCD.ensure()?, coredns: COREDNS.ensure()? })
    }
}

// === impl Recipe ===

impl Recipe {
    fn ensure(&self) -> anyhow::Result<PathBuf> {
        let source = layout::source_dir().join("hack/tools").join(self.name);
        let key = self.key(&source).with_context(|| format!("read {}", source.display()))?;
        let home = layout::cache_dir().join("tools").join(format!("{}-{}-{key}", self.name, self.version));
        let program = home.join(self.name);
        if program.exists() {
            return Ok(program);
        }
        std::fs::create_dir_all(&home).with_context(|| format!("make {}", home.display()))?;
        // Built under another name first: an interrupted build leaves no half program.
        let fresh = home.join(format!("{}.{}", self.name, std::process::id()));
        progress::step(&format!("build {} {}", self.name, self.version), || {
            command::output(
                Command::new("go")
                    .args(["build", "-mod=readonly", "-ldflags", self.linker_flags, "-o"])
                    .arg(&fresh)
                    .arg(self.package)
                    .current_dir(&source)
                    .env("CGO_ENABLED", "0")
                    .env("GOTOOLCHAIN", "local"),
            )
        })
        .context("building tools needs Go 1.25 or newer in PATH and access to Go modules")?;
        std::fs::rename(&fresh, &program).with_context(|| format!("place {}", program.display()))?;
        Ok(program)
    }

    fn key(&self, source: &Path) -> std::io::Result<String> {
        let mut hash = Sha256::new();
        hash.update(self.package);
        hash.update(self.linker_flags);
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(source)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        files.sort();
        for file in files {
            hash.update(file.file_name().unwrap_or_default().as_encoded_bytes());
            hash.update(std::fs::read(file)?);
        }
        Ok(hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect())
    }
}
