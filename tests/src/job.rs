//! Runs a command, natively or traced, and returns its outcome.

use crate::programs::target_dir;
use crate::sys;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Prefixes of variables that would change the tested behaviour.
const CLEARED: [&str; 14] = [
    "TPROF_",
    "LD_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "OMPI_",
    "PMI",
    "PALS_",
    "JSM_",
    "SLURM_",
    "FLUX_",
    "PBS_",
    "LSB_",
    "TORCHELASTIC_",
];

/// A command with its environment and its time limit.
#[derive(Clone)]
pub struct Job {
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    in_front: Vec<OsString>,
    limit: Duration,
}

impl Job {
    /// A program to run.
    pub fn new(program: impl AsRef<OsStr>) -> Job {
        Job {
            argv: vec![program.as_ref().to_owned()],
            env: Vec::new(),
            in_front: Vec::new(),
            limit: Duration::from_secs(90),
        }
    }

    /// Runs a script with `sh -c`; `$1` and so on are the arguments that follow.
    pub fn sh(script: &str) -> Job {
        Job::new("sh").args(["-c", script, "sh"])
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Job {
        self.argv.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments of the command.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(self, arguments: impl IntoIterator<Item = S>) -> Job {
        arguments.into_iter().fold(self, Job::arg)
    }

    /// Sets a variable, natively and traced.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Job {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Puts a command in front of the job, and in front of tprof if the job is traced.
    #[must_use]
    pub fn under<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Job {
        self.in_front.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Changes the time after which the job counts as hung.
    #[must_use]
    pub fn limit(mut self, seconds: u64) -> Job {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Returns the same job behind other words, such as `tprof run … --`.
    pub fn behind(&self, words: &[OsString]) -> Job {
        let mut job = self.clone();
        job.argv = words.iter().chain(&self.argv).cloned().collect();
        job
    }

    pub(crate) fn command(&self, cwd: &Path) -> Command {
        let mut words = self.in_front.iter().chain(&self.argv);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).current_dir(cwd).process_group(0);
        for (name, _) in std::env::vars_os() {
            if CLEARED.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes())) {
                command.env_remove(name);
            }
        }
        // Tests use a cache of their own for the tables that tprof keeps between runs, not the
        // user's.
        command.env("XDG_CACHE_HOME", target_dir().join("test-cache"));
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn limit_of(&self) -> Duration {
        self.limit
    }

    /// Returns the job's name for failure messages.
    pub fn name(&self) -> String {
        let words: Vec<_> =
            self.in_front.iter().chain(&self.argv).map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    /// Runs the job in this directory, with nothing on its standard input.
    pub fn run_in(&self, cwd: impl Into<PathBuf>) -> Outcome {
        let mut command = self.command(&cwd.into());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.name()));
        finish(child, self.limit, &self.name())
    }
}

/// The output and end of a job.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The job's standard output.
    pub stdout: String,
    /// The job's standard error.
    pub stderr: String,
    /// Exit status, if it exited.
    pub code: Option<i32>,
    /// Signal, if one ended it.
    pub signal: Option<i32>,
}

impl Outcome {
    /// Fails unless the status is this one.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Outcome {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "exit status {:?}, signal {:?}", self.code, self.signal)?;
        writeln!(f, "--- stdout\n{}--- stderr\n{}---", self.stdout, self.stderr)
    }
}

/// Waits for the child and for the end of its output. Fails if either takes too long: then the job
/// hangs, or another process keeps its pipes open.
pub(crate) fn finish(mut child: Child, limit: Duration, name: &str) -> Outcome {
    let end = Instant::now() + limit;
    let stdout = reader(child.stdout.take().unwrap());
    let stderr = reader(child.stderr.take().unwrap());
    let status = wait_until(&mut child, end).unwrap_or_else(|| {
        sys::kill_tree(child.id());
        let _ = child.wait();
        let wait = Duration::from_secs(2);
        let (out, err) = (stdout.recv_timeout(wait), stderr.recv_timeout(wait));
        panic!("{name}: still running after {limit:?}\n--- stdout\n{out:?}\n--- stderr\n{err:?}")
    });
    let left = end.saturating_duration_since(Instant::now()).max(Duration::from_secs(5));
    let text = |pipe: mpsc::Receiver<String>, what: &str| {
        pipe.recv_timeout(left).unwrap_or_else(|_| {
            sys::kill_tree(child.id());
            panic!("{name}: ended ({status}), but something still holds its {what}")
        })
    };
    Outcome {
        stdout: text(stdout, "standard output"),
        stderr: text(stderr, "standard error"),
        code: status.code(),
        signal: status.signal(),
    }
}

fn reader(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Returns the child's status, or `None` if it still runs at that time.
pub(crate) fn wait_until(child: &mut Child, end: Instant) -> Option<ExitStatus> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
