//! What a training step is, to analyses, and which one holds a moment.

use tprof_trace::model::ProcessIndex;

use crate::base::intervals::Interval;

/// A training step of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its number as its source gave it; without one, its place, from 0.
    pub number: u64,
    /// The process that marked the step.
    pub process: ProcessIndex,
    /// When it lasted, on the host: calls and operators belong to it by this.
    pub interval: Interval,
    /// When its device was at it ([`super::device_steps`]), of the device that most steps used; none where
    /// it has no work there, and where device work was not read.
    pub on_device: Option<Interval>,
}

impl Step {
    /// A step of which only the host is known.
    pub fn on_host(number: u64, process: ProcessIndex, interval: Interval) -> Step {
        Step { number, process, interval, on_device: None }
    }

    /// When it lasted: on its device, or on the host where no device worked. This is what the time of a
    /// step means in every report.
    pub fn time(&self) -> Interval {
        self.on_device.unwrap_or(self.interval)
    }
}

/// Whether a step of a process holds a moment of the host, and none begins between.
pub(super) fn is_latest(steps: &[Step], at: u32, process: ProcessIndex, time_ns: u64) -> bool {
    let step = &steps[at as usize];
    let holds = step.interval.start <= time_ns && time_ns < step.interval.end;
    let next = steps.get(at as usize + 1);
    step.process == process && holds && next.is_none_or(|next| next.interval.start > time_ns)
}

/// The step of a process that holds a moment of the host; `steps` are in order of start. Of
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
