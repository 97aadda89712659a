//! Describes which logs were recorded, and what is missing.

use crate::terminal::quote;
use std::io;
use std::path::{Path, PathBuf};
use tprof_facts::units::{bytes, counted};
use tprof_trace::run::{BlindSpot, ProcessInfo};

/// Name of the logs in the list of what was not recorded.
const WHAT: &str = "the log of torch.compile (--compile)";

/// Results for the logs of a run.
#[derive(Debug, Default)]
pub struct LogsOutcome {
    logs: Vec<RecordedLog>,
    failed: Vec<(String, String)>,
    /// The directory that the job set in `TORCH_TRACE` itself, if it did.
    pub own: Option<PathBuf>,
    /// Number of logs in this directory that other jobs wrote.
    others: u64,
}

/// A log in the run.
#[derive(Debug)]
pub struct RecordedLog {
    /// Length of the log's text in bytes.
    pub bytes: u64,
    /// Number of bytes beyond the bound, which were cut off.
    pub not_kept: u64,
    /// Whether the log was bounded because the file system was almost full.
    pub had_no_room: bool,
    /// For a copy from the job's own directory: the path of the copy, and the pid that the log
    /// names, if it names one.
    pub copy: Option<(PathBuf, Option<u32>)>,
}

impl LogsOutcome {
    /// Adds a log, or the error because of which it is missing.
    pub fn add(&mut self, path: &Path, log: io::Result<RecordedLog>) {
        match log {
            Ok(log) => self.logs.push(log),
            Err(error) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                self.failed.push((name, error.to_string()));
            }
        }
    }

    /// Removes the copies of logs that other jobs wrote into the same directory. The copy of a log
    /// that names no process (PyTorch 2.4) stays.
    pub fn remove_foreign_logs(&mut self, processes: &[ProcessInfo]) {
        let before = self.logs.len();
        self.logs.retain(|log| {
            let Some((path, Some(pid))) = &log.copy else { return true };
            let is_own = processes.iter().any(|process| process.pid == *pid);
            if !is_own && std::fs::remove_file(path).is_ok() {
                // This fails, as intended, while the directory is not empty.
                path.ancestors().skip(1).take(2).all(|home| std::fs::remove_dir(home).is_ok());
                return false;
            }
            true
        });
        self.others += (before - self.logs.len()) as u64;
    }

    /// Returns what was not recorded.
    pub fn blind(&self) -> Vec<BlindSpot> {
        let lacks = |process: String, why: String| BlindSpot::new(process, WHAT, why);
        let of_job = |why| lacks("the job".to_owned(), why);
        let mut all: Vec<BlindSpot> =
            self.failed.iter().map(|(log, why)| lacks(log.clone(), why.clone())).collect();
        if let (1.., Some(own)) = (self.others, &self.own) {
            all.push(of_job(format!(
                "{} in TORCH_TRACE, `{}`, of no process of this run left out",
                counted(self.others, "log", "logs"),
                own.display()
            )));
        }
        if self.logs.is_empty() && all.is_empty() {
            all.push(of_job(match &self.own {
                Some(own) => {
                    format!("no process of the job wrote one into TORCH_TRACE, `{}`", own.display())
                }
                None => {
                    "no process wrote one: nothing was compiled, or by a PyTorch before TORCH_TRACE (2.4 has it)"
                        .to_owned()
                }
            }));
        }
        let bounds = [
            (false, "beyond the bound of a log, 256 MiB"),
            (true, "not kept: the disk is almost full"),
        ];
        for (had_no_room, why) in bounds {
            let logs = self.logs.iter().filter(|log| log.had_no_room == had_no_room);
            let not_kept: u64 = logs.map(|log| log.not_kept).sum();
            if not_kept > 0 {
                all.push(of_job(format!("{} are {why}", bytes(not_kept))));
            }
        }
        all
    }

    /// Returns a line for the summary; `None` if there is no log.
    pub fn line(&self, run: &Path) -> Option<String> {
        let run = quote::word(quote::nearby(run).as_os_str());
        let count = self.logs.len() as u64;
        (count > 0).then(|| {
            format!(
                "torch.compile: {}, {}: tprof report compile {run}",
                counted(count, "log", "logs"),
                bytes(self.logs.iter().map(|log| log.bytes).sum()),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(copy: Option<(PathBuf, Option<u32>)>) -> RecordedLog {
        RecordedLog { bytes: 9, not_kept: 5, had_no_room: false, copy }
    }

    #[test]
    fn a_job_without_a_log_has_a_reason_and_one_with_logs_a_line() {
        let none = LogsOutcome::default();
        assert!(none.blind()[0].why.contains("2.4 has it") && none.line(Path::new("/r")).is_none());
        let own = LogsOutcome { own: Some("/d".into()), ..LogsOutcome::default() };
        assert!(own.blind()[0].why.ends_with("`/d`"));
        let mut some = LogsOutcome::default();
        some.add(Path::new("/none/x.log"), Ok(log(None)));
        some.add(Path::new("/none/y.log"), Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(some.blind().len(), 2);
        assert!(some.line(Path::new("/r")).unwrap().contains("1 log"));
    }

    #[test]
    fn logs_of_other_jobs_are_removed_and_only_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut outcome = LogsOutcome { own: Some("/d".into()), ..LogsOutcome::default() };
        for pid in [7, 8] {
            let path = dir.path().join(format!("{pid}.log.zst"));
            std::fs::write(&path, "x").unwrap();
            outcome.add(&path, Ok(log(Some((path.clone(), Some(pid))))));
        }
        outcome.remove_foreign_logs(&[ProcessInfo { pid: 7, ..ProcessInfo::default() }]);
        let why: Vec<String> = outcome.blind().into_iter().map(|blind| blind.why).collect();
        assert_eq!(why[0], "1 log in TORCH_TRACE, `/d`, of no process of this run left out");
        assert_eq!(why[1], "5 B are beyond the bound of a log, 256 MiB");
        assert!(outcome.line(Path::new("/r")).unwrap().contains("1 log, 9 B"));
        outcome.remove_foreign_logs(&[]);
        assert_eq!(outcome.blind().len(), 1);
        assert_eq!((outcome.line(Path::new("/r")), dir.path().exists()), (None, false));
    }
}
