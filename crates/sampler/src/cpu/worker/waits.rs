//! Reads during a wait where the thread waits, if the counter that samples threads as they leave
//! their processor took no sample.
//!
//! The kernel derives the period of this counter, in context switches, from its rate. Two switches
//! within a few microseconds are enough to raise the period to hundreds, and it shrinks again only
//! while the thread runs. After such a burst, the next hundreds of waits have no sample. Therefore
//! waits are also read by time. Long waits are read as soon as they are long. Shorter waits are
//! read whenever the sampler's thread is awake, for threads whose last wait had no sample.

use super::super::blocked::{self, BlockedThread};
use super::super::counters::Purpose;
use super::super::sample::Frame;
use super::super::threads::WaitSite;
use super::Worker;
use super::queued_record::{self, QueuedEvent, WaitReading};
use crate::config::StackMode;
use rustc_hash::FxHashMap;
use tprof_trace::model::ThreadState;
use tprof_wire::record::StackEnd;

/// Waits that last this long are read if their place is unknown, ns.
const LONG_WAIT_NS: u64 = 10_000_000;
/// Largest number of long waits that are read in one pass. Reading one takes about 10 us.
const MAX_LONG_WAITS: usize = 256;
/// Largest number of shorter waits that are read in one pass.
const MAX_SHORT_WAITS: usize = 16;
/// Largest number of waits whose files are looked up in one pass.
const MAX_NAMED: usize = 8;

/// What a thread's last queued records say.
#[derive(Clone, Copy, Default)]
struct LastSwitch {
    /// Index of the record that the thread left its processor; `None` if it came back.
    left_at: Option<usize>,
    /// Whether the counter took a sample when the thread left.
    was_sampled: bool,
}

impl Worker {
    /// Reads the waits whose first record is still queued. [`Worker::read_long_waits`] reads those
    /// whose first record was already handled.
    pub(super) fn read_queued_waits(&mut self, now: u64) {
        let mut readings = Vec::new();
        let mut short = 0;
        for (tid, at) in self.unsampled_waits() {
            let origin = self.waiting[at].origin;
            let is_long = origin.time_ns.saturating_add(LONG_WAIT_NS) <= now;
            if !is_long && (short == MAX_SHORT_WAITS || !self.threads.is_passed_over(tid)) {
                continue;
            }
            short += usize::from(!is_long);
            if let Some(reading) = self.read_wait(origin.pid, tid) {
                readings.push((tid, origin.time_ns, reading));
            }
            if readings.len() == MAX_LONG_WAITS {
                break;
            }
        }
        if readings.is_empty() {
            return;
        }
        // If a thread has come back meanwhile, the reading may be of its next wait, so it is
        // dropped.
        self.drain();
        let waits: FxHashMap<u32, usize> = self.unsampled_waits().collect();
        for (tid, time_ns, reading) in readings {
            let Some(record) = waits.get(&tid).map(|at| &mut self.waiting[*at]) else { continue };
            if let QueuedEvent::SwitchedOut { reading: place, .. } = &mut record.what
                && record.origin.time_ns == time_ns
            {
                *place = Some(Box::new(reading));
            }
        }
    }

    /// Returns the threads that wait according to their last queued record, and whose wait was
    /// neither sampled nor read. Each has the index of that record.
    fn unsampled_waits(&self) -> impl Iterator<Item = (u32, usize)> + use<> {
        let mut last: FxHashMap<u32, LastSwitch> = FxHashMap::default();
        for (at, record) in self.waiting.iter().enumerate() {
            let tid = record.origin.tid;
            match &record.what {
                QueuedEvent::Sample { purpose: Purpose::Leave, .. } => {
                    last.entry(tid).or_default().was_sampled = true;
                }
                QueuedEvent::SwitchedOut { preempted, reading } => {
                    let waits = !preempted && reading.is_none();
                    last.entry(tid).or_default().left_at = waits.then_some(at);
                }
                QueuedEvent::SwitchedIn | QueuedEvent::Ended { .. } => drop(last.remove(&tid)),
                _ => {}
            }
        }
        let unsampled = |(tid, of): (u32, LastSwitch)| match of.was_sampled {
            true => None,
            false => of.left_at.map(|at| (tid, at)),
        };
        last.into_iter().filter_map(unsampled)
    }

    /// Reads the long waits whose first record is no longer queued.
    pub(super) fn read_long_waits(&mut self, now: u64) {
        let mut waits = self.threads.waits_unseen(now.saturating_sub(LONG_WAIT_NS));
        // `threads` doesn't know what the queued records say, so threads that came back are
        // removed.
        let came = queued_record::resumed_threads(&self.waiting);
        waits.retain(|(_, tid)| !came.contains(tid));
        let mut sites = Vec::new();
        for (pid, tid) in waits.into_iter().take(MAX_LONG_WAITS) {
            sites.extend(self.site_of_wait(pid, tid, None).map(|site| (tid, site)));
        }
        if !sites.is_empty() {
            // If a thread has come back meanwhile, the reading may be of its next wait, so it is
            // dropped.
            self.drain();
            let came = queued_record::resumed_threads(&self.waiting);
            for (tid, site) in sites.into_iter().filter(|(tid, _)| !came.contains(tid)) {
                self.threads.waits_at(tid, site);
            }
        }
        let waits = self.threads.waits_unnamed(now);
        for (pid, tid, at) in waits.into_iter().take(MAX_NAMED) {
            if let Some(descriptor) = blocked::descriptor(pid, tid, at)
                && let Some(frame) = self.descriptors.frame(pid, tid, descriptor)
            {
                self.threads.waits_for(tid, Frame::KernelFunction(frame));
            }
        }
    }

    /// Reads where a thread waits and what it waits for, while it waits. `maps_at_ns` is set for
    /// processes without perf events. Nothing reports their new mappings, so the mappings are read
    /// again if needed.
    pub(super) fn site_of_wait(
        &mut self,
        pid: u32,
        tid: u32,
        maps_at_ns: Option<u64>,
    ) -> Option<WaitSite> {
        let reading = self.read_wait(pid, tid)?;
        Some(self.site_of(pid, reading, maps_at_ns))
    }

    fn read_wait(&mut self, pid: u32, tid: u32) -> Option<WaitReading> {
        let with_stack = self.wanted.stacks != StackMode::Off;
        let blocked = blocked::inspect(pid, tid, with_stack)?;
        let mut reading = WaitReading { blocked, python: None, file: None };
        if with_stack {
            reading.python = self.pythons.stack(pid, tid, &mut self.spaces);
            let descriptor = reading.blocked.descriptor;
            reading.file = descriptor
                .and_then(|descriptor| self.descriptors.frame(pid, tid, descriptor))
                .map(Frame::KernelFunction);
        }
        Some(reading)
    }

    /// Finds the frames of a wait that was read before.
    pub(super) fn site_of(
        &mut self,
        pid: u32,
        reading: WaitReading,
        maps_at_ns: Option<u64>,
    ) -> WaitSite {
        let WaitReading { blocked, python, file } = reading;
        let BlockedThread { mut waits_for, function, registers, stack, .. } = blocked;
        if self.wanted.stacks == StackMode::Off {
            return WaitSite { waits_for, ..WaitSite::default() };
        }
        let (mut frames, mut end) = self.frames(pid, &[], registers, &stack);
        let known = !frames.is_empty() && end == StackEnd::Whole;
        if !known && maps_at_ns.is_some_and(|now_ns| self.read_maps_again(pid, now_ns)) {
            (frames, end) = self.frames(pid, &[], registers, &stack);
        }
        if self.is_at_lock(pid, registers) {
            waits_for = Some(ThreadState::Gil);
        }
        let (mut frames, mut end) = self.with_python(pid, frames, end, python);
        if let Some(function) = function {
            if frames.is_empty() {
                end = StackEnd::OutsideStack;
            }
            frames.insert(0, Frame::KernelFunction(function.into()));
        }
        if let Some(file) = file {
            frames.insert(0, file);
        }
        WaitSite { frames, end: end as u8, waits_for }
    }
}
