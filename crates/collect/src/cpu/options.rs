//! The options of sampling, and the kernel's attributes for counters with these options.

use crate::config::{PerfEvent, StackMode};
use crate::perf::record::{FIELDS, REGISTERS, WITH_STACK};
use crate::perf::{Attr, attr_of};
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_CONTEXT_SWITCHES, PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_DUMMY,
    PERF_FORMAT_TOTAL_TIME_RUNNING, PERF_TYPE_SOFTWARE,
};

/// Up to this many samples per second, each sample wakes the sampler, so that it reads Python's
/// frames at once. At higher rates that would be too expensive, because virtual processors wake
/// each other slowly: at 999 Hz, sampling costs the job's threads 3.4 % of their time with wake-ups
/// and 2.4 % without.
const WAKE_UPS: u32 = 250;

/// The options of sampling.
#[derive(Clone, Debug)]
pub struct SamplingOptions {
    /// Samples per second.
    pub rate: u32,
    /// How stacks are taken.
    pub stacks: StackMode,
    /// Events that are counted in addition to time.
    pub events: Vec<PerfEvent>,
    /// Whether the run's options pause the sampler. Then other counters than those of the clock
    /// report programs, threads and mappings, so that the clock can be stopped.
    pub pauses: bool,
}

impl SamplingOptions {
    /// Nanoseconds between two samples.
    pub fn period_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.rate.max(1))
    }

    /// Whether each sample wakes the sampler. If not, the sampler polls, but a half-full ring still
    /// wakes it.
    pub fn wakes(&self) -> bool {
        self.rate <= WAKE_UPS
    }

    /// Whether samples contain the registers and the top of the stack, for the sampler to unwind.
    pub(super) fn with_stack(&self) -> bool {
        !matches!(self.stacks, StackMode::Fp | StackMode::Off) && cfg!(target_arch = "x86_64")
    }

    /// Returns how many bytes of the stack a sample contains: fewer at higher rates.
    fn stack_bytes(&self) -> u32 {
        match self.rate {
            ..=250 => 32 << 10,
            251..=2000 => 16 << 10,
            _ => 8 << 10,
        }
    }

    /// Returns the attribute of counters that report programs, threads and mappings, while the run's
    /// recording is off as well. They count nothing.
    pub(super) fn report(&self, on_exec: bool) -> Attr {
        let mut attr = sampling(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY, false, on_exec);
        attr.sample_type = FIELDS;
        reports(&mut attr);
        attr
    }

    /// Returns the attribute for samples of running threads and for context switches, and for all
    /// other records unless [`SamplingOptions::report`] is for them.
    pub(super) fn clock(&self, kernel: bool, on_exec: bool) -> Attr {
        let mut attr = sampling(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, kernel, on_exec);
        attr.sample_period = self.period_ns();
        attr.set_context_switch(1);
        if !self.pauses {
            reports(&mut attr);
        }
        self.with_stacks(attr)
    }

    /// Returns the attribute for samples of threads that leave their processor.
    pub(super) fn leave(&self, on_exec: bool) -> Attr {
        let mut attr = sampling(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES, true, on_exec);
        attr.set_freq(1);
        attr.sample_freq = self.rate.into();
        self.with_stacks(attr)
    }

    fn with_stacks(&self, mut attr: Attr) -> Attr {
        let with_stack = self.with_stack();
        attr.set_exclude_callchain_user((with_stack || self.stacks == StackMode::Off).into());
        attr.set_exclude_callchain_kernel(attr.exclude_kernel());
        attr.sample_type = FIELDS;
        attr.wakeup_events = self.wakes().into();
        if with_stack {
            attr.sample_type |= WITH_STACK;
            attr.sample_regs_user = REGISTERS;
            attr.sample_stack_user = self.stack_bytes();
        }
        attr
    }
}

/// Makes a counter report programs, threads and mappings.
fn reports(attr: &mut Attr) {
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
}

/// Returns the attribute that all sampling counters share: they follow a whole tree of threads and
/// use the monotonic clock.
pub(super) fn sampling(kind: u32, config: u32, kernel: bool, on_exec: bool) -> Attr {
    let mut attr = attr_of(kind, config);
    attr.read_format = PERF_FORMAT_TOTAL_TIME_RUNNING.into();
    attr.set_disabled(1);
    attr.set_inherit(1);
    attr.set_exclude_hv(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
    attr.set_enable_on_exec(on_exec.into());
    attr.set_exclude_kernel((!kernel).into());
    attr
}
