//! The directory of a run's logs, and the thread that bounds them.

use super::copy_logs;
use super::find_logs::logs_in;
use super::log_bounds::{self, LogBounds};
use super::outcome::{LogsOutcome, RecordedLog};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tprof_collect::Session;
use tprof_trace::compile_log::COMPILE_DIRECTORY;
use tprof_ui::errors::{Failure, reason, remedy};

/// Variable with the directory into which PyTorch writes logs.
const VARIABLE: &str = "TORCH_TRACE";
/// Variable that makes Inductor write the source lines of each kernel into the log, including those
/// of backward graphs.
const LINES_VARIABLE: &str = "INDUCTOR_PROVENANCE";
/// Interval at which the lengths of the logs are checked.
const INTERVAL: Duration = Duration::from_millis(500);

/// The logs of a run, while the job runs.
#[derive(Debug)]
pub struct CompileLogs {
    /// Directory of the logs in the run.
    home: PathBuf,
    /// Directory that the job set in `TORCH_TRACE` itself; tprof leaves it alone.
    own: Option<PathBuf>,
    began: SystemTime,
    watch: Option<(Sender<()>, JoinHandle<LogBounds>)>,
}

impl CompileLogs {
    /// Prepares a run for the logs.
    pub fn start(session: &Session) -> Result<CompileLogs, Failure> {
        let host = nix::unistd::gethostname().unwrap_or_default();
        let name = format!("host-{}", host.to_string_lossy());
        let home = session.run_dir().join(COMPILE_DIRECTORY).join(name);
        std::fs::create_dir_all(&home).map_err(|error| {
            Failure::new("cannot keep the log of torch.compile (--compile)")
                .cause(format!("`{}` cannot be created: {}", home.display(), reason(&error)))
                .hint(remedy(&error, "-o with a writable directory"))
        })?;
        let home = home.canonicalize().unwrap_or(home);
        // The variable may be empty: then the user has decided against a log, and tprof leaves it
        // alone.
        let own = std::env::var_os(VARIABLE).map(PathBuf::from);
        let watch = own.is_none().then(|| watch(home.clone())).transpose();
        let watch = watch.map_err(|error| {
            Failure::new("cannot keep the log of torch.compile (--compile)")
                .because(&error, "tprof run without --compile")
        })?;
        Ok(CompileLogs { home, own, began: SystemTime::now(), watch })
    }

    /// Returns the variables to set for the job. Variables that the job sets itself are left alone.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let log = self.own.is_none().then(|| (VARIABLE.into(), self.home.clone().into()));
        let lines = std::env::var_os(LINES_VARIABLE).is_none();
        let lines = lines.then(|| (LINES_VARIABLE.into(), "1".into()));
        log.into_iter().chain(lines).collect()
    }

    /// Cuts the logs at their bounds after the job, or copies the logs from the job's own
    /// directory. The outcome is final at the end of the session. Only then does the list of its
    /// processes show which copies belong to the job, and what the run lacks.
    pub fn finish(self, session: &Session) -> SharedOutcome {
        let outcome = Arc::new(Mutex::new(self.outcome()));
        let shared = Arc::clone(&outcome);
        session.add_blind_spots_at_end(move |processes| {
            let mut outcome = shared.lock().unwrap_or_else(PoisonError::into_inner);
            outcome.remove_foreign_logs(processes);
            outcome.blind()
        });
        SharedOutcome(outcome)
    }

    fn outcome(mut self) -> LogsOutcome {
        let bounds = self.stop();
        let mut outcome = LogsOutcome::default();
        match &self.own {
            Some(own) => copy_logs::copy(own, &self.home, self.began, &mut outcome),
            None => {
                for log in logs_in(&self.home) {
                    let cut = log_bounds::cut(&log, bounds.of(&log));
                    let recorded = cut.map(|not_kept| RecordedLog {
                        bytes: log.metadata().map_or(0, |about| about.len()),
                        not_kept,
                        had_no_room: bounds.is_low(&log),
                        copy: None,
                    });
                    outcome.add(&log, recorded);
                }
            }
        }
        outcome
    }

    fn stop(&mut self) -> LogBounds {
        let Some((stop, thread)) = self.watch.take() else { return LogBounds::default() };
        drop(stop);
        // If the thread panicked, its message was printed and its bounds are lost. Then the logs
        // are cut at the default bound.
        thread.join().unwrap_or_default()
    }
}

/// The results of a run's logs, which are final when the session has ended.
#[derive(Debug)]
pub struct SharedOutcome(Arc<Mutex<LogsOutcome>>);

impl SharedOutcome {
    /// Returns a line for the summary; `None` if there is no log.
    pub fn line(&self, run: &Path) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).line(run)
    }
}

impl Drop for CompileLogs {
    fn drop(&mut self) {
        self.stop();
        // This fails, as intended, while the directory is not empty.
        let _ = std::fs::remove_dir(&self.home);
        let _ = self.home.parent().map(std::fs::remove_dir);
    }
}

/// Bounds the logs in a directory until the sender is dropped. The thread returns the bounds.
fn watch(home: PathBuf) -> io::Result<(Sender<()>, JoinHandle<LogBounds>)> {
    let (stop, stopped) = channel::<()>();
    let watch = move || {
        let mut bounds = LogBounds::default();
        while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            bounds.keep(&logs_in(&home), log_bounds::free_bytes(&home));
        }
        bounds
    };
    Ok((stop, std::thread::Builder::new().spawn(watch)?))
}
