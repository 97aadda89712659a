//! Finds a rank's training steps, their times on devices, and the work that belongs to each step.

use rustc_hash::FxHashMap;
use tprof_facts::steps;
use tprof_trace::model::ProcessIndex;

use super::device_steps::{self, DeviceSteps};
use super::needs::Needs;
use super::rows::Work;
use super::step::{Step, is_latest, step_at};
use super::trace::{RankTrace, Stepping};
use crate::base::intervals::Interval;

pub use tprof_facts::steps::PROFILER_STEP;

impl RankTrace<'_> {
    /// The steps as they were recorded, with their source; [`Needs::STEPS`] must have been read.
    /// They are computed only once.
    pub fn steps_found(&self) -> &steps::Steps {
        debug_assert!(self.needs.has(Needs::STEPS));
        let found = || steps::of_parts(self.file, &self.step_ranges, self.steps_from);
        self.steps_found.get_or_init(found)
    }

    /// Whether the steps have been computed and are inferred.
    pub fn has_inferred_steps(&self) -> bool {
        self.steps_found.get().is_some_and(steps::Steps::are_inferred)
    }

    /// Returns the steps in order of time, as [`Self::steps_found`] does. If calls and device work
    /// were read, each step also has its time on its device.
    pub fn steps(&self) -> Vec<Step> {
        self.stepping().steps.clone()
    }

    /// The times of the steps of each process on each of its devices. This is empty if calls and
    /// device work were not read, or if the rank is read as Holistic Trace Analysis does.
    pub fn device_steps(&self) -> &[DeviceSteps] {
        &self.stepping().devices
    }

    fn stepping(&self) -> &Stepping {
        self.stepping.get_or_init(|| {
            let step = |step: &steps::Step| {
                let on_host = Interval::new(step.start_ns, step.end_ns);
                Step::on_host(step.number, step.process, on_host)
            };
            let mut steps: Vec<Step> = self.steps_found().all.iter().map(step).collect();
            let mut devices = Vec::new();
            if !self.hta && !steps.is_empty() && self.needs.has(Needs::WORK | Needs::CALLS) {
                let of_work = self.steps_of_work(&steps);
                devices = device_steps::of_devices(&steps, &self.work, &of_work, &self.streams);
                device_steps::on_leading_devices(&mut steps, &devices);
            }
            Stepping { steps, devices }
        })
    }

    /// For each piece of work, returns the index in `steps` of its step, which is the one in which
    /// its launch began. If the launch of a piece of work was not recorded but other launches were,
    /// it came before the recording, and the work belongs to no step. If no launch was recorded at
    /// all, the work belongs to the step in which the work itself began.
    pub fn steps_of_work(&self, steps: &[Step]) -> Vec<Option<u32>> {
        let none_seen = (0..self.work.len()).all(|at| self.launches.call_of(at).is_none());
        // Most work belongs to the same step as the work before it, so that step is tried first.
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

/// The steps of the process with the most steps, in order.
pub fn steps_of_one_process(rank: &RankTrace<'_>) -> Vec<Step> {
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
