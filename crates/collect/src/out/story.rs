//! What became of every process: who began whom, how each ended, who could not
//! be seen, and what was lost.

mod unattached;

use crate::config::Config;
use crate::elf;
use crate::engine::standstill::Standstill;
use crate::engine::survivors::Survivor;
use crate::session::server::Unanswered;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use tprof_trace::model::ProcessEnd;
use tprof_trace::run::{Blind, ProcessInfo};
use unattached::Unattached;

/// Verdicts of an exec, as `tprof_wire::record::ExecVerdict` numbers them.
mod verdict {
    pub const NO_ENVIRONMENT: u32 = 1;
    pub const STATIC: u32 = 2;
    pub const OTHER_CLASS: u32 = 3;
    pub const SETUID: u32 = 4;
    pub const SANITIZER: u32 = 5;
    pub const FILTERED: u32 = 6;
}

/// A program that was about to run, and has not attached.
#[derive(Clone, Debug)]
struct Expected {
    path: String,
    verdict: u32,
    parent: u32,
    time_ns: u64,
}

/// Where an image belongs; its children may ask after it is gone.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Index of its file.
    pub file: usize,
    /// Its rank.
    pub rank: Option<u32>,
    /// Its environment carries LOCAL_RANK.
    pub is_worker: bool,
}

/// See the module.
#[derive(Default)]
pub struct Story {
    /// Process images, in order of appearance; `ProcessInfo` as `run.json` has it.
    pub processes: Vec<ProcessInfo>,
    /// Row in `processes` of an image.
    row: HashMap<u64, usize>,
    /// File that holds a row's data, by index of the open files.
    file: HashMap<usize, usize>,
    /// File, rank, and whether it is a worker, of every image there ever was.
    places: HashMap<u64, Place>,
    /// Newest image of a pid.
    newest: HashMap<u32, u64>,
    /// Wait statuses, by pid, in order of time.
    reaped: HashMap<u32, Vec<(u64, i32)>>,
    /// Those of them of which it is not settled whether they attached: rings are read between
    /// two looks at who did, and a process may have done so and be reaped in the meantime.
    unsettled: Vec<(u32, i32, u64)>,
    /// Statuses that processes announced themselves.
    announced: HashMap<u64, i32>,
    expected: HashMap<u32, Expected>,
    /// Pids whose last program did not attach, and has been told of.
    replaced: HashSet<u32>,
    /// Forked children that recorded nothing so far: parent's image and when.
    forks: HashMap<u32, (u64, u64)>,
    blind: Vec<Blind>,
    /// Processes that were not answered in time, by pid and whether it was their agent.
    unanswered: BTreeMap<(u32, bool), Unanswered>,
    /// Whether the collector gets on, and what was lost for that it does not.
    pub standstill: Standstill,
    /// Programs of which no ring tells.
    unattached: Unattached,
    losses: BTreeMap<(String, String), u64>,
    /// Pid that the launcher started.
    pub root: Option<u32>,
    /// It has ended.
    pub root_ended: bool,
    /// End of the last process that ended.
    pub last_end_ns: Option<u64>,
    /// Waits of images that are written off, ns.
    pub wait_ns: u64,
    /// Estimated hook time of images that are written off, ns.
    pub host_ns: u64,
    /// CPU time of images that are written off, as last read; ns.
    pub cpu_ns: u64,
    /// CPU time of the launched tree, as the kernel adds it up; ns.
    pub tree_cpu_ns: u64,
    /// Messages taken, to notice new ones.
    pub messages: u64,
    complaints: HashSet<String>,
}

/// Why nothing was seen of a process for which there is no better reason.
const NEVER_ATTACHED: &str =
    "it never attached: it ended before its libraries were loaded, or could not reach the session";
/// Why a process was not recorded that went on without an answer.
const STOOD_STILL_THEN: &str = "the collector stood still when it began";

/// Entries of this kind that are kept; a build of millions of processes must not
/// fill the collector's memory.
const MOST_BLIND: usize = 10_000;

impl Story {
    /// An image attached.
    pub fn began(&mut self, image: u64, info: ProcessInfo, place: Place) {
        // Its pid was another's before.
        let before = |(pid, _, at): &mut (u32, i32, u64)| *pid == info.pid && *at <= info.start_ns;
        let gone: Vec<_> = self.unsettled.extract_if(.., before).collect();
        for (pid, status, time_ns) in gone {
            self.gone(pid, status, time_ns);
        }
        self.places.insert(image, place);
        self.newest.insert(info.pid, image);
        self.forks.remove(&info.pid);
        if self.expected.get(&info.pid).is_some_and(|e| e.time_ns <= info.start_ns) {
            self.expected.remove(&info.pid);
        }
        self.file.insert(self.processes.len(), place.file);
        self.row.insert(image, self.processes.len());
        self.processes.push(info);
    }

    /// Where an image belongs.
    pub fn place_of(&self, image: u64) -> Option<Place> {
        self.places.get(&image).copied()
    }

    /// All rows, each with the name of its file now.
    pub fn rows(&self, names: &[String]) -> Vec<ProcessInfo> {
        let mut rows = self.processes.clone();
        for (row, file) in &self.file {
            if let Some(row) = rows.get_mut(*row) {
                row.file = names.get(*file).cloned();
            }
        }
        rows
    }

    /// Row of an image.
    pub fn process(&mut self, image: u64) -> Option<&mut ProcessInfo> {
        let row = *self.row.get(&image)?;
        self.processes.get_mut(row)
    }

    /// Newest image of a pid.
    pub fn image_of(&self, pid: u32) -> Option<u64> {
        self.newest.get(&pid).copied()
    }

    /// A program was sampled that did not attach; its row.
    pub fn sampled(&mut self, info: ProcessInfo, file: usize) -> usize {
        let row = self.unattached.sampled(info, &mut self.processes);
        self.file.insert(row, file);
        row
    }

    /// A program that was sampled has ended; how, if anyone saw it.
    pub fn sampled_ended(&mut self, row: usize, end_ns: u64, last: bool) -> Option<ProcessEnd> {
        let process = self.processes.get(row)?;
        let told = process.exit_status.is_some() || process.signal.is_some();
        let status = self.status_of(process.pid, process.start_ns).filter(|_| !told);
        let process = self.processes.get_mut(row)?;
        if let Some(status) = status {
            (process.exit_status, process.signal, process.ended_by) = self::told(Some(status));
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

    /// An image forked a child, which attaches only once it allocates.
    pub fn forked(&mut self, child: u32, parent: u64, time_ns: u64) {
        let attached = self
            .image_of(child)
            .and_then(|image| self.process(image))
            .is_some_and(|p| p.start_ns >= time_ns);
        if !attached {
            self.forks.insert(child, (parent, time_ns));
        }
    }

    /// A forked child came and went, and recorded nothing.
    fn quiet_child(
        &mut self,
        pid: u32,
        (parent, start_ns): (u64, u64),
        status: Option<i32>,
        end_ns: Option<u64>,
    ) {
        let Some(parent) = self.process(parent).cloned() else { return };
        let (exit_status, signal, ended_by) = told(status);
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
        self.unattached.told(child, &mut self.processes);
    }

    /// A process was reaped by its parent (or by the launcher).
    pub fn reaped(&mut self, pid: u32, status: i32, time_ns: u64) {
        self.reaped.entry(pid).or_default().push((time_ns, status));
        self.unsettled.push((pid, status, time_ns));
    }

    /// Judges who was reaped and had not attached, once everybody is known who attached before.
    pub fn settle(&mut self) {
        for (pid, status, time_ns) in std::mem::take(&mut self.unsettled) {
            self.gone(pid, status, time_ns);
        }
    }

    /// A process was reaped that has not attached by then, if it is still expected.
    fn gone(&mut self, pid: u32, status: i32, time_ns: u64) {
        self.expected_ended(pid, status, time_ns);
        if let Some(fork) = self.forks.remove(&pid) {
            self.quiet_child(pid, fork, Some(status), Some(time_ns));
        }
    }

    /// A process announced its exit status.
    pub fn announces(&mut self, image: u64, status: i32) {
        self.announced.insert(image, status);
    }

    /// How a process that began at `start_ns` ended, if anyone saw it.
    pub fn status_of(&self, pid: u32, start_ns: u64) -> Option<i32> {
        self.reaped.get(&pid)?.iter().find(|(at, _)| *at >= start_ns).map(|(_, status)| *status)
    }

    /// Writes the end of an image down.
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

    /// `pid` is about to become `path`.
    pub fn executes(&mut self, pid: u32, parent: u32, path: String, verdict: u32, time_ns: u64) {
        self.forks.remove(&pid);
        // The new image's arrival may be read before its old image's last records.
        let arrived = self
            .image_of(pid)
            .and_then(|image| self.process(image))
            .is_some_and(|p| p.start_ns >= time_ns);
        if arrived {
            return;
        }
        self.expected.insert(pid, Expected { path, verdict, parent, time_ns });
    }

    /// It did not.
    pub fn exec_failed(&mut self, pid: u32) {
        self.expected.remove(&pid);
    }

    /// `pid` was spawned from `path`, which may have attached before this was read.
    pub fn spawned(&mut self, pid: u32, parent: u32, path: String, verdict: u32, time_ns: u64) {
        self.executes(pid, parent, path, verdict, time_ns);
    }

    /// Whether a process has become another program that did not attach; that
    /// program's end is `status` then.
    pub fn was_replaced(&mut self, pid: u32, status: Option<i32>, time_ns: u64) -> bool {
        let Some(expected) = self.expected.remove(&pid) else { return self.replaced.remove(&pid) };
        self.unseen(pid, &expected, status.map(|status| (status, time_ns)));
        true
    }

    fn expected_ended(&mut self, pid: u32, status: i32, time_ns: u64) {
        let Some(expected) = self.expected.remove(&pid) else { return };
        if self.newest.contains_key(&pid) {
            self.replaced.insert(pid);
        }
        self.unseen(pid, &expected, Some((status, time_ns)));
    }

    /// A program ran and nothing of it was seen.
    fn unseen(&mut self, pid: u32, expected: &Expected, end: Option<(i32, u64)>) {
        let name = Path::new(&expected.path)
            .file_name()
            .map_or_else(|| expected.path.clone(), |n| n.to_string_lossy().into_owned());
        let (what, why) = match self.unanswered.remove(&(pid, false)) {
            Some(_) => ("everything".to_owned(), STOOD_STILL_THEN.to_owned()),
            None => self.reason(expected),
        };
        self.is_blind(Blind { process: format!("{pid} {name}"), what, why });
        let (exit_status, signal, ended_by) = told(end.map(|(status, _)| status));
        let program = ProcessInfo {
            pid,
            parent: expected.parent,
            rank: None,
            command: expected.path.clone(),
            exit_status,
            signal,
            ended_by,
            start_ns: expected.time_ns,
            end_ns: end.map(|(_, at)| at),
            ..ProcessInfo::default()
        };
        self.unattached.told(program, &mut self.processes);
    }

    fn reason(&self, expected: &Expected) -> (String, String) {
        let why = match expected.verdict {
            verdict::NO_ENVIRONMENT => "its environment dropped LD_PRELOAD or TPROF_SESSION",
            verdict::STATIC => "statically linked: nothing can be loaded into it",
            verdict::OTHER_CLASS => {
                "built for another machine (32-bit?): the library cannot be loaded into it"
            }
            verdict::SETUID => {
                "set-user-id, set-group-id or with file capabilities: the loader ignores LD_PRELOAD"
            }
            verdict::SANITIZER => "a sanitizer build, which must be loaded first: not touched",
            verdict::FILTERED => {
                "its parent is under a seccomp filter, under which attaching could kill it"
            }
            _ => return self.reason_of_file(Path::new(&expected.path)),
        };
        ("everything".to_owned(), why.to_owned())
    }

    fn reason_of_file(&self, path: &Path) -> (String, String) {
        match elf::blind_reason(path) {
            Some((what, why)) => (what.to_owned(), why),
            None => ("everything".to_owned(), NEVER_ATTACHED.to_owned()),
        }
    }

    /// Adds somebody of whom something cannot be seen.
    pub fn is_blind(&mut self, blind: Blind) {
        if self.blind.len() < MOST_BLIND {
            self.blind.push(blind);
        } else {
            self.lose(
                "entries in the list of processes that were not recorded",
                "there were too many",
                1,
            );
        }
    }

    /// As [`Story::is_blind`], once however many processes it concerns.
    pub fn is_blind_once(&mut self, blind: Blind) {
        if !self.blind.iter().any(|known| known.what == blind.what && known.why == blind.why) {
            self.is_blind(blind);
        }
    }

    /// A process went on alone, or ended, before it was answered.
    pub fn unanswered(&mut self, mut late: Unanswered, redact: bool) {
        if redact {
            late.command.truncate(1);
        }
        // Its parent's records may have told of its end before.
        let pid = format!("{} ", late.pid);
        let is_it =
            |known: &&mut Blind| known.why == NEVER_ATTACHED && known.process.starts_with(&pid);
        if let Some(known) = self.blind.iter_mut().find(is_it).filter(|_| !late.agent) {
            known.why = STOOD_STILL_THEN.to_owned();
            return;
        }
        if self.unanswered.len() < MOST_BLIND {
            self.unanswered.insert((late.pid, late.agent), late);
        } else {
            self.lose("processes", STOOD_STILL_THEN, 1);
        }
    }

    /// It came again.
    pub fn answered(&mut self, pid: u32, agent: bool) {
        self.unanswered.remove(&(pid, agent));
    }

    /// Everybody of whom something cannot be seen, at the end of the run.
    pub fn blind(&mut self, config: &Config, survivors: &[Survivor]) -> Vec<Blind> {
        self.settle();
        let left: Vec<(u32, Expected)> = self.expected.drain().collect();
        for (pid, expected) in left {
            // A program that execs over and over is not there twice.
            self.unseen(pid, &expected, None);
        }
        for (pid, fork) in std::mem::take(&mut self.forks) {
            self.quiet_child(pid, fork, None, None);
        }
        self.list_unanswered();
        if let Some(root) = self.root
            && !self.newest.contains_key(&root)
            && !self.blind.iter().any(|b| b.process.starts_with(&format!("{root} ")))
        {
            let name = config.command.first().cloned().unwrap_or_default();
            let (what, why) = self.reason_of_file(&find_program(&name));
            let base = Path::new(&name)
                .file_name()
                .map_or_else(|| name.clone(), |n| n.to_string_lossy().into_owned());
            self.is_blind(Blind { process: format!("{root} {base}"), what, why });
            let status = self.status_of(root, 0);
            let (exit_status, signal, ended_by) = told(status);
            let program = ProcessInfo {
                pid: root,
                parent: std::process::id(),
                command: if config.redact { base } else { config.command.join(" ") },
                exit_status,
                signal,
                ended_by,
                end_ns: self.reaped.get(&root).and_then(|r| r.last()).map(|(at, _)| *at),
                ..ProcessInfo::default()
            };
            self.unattached.told(program, &mut self.processes);
        }
        for survivor in survivors {
            self.is_blind(survivor.blind());
            let last = self.processes.iter_mut().rfind(|row| row.pid == survivor.pid);
            if let Some(row) = last.filter(|row| row.end_ns.is_none()) {
                row.ended_by = "running".to_owned();
            }
        }
        self.blind.sort_by(|a, b| a.process.cmp(&b.process));
        self.blind_so_far()
    }

    /// A row for each process that was not answered and has none.
    fn list_unanswered(&mut self) {
        for late in self.unanswered.clone().into_values().filter(|late| !late.agent) {
            if self.processes.iter().any(|known| known.pid == late.pid) {
                continue;
            }
            let (exit_status, signal, ended_by) = told(self.status_of(late.pid, 0));
            let program = ProcessInfo {
                pid: late.pid,
                parent: late.parent,
                command: late.command.join(" "),
                exit_status,
                signal,
                ended_by,
                start_ns: late.time_ns,
                ..ProcessInfo::default()
            };
            self.unattached.told(program, &mut self.processes);
        }
    }

    /// Those known so far. What was sampled from outside was seen after all.
    pub fn blind_so_far(&self) -> Vec<Blind> {
        let mut all = self.blind.clone();
        all.extend(self.unanswered.values().map(|late| {
            let name = match late.command.first().filter(|name| !name.is_empty()) {
                Some(name) => name.rsplit('/').next().unwrap_or(name).to_owned(),
                None => format!("child of {}", late.parent),
            };
            let what = if late.agent { "devices and NVTX ranges" } else { "everything" };
            Blind {
                process: format!("{} {name}", late.pid),
                what: what.to_owned(),
                why: STOOD_STILL_THEN.to_owned(),
            }
        }));
        for blind in all.iter_mut().filter(|blind| blind.what == "everything") {
            let pid = blind.process.split(' ').next().and_then(|pid| pid.parse().ok());
            if pid.is_some_and(|pid: u32| self.unattached.was_sampled(pid)) {
                blind.what = "everything but CPU samples".to_owned();
            }
        }
        all
    }

    /// Pids of processes that are known by their parents, and did not attach; each with
    /// when it is known to be there, ns.
    pub fn unseen_pids(&self) -> impl Iterator<Item = (u32, u64)> {
        let expected = self.expected.iter().map(|(pid, expected)| (*pid, expected.time_ns));
        expected.chain(self.forks.iter().map(|(pid, (_, time_ns))| (*pid, *time_ns)))
    }

    /// Counts a loss; 0: an unknown number.
    pub fn lose(&mut self, what: &str, why: &str, count: u64) {
        *self.losses.entry((what.to_owned(), why.to_owned())).or_insert(0) += count;
    }

    /// Losses by kind.
    pub fn losses(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.losses.iter().map(|((what, why), count)| (what.as_str(), why.as_str(), *count))
    }

    /// Says something once on stderr: the disk is full, a file is gone.
    pub fn complain(&mut self, what: &str) {
        if self.complaints.insert(what.to_owned()) {
            eprintln!("tprof: {what}");
        }
    }
}

/// A wait status in the words of `run.json`: exit status, signal, how it ended.
fn told(status: Option<i32>) -> (Option<i32>, Option<i32>, String) {
    match status {
        Some(s) if s & 0x7f == 0 => (Some(s >> 8 & 0xff), None, "exit".to_owned()),
        Some(s) => (None, Some(s & 0x7f), "signal".to_owned()),
        None => (None, None, "unknown".to_owned()),
    }
}

/// Finds a program as `execvp` does.
fn find_program(name: &str) -> PathBuf {
    if name.contains('/') {
        return PathBuf::from(name);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|d| d.join(name))
        .find(|p| p.is_file())
        .unwrap_or_else(|| PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_attached_before_it_was_reaped_is_seen_though_its_parent_was_read_first() {
        let mut story = Story::default();
        let place = Place { file: 0, rank: None, is_worker: false };
        let row = |start_ns| ProcessInfo { pid: 7, start_ns, ..ProcessInfo::default() };
        story.spawned(7, 1, "/nosuch/program".to_owned(), 0, 100);
        story.reaped(7, 0, 200);
        story.began(1, row(150), place);
        story.settle();
        assert!(story.blind.is_empty() && story.processes.len() == 1);
        // The next of that pid is another, and the first is settled all the same.
        story.spawned(7, 1, "/nosuch/program".to_owned(), 0, 300);
        story.reaped(7, 0, 400);
        story.began(2, row(500), place);
        story.settle();
        assert_eq!((story.blind.len(), story.processes.len()), (1, 3));
    }
}
