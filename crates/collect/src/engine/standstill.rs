//! Tells what the engine knows of its ranks at this moment, for `tprof where`: how each goes on, and
//! the process that runs its steps. The stacks are read elsewhere.

use super::inbox::{HangReport, SlowStepReport, WatchedStep};
use super::main_loop::Engine;
use crate::targets::target::Target;
use std::collections::{BTreeMap, HashMap};
use tprof_hang::{HostState, RankEnd, RankState};
use tprof_os::sys;
use tprof_trace::model::property;
use tprof_trace::run::ProcessInfo;

impl Engine {
    /// Returns the state of all ranks, without their threads.
    pub(super) fn standstill(&mut self) -> HostState {
        let now_ns = sys::monotonic_ns();
        let rows = &self.out.processes.processes;
        let has_ranks = rows.iter().any(|row| row.rank.is_some());
        let mut by_rank: BTreeMap<u32, Vec<&ProcessInfo>> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.rank.is_some() || !has_ranks) {
            by_rank.entry(row.rank.unwrap_or(0)).or_default().push(row);
        }
        let by_pid: HashMap<u32, &Target> = self
            .targets
            .values()
            .filter(|target| target.end.is_none())
            .map(|target| (target.pid, target))
            .collect();
        let (host, always_on) = (self.parts.info.host.clone(), self.recording.always_on);
        let state = |(rank, rows): (u32, Vec<&ProcessInfo>)| {
            let live: Vec<u32> =
                rows.iter().filter(|row| row.end_ns.is_none()).map(|row| row.pid).collect();
            let state = match self.driving(&live, &by_pid) {
                Some((pid, target)) => {
                    let known =
                        target.map(|target| target.standstill(now_ns, &self.out.clock, always_on));
                    RankState { pid, ..known.unwrap_or_default() }
                }
                None => RankState { end: end_of(&rows, now_ns), ..RankState::default() },
            };
            RankState { rank, host: host.clone(), processes: live, ..state }
        };
        let processes = rows.iter().filter(|row| row.end_ns.is_none()).map(|row| row.pid).collect();
        let ranks = by_rank.into_iter().map(state).collect();
        HostState { host: host.clone(), ranks, processes, root: self.out.processes.root }
    }

    /// Returns the last step of each process whose steps are watched.
    pub(super) fn watched_steps(&self) -> Vec<WatchedStep> {
        let (now_ns, always_on) = (sys::monotonic_ns(), self.recording.always_on);
        let live = self.targets.values().filter(|target| target.end.is_none());
        live.filter_map(|target| target.watched_step(now_ns, always_on)).collect()
    }

    /// Writes that the job hangs into the run's notes, and into the file of the rank that the verdict
    /// is about, or into the first file, if that rank is on another host.
    pub(super) fn hung(&mut self, report: &HangReport) {
        let verdict = &report.verdict;
        let after_ns = u64::try_from(report.limit.as_nanos()).unwrap_or(u64::MAX);
        let value =
            serde_json::json!({"after_ns": after_ns, "verdict": verdict, "file": report.file});
        let note = verdict.of_hang(after_ns);
        self.keep(verdict.rank, property::HANG, &value, note, report.file.as_deref());
    }

    /// Writes what a rank did in a slow step into the run's notes and into the file of the rank.
    pub(super) fn was_slow(&mut self, report: &SlowStepReport) {
        let slow = &report.slow;
        let mut value = serde_json::to_value(slow).unwrap_or_default();
        value["stacks"] = report.file.clone().into();
        let note = format!("a step took long: {}", slow.text);
        self.keep(Some(slow.rank), property::SLOW_STEP, &value, note, report.file.as_deref());
    }

    /// Writes what was noticed into the run's notes, and as a property into the file of a rank, or
    /// into the first file, if that rank is on another host.
    fn keep(
        &mut self,
        rank: Option<u32>,
        key: &str,
        value: &serde_json::Value,
        note: String,
        file: Option<&str>,
    ) {
        let place = file.map_or(String::new(), |name| format!(" ({name})"));
        self.parts.info.notes.push(note + &place);
        let files = &mut self.out.files.open;
        let of_rank = files.iter().position(|file| file.rank() == rank);
        if let Some(file) = files.get_mut(of_rank.unwrap_or(0)) {
            file.write_property(&format!("{key}{}", sys::monotonic_ns()), &value.to_string());
        }
        // The job may be killed for it soon.
        self.flush(sys::monotonic_ns());
        self.write_info_now();
    }

    /// Returns the process of a rank that runs its steps: of those that were not forked from
    /// another, one whose steps or operations are known, otherwise the one that has used most CPU
    /// time.
    fn driving<'t>(
        &self,
        live: &[u32],
        by_pid: &HashMap<u32, &'t Target>,
    ) -> Option<(u32, Option<&'t Target>)> {
        let is_forked = |target: &Target| {
            let parent = target.forked_from.and_then(|number| self.targets.get(&number));
            parent.is_some_and(|parent| live.contains(&parent.pid))
        };
        let all = live.iter().map(|pid| (*pid, by_pid.get(pid).copied()));
        let own = all.filter(|(_, target)| !target.is_some_and(is_forked));
        own.max_by_key(|(pid, target)| {
            let progresses = target.is_some_and(Target::has_progressed);
            (progresses, target.is_some(), sys::cpu_ns_of(*pid))
        })
    }
}

/// Returns how a rank ended whose processes have all ended. The last one that another program did
/// not replace decides.
fn end_of(rows: &[&ProcessInfo], now_ns: u64) -> Option<RankEnd> {
    let ended = rows.iter().filter(|row| row.ended_by != "exec");
    let last = ended.max_by_key(|row| row.end_ns)?;
    let age_ns = now_ns.saturating_sub(last.end_ns.unwrap_or(now_ns));
    Some(RankEnd { status: last.exit_status, signal: last.signal, age_ns })
}
