//! The directory of a run's logs, and the thread that bounds them.

use super::bound::{self, LogBounds};
use super::found::logs_in;
use super::recorded::{LogsOutcome, RecordedLog};
use super::taken;
use crate::terminal::errors::{Failure, reason, remedy};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tprof_collect::Session;
use tprof_trace::compile_log::COMPILE_DIRECTORY;

/// The variable that names a directory for PyTorch's logs.
const VARIABLE: &str = "TORCH_TRACE";
/// Has Inductor write the lines of source of each kernel into the log, backward graphs included.
const LINES_VARIABLE: &str = "INDUCTOR_PROVENANCE";
/// How often the logs' lengths are read.
const INTERVAL: Duration = Duration::from_millis(500);

/// A run's logs, while the job runs.
#[derive(Debug)]
pub struct CompileLogs {
    /// In the run.
    home: PathBuf,
    /// The job's own directory, which it keeps.
    own: Option<PathBuf>,
    began: SystemTime,
    watch: Option<(Sender<()>, JoinHandle<LogBounds>)>,
}

impl CompileLogs {
    /// Prepares a run for logs.
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
        // Also an empty one is the job's own decision.
        let own = std::env::var_os(VARIABLE).map(PathBuf::from);
        let watch = own.is_none().then(|| watch(home.clone())).transpose();
        let watch = watch.map_err(|error| {
            Failure::new("cannot keep the log of torch.compile (--compile)")
                .because(&error, "tprof run without --compile")
        })?;
        Ok(CompileLogs { home, own, began: SystemTime::now(), watch })
    }

    /// Variables that the job must find. What the job set itself stays.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let log = self.own.is_none().then(|| (VARIABLE.into(), self.home.clone().into()));
        let lines = std::env::var_os(LINES_VARIABLE).is_none();
        let lines = lines.then(|| (LINES_VARIABLE.into(), "1".into()));
        log.into_iter().chain(lines).collect()
    }

    /// Once the job is over: logs have their bound, and those of the job's own directory are copied.
    /// Which of these are the job's, and what the run lacks, is found at the session's end.
    pub fn finish(self, session: &Session) -> SharedOutcome {
        let outcome = Arc::new(Mutex::new(self.outcome()));
        let shared = Arc::clone(&outcome);
        session.add_blind_spots_at_end(move |processes| {
            let mut outcome = shared.lock().unwrap_or_else(PoisonError::into_inner);
            outcome.leave_out_others(processes);
            outcome.blind()
        });
        SharedOutcome(outcome)
    }

    fn outcome(mut self) -> LogsOutcome {
        let bounds = self.stop();
        let mut outcome = LogsOutcome::default();
        match &self.own {
            Some(own) => taken::copy(own, &self.home, self.began, &mut outcome),
            None => {
                for log in logs_in(&self.home) {
                    let cut = bound::cut(&log, bounds.of(&log));
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
        // A panic of the thread was printed; the logs are cut all the same.
        thread.join().unwrap_or_default()
    }
}

/// What became of a run's logs, known once its session has ended.
#[derive(Debug)]
pub struct SharedOutcome(Arc<Mutex<LogsOutcome>>);

impl SharedOutcome {
    /// A line for the summary; none without a log.
    pub fn line(&self, run: &Path) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).line(run)
    }
}

impl Drop for CompileLogs {
    fn drop(&mut self) {
        self.stop();
        // Refused, as it should be, while anything is in them.
        let _ = std::fs::remove_dir(&self.home);
        let _ = self.home.parent().map(std::fs::remove_dir);
    }
}

/// Bounds logs in a directory until the sender goes.
fn watch(home: PathBuf) -> io::Result<(Sender<()>, JoinHandle<LogBounds>)> {
    let (stop, stopped) = channel::<()>();
    let watch = move || {
        let mut bounds = LogBounds::default();
        while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            bounds.keep(&logs_in(&home), bound::free_bytes(&home));
        }
        bounds
    };
    Ok((stop, std::thread::Builder::new().spawn(watch)?))
}
