//! The demo: a pod that Kubernetes calls Ready and the kernels do not.
pub fn run() -> anyhow::Result<std::process::ExitCode> {
    anyhow::bail!("x")
}
