//! Other kernels: Debian's cloud kernels booted in QEMU with software emulation, a static program in
//! an initramfs, and its lines read from the serial console.
//!
//! The verdict is what the guest printed behind `@@ `: qemu ends with success whatever happened
//! inside, so that no line is a failure.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

use crate::{paths, process::run, step::step, tools};

/// Lines of kernels: what they are called, and the names of Debian's packages of them.
pub const LINES: [(&str, &str); 5] = [
    ("5.10", r"^linux-image-5\.10\.0-[0-9]+-cloud-amd64$"),
    ("6.1", r"^linux-image-6\.1\.0-[0-9]+-cloud-amd64$"),
    ("6.12", r"^linux-image-6\.12\.[0-9]+\+deb13-cloud-amd64$"),
    ("6.18", r"^linux-image-6\.18\.[0-9].*-cloud-amd64$"),
    // From 7.2 on the image is in another package.
    ("newest", r"^linux-binary-7\.[0-9]+\.[0-9].*-cloud-amd64$"),
];
const PACKAGES: &[&str] =
    &["busybox-static", "cpio", "gzip", "qemu-system-x86", "zstd", "xz-utils"];
const BOOT_SECONDS: &str = "180";

/// A kernel that can be booted.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its line, as in [`LINES`].
    pub line: &'static str,
    /// Its release.
    pub release: String,
    /// Its image.
    pub image: PathBuf,
}

/// Fetches the newest kernel of each line that the cache lacks, through a private apt directory.
///
/// # Errors
/// A line has no package any more, or a package no image.
pub fn kernels() -> anyhow::Result<Vec<Kernel>> {
    tools::packages(PACKAGES)?;
    let cache = paths::cache().join("kernels");
    let apt = Apt::prepare(&cache)?;
    let known = step("looking for kernels", || apt.package_names())?;
    LINES.iter().map(|(line, pattern)| apt.fetch(&cache, line, pattern, &known)).collect()
}

struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn prepare(cache: &Path) -> anyhow::Result<Self> {
        for directory in ["apt/lists/partial", "apt/cache/archives/partial", "debs", "trees"] {
            fs::create_dir_all(cache.join(directory))?;
        }
        fs::write(cache.join("apt/status"), "")?;
        let (main, security) = mirrors()?;
        let suites = [
            (&security, "bullseye-security"),
            (&security, "bookworm-security"),
            (&security, "trixie-security"),
            (&main, "trixie-backports"),
        ];
        let line = |(mirror, suite): (&String, &str)| {
            format!(
                "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {suite} main\n"
            )
        };
        let sources: String = suites.into_iter().map(line).collect();
        fs::write(cache.join("apt/sources.list"), sources)?;
        let apt = cache.join("apt");
        let apt = apt.display();
        let options = [
            format!("Dir::State={apt}"),
            format!("Dir::State::lists={apt}/lists"),
            format!("Dir::State::status={apt}/status"),
            format!("Dir::Cache={apt}/cache"),
            format!("Dir::Etc::sourcelist={apt}/sources.list"),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            "Acquire::Languages=none".to_owned(),
        ];
        let options = options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect();
        Ok(Self { options })
    }

    fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<String> {
        let mut all: Vec<&str> = self.options.iter().map(String::as_str).collect();
        all.extend(args);
        run(program, &all)
    }

    fn package_names(&self) -> anyhow::Result<Vec<String>> {
        self.run("apt-get", &["-qq", "update"])?;
        let names = self.run("apt-cache", &["pkgnames"])?;
        Ok(names.lines().map(String::from).collect())
    }

    fn fetch(
        &self,
        cache: &Path,
        line: &'static str,
        pattern: &str,
        known: &[String],
    ) -> anyhow::Result<Kernel> {
        let package = newest(pattern, known).with_context(|| {
            format!("Debian has no kernel {line}: no package matches {pattern}")
        })?;
        let tree = cache.join("trees").join(&package);
        if image(&tree).is_none() {
            step(&format!("fetching {package}"), || {
                let debs = cache.join("debs");
                let options: Vec<String> = self.options.clone();
                let status = Command::new("apt-get")
                    .args(options)
                    .args(["-qq", "download", &package])
                    .current_dir(&debs)
                    .stdin(Stdio::null())
                    .stderr(Stdio::null())
                    .status()?;
                anyhow::ensure!(status.success(), "apt-get cannot download {package}");
                let prefix = format!("{package}_");
                let deb = fs::read_dir(&debs)?
                    .flatten()
                    .find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
                    .with_context(|| format!("apt-get left no file of {package}"))?;
                let (deb, tree) = (deb.path(), tree.to_string_lossy().into_owned());
                run("dpkg-deb", &["-x", &deb.to_string_lossy(), &tree]).map(|_| ())
            })?;
        }
        let image = image(&tree).with_context(|| format!("{package} holds no vmlinuz"))?;
        let release = package.splitn(3, '-').nth(2).unwrap_or(&package).to_owned();
        Ok(Kernel { line, release, image })
    }
}

/// The machine's own mirrors: the main archive's and the security archive's.
fn mirrors() -> anyhow::Result<(String, String)> {
    let mut texts = fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
    for entry in fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten() {
        texts.push('\n');
        texts.push_str(&fs::read_to_string(entry.path()).unwrap_or_default());
    }
    let words = texts.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        match words.next()? {
            "URIs:" => words.next(),
            "deb" => words.find(|word| word.contains("://")),
            _ => None,
        }
    });
    let words: Vec<&str> = words.map(|address| address.trim_end_matches('/')).collect();
    let find = |end: &str| words.iter().find(|address| address.ends_with(end));
    // Other archives may be among the sources: Debian's end with its name.
    match (find("/debian"), find("/debian-security")) {
        (Some(main), Some(security)) => Ok(((*main).to_owned(), (*security).to_owned())),
        _ => bail!("apt's sources name no Debian mirror and no security mirror"),
    }
}

/// By version, as `sort -V` has it.
fn newest(pattern: &str, known: &[String]) -> Option<String> {
    let script = "grep -E \"$1\" | sort -V | tail -n 1";
    let mut child = Command::new("sh")
        .args(["-c", script, "sh", pattern])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    std::io::Write::write_all(child.stdin.as_mut()?, known.join("\n").as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?;
    let name = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

fn image(tree: &Path) -> Option<PathBuf> {
    let mut open = vec![tree.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            } else if entry.file_name().to_string_lossy().starts_with("vmlinuz") {
                return Some(entry.path());
            }
        }
    }
    None
}

const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox ifconfig lo 127.0.0.1 up
/bin/busybox mount -t tracefs tracefs /sys/kernel/tracing
/bin/busybox sh /script 2>&1 | /bin/busybox sed 's/^/@@ /'
/bin/busybox poweroff -f
";

/// Boots a kernel, runs a script in it, whose `/program` is that static program and which has
/// busybox besides, and gives its lines.
///
/// # Errors
/// The guest printed none; the console's last lines are in the message.
pub fn boot(kernel: &Kernel, program: &Path, script: &str) -> anyhow::Result<Vec<String>> {
    let root = tempfile::tempdir()?;
    for directory in ["bin", "proc", "sys", "dev"] {
        fs::create_dir(root.path().join(directory))?;
    }
    fs::copy("/bin/busybox", root.path().join("bin/busybox"))?;
    fs::copy(program, root.path().join("program"))?;
    fs::write(root.path().join("script"), script)?;
    let init = root.path().join("init");
    fs::write(&init, INIT)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let archive = root.path().with_extension("cpio.gz");
    let pack = "cd \"$1\" && find . | cpio -o -H newc 2>/dev/null | gzip -1 > \"$2\"";
    let (from, to) = (root.path().to_string_lossy(), archive.to_string_lossy());
    run("sh", &["-c", pack, "sh", &from, &to])?;
    let image = kernel.image.to_string_lossy();
    let append = "console=ttyS0 panic=-1 quiet mitigations=off cryptomgr.notests";
    // Software emulation always: what else a machine offers is not to be relied on.
    let qemu = [
        BOOT_SECONDS,
        "qemu-system-x86_64",
        "-accel",
        "tcg",
        "-cpu",
        "max",
        "-M",
        "pc",
        "-m",
        "768",
        "-smp",
        "1",
        "-nodefaults",
        "-display",
        "none",
        "-serial",
        "stdio",
        "-net",
        "none",
        "-no-reboot",
        "-kernel",
        &image,
        "-initrd",
        &to,
        "-append",
        append,
    ];
    let console = run("timeout", &qemu);
    let _ = fs::remove_file(&archive);
    let console = console?.replace('\r', "");
    let lines: Vec<String> =
        console.lines().filter_map(|line| line.strip_prefix("@@ ")).map(String::from).collect();
    if lines.is_empty() {
        let tail: Vec<&str> = console.lines().rev().take(8).collect();
        bail!("kernel {} gave no verdict; its last lines: {tail:?}", kernel.release);
    }
    Ok(lines)
}
