//! Training steps as devices do them.
//!
//! The host may be far ahead: it queues the work of a step in two milliseconds for which the device takes
//! thirty, and waits only once a thousand launches are queued. So a step's time is the device's: from its
//! first work to the first work of the next step. Where the device has nothing left to do before the next
//! step even begins on the host, the idle time after that belongs to the next step, whose host is late:
//!
//! - a step begins when it has begun on the host and the stream is done with all that came before, but no
//!   later than its first work;
//! - it ends when its work is done and it is over on the host, but no later than the next one begins.
//!
//! Steps that follow each other on the host do so on the device, too, and what lies between two steps
//! (validation, a checkpoint) belongs to neither. First works are those of one stream, which runs in order:
//! a copy for the next batch on a stream of its own may run long before the work that it is for.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tprof_facts::Class;
use tprof_trace::model::ProcessIndex;

use super::rows::{StreamKey, Work};
use super::step::Step;
use crate::base::intervals::Interval;

/// Of the steps of the stream with most of them, a stream has at least this share to be the one whose first
/// works begin steps.
const MOST_STEPS: f64 = 0.9;

/// Steps of one process as one device did them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSteps {
    /// Whose steps.
    pub process: ProcessIndex,
    /// Device, as the process numbers it.
    pub device: u32,
    /// Steps with work on it, as indices, and when it was at each; in order, without overlap.
    pub steps: Vec<(u32, Interval)>,
    /// Sum of the durations of their work, ns.
    pub work_ns: u64,
}

/// The first work of a step on a stream.
#[derive(Clone, Copy)]
struct First {
    step: u32,
    start_ns: u64,
    /// When all was done that began before it on the stream; 0 if nothing did.
    free_ns: u64,
}

/// A stream's part in the steps.
#[derive(Clone, Default)]
struct OnStream {
    firsts: Vec<First>,
    compute_ns: u64,
    work_ns: u64,
    /// The last end so far.
    end_ns: u64,
}

impl OnStream {
    fn add(&mut self, row: &Work, step: Option<u32>) {
        if let Some(step) = step {
            // The work of a stream is in the order of its steps; a thread that lags behind begins none.
            if self.firsts.last().is_none_or(|last| last.step < step) {
                self.firsts.push(First { step, start_ns: row.start_ns, free_ns: self.end_ns });
            }
            self.work_ns += row.duration_ns;
            self.compute_ns += if row.class == Class::Compute { row.duration_ns } else { 0 };
        }
        self.end_ns = self.end_ns.max(row.end_ns());
    }
}

/// Steps as each device of each process did them, devices in order; `of_work` has the step of each piece of
/// work.
pub(super) fn of_devices(
    steps: &[Step],
    work: &[Work],
    of_work: &[Option<u32>],
    streams: &[StreamKey],
) -> Vec<DeviceSteps> {
    let key = |stream: &StreamKey| (stream.device, stream.process);
    let mut devices: Vec<(u32, ProcessIndex)> = streams.iter().map(key).collect();
    devices.sort_unstable();
    devices.dedup();
    let device_of = |stream| devices.binary_search(&key(stream)).unwrap_or(0);
    let device_of: Vec<usize> = streams.iter().map(device_of).collect();
    let mut on: Vec<OnStream> = vec![OnStream::default(); streams.len()];
    // When the last work of each step ended on each device.
    let mut ends: Vec<Vec<u64>> = vec![vec![0; steps.len()]; devices.len()];
    for (row, step) in work.iter().zip(of_work) {
        let stream = row.stream as usize;
        on[stream].add(row, *step);
        if let Some(step) = step {
            let end = &mut ends[device_of[stream]][*step as usize];
            *end = (*end).max(row.end_ns());
        }
    }
    let of_device = |(at, &(device, process)): (usize, &(u32, ProcessIndex))| {
        let of = on.iter().zip(&device_of).filter(|(_, device)| **device == at);
        let streams: Vec<&OnStream> = of.map(|(stream, _)| stream).collect();
        let work_ns = streams.iter().map(|stream| stream.work_ns).sum();
        let firsts = leading(&streams).map_or(&[][..], |stream| &stream.firsts);
        DeviceSteps { process, device, steps: intervals(steps, firsts, &ends[at]), work_ns }
    };
    let all = devices.iter().enumerate().map(of_device);
    all.filter(|of| !of.steps.is_empty()).collect()
}

/// The stream whose first works begin steps: of those that take part in nearly all steps, the one that
/// computes longest.
fn leading<'s>(streams: &[&'s OnStream]) -> Option<&'s OnStream> {
    let most = streams.iter().map(|stream| stream.firsts.len()).max()?;
    let is_in_most = |stream: &&&OnStream| stream.firsts.len() as f64 >= MOST_STEPS * most as f64;
    let of_most = streams.iter().filter(is_in_most);
    of_most.copied().rev().max_by_key(|stream| (stream.compute_ns, stream.work_ns))
}

/// When the device was at each step.
fn intervals(steps: &[Step], firsts: &[First], ends: &[u64]) -> Vec<(u32, Interval)> {
    let start = |first: &First| {
        let host = steps[first.step as usize].interval;
        first.start_ns.min(host.start.max(first.free_ns))
    };
    let mut found: Vec<(u32, Interval)> = Vec::with_capacity(firsts.len());
    let mut next_ns = u64::MAX;
    for first in firsts.iter().rev() {
        let (start, host) = (start(first), steps[first.step as usize].interval);
        let end = host.end.max(ends[first.step as usize]).min(next_ns);
        found.push((first.step, Interval::new(start, end)));
        next_ns = start;
    }
    found.reverse();
    found
}

/// Of each step when it was on its device: of each process, the device that most of its steps used.
pub(super) fn on_leading_devices(steps: &mut [Step], devices: &[DeviceSteps]) {
    let mut leading: BTreeMap<ProcessIndex, &DeviceSteps> = BTreeMap::new();
    let rank = |of: &DeviceSteps| (of.steps.len(), of.work_ns, Reverse(of.device));
    for of in devices {
        let known = leading.entry(of.process).or_insert(of);
        if rank(of) > rank(known) {
            *known = of;
        }
    }
    for (step, interval) in leading.values().flat_map(|of| &of.steps) {
        steps[*step as usize].on_device = Some(*interval);
    }
}
