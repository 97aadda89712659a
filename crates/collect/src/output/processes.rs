//! Keeps track of every process of the job: which process started it, how it ended, and whether it
//! could be recorded. Processes are known from attaching, from their parents' records, and from
//! samples.

mod expected;
mod unattached;
mod unseen;

use crate::output::losses::Losses;
use crate::output::module_names::HookedImages;
use crate::output::ranks::Rank;
use crate::output::stepping::Stepping;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tprof_trace::model::ProcessEnd;
use tprof_trace::run::ProcessInfo;
use unattached::Unattached;

/// A program that a process was about to run according to its parent's or its own record, and that
/// has not attached yet.
#[derive(Clone, Debug)]
struct Expected {
    path: String,
    verdict: u32,
    parent: u32,
    time_ns: u64,
}

/// A process that connected and then ended or continued before the collector answered.
#[derive(Clone, Debug)]
pub struct Unanswered {
    /// Pid in the collector's namespace.
    pub pid: u32,
    /// Pid of its parent.
    pub parent: u32,
    /// Whether the process's CUPTI agent connected, instead of its hooks.
    pub agent: bool,
    /// Command line; empty if the process had already ended.
    pub command: Vec<String>,
    /// Time when the collector noticed this, ns.
    pub time_ns: u64,
}

/// The file and the rank of an image. They are stored after its end too, because its children
/// inherit them.
#[derive(Clone, Copy, Debug)]
pub struct Assignment {
    /// Index of its file.
    pub file: usize,
    /// Its rank, which its children inherit.
    pub rank: Option<Rank>,
}

/// The processes of a run.
#[derive(Default)]
pub struct Processes {
    /// The rows of `run.json`: all processes that are known, in order of appearance.
    pub processes: Vec<ProcessInfo>,
    /// Index in `processes` by image.
    row: HashMap<u64, usize>,
    /// Index of the file by index in `processes`.
    file: HashMap<usize, usize>,
    /// File and rank of every image that has attached.
    assignments: HashMap<u64, Assignment>,
    /// The newest image of each pid.
    newest: HashMap<u32, u64>,
    /// Wait statuses of reaped processes by pid, in order of time.
    reaped: HashMap<u32, Vec<(u64, i32)>>,
    /// Reaped processes (pid, status, time) that may or may not have attached. Messages and rings
    /// are read one after the other, so the record that a process was reaped may be read before the
    /// message that it attached.
    unsettled: Vec<(u32, i32, u64)>,
    /// Exit statuses that processes have announced before their end, by image.
    announced: HashMap<u64, i32>,
    expected: HashMap<u32, Expected>,
    /// Pids that attached with one program and ended with another one that didn't attach, which was
    /// already reported.
    replaced: HashSet<u32>,
    /// Forked children that have not attached yet, by pid: the parent's image, and the time of the
    /// fork. A forked child attaches only when it records something.
    forks: HashMap<u32, (u64, u64)>,
    /// Processes that were not answered in time, by pid and whether the CUPTI agent waited.
    unanswered: BTreeMap<(u32, bool), Unanswered>,
    /// For processes with the library of another tprof, the library's version of the wire
    /// interface, by pid.
    refused: BTreeMap<u32, u32>,
    /// Programs that did not attach and have a row anyway.
    unattached: Unattached,
    /// Pid of the process that the launcher started; `None` if nothing was launched.
    pub root: Option<u32>,
    /// Whether the root's program can attach. Computed when it is first needed.
    root_may_attach: OnceCell<bool>,
    /// Whether the root process has ended.
    pub root_ended: bool,
    /// Time when the last process ended, ns.
    pub last_end_ns: Option<u64>,
    /// Number of steps of the process with most steps, if a schedule counts steps.
    pub steps: u64,
    /// Number of captured ranges of the process with most of them.
    pub captures: u64,
    /// CPU time of the launched process and its descendants, as the kernel counts it, ns.
    pub tree_cpu_ns: u64,
    /// Number of images to which libfaketime shows other times than the machine's.
    pub bent: u64,
    /// For `--modules`, the images, and whether the start-up hook of Python ran in them.
    pub hooked: HookedImages,
    /// Which processes run operators of PyTorch, and which have made a step.
    pub stepping: Arc<Stepping>,
    /// Losses, and what could not be recorded.
    pub losses: Losses,
}

impl Processes {
    /// Adds an image that attached.
    pub fn began(&mut self, image: u64, info: ProcessInfo, place: Assignment) {
        // Earlier processes with this pid did not attach, so they can be reported.
        let before = |(pid, _, at): &mut (u32, i32, u64)| *pid == info.pid && *at <= info.start_ns;
        let gone: Vec<_> = self.unsettled.extract_if(.., before).collect();
        for (pid, status, time_ns) in gone {
            self.gone(pid, status, time_ns);
        }
        self.assignments.insert(image, place);
        self.newest.insert(info.pid, image);
        self.forks.remove(&info.pid);
        if self.expected.get(&info.pid).is_some_and(|e| e.time_ns <= info.start_ns) {
            self.expected.remove(&info.pid);
        }
        self.file.insert(self.processes.len(), place.file);
        self.row.insert(image, self.processes.len());
        self.processes.push(info);
    }

    /// Notes that an image runs operators of PyTorch, and whether it has ended a step.
    pub fn runs_operators(&self, image: u64, has_stepped: bool) {
        if let Some(info) = self.row.get(&image).and_then(|row| self.processes.get(*row)) {
            self.stepping.note(info.pid, has_stepped);
        }
    }

    /// Returns the file and rank of an image.
    pub fn assignment_of(&self, image: u64) -> Option<Assignment> {
        self.assignments.get(&image).copied()
    }

    /// Removes the rank of a file's processes, because they turned out to be launchers.
    pub fn launch(&mut self, file: usize) {
        for (row, _) in self.file.iter().filter(|(_, of)| **of == file) {
            if let Some(row) = self.processes.get_mut(*row) {
                row.rank = None;
            }
        }
    }

    /// Returns all rows with the current names of their files, for `run.json`.
    pub fn rows(&self, names: &[String]) -> Vec<ProcessInfo> {
        let mut rows = self.processes.clone();
        for (row, file) in &self.file {
            if let Some(row) = rows.get_mut(*row) {
                row.file = names.get(*file).cloned();
            }
        }
        rows
    }

    /// Returns the row of an image.
    pub fn process(&mut self, image: u64) -> Option<&mut ProcessInfo> {
        let row = *self.row.get(&image)?;
        self.processes.get_mut(row)
    }

    /// Returns the newest image of a pid.
    pub fn image_of(&self, pid: u32) -> Option<u64> {
        self.newest.get(&pid).copied()
    }

    /// Adds a row for a sampled program that did not attach, and returns the row's index.
    pub fn sampled(&mut self, info: ProcessInfo, file: usize) -> usize {
        let row = self.unattached.sampled(info, &mut self.processes);
        self.file.insert(row, file);
        row
    }

    /// Notes that a sampled program has ended. Returns how it ended: unknown if `last` is set,
    /// `None` if that may still become known.
    pub fn sampled_ended(&mut self, row: usize, end_ns: u64, last: bool) -> Option<ProcessEnd> {
        let process = self.processes.get(row)?;
        let has_end = process.exit_status.is_some() || process.signal.is_some();
        let status = self.status_of(process.pid, process.start_ns).filter(|_| !has_end);
        let process = self.processes.get_mut(row)?;
        if let Some(status) = status {
            (process.exit_status, process.signal, process.ended_by) = in_words(Some(status));
        }
        let end = match (process.exit_status, process.signal) {
            (Some(status), _) => ProcessEnd::Exited(status),
            (None, Some(signal)) => ProcessEnd::Signal(signal),
            (None, None) if last => ProcessEnd::Unknown,
            (None, None) => return None,
        };
        process.end_ns = Some(end_ns);
        Some(end)
    }

    /// Notes that an image forked a child. The child attaches only when it records something.
    pub fn forked(&mut self, child: u32, parent: u64, time_ns: u64) {
        let attached = self
            .image_of(child)
            .and_then(|image| self.process(image))
            .is_some_and(|p| p.start_ns >= time_ns);
        if !attached {
            self.forks.insert(child, (parent, time_ns));
        }
    }

    /// Adds a row for a forked child that ended without attaching.
    fn child_without_records(
        &mut self,
        pid: u32,
        (parent, start_ns): (u64, u64),
        status: Option<i32>,
        end_ns: Option<u64>,
    ) {
        let Some(parent) = self.process(parent).cloned() else { return };
        let (exit_status, signal, ended_by) = in_words(status);
        let child = ProcessInfo {
            pid,
            parent: parent.pid,
            exit_status,
            signal,
            ended_by,
            start_ns,
            end_ns,
            lost: None,
            ..parent
        };
        self.unattached.reported(child, &mut self.processes);
    }

    /// Notes that a parent or the launcher has reaped a process.
    pub fn reaped(&mut self, pid: u32, status: i32, time_ns: u64) {
        self.reaped.entry(pid).or_default().push((time_ns, status));
        self.unsettled.push((pid, status, time_ns));
    }

    /// Handles the reaped processes that did not attach. The caller has handled the messages of all
    /// processes that attached before.
    pub fn settle(&mut self) {
        for (pid, status, time_ns) in std::mem::take(&mut self.unsettled) {
            self.gone(pid, status, time_ns);
        }
    }

    /// Handles a process that was reaped without having attached.
    fn gone(&mut self, pid: u32, status: i32, time_ns: u64) {
        self.expected_ended(pid, status, time_ns);
        if let Some(fork) = self.forks.remove(&pid) {
            self.child_without_records(pid, fork, Some(status), Some(time_ns));
        }
    }

    /// Notes the exit status that a process has announced before its end.
    pub fn announces(&mut self, image: u64, status: i32) {
        self.announced.insert(image, status);
    }

    /// Returns the wait status of the process with this pid that began at `start_ns`, if it is
    /// known.
    pub fn status_of(&self, pid: u32, start_ns: u64) -> Option<i32> {
        self.reaped.get(&pid)?.iter().find(|(at, _)| *at >= start_ns).map(|(_, status)| *status)
    }

    /// Writes the end of an image into its row, and returns how it ended.
    pub fn ended(
        &mut self,
        image: u64,
        pid: u32,
        status: Option<i32>,
        exec: bool,
        end_ns: Option<u64>,
    ) -> ProcessEnd {
        let start = self.process(image).map_or(0, |p| p.start_ns);
        let known = status.or_else(|| self.status_of(pid, start));
        let end = match known {
            _ if exec => ProcessEnd::Exec,
            Some(status) if status & 0x7f == 0 => ProcessEnd::Exited(status >> 8 & 0xff),
            Some(status) => ProcessEnd::Signal(status & 0x7f),
            None => match self.announced.get(&image) {
                Some(status) => ProcessEnd::Exited(status & 0xff),
                None => ProcessEnd::Unknown,
            },
        };
        self.last_end_ns = self.last_end_ns.max(end_ns);
        if let Some(process) = self.process(image) {
            process.end_ns = end_ns;
            (process.exit_status, process.signal) = match end {
                ProcessEnd::Exited(status) => (Some(status), None),
                ProcessEnd::Signal(signal) => (None, Some(signal)),
                _ => (None, None),
            };
            process.ended_by = match (end, end_ns) {
                (_, None) => "running",
                (ProcessEnd::Exited(_), _) => "exit",
                (ProcessEnd::Signal(_), _) => "signal",
                (ProcessEnd::Exec, _) => "exec",
                (ProcessEnd::Unknown, _) => "unknown",
            }
            .to_owned();
        }
        end
    }
}

/// Converts a wait status to the columns of `run.json`: exit status, signal, and a word for how the
/// process ended.
fn in_words(status: Option<i32>) -> (Option<i32>, Option<i32>, String) {
    match status {
        Some(s) if s & 0x7f == 0 => (Some(s >> 8 & 0xff), None, "exit".to_owned()),
        Some(s) => (None, Some(s & 0x7f), "signal".to_owned()),
        None => (None, None, "unknown".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_attached_is_not_missing_if_its_end_is_read_first() {
        let mut processes = Processes::default();
        let place = Assignment { file: 0, rank: None };
        let row = |start_ns| ProcessInfo { pid: 7, start_ns, ..ProcessInfo::default() };
        processes.spawned(7, 1, "/nosuch/program".to_owned(), 0, 100);
        processes.reaped(7, 0, 200);
        processes.began(1, row(150), place);
        processes.settle();
        assert!(processes.losses.blind.is_empty() && processes.processes.len() == 1);
        // The next process with this pid is another one. The first did not attach before it was
        // reaped.
        processes.spawned(7, 1, "/nosuch/program".to_owned(), 0, 300);
        processes.reaped(7, 0, 400);
        processes.began(2, row(500), place);
        processes.settle();
        assert_eq!((processes.losses.blind.len(), processes.processes.len()), (1, 3));
    }
}
