//! Delivers samples and events to the engine.

use super::super::sample::{CpuSample, Measure, SamplerEvent, ThreadTotals};
use super::super::threads::{ThreadInterval, WaitSite};
use super::Worker;
use crate::python::PyThreadName;
use tprof_os::sys;
use tprof_trace::model::loss;

impl Worker {
    pub(super) fn take_intervals(&mut self, intervals: Vec<ThreadInterval>) {
        for s in intervals {
            let WaitSite { frames, end, waits_for } = s.place.unwrap_or_default();
            self.taken.push(CpuSample {
                weight_ns: s.length_ns,
                spread_ns: s.spread_ns,
                kind: s.kind,
                waits_for,
                frames,
                end,
                ..CpuSample::of(s.pid, s.tid, s.time_ns, Measure::Time)
            });
        }
    }

    /// Adds the totals of a thread's counts to the samples.
    pub(super) fn count(&mut self, pid: u32, tid: u32, time_ns: u64, faults: Option<[u64; 2]>) {
        let Some(counts) = self.threads.take_counts(tid) else { return };
        let is_known = !self.lost.ever && !self.threads.were_suspended();
        let counts = is_known.then_some(counts);
        let faults = faults.filter(|_| !self.threads.were_suspended());
        let counted = ThreadTotals { time_ns, counts, faults };
        self.taken.push(CpuSample::of(pid, tid, time_ns, Measure::Counted(counted)));
    }

    pub(super) fn deliver(&mut self) {
        for (process, why) in self.pythons.refused.drain(..) {
            (self.emit)(SamplerEvent::Missing(process, "Python frames", why));
        }
        for PyThreadName { pid, tid, name } in self.pythons.new_names.drain(..) {
            (self.emit)(SamplerEvent::Named(pid, tid, sys::monotonic_ns(), name));
        }
        for loaded in self.spaces.loaded.drain(..) {
            (self.emit)(SamplerEvent::ModuleLoaded(loaded));
        }
        if !self.taken.is_empty() {
            (self.emit)(SamplerEvent::Samples(std::mem::take(&mut self.taken)));
        }
        let lost = [
            (&mut self.lost.records, loss::PERF_RECORDS, "the ring was full"),
            (&mut self.lost.throttled, loss::THROTTLED, "the kernel throttled the clock"),
            (&mut self.lost.refused, loss::CPU_SAMPLES, "they could not be read"),
            (
                &mut self.lost.late,
                "Python frames of CPU samples",
                "the sampler came too late to read them",
            ),
        ];
        for (count, what, why) in lost {
            if *count > 0 {
                (self.emit)(SamplerEvent::Lost(what, why, std::mem::take(count)));
            }
        }
    }
}
