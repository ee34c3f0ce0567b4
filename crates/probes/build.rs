//! Compiles the kernel programs with clang and embeds the object; nothing generated is checked in.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a build that cannot go on says so and stops"
)]

use std::{env, ffi::OsString, path::PathBuf, process::Command};

/// Oldest last; the first that is there is used.
const CLANGS: [&str; 4] = ["clang-19", "clang", "clang-16", "clang-14"];

fn main() {
    println!("cargo:rerun-if-env-changed=CLANG");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../ebpf-src");
    println!("cargo:rerun-if-changed={}", root.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    let clang = env::var("CLANG").ok().or_else(find).expect(
        "no clang found: install it (Debian: apt-get install clang-19), or name it with CLANG=",
    );
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").unwrap().as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => panic!("the kernel programs are not written for {other}"),
    };
    let triple = Command::new("gcc").arg("-dumpmachine").output();
    let triple = triple.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let fixed = ["-g", "-O2", "-target", "bpf", "-Wall", "-Werror", "-mcpu=v2"];
    let mut options: Vec<OsString> = fixed.map(OsString::from).into();
    options.push(format!("-D__TARGET_ARCH_{arch}").into());
    let includes = [Some(root.join("include")), Some(root.join("tcp"))];
    let headers = env::var_os("DEP_BPF_INCLUDE").map(PathBuf::from);
    let system = triple.ok().map(|triple| PathBuf::from(format!("/usr/include/{triple}")));
    for directory in includes.into_iter().chain([headers, system]).flatten() {
        options.extend(["-I".into(), directory.into()]);
    }
    for source in ["tcp", "classic"] {
        let object = out.join(format!("{source}.bpf.o"));
        let source = root.join(format!("tcp/{source}.bpf.c"));
        let mut command = Command::new(&clang);
        command.args(&options).arg("-c").arg(&source).arg("-o").arg(object);
        let status = command.status().unwrap_or_else(|error| panic!("cannot run {clang}: {error}"));
        assert!(status.success(), "{clang} cannot compile {}: {command:?}", source.display());
    }
}

fn find() -> Option<String> {
    let runs = |clang: &&&str| Command::new(clang).arg("--version").output().is_ok();
    CLANGS.iter().find(runs).map(ToString::to_string)
}
