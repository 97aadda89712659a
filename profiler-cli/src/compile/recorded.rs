//! What became of a job's logs, in words.

use crate::terminal::quote;
use std::io;
use std::path::{Path, PathBuf};
use tprof_facts::units::{bytes, counted};
use tprof_trace::run::{Blind, ProcessInfo};

/// What logs are called in the list of what was not recorded.
const WHAT: &str = "the log of torch.compile (--compile)";

/// What became of logs.
#[derive(Debug, Default)]
pub struct LogsOutcome {
    logs: u64,
    bytes: u64,
    not_kept: u64,
    failed: Vec<(String, String)>,
    /// The job's own directory, where it has one.
    pub own: Option<PathBuf>,
    /// Its logs and their copies, with the processes that wrote them where they name these.
    pub copies: Vec<(Option<u32>, PathBuf, PathBuf)>,
    /// Copies that were removed again: of no process of the run.
    others: u64,
}

impl LogsOutcome {
    /// Adds a log, and how many of its bytes are not kept.
    pub fn add(&mut self, log: &Path, not_kept: io::Result<u64>) {
        match not_kept {
            Ok(not_kept) => {
                self.logs += 1;
                self.bytes += log.metadata().map_or(0, |about| about.len());
                self.not_kept += not_kept;
            }
            Err(error) => {
                let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
                self.failed.push((name, error.to_string()));
            }
        }
    }

    /// Removes copies of logs that other jobs wrote into the same directory. A log that names no
    /// process (PyTorch 2.4) stays.
    pub fn leave_out_others(&mut self, processes: &[ProcessInfo]) {
        for (pid, log, path) in &self.copies {
            let is_other = |pid: u32| !processes.iter().any(|process| process.pid == pid);
            if pid.is_some_and(is_other) && std::fs::remove_file(path).is_ok() {
                self.logs = self.logs.saturating_sub(1);
                let bytes = log.metadata().map_or(0, |about| about.len());
                self.bytes = self.bytes.saturating_sub(bytes);
                self.others += 1;
            }
        }
        for directory in
            self.copies.first().iter().flat_map(|(.., path)| path.ancestors().skip(1).take(2))
        {
            // Refused, as it should be, while anything is in it.
            let _ = std::fs::remove_dir(directory);
        }
    }

    /// What the run lacks.
    pub fn blind(&self) -> Vec<Blind> {
        let lacks = |process: String, why: String| Blind { process, what: WHAT.to_owned(), why };
        let mut all: Vec<Blind> =
            self.failed.iter().map(|(log, why)| lacks(log.clone(), why.clone())).collect();
        if self.logs == 0 && self.failed.is_empty() {
            let why = match &self.own {
                Some(own) => {
                    format!("no process of the job wrote one into TORCH_TRACE, `{}`", own.display())
                }
                None => {
                    "no process compiled anything with a PyTorch that has TORCH_TRACE (2.4 does)"
                        .to_owned()
                }
            };
            all.push(lacks("the job".to_owned(), why));
        }
        if self.not_kept > 0 {
            let why = format!("{} are beyond the bound of a log, 256 MiB", bytes(self.not_kept));
            all.push(lacks("the job".to_owned(), why));
        }
        all
    }

    /// A line for the summary; none without a log.
    pub fn line(&self, run: &Path) -> Option<String> {
        let run = quote::word(quote::nearby(run).as_os_str());
        let others = match self.others {
            0 => String::new(),
            count => format!(
                "{} in TORCH_TRACE of no process of this run left out",
                counted(count, "log", "logs")
            ),
        };
        match (self.logs, others.is_empty()) {
            (0, true) => None,
            (0, false) => Some(format!("torch.compile: {others}")),
            (logs, is_all) => Some(format!(
                "torch.compile: {}, {}{}{others}: tprof report compile {run}",
                counted(logs, "log", "logs"),
                bytes(self.bytes),
                if is_all { "" } else { "; " },
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_without_a_log_has_a_reason_and_one_with_logs_a_line() {
        let none = LogsOutcome::default();
        assert!(none.blind()[0].why.contains("2.4 does") && none.line(Path::new("/r")).is_none());
        let own = LogsOutcome { own: Some("/d".into()), ..LogsOutcome::default() };
        assert!(own.blind()[0].why.ends_with("`/d`"));
        let mut some = LogsOutcome::default();
        some.add(Path::new("/none/x.log"), Ok(5));
        some.add(Path::new("/none/y.log"), Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(some.blind().len(), 2);
        assert!(some.line(Path::new("/r")).unwrap().contains("1 log"));
    }
}
