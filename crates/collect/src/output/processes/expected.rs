//! Reports the programs that processes were about to run and that never attached, with the reason.

use super::{Expected, Processes, in_words};
use crate::output::losses::MAX_BLIND;
use crate::output::own_program::is_own;
use std::path::Path;
use tprof_symbols::elf;
use tprof_trace::run::{BlindSpot, ProcessInfo};
use tprof_wire::WIRE_VERSION;

/// The verdicts of hooks on an exec: whether tprof can follow the process into the new program.
mod verdict {
    use tprof_wire::record::ExecVerdict;

    pub const FOLLOWED: u32 = ExecVerdict::Followed as u32;
    pub const NO_ENVIRONMENT: u32 = ExecVerdict::NoEnvironment as u32;
    pub const STATIC: u32 = ExecVerdict::Static as u32;
    pub const OTHER_CLASS: u32 = ExecVerdict::OtherClass as u32;
    pub const SETUID: u32 = ExecVerdict::Setuid as u32;
    pub const SANITIZER: u32 = ExecVerdict::Sanitizer as u32;
    pub const FILTERED: u32 = ExecVerdict::Filtered as u32;
}

/// The reason why nothing was recorded of a process, if no better reason is known.
pub(super) const NEVER_ATTACHED: &str =
    "it never attached: it ended before its libraries were loaded, or could not reach the session";
/// The reason why nothing was recorded of a process that continued before the collector answered.
pub(super) const STOOD_STILL_THEN: &str = "the collector stood still when it began";

impl Processes {
    /// Notes that `pid` is about to run the program `path`.
    pub fn executes(&mut self, pid: u32, parent: u32, path: String, verdict: u32, time_ns: u64) {
        self.forks.remove(&pid);
        // The new program may have attached before the last records of the old one are read.
        let arrived = self
            .image_of(pid)
            .and_then(|image| self.process(image))
            .is_some_and(|p| p.start_ns >= time_ns);
        if arrived {
            return;
        }
        self.expected.insert(pid, Expected { path, verdict, parent, time_ns });
    }

    /// Notes that the exec which `pid` was about to make has failed.
    pub fn exec_failed(&mut self, pid: u32) {
        self.expected.remove(&pid);
    }

    /// Notes that a process spawned `pid` with the program `path`, which may have attached already.
    pub fn spawned(&mut self, pid: u32, parent: u32, path: String, verdict: u32, time_ns: u64) {
        self.executes(pid, parent, path, verdict, time_ns);
    }

    /// Whether a process may still attach: it runs a program that has not attached, and nothing is
    /// known that would prevent it.
    pub fn may_attach(&self, pid: u32) -> bool {
        match self.expected.get(&pid) {
            Some(expected) => expected.verdict == verdict::FOLLOWED,
            None if self.root != Some(pid) || self.newest.contains_key(&pid) => false,
            None => *self.root_may_attach.get_or_init(|| {
                elf::blind_reason(Path::new(&format!("/proc/{pid}/exe"))).is_none()
            }),
        }
    }

    /// Whether a process ended with another program that did not attach. If so, `status` is the end
    /// of that program, which is reported.
    pub fn was_replaced(&mut self, pid: u32, status: Option<i32>, time_ns: u64) -> bool {
        let Some(expected) = self.expected.remove(&pid) else { return self.replaced.remove(&pid) };
        self.unseen(pid, &expected, status.map(|status| (status, time_ns)));
        true
    }

    pub(super) fn expected_ended(&mut self, pid: u32, status: i32, time_ns: u64) {
        let Some(expected) = self.expected.remove(&pid) else { return };
        if self.newest.contains_key(&pid) {
            self.replaced.insert(pid);
        }
        self.unseen(pid, &expected, Some((status, time_ns)));
    }

    /// Reports a program of which nothing was recorded, and adds a row for it.
    pub(super) fn unseen(&mut self, pid: u32, expected: &Expected, end: Option<(i32, u64)>) {
        let name = Path::new(&expected.path)
            .file_name()
            .map_or_else(|| expected.path.clone(), |n| n.to_string_lossy().into_owned());
        let (what, why) = match self.unanswered.remove(&(pid, false)) {
            Some(_) => ("everything".to_owned(), STOOD_STILL_THEN.to_owned()),
            None => self.reason(pid, expected),
        };
        // It isn't part of the job, so it isn't reported as missing, but it has a row.
        let own = is_own(Path::new(&expected.path));
        if !own {
            self.losses.add_blind(BlindSpot::new(format!("{pid} {name}"), what, why));
        }
        let (exit_status, signal, ended_by) = in_words(end.map(|(status, _)| status));
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
            own,
            ..ProcessInfo::default()
        };
        self.unattached.reported(program, &mut self.processes);
    }

    fn reason(&self, pid: u32, expected: &Expected) -> (String, String) {
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
            _ => return self.reason_of_file(pid, Path::new(&expected.path)),
        };
        ("everything".to_owned(), why.to_owned())
    }

    pub(super) fn reason_of_file(&self, pid: u32, path: &Path) -> (String, String) {
        let (what, why) = match (self.refused.get(&pid), elf::blind_reason(path)) {
            (Some(version), _) => ("everything", of_another(*version)),
            (None, Some((what, why))) => (what, why),
            (None, None) => ("everything", NEVER_ATTACHED.to_owned()),
        };
        (what.to_owned(), why)
    }

    /// Notes that a process has loaded the library of another tprof. That happens if two are
    /// installed and `LD_PRELOAD` names the other one.
    pub fn refused(&mut self, pid: u32, version: u32) {
        // If the process has already ended, its parent's record of that may have been handled.
        let name = format!("{pid} ");
        let is_it = |known: &&mut BlindSpot| {
            known.why == NEVER_ATTACHED && known.process.starts_with(&name)
        };
        if let Some(known) = self.losses.blind.iter_mut().find(is_it) {
            known.why = of_another(version);
        } else if self.refused.len() < MAX_BLIND {
            self.refused.insert(pid, version);
        }
    }
}

fn of_another(version: u32) -> String {
    format!(
        "LD_PRELOAD has another tprof's library: its interface has version {version}, this one's {WIRE_VERSION}"
    )
}
