//! Keeps only the last part of what happens (`--keep`), and writes what is kept at some moment as a
//! run within the run: `dump-1`.

use super::inbox::{DumpCause, Reply};
use super::main_loop::Engine;
use crate::output::keeping::is_dump;
use crate::output::run_json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use tprof_os::sys;
use tprof_trace::model::{MarkKind, property};
use tprof_trace::run::{BlindSpot, RunInfo};
use tprof_trace::{KeptCopy, Recorded};

/// A request to write what is kept.
pub(super) enum Dump {
    /// The engine still writes what happened before the request into the files.
    Gathering { why: String, rule: Option<String>, written: Receiver<Reply> },
    /// Everything is in the files.
    Gathered { why: String, rule: Option<String> },
    /// A thread copies the files, and sends how that ended.
    Copying(Receiver<Result<(), String>>),
    /// The reply to each further request of this name.
    Ended(Reply),
}

/// Largest number of threads that copy at once. The copies of each have the segments open, so these
/// take room on the disk after they were deleted. More dumps wait until one has ended; those that
/// wait together have the same content.
const MOST_COPYING: usize = 4;

/// The dumps of a run.
#[derive(Default)]
pub(super) struct Dumps {
    named: BTreeMap<String, Dump>,
    copying: Vec<JoinHandle<()>>,
}

/// A dump that is to be written from a copy.
struct Wanted {
    /// Properties of its files: the rule of findings that it is written for, and what happened.
    properties: Vec<(&'static str, String)>,
    info: RunInfo,
    written: Sender<Result<(), String>>,
    directory: PathBuf,
}

impl Engine {
    /// Deletes what is older than what is kept.
    pub(super) fn forget_old(&mut self, now: u64) {
        let files = &mut self.out.files;
        let Some(keeping) = &files.keeping else { return };
        if let Some(kept) = keeping.kept_steps() {
            for target in self.targets.values() {
                if let Some(open) = files.open.get_mut(target.file) {
                    open.step_starts.add(target.steps_begun(), kept, now);
                }
            }
        }
        for open in &mut files.open {
            if let Some(horizon_ns) = keeping.horizon_ns(&open.step_starts, now) {
                open.writer.forget_before(horizon_ns, now);
            }
        }
    }

    /// Returns the option by which only the last part is kept, and the length of that part, ns;
    /// `None` without the option.
    pub(super) fn kept(&self, now_ns: u64) -> Option<(String, u64)> {
        let option = self.out.files.keeping.as_ref()?.option();
        let since_ns = self.kept_since_ns().max(self.parts.info.start_ns);
        Some((option, now_ns.saturating_sub(since_ns)))
    }

    /// Returns the time since which all files have everything, ns; 0 if nothing was deleted.
    fn kept_since_ns(&self) -> u64 {
        let since = self.out.files.open.iter().map(|open| open.writer.kept_since_ns());
        since.max().unwrap_or(0)
    }

    /// Returns what was deleted because only the last part is kept; `None` if nothing was.
    pub(super) fn not_kept(&self, end_ns: u64) -> Option<BlindSpot> {
        let option = self.out.files.keeping.as_ref()?.option();
        let since_ns = self.kept_since_ns();
        let start_ns = self.parts.info.start_ns;
        let seconds = |ns: u64| format!("{:.2} s", ns as f64 / 1e9);
        let (off_ns, run_ns) = (since_ns.checked_sub(start_ns)?, end_ns.saturating_sub(start_ns));
        let what = format!("everything in {} of {}", seconds(off_ns), seconds(run_ns));
        Some(BlindSpot { as_asked: true, ..BlindSpot::new("the job", what, option) })
    }

    /// Answers a request to write what is kept, and begins to do so at the first one.
    pub(super) fn dump(&mut self, name: String, why: String, rule: Option<String>) -> Reply {
        if self.out.files.keeping.is_none() {
            let message =
                "this run keeps everything, so there is nothing to write: `--keep` was not given";
            return Reply::new(false, message.to_owned());
        }
        match self.dumps.named.get(&name) {
            Some(Dump::Ended(reply)) => return reply.clone(),
            Some(Dump::Gathering { .. } | Dump::Gathered { .. } | Dump::Copying(_)) => {}
            None if !is_dump(&name) => {
                return Reply::new(false, format!("`{name}` is no name of a dump"));
            }
            None => {
                self.mark(&why, MarkKind::Mark);
                let (reply, written) = channel();
                self.add_write_request(None, reply);
                self.dumps.named.insert(name.clone(), Dump::Gathering { why, rule, written });
            }
        }
        Reply::waiting(format!("`{name}` is being written"))
    }

    /// Goes on with the dumps that were requested.
    pub(super) fn follow_dumps(&mut self) {
        let mut gathered = Vec::new();
        for (name, dump) in &mut self.dumps.named {
            match dump {
                Dump::Gathering { why, rule, written } => {
                    if !matches!(written.try_recv(), Err(TryRecvError::Empty)) {
                        let (why, rule) = (std::mem::take(why), rule.take());
                        *dump = Dump::Gathered { why, rule };
                    }
                }
                Dump::Copying(written) => match written.try_recv() {
                    Err(TryRecvError::Empty) => {}
                    ended => *dump = Dump::Ended(reply_of(name, ended)),
                },
                Dump::Gathered { .. } | Dump::Ended(_) => {}
            }
            if matches!(dump, Dump::Gathered { .. }) {
                gathered.push(name.clone());
            }
        }
        self.dumps.copying.retain(|thread| !thread.is_finished());
        if !gathered.is_empty() && self.dumps.copying.len() < MOST_COPYING {
            self.begin_to_copy(gathered);
        }
    }

    /// Waits for the dumps that are being copied. Those that were not begun are not needed any more:
    /// the run itself has what is kept.
    pub(super) fn finish_dumps(&mut self) {
        let Dumps { named, copying } = std::mem::take(&mut self.dumps);
        copying.into_iter().for_each(|thread| drop(thread.join()));
        for (name, dump) in named {
            if matches!(dump, Dump::Gathering { .. } | Dump::Gathered { .. }) {
                let _ = std::fs::remove_dir(self.parts.config.output.join(name));
            }
        }
    }

    /// Begins to write what is kept now as these dumps.
    fn begin_to_copy(&mut self, names: Vec<String>) {
        let copies = self.copies();
        let mut wanted = Vec::new();
        for name in names {
            let Some(Dump::Gathered { why, rule }) = self.dumps.named.remove(&name) else {
                continue;
            };
            let dump = match &copies {
                Ok((_, info)) => {
                    let directory = self.parts.config.output.join(&name);
                    let (written, is_written) = channel();
                    let mut info = info.clone();
                    info.notes.push(format!("written while the job ran: {why}"));
                    let mut properties = Vec::new();
                    if let Some(rule) = rule {
                        properties.push((property::DUMPED_FOR, rule));
                        properties.push((property::DUMPED_WHY, why));
                    }
                    if self.parts.config.redact {
                        run_json::redact(&mut info);
                        properties.truncate(1);
                    }
                    wanted.push(Wanted { properties, info, written, directory });
                    Dump::Copying(is_written)
                }
                Err(error) => Dump::Ended(Reply::new(false, error.clone())),
            };
            self.dumps.named.insert(name, dump);
        }
        let Ok((copies, _)) = copies else { return };
        let info_name = self.parts.info_path.file_name().unwrap_or_default().to_owned();
        let copy = move || {
            for Wanted { properties, info, written, directory } in wanted {
                let path = directory.join(&info_name);
                let _ = written.send(write(&copies, &directory, &properties, &path, &info));
            }
        };
        // If there is no thread, the senders are dropped, by which the dumps fail.
        let thread = std::thread::Builder::new().name("tprof-dump".to_owned()).spawn(copy);
        self.dumps.copying.extend(thread.ok());
    }

    /// Prepares copies of what is kept in each file, with the file's name, and the `run.json` of
    /// them.
    fn copies(&mut self) -> Result<(Vec<(OsString, KeptCopy)>, RunInfo), String> {
        let now = sys::monotonic_ns();
        let mut copies = Vec::new();
        for open in &mut self.out.files.open {
            if let Some(copy) = open.writer.copy_kept().map_err(|error| error.to_string())? {
                copies.push((open.path.file_name().unwrap_or_default().to_owned(), copy));
            }
        }
        self.refresh_info();
        let mut info = self.parts.info.clone();
        let recorded = copies.iter().map(|(_, copy)| copy.recorded()).sum();
        Recorded { events: info.completeness.recorded, samples: info.completeness.samples } =
            recorded;
        info.completeness.blind.extend(self.left_out_so_far(now));
        (info.finished, info.end_ns) = (true, Some(now));
        Ok((copies, info))
    }

    /// Asks for a dump if a process of a rank failed, and `--on error` is set.
    pub(super) fn notice_failure(&mut self, image: u64, has_progressed: bool) {
        let Some(dumps) = self.parts.dumps.as_ref().filter(|_| self.parts.config.dump_on.error)
        else {
            return;
        };
        let Some(row) = self.out.processes.process(image) else { return };
        let how = match (row.signal, row.exit_status) {
            (Some(signal), _) => format!("was ended by signal {signal}"),
            (None, Some(status)) if status != 0 && has_progressed => {
                format!("ended with status {status}")
            }
            _ => return,
        };
        let rank = row.rank.map_or(String::new(), |rank| format!(" of rank {rank}"));
        let why = format!("process {}{rank} {how}: {}", row.pid, row.command);
        let _ = dumps.send(DumpCause::new(why));
    }

    /// Asks for a dump if the host or a device had no memory left for the job since the last time,
    /// and `--on oom` is set.
    pub(super) fn notice_lack_of_memory(&mut self, oom_kills: Option<u64>) {
        let Some(dumps) = self.parts.dumps.as_ref().filter(|_| self.parts.config.dump_on.oom)
        else {
            return;
        };
        let kills = oom_kills.unwrap_or(0);
        if kills > self.oom_kills_noticed {
            self.oom_kills_noticed = kills;
            let _ =
                dumps.send(DumpCause::new("the kernel killed a process for lack of memory".into()));
        }
        // Each target is asked, so that none is noticed a second time.
        let lacked = self.targets.values_mut().filter_map(|t| t.calls.lacks_memory().then_some(()));
        if lacked.count() > 0 {
            let rule = Some("OutOfDeviceMemory");
            let why = "a device had no memory left".to_owned();
            let _ = dumps.send(DumpCause { why, rule, file: None });
        }
    }
}

/// Writes the files, and then `run.json`, by which the dump is known to be whole.
fn write(
    copies: &[(OsString, KeptCopy)],
    directory: &Path,
    properties: &[(&str, String)],
    path: &Path,
    info: &RunInfo,
) -> Result<(), String> {
    let properties: Vec<_> = properties.iter().map(|(key, text)| (*key, text.as_str())).collect();
    for (file, copy) in copies {
        let written = copy.write(&directory.join(file), &properties);
        written.map_err(|error| error.to_string())?;
    }
    let failed = |error| format!("`{}` cannot be written: {error}", path.display());
    run_json::write(path, info).map(drop).map_err(failed)
}

fn reply_of(name: &str, ended: Result<Result<(), String>, TryRecvError>) -> Reply {
    match ended {
        Ok(Ok(())) => Reply::new(true, format!("`{name}` is written")),
        Ok(Err(error)) => Reply::new(false, error),
        Err(_) => Reply::new(false, "the thread that writes it failed".to_owned()),
    }
}
