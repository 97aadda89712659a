//! What is counted beside time: cycles, cache misses, page faults.
//!
//! A counter interrupts its thread after so many events, and tells how many and
//! where: no stack is taken, so that a few events cost little more than one.
//! Numbers of a thread, of a function or of a step are sums over such samples.
//! Reading the counters at each sample of the clock would charge a function with
//! what others did since the sample before.

use super::counters::{Counters, Purpose, Wanted, sampling, why_refused};
use super::probe::why_no_hardware;
use crate::config::PerfEvent;
use crate::perf::record::{EVENT_FIELDS, Layout, WITH_COUNT};
use crate::perf::{Attr, Counter, attr_of};
use perf_event_open_sys::bindings::*;

/// Most samples of one event a second: each interrupts its thread.
const MOST_SAMPLES: u32 = 250;
/// Page faults come by the hundred thousand a second.
const FAULTS_PER_SAMPLE: u64 = 16;

/// How many events are in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Every {
    /// As many as bring that many samples a second.
    Often,
    /// So many.
    Events(u64),
}

impl PerfEvent {
    /// Kind and number for the kernel.
    fn code(self) -> (u32, u32) {
        match self {
            PerfEvent::Cycles => (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES),
            PerfEvent::Instructions => (PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS),
            PerfEvent::CacheReferences => (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES),
            PerfEvent::CacheMisses => (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES),
            PerfEvent::Branches => (PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
            PerfEvent::BranchMisses => (PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES),
            PerfEvent::PageFaults => (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS),
            PerfEvent::MajorFaults => (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ),
        }
    }

    fn every(self) -> Every {
        match self {
            PerfEvent::PageFaults => Every::Events(FAULTS_PER_SAMPLE),
            PerfEvent::MajorFaults => Every::Events(1),
            _ => Every::Often,
        }
    }

    /// Whether this machine counts it for its programs; why not. Tried on this
    /// process.
    pub fn counts(self) -> Result<(), String> {
        let (kind, config) = self.code();
        let mut attr = attr_of(kind, config);
        attr.set_disabled(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        Counter::open(&attr, 0, -1).map(drop).map_err(|e| why_no_hardware(&e))
    }

    /// What its samples hold. A software event that tells its period does so event
    /// by event, whatever the period is (`perf_swevent_event`).
    pub(super) fn layout(self) -> Layout {
        match self.every() {
            Every::Often => Layout::Counted,
            Every::Events(events) => Layout::Every(events),
        }
    }

    fn attr(self, rate: u32, kernel: bool, on_exec: bool) -> Attr {
        let (kind, config) = self.code();
        // None of its samples wakes the reader: the clock's do.
        let mut attr = sampling(kind, config, kernel, on_exec);
        attr.sample_type = EVENT_FIELDS;
        match self.every() {
            Every::Often => {
                attr.set_freq(1);
                attr.sample_freq = rate.min(MOST_SAMPLES).into();
                attr.sample_type |= WITH_COUNT;
            }
            Every::Events(events) => attr.sample_period = events,
        }
        attr
    }
}

/// An event whose counters are open.
#[derive(Debug)]
pub(super) struct Counted {
    event: PerfEvent,
    pub(super) counters: Vec<Counter>,
    /// No more of them are opened.
    refused: bool,
}

impl Counters {
    /// Opens the counters of events of a thread on a processor that has a ring.
    /// An event that is refused is not tried again.
    pub(super) fn open_events(&mut self, wanted: &Wanted, tid: u32, cpu: u32, on_exec: bool) {
        let kernel = self.kernel_refused.is_none();
        if self.events.is_empty() {
            let counted =
                |event: &PerfEvent| Counted { event: *event, counters: Vec::new(), refused: false };
            self.events = wanted.events.iter().map(counted).collect();
        }
        for at in 0..self.events.len() {
            let Counted { event, refused: false, .. } = self.events[at] else { continue };
            let attr = event.attr(wanted.rate, kernel, on_exec);
            let opened = Counter::open(&attr, tid as i32, cpu as i32).and_then(|counter| {
                self.admit(&counter, Purpose::Event(event), cpu, on_exec)?;
                Ok(counter)
            });
            match opened {
                Ok(counter) => self.events[at].counters.push(counter),
                // A thread that is gone, a processor that went offline.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::ESRCH)) => {}
                Err(e) => {
                    self.events[at].refused = true;
                    self.refused_events.push((event, why_refused(&e)));
                }
            }
        }
    }

    /// For which share of the time on a core events were counted: below 1 where the
    /// processor has too few counters for all at once, and they take turns.
    ///
    /// The clock always runs: what it ran for is the whole. A counter's own time
    /// enabled is not, since it goes on while the thread is on another processor
    /// (with two, twice the time).
    pub fn event_shares(&self) -> Vec<(PerfEvent, f64)> {
        let ran = |counters: &mut dyn Iterator<Item = &Counter>| -> u64 {
            counters.filter_map(|counter| counter.ran_ns().ok()).sum()
        };
        let whole_ns = ran(&mut self.clocks());
        let share =
            |of: &Counted| (of.event, ran(&mut of.counters.iter()) as f64 / whole_ns as f64);
        let shares = self.events.iter().map(share);
        shares.filter(|_| whole_ns > 0).map(|(event, share)| (event, share.min(1.0))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_faults_are_counted_on_every_machine_that_can_be_sampled() {
        match (crate::cpu::permitted().user, PerfEvent::PageFaults.counts()) {
            (Ok(()), counts) => counts.unwrap(),
            (Err(why), counts) => assert_eq!(counts.unwrap_err(), why),
        }
    }

    #[test]
    fn events_are_sampled_as_often_as_the_clock_but_not_more_than_it_is_worth() {
        assert_eq!(PerfEvent::Cycles.attr(99, true, false).sample_freq, 99);
        assert_eq!(PerfEvent::Cycles.attr(5000, true, false).sample_freq, 250);
        let faults = PerfEvent::PageFaults.attr(5000, true, false);
        assert_eq!((faults.sample_period, faults.freq()), (16, 0));
        assert_eq!(PerfEvent::PageFaults.layout(), Layout::Every(16));
    }
}
