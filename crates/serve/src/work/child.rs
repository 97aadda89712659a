//! Runs `tprof` as a child process with limits. If the server ends, the child ends too.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use axum::http::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use super::output::Output;
use crate::failure::Failure;

/// Hidden command of `tprof` that applies limits to itself and then runs another command.
const LIMITED: &str = "__limited";
/// How long the child may take to end when asked to.
const GRACE: Duration = Duration::from_secs(2);
/// Largest part of the child's error output to read, bytes.
const MAX_ERRORS: u64 = 64 << 10;

/// Limits of a child process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory limit in bytes.
    pub memory_bytes: u64,
    /// Largest size in bytes of a file that it writes.
    pub output_bytes: u64,
    /// Longest time that it may run.
    pub time: Duration,
}

/// A child process that is ended when nobody waits for it any more.
struct Running(Option<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        // A child without a pid has already ended.
        let Some(pid) = child.id() else { return };
        // SIGTERM comes before SIGKILL, so that the child can remove its temporary files.
        let _ = kill(Pid::from_raw(pid as i32), Signal::SIGTERM);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
        });
    }
}

/// The `tprof` program.
#[derive(Clone, Debug)]
pub struct Tprof {
    program: PathBuf,
    limits: Limits,
}

impl Tprof {
    /// Uses this program, with limits.
    pub fn new(program: PathBuf, limits: Limits) -> Tprof {
        Tprof { program, limits }
    }

    /// Runs `tprof` and returns its output. The process is ended early if the returned future is
    /// dropped.
    ///
    /// Fails with the error that the process printed, or because it reached a limit. If
    /// `is_background` is set, nobody waits for the process, so it runs at a low priority.
    pub async fn run(&self, words: &[OsString], is_background: bool) -> Result<Output, Failure> {
        let shown = words.first().map(|word| word.to_string_lossy().into_owned());
        let what = format!("cannot make the {}", shown.unwrap_or_default());
        let failed = |error: std::io::Error| Failure::new(what.clone(), error);
        let to = tempfile::tempfile().map_err(failed)?;
        let started = self.start(words, is_background, to.try_clone().map_err(failed)?);
        let mut running = Running(Some(started.map_err(failed)?));
        let Some(child) = &mut running.0 else { return Err(Failure::new(what, "it is gone")) };
        let mut errors = Vec::new();
        let stderr = child.stderr.take();
        let read = async {
            if let Some(stderr) = stderr {
                let mut stderr = stderr.take(MAX_ERRORS);
                let _ = stderr.read_to_end(&mut errors).await;
            }
            child.wait().await
        };
        let Ok(ended) = tokio::time::timeout(self.limits.time, read).await else {
            let seconds = self.limits.time.as_secs();
            return Err(Failure::new(what, format!("it took longer than {seconds} s"))
                .status(StatusCode::GATEWAY_TIMEOUT)
                .hint("tprof serve --time-limit 10m, or the same command in a terminal"));
        };
        let status = ended.map_err(failed)?;
        if status.success() {
            return Output::of(to).map_err(failed);
        }
        Err(self.failure(what, &String::from_utf8_lossy(&errors), status))
    }

    fn start(&self, words: &[OsString], is_background: bool, to: File) -> std::io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.arg(LIMITED).arg(self.limits.memory_bytes.to_string());
        command.arg(self.limits.output_bytes.to_string());
        command.arg(std::process::id().to_string()).arg(if is_background { "10" } else { "0" });
        command.arg("--").args(words);
        command.stdin(Stdio::null()).stdout(to).stderr(Stdio::piped());
        // The child must not print colours. It runs in `/`, so that it doesn't read settings from
        // the directory in which the server was started.
        command.env("NO_COLOR", "1").current_dir(Path::new("/"));
        command.spawn()
    }

    /// Makes a failure of the child's error output: `error: …`, `cause: …`, ` try: …`.
    fn failure(&self, what: String, errors: &str, status: std::process::ExitStatus) -> Failure {
        use std::os::unix::process::ExitStatusExt;
        let line = |name: &str| {
            let lines = errors.lines().map(str::trim_start);
            let mut found = lines.filter_map(|line| line.strip_prefix(name));
            found.next().map(|text| text.trim().to_owned())
        };
        if let Some(error) = line("error:") {
            return Failure::new(error, line("cause:").unwrap_or_default())
                .status(StatusCode::UNPROCESSABLE_ENTITY)
                .hint(line("try:").unwrap_or_default());
        }
        let memory = self.limits.memory_bytes >> 20;
        match status.signal() {
            Some(nix::libc::SIGXFSZ) => Failure::new(what, "what it makes is too large")
                .status(StatusCode::INSUFFICIENT_STORAGE)
                .hint("tprof export in a terminal, with a slice of the run"),
            Some(nix::libc::SIGABRT) if errors.contains("memory allocation") => {
                Failure::new(what, format!("it needs more than {memory} MiB of memory"))
                    .status(StatusCode::INSUFFICIENT_STORAGE)
                    .hint("tprof serve --memory-limit 16G, or fewer ranks or steps")
            }
            Some(signal) => Failure::new(what, format!("tprof was ended by signal {signal}")),
            None => Failure::new(what, errors.lines().last().unwrap_or("it gave no reason")),
        }
    }
}
