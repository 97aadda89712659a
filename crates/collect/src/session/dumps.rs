//! Writes what is kept of a run (`--keep`) as runs within the run, on all hosts: at events that were
//! asked for with `--on` and `--on-hang`, and for `tprof ctl dump`.

use super::control::{self, Reply, Request};
use super::hourly::Hourly;
use crate::engine::inbox::DumpCause;
use crate::error::CollectError;
use crate::output::keeping::DUMP;
use std::fs;
use std::io::ErrorKind;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use tprof_trace::is_info_name;

/// Largest number of dumps in a run.
const MOST: u32 = 1000;
/// Largest number of dumps that events cause within an hour.
const MOST_HOURLY: usize = 4;
/// Shortest and longest time between two questions whether all is written. Each is twice as long as
/// the one before, since a thousand may ask at once.
const BETWEEN: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];
/// Longest time in which all must be written.
const WITHIN: Duration = Duration::from_secs(600);

/// Writes dumps for the events of one collector.
pub struct DumpWriter {
    /// Directory of the run.
    pub run: PathBuf,
    /// Receives each event for which what is kept shall be written.
    pub causes: Receiver<DumpCause>,
    /// Set when the run is over.
    pub stop: Arc<AtomicBool>,
}

impl DumpWriter {
    /// Writes until the run is over.
    pub fn run(self) {
        let (mut dumps, mut has_told_limit) = (Hourly::of(MOST_HOURLY), false);
        while !self.stop.load(Acquire) {
            let Ok(cause) = self.causes.recv() else { return };
            // At the end of the run, a last cause only wakes this thread.
            if self.stop.load(Acquire) {
                return;
            }
            // If one rank fails, others fail soon after. Causes that arrive together get one dump.
            let others: Vec<DumpCause> = self.causes.try_iter().collect();
            let now = Instant::now();
            if !dumps.has_room(now) {
                if !has_told_limit {
                    tell(&format!(
                        "{}, but no more than {MOST_HOURLY} dumps are written in an hour",
                        cause.why
                    ));
                }
                has_told_limit = true;
                continue;
            }
            has_told_limit = false;
            let why = cause.why.clone();
            let written = match write(&self.run, &why, cause.rule) {
                Ok((name, reply)) if reply.ok => Ok(name),
                Ok((_, reply)) => Err(reply.message),
                Err(error) => Err(error.to_string()),
            };
            match &written {
                Ok(name) => {
                    tell(&format!("{why}: tprof report {}", self.run.join(name).display()));
                }
                // The run itself has what was kept.
                Err(_) if self.stop.load(Acquire) => {}
                Err(error) => tell(&format!("{why}, but what is kept cannot be written: {error}")),
            }
            if let Ok(name) = written {
                dumps.add(now);
                let files = [cause].into_iter().chain(others).filter_map(|cause| cause.file);
                for file in files {
                    let _ = fs::copy(self.run.join(&file), self.run.join(&name).join(&file));
                }
            }
        }
    }
}

/// Writes a line on standard error. If that is gone, the run still has the dump.
fn tell(text: &str) {
    let _ = std::io::stderr().write_all(format!("tprof: {text}\n").as_bytes());
}

/// Writes what all collectors of a live run keep. `rule` is the rule of findings that tells of what
/// happened, if there is one. Returns the name of the run within the run, and whether it was written.
pub fn write(run: &Path, why: &str, rule: Option<&str>) -> Result<(String, Reply), CollectError> {
    let name = make_directory(run)?;
    let rule = rule.map(str::to_owned);
    let written = request(run, &Request::Dump { name: name.clone(), why: why.to_owned(), rule });
    if !matches!(&written, Ok(reply) if reply.ok) {
        remove_parts(&run.join(&name));
    }
    Ok((name, written?))
}

/// Removes what collectors have written of a dump, unless one has written its whole part.
fn remove_parts(dump: &Path) {
    let entries = || fs::read_dir(dump).into_iter().flatten().flatten();
    let is_info = |entry: &fs::DirEntry| is_info_name(&entry.file_name().to_string_lossy());
    if !entries().any(|entry| is_info(&entry)) {
        entries().for_each(|entry| _ = fs::remove_file(entry.path()));
        let _ = fs::remove_dir(dump);
    }
}

fn request(run: &Path, request: &Request) -> Result<Reply, CollectError> {
    let until = Instant::now() + WITHIN;
    let [mut pause, longest] = BETWEEN;
    loop {
        let reply = control::request(run, request)?;
        if !reply.waits || Instant::now() >= until {
            return Ok(reply);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(longest);
    }
}

/// Makes the directory of the next dump, and returns its name.
fn make_directory(run: &Path) -> Result<String, CollectError> {
    let failed = |source| CollectError::Unwritable { path: run.to_owned(), source };
    for number in 1..=MOST {
        let name = format!("{DUMP}{number}");
        match fs::DirBuilder::new().mode(0o700).create(run.join(&name)) {
            Ok(()) => return Ok(name),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(std::io::Error::other(format!("it has {MOST} dumps already"))))
}
