//! Tells what an image's records show about its progress, for `tprof where`.

use super::progress::{EnteredOperation, Operations, Steps};
use super::target::Target;
use crate::engine::inbox::WatchedStep;
use crate::shared::clock::Clock;
use std::sync::atomic::Ordering::Relaxed;
use tprof_hang::{Backend, CallState, GroupState, LaunchState, Operation, RankState, StepState};
use tprof_wire::calls::{FUNCTIONS, OpenCall};

/// Number of steps of a process before one counts as slow: the first ones compile and fill caches.
const WARM_UP: u64 = 10;

impl Target {
    /// Whether any step or any operation between ranks was recorded.
    pub fn has_progressed(&self) -> bool {
        self.spans.steps.count() + self.operators.steps.count() > 0
            || !groups_of(self, 0).is_empty()
    }

    /// Returns the number of steps that the image has begun while it recorded.
    pub fn steps_begun(&self) -> u64 {
        self.best_steps().count()
    }

    /// Whether the image records now.
    fn records(&self) -> bool {
        self.hooks.region.header().off.load(Relaxed) == 0
    }

    /// Whether every operation between ranks was recorded, so that their numbers are the same in all
    /// ranks.
    fn has_all_operations(&self) -> bool {
        self.whole_life && !self.spans.was_switched && self.hooks.slot_totals().lost == 0
    }

    /// Returns the last step, if every step of the process was recorded and there were enough to know
    /// how long one takes.
    pub fn watched_step(&self, now_ns: u64, always_on: bool) -> Option<WatchedStep> {
        if !self.records() || !always_on || !self.has_all_operations() {
            return None;
        }
        let steps = self.best_steps();
        let (number, time_ns) = steps.last().filter(|_| steps.count() > WARM_UP)?;
        let (age_ns, usual_ns) = (now_ns.saturating_sub(time_ns), steps.usual_ns()?);
        Some(WatchedStep { pid: self.pid, number, age_ns, usual_ns })
    }

    fn best_steps(&self) -> &Steps {
        let (own, ranges) = (&self.spans.steps, &self.operators.steps);
        if ranges.is_better(own) { ranges } else { own }
    }

    fn open_calls(&self, now_ns: u64, clock: &Clock) -> Vec<CallState> {
        let calls = self.hooks.threads.iter().filter_map(|thread| {
            let slot = self.hooks.region.slot(thread.slot);
            let open = OpenCall::of(slot.open_call.load(Relaxed))?;
            let function = FUNCTIONS.get(open.number as usize)?.name.text().to_owned();
            let age_ns = now_ns.saturating_sub(clock.ns(open.clock));
            Some(CallState { tid: thread.tid, function, age_ns })
        });
        calls.collect()
    }

    /// Returns the last step, the operations between ranks and the last launch. `always_on` says
    /// whether recording has been on since the run began. While recording is off, or after a gap,
    /// what was recorded last says nothing about now.
    pub fn standstill(&self, now_ns: u64, clock: &Clock, always_on: bool) -> RankState {
        if !self.records() {
            return RankState::default();
        }
        let calls = self.open_calls(now_ns, clock);
        let steps = self.best_steps();
        let step = steps.last().map(|(number, time_ns)| StepState {
            number,
            age_ns: now_ns.saturating_sub(time_ns),
            usual_ns: steps.usual_ns(),
        });
        let launch = self.calls.last_launch().map(|(kernel, time_ns)| LaunchState {
            kernel: kernel.to_owned(),
            age_ns: now_ns.saturating_sub(time_ns),
        });
        let streams = self.device_queue(now_ns);
        let work_age_ns = self.calls.last_work_ns().map(|ns| now_ns.saturating_sub(ns));
        let groups = match always_on && self.has_all_operations() {
            true => groups_of(self, now_ns),
            false => Vec::new(),
        };
        RankState { step, launch, streams, work_age_ns, groups, calls, ..RankState::default() }
    }
}

fn groups_of(target: &Target, now_ns: u64) -> Vec<GroupState> {
    let shown = |operation: &EnteredOperation, is_over| Operation {
        number: operation.number,
        name: operation.name.clone(),
        bytes: operation.bytes,
        age_ns: now_ns.saturating_sub(operation.time_ns),
        is_over,
        ..Operation::default()
    };
    let group = |backend, operations: &Operations, is_over| GroupState {
        backend,
        entered: operations.count,
        recent: operations.recent.iter().map(|operation| shown(operation, is_over)).collect(),
        ..GroupState::default()
    };
    let mut groups: Vec<GroupState> = Vec::new();
    for (id, size, operations) in target.calls.collectives.entered() {
        let id = Some(format!("{id:x}"));
        groups.push(GroupState { id, size, ..group(Backend::Nccl, operations, false) });
    }
    let over = &target.operators.operations;
    let open = target.operators.open_operations(&target.interned);
    if over.count > 0 || !open.is_empty() {
        let mut ranges = group(Backend::Torch, over, true);
        ranges.finished = Some(over.count);
        ranges.entered += open.len() as u64;
        ranges.recent.extend(open.iter().map(|operation| shown(operation, false)));
        groups.push(ranges);
    }
    let mpi = &target.calls.mpi;
    if mpi.count > 0 {
        groups.push(GroupState { finished: Some(mpi.count), ..group(Backend::Mpi, mpi, true) });
    }
    groups.sort_by(|a, b| (a.backend, &a.id).cmp(&(b.backend, &b.id)));
    groups
}
