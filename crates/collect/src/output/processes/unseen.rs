//! Lists the processes that were not recorded completely: they were not answered in time, never
//! attached, or still run at the end.

use super::expected::{NEVER_ATTACHED, STOOD_STILL_THEN};
use super::{Expected, Processes, Unanswered, in_words};
use crate::config::Config;
use crate::output::losses::MAX_BLIND;
use crate::output::survivors::Survivor;
use std::path::{Path, PathBuf};
use tprof_os::proc;
use tprof_trace::run::{BlindSpot, ProcessInfo};

impl Processes {
    /// Notes that a process continued without an answer, or ended before the collector answered.
    pub fn unanswered(&mut self, mut late: Unanswered, redact: bool) {
        if redact {
            late.command = vec![proc::program_of(&late.command.join(" "))];
        }
        // If the process has already ended, its parent's record of that may have been handled.
        let pid = format!("{} ", late.pid);
        let is_it =
            |known: &&mut BlindSpot| known.why == NEVER_ATTACHED && known.process.starts_with(&pid);
        if let Some(known) = self.losses.blind.iter_mut().find(is_it).filter(|_| !late.agent) {
            known.why = STOOD_STILL_THEN.to_owned();
            return;
        }
        if self.unanswered.len() < MAX_BLIND {
            self.unanswered.insert((late.pid, late.agent), late);
        } else {
            self.losses.lose("processes", STOOD_STILL_THEN, 1);
        }
    }

    /// Notes that a process which had not been answered in time has been answered now.
    pub fn answered(&mut self, pid: u32, agent: bool) {
        self.unanswered.remove(&(pid, agent));
    }

    /// Returns everything that was not recorded of processes. The run must be over.
    pub fn blind(&mut self, config: &Config, survivors: &[Survivor]) -> Vec<BlindSpot> {
        self.settle();
        let left: Vec<(u32, Expected)> = self.expected.drain().collect();
        for (pid, expected) in left {
            // If a program calls exec repeatedly, only its last program is listed here.
            self.unseen(pid, &expected, None);
        }
        for (pid, fork) in std::mem::take(&mut self.forks) {
            self.child_without_records(pid, fork, None, None);
        }
        self.list_unanswered();
        if let Some(root) = self.root
            && !self.newest.contains_key(&root)
            && !self.losses.blind.iter().any(|b| b.process.starts_with(&format!("{root} ")))
        {
            let name = config.command.first().cloned().unwrap_or_default();
            let (what, why) = self.reason_of_file(root, &find_program(&name));
            let base = Path::new(&name)
                .file_name()
                .map_or_else(|| name.clone(), |n| n.to_string_lossy().into_owned());
            self.losses.add_blind(BlindSpot::new(format!("{root} {base}"), what, why));
            let status = self.status_of(root, 0);
            let (exit_status, signal, ended_by) = in_words(status);
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
            self.unattached.reported(program, &mut self.processes);
        }
        for survivor in survivors {
            self.losses.add_blind(survivor.blind());
            let last = self.processes.iter_mut().rfind(|row| row.pid == survivor.pid);
            if let Some(row) = last.filter(|row| row.end_ns.is_none()) {
                row.ended_by = "running".to_owned();
            }
        }
        self.losses.blind.sort_by(|a, b| a.process.cmp(&b.process));
        self.blind_so_far()
    }

    /// Adds a row for each process that was not answered and has no row yet.
    fn list_unanswered(&mut self) {
        for late in self.unanswered.clone().into_values().filter(|late| !late.agent) {
            if self.processes.iter().any(|known| known.pid == late.pid) {
                continue;
            }
            let (exit_status, signal, ended_by) = in_words(self.status_of(late.pid, 0));
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
            self.unattached.reported(program, &mut self.processes);
        }
    }

    /// Returns everything that was not recorded so far. If a process was sampled from outside, only
    /// its other data is missing.
    pub fn blind_so_far(&self) -> Vec<BlindSpot> {
        let mut all = self.losses.blind.clone();
        all.extend(self.unanswered.values().map(|late| {
            let name = match late.command.first().filter(|name| !name.is_empty()) {
                Some(name) => name.rsplit('/').next().unwrap_or(name).to_owned(),
                None => format!("child of {}", late.parent),
            };
            let what = if late.agent { "devices and NVTX ranges" } else { "everything" };
            BlindSpot::new(format!("{} {name}", late.pid), what, STOOD_STILL_THEN)
        }));
        for blind in all.iter_mut().filter(|blind| blind.what == "everything") {
            let pid = blind.process.split(' ').next().and_then(|pid| pid.parse().ok());
            if pid.is_some_and(|pid: u32| self.unattached.was_sampled(pid)) {
                blind.what = "everything but CPU samples".to_owned();
            }
        }
        all
    }

    /// Returns the pids of processes that only their parents have reported. Each has a time at
    /// which the process existed, ns.
    pub fn unseen_pids(&self) -> impl Iterator<Item = (u32, u64)> {
        let expected = self.expected.iter().map(|(pid, expected)| (*pid, expected.time_ns));
        expected.chain(self.forks.iter().map(|(pid, (_, time_ns))| (*pid, *time_ns)))
    }
}

/// Finds a program in the directories of PATH, as `execvp` does.
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
