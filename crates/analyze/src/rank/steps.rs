//! Training steps: when each lasted, and which work belongs to it.

use rustc_hash::FxHashMap;
use tprof_facts::steps;
use tprof_trace::model::ProcessIndex;

use super::needs::Needs;
use super::rows::Work;
use super::trace::RankTrace;

use crate::base::intervals::Interval;

pub use tprof_facts::steps::PROFILER_STEP;

/// A training step of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its number as its source gave it; without one, its place, from 0.
    pub number: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// When it lasted, on the host.
    pub interval: Interval,
}

impl RankTrace<'_> {
    /// Steps as they were recorded, with their source; [`Needs::STEPS`] must have been read. Found once,
    /// however many ask.
    pub fn steps_found(&self) -> &steps::Steps {
        debug_assert!(self.needs.has(Needs::STEPS));
        let found = || steps::of_parts(self.file, &self.step_ranges, self.steps_from);
        self.steps_found.get_or_init(found)
    }

    /// Whether steps were asked for, and are inferred.
    pub(crate) fn has_inferred_steps(&self) -> bool {
        self.steps_found.get().is_some_and(steps::Steps::are_inferred)
    }

    /// Steps in order of time; as [`Self::steps_found`].
    pub fn steps(&self) -> Vec<Step> {
        let step = |step: &steps::Step| Step {
            number: step.number,
            process: step.process,
            interval: Interval::new(step.start_ns, step.end_ns),
        };
        self.steps_found().all.iter().map(step).collect()
    }

    /// For each piece of work, the step that it belongs to, as an index into
    /// `steps`: the one in which its launch began. Where other launches were recorded
    /// and its own was not, that came before the recording, and it belongs to no
    /// step; where none was recorded at all, to the one in which it began itself.
    pub fn steps_of_work(&self, steps: &[Step]) -> Vec<Option<u32>> {
        let none_seen = (0..self.work.len()).all(|at| self.launches.call_of(at).is_none());
        // Most work belongs to the step of the work before it.
        let mut last = None;
        let at = |(index, work): (usize, &Work)| {
            let call = self.launches.call_of(index).map(|call| self.calls[call].start_ns);
            let time_ns = if none_seen { work.start_ns } else { call? };
            let process = self.stream(work).process;
            let again = last.filter(|&last| is_latest(steps, last, process, time_ns));
            last = again.or_else(|| step_at(steps, process, time_ns));
            last
        };
        self.work.iter().enumerate().map(at).collect()
    }
}

/// Steps of the process that has most of them, in order.
pub(crate) fn steps_of_one_process(rank: &RankTrace<'_>) -> Vec<Step> {
    let mut steps = rank.steps();
    let mut counts: FxHashMap<ProcessIndex, usize> = FxHashMap::default();
    for step in &steps {
        *counts.entry(step.process).or_default() += 1;
    }
    let most = counts.iter().max_by_key(|(process, count)| (**count, std::cmp::Reverse(**process)));
    if let Some((&process, _)) = most {
        steps.retain(|step| step.process == process);
    }
    steps
}

/// Whether a step of a process holds a moment, and none begins between.
fn is_latest(steps: &[Step], at: u32, process: ProcessIndex, time_ns: u64) -> bool {
    let step = &steps[at as usize];
    let holds = step.interval.start <= time_ns && time_ns < step.interval.end;
    let next = steps.get(at as usize + 1);
    step.process == process && holds && next.is_none_or(|next| next.interval.start > time_ns)
}

/// The step of a process that holds a moment; `steps` are in order of start. Of
/// steps that overlap, the one that began last.
pub fn step_at(steps: &[Step], process: ProcessIndex, time_ns: u64) -> Option<u32> {
    let after = steps.partition_point(|step| step.interval.start <= time_ns);
    let holds = |at: &usize| {
        let step = &steps[*at];
        step.process == process && time_ns < step.interval.end
    };
    // Steps of a process follow each other: its last one before the moment decides.
    let last = (0..after).rev().find(|at| steps[*at].process == process)?;
    Some(last).filter(holds).map(|at| at as u32)
}
