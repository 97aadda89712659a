//! Writes TensorBoard's log directory while the job runs.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tprof_collect::IfExists;
use tprof_export::tensorboard::LiveLog;

use crate::settings::Resolved;

/// The export format that can be written while the job runs.
pub const FORMAT: &str = "tensorboard";
/// Time between two writes. TensorBoard reads the directory every 30 s.
const EACH: Duration = Duration::from_secs(5);
/// The thread pauses for at least this many times as long as its last write took, so that it uses
/// at most one percent of a core. Writes take longer as the run grows.
const SHARE: u32 = 100;

/// A thread that appends to the log directory while the job runs.
pub struct LogWriter {
    end: Sender<()>,
    thread: JoinHandle<LiveLog>,
}

impl LogWriter {
    /// Starts the thread if `--export tensorboard` was given and no other launcher writes the same
    /// run.
    pub fn start(resolved: &Resolved, run: &Path) -> Option<LogWriter> {
        let is_asked = resolved.export.as_deref() == Some(FORMAT);
        let is_own = resolved.config.if_exists != IfExists::Join;
        let log = LiveLog::of(run).filter(|_| is_asked && is_own)?;
        let (end, ends) = mpsc::channel();
        let write = move || {
            let mut log = log;
            let mut pause = EACH;
            while ends.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let begun = Instant::now();
                // If a write fails, the next one tries again. The export at the end reports the
                // error.
                let _ = log.append();
                pause = EACH.max(begun.elapsed() * SHARE);
            }
            log
        };
        let thread = std::thread::Builder::new().name("tprof-log".to_owned()).spawn(write).ok()?;
        Some(LogWriter { end, thread })
    }

    /// Ends the thread, and returns the log. The export at the end adds what is missing in it.
    pub fn stop(self) -> Option<LiveLog> {
        drop(self.end);
        self.thread.join().ok()
    }
}
