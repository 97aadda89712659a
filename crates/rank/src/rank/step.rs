//! Defines training steps as analyses use them, and finds the step at a given time.

use tprof_trace::model::ProcessIndex;

use crate::base::intervals::Interval;

/// A training step of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number that its source assigned; otherwise its place among the steps, from 0.
    pub number: u64,
    /// The process that marked the step.
    pub process: ProcessIndex,
    /// The time of the step on the host. Calls and operators in this time belong to the step.
    pub interval: Interval,
    /// The time of the step on the device that most steps used (`device_steps`); `None` if
    /// the step has no work there, or if device work was not read.
    pub on_device: Option<Interval>,
}

impl Step {
    /// Makes a step whose time on devices is unknown.
    #[inline]
    pub fn on_host(number: u64, process: ProcessIndex, interval: Interval) -> Step {
        Step { number, process, interval, on_device: None }
    }

    /// The time of the step: on its device, or on the host if no device worked. All reports use
    /// this as the time of a step.
    #[inline]
    pub fn time(&self) -> Interval {
        self.on_device.unwrap_or(self.interval)
    }
}

/// Whether the step at index `at` contains a time of the host, and no later step of the process
/// began before that time.
pub(super) fn is_latest(steps: &[Step], at: u32, process: ProcessIndex, time_ns: u64) -> bool {
    let step = &steps[at as usize];
    let holds = step.interval.start <= time_ns && time_ns < step.interval.end;
    let next = steps.get(at as usize + 1);
    step.process == process && holds && next.is_none_or(|next| next.interval.start > time_ns)
}

/// Returns the index of the step that a process was in at a time of the host. `steps` are in order
/// of start. If steps overlap, it is the one that began last.
pub fn step_at(steps: &[Step], process: ProcessIndex, time_ns: u64) -> Option<u32> {
    let after = steps.partition_point(|step| step.interval.start <= time_ns);
    let holds = |at: &usize| {
        let step = &steps[*at];
        step.process == process && time_ns < step.interval.end
    };
    // The steps of a process follow each other, so only its last step before the time can contain
    // it.
    let last = (0..after).rev().find(|at| steps[*at].process == process)?;
    Some(last).filter(holds).map(|at| at as u32)
}
