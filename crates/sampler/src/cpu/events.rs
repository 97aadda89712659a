//! Opens counters of events that aren't time: cycles, cache misses, page faults.
//!
//! A counter interrupts its thread after a number of events, and records that number and the place
//! in the code. It takes no stack, so several events cost little more than one. The counts of a
//! thread, a function or a step are sums over such samples. If the counters were read at each
//! sample of the clock instead, a function would be charged with events of other functions since
//! the last sample.

use super::options::sampling;
use super::refusal::why_no_hardware;
use crate::config::PerfEvent;
use crate::perf::record::{EVENT_FIELDS, Layout, WITH_COUNT};
use crate::perf::{Attr, Counter, attr_of};
use perf_event_open_sys::bindings::*;

/// Largest number of samples of one event per second. Each sample interrupts its thread.
const MAX_SAMPLES: u32 = 250;
/// Number of page faults per sample. A program may have hundreds of thousands of faults per second,
/// so not every fault is sampled.
const FAULTS_PER_SAMPLE: u64 = 16;

/// Number of events from one sample to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SamplePeriod {
    /// The kernel adapts the number so that there is a given number of samples per second.
    Often,
    /// A fixed number of events.
    Events(u64),
}

impl PerfEvent {
    /// Returns the kernel's type and number of the event.
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

    fn every(self) -> SamplePeriod {
        match self {
            PerfEvent::PageFaults => SamplePeriod::Events(FAULTS_PER_SAMPLE),
            PerfEvent::MajorFaults => SamplePeriod::Events(1),
            _ => SamplePeriod::Often,
        }
    }

    /// Checks whether this machine counts the event, by opening a counter for this process. The
    /// error says why the machine doesn't count it.
    pub fn counts(self) -> Result<(), String> {
        let (kind, config) = self.code();
        let mut attr = attr_of(kind, config);
        attr.set_disabled(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        Counter::open(&attr, 0, -1).map(drop).map_err(|e| why_no_hardware(&e))
    }

    /// Returns the layout of the event's samples. Samples of software events don't contain the
    /// number of events. If they did, the kernel would write a sample for each event, regardless of
    /// the period (`perf_swevent_event`).
    pub(super) fn layout(self) -> Layout {
        match self.every() {
            SamplePeriod::Often => Layout::Counted,
            SamplePeriod::Events(events) => Layout::Every(events),
        }
    }

    pub(super) fn attr(self, rate: u32, kernel: bool, on_exec: bool) -> Attr {
        let (kind, config) = self.code();
        // Only samples of the clock wake the reader.
        let mut attr = sampling(kind, config, kernel, on_exec);
        attr.sample_type = EVENT_FIELDS;
        match self.every() {
            SamplePeriod::Often => {
                attr.set_freq(1);
                attr.sample_freq = rate.min(MAX_SAMPLES).into();
                attr.sample_type |= WITH_COUNT;
            }
            SamplePeriod::Events(events) => attr.sample_period = events,
        }
        attr
    }
}

/// An event with open counters.
#[derive(Debug)]
pub(super) struct EventCounters {
    pub(super) event: PerfEvent,
    pub(super) counters: Vec<Counter>,
    /// Whether a counter was refused, so that no further counter of the event is opened.
    pub(super) refused: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_faults_are_counted_wherever_samples_are_permitted() {
        match (crate::cpu::permitted().user, PerfEvent::PageFaults.counts()) {
            (Ok(()), counts) => counts.unwrap(),
            (Err(why), counts) => assert_eq!(counts.unwrap_err(), why),
        }
    }

    #[test]
    fn events_have_the_rate_of_the_clock_up_to_a_limit() {
        assert_eq!(PerfEvent::Cycles.attr(99, true, false).sample_freq, 99);
        assert_eq!(PerfEvent::Cycles.attr(5000, true, false).sample_freq, 250);
        let faults = PerfEvent::PageFaults.attr(5000, true, false);
        assert_eq!((faults.sample_period, faults.freq()), (16, 0));
        assert_eq!(PerfEvent::PageFaults.layout(), Layout::Every(16));
    }
}
