//! What the sampler delivers: samples, and events of the processes that it samples.

use crate::config::PerfEvent;
use crate::python::PyFunction;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tprof_trace::model::ThreadState;
use tprof_unwind::modules::ModuleLoad;

/// Counts of a thread's context switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Number of times that the thread left its processor to wait.
    pub voluntary: u64,
    /// Number of times that the thread was preempted.
    pub involuntary: u64,
    /// Number of times that the thread came back on another processor.
    pub migrations: u64,
}

/// What a thread did in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The thread ran.
    Ran,
    /// The thread was ready, but not on a processor.
    Ready,
    /// The thread waited.
    Waited,
}

/// The totals of a thread's counts, at its end or at the end of sampling.
#[derive(Clone, Copy, Debug)]
pub struct ThreadTotals {
    /// Time when the totals were read, ns.
    pub time_ns: u64,
    /// Context switches; `None` if records of context switches were lost, or were off for a while.
    pub counts: Option<Counts>,
    /// Minor and major page faults, if they are known of the recorded time.
    pub faults: Option<[u64; 2]>,
}

/// A sample, or an interval without a sample.
#[derive(Clone, Debug)]
pub struct CpuSample {
    /// Time of the sample, or of the beginning of the interval, ns.
    pub time_ns: u64,
    /// Pid of the process.
    pub pid: u32,
    /// Tid of the thread.
    pub tid: u32,
    /// Length of the time that the sample or interval stands for, ns.
    pub weight_ns: u64,
    /// If several waits were added up, or if the exact time is unknown, ns: then `weight_ns` is a
    /// part of the interval that begins at `time_ns` and has this length.
    pub spread_ns: Option<u64>,
    /// What the thread did.
    pub kind: Kind,
    /// What the thread waited for, if that is known.
    pub waits_for: Option<ThreadState>,
    /// The processor on which the thread was sampled; `None` for an interval.
    pub cpu: Option<u32>,
    /// Whether the thread held the GIL, if that is known.
    pub gil: Option<bool>,
    /// Frames, the innermost first.
    pub frames: Vec<Frame>,
    /// The reason why the frames end, a [`tprof_wire::record::StackEnd`].
    pub end: u8,
    /// What the sample measures.
    pub measure: Measure,
}

impl CpuSample {
    /// Leaves out what was after this time. Returns whether anything is left.
    pub fn end_by(&mut self, end_ns: u64) -> bool {
        if self.cpu.is_none() && self.spread_ns.is_none() {
            self.weight_ns = self.weight_ns.min(end_ns.saturating_sub(self.time_ns));
        }
        self.time_ns < end_ns
    }

    /// Returns a sample of a thread that ran, with these values and defaults for the others.
    pub(super) fn of(pid: u32, tid: u32, time_ns: u64, measure: Measure) -> CpuSample {
        CpuSample {
            time_ns,
            pid,
            tid,
            weight_ns: 0,
            spread_ns: None,
            kind: Kind::Ran,
            waits_for: None,
            cpu: None,
            gil: None,
            frames: Vec::new(),
            end: 0,
            measure,
        }
    }
}

/// What a [`CpuSample`] measures.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// Time that the thread spent.
    Time,
    /// The totals of the thread's counts.
    Counted(ThreadTotals),
    /// Number of events since the thread's last sample of this event.
    Events(PerfEvent, u64),
}

/// A frame of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// A return address.
    Address(u64),
    /// An address in the kernel.
    Kernel(u64),
    /// A function of the kernel, by its name.
    KernelFunction(Arc<str>),
    /// A function of Python.
    Python(Arc<PyFunction>),
}

/// An event that the sampler sends to the engine.
#[derive(Debug)]
pub enum SamplerEvent {
    /// A process began by a fork, or the sampler found it running.
    Forked {
        /// Pid of the child.
        pid: u32,
        /// Pid of its parent.
        parent: u32,
        /// Time of the fork, ns; 0 if it was not seen.
        time_ns: u64,
    },
    /// A process has run another program since this time: pid, time.
    Replaced(u32, u64),
    /// A process has ended: pid, time.
    Ended(u32, u64),
    /// A thread has set a name: pid, tid, time, name.
    Named(u32, u32, u64, String),
    /// A module that contains frames of samples.
    ModuleLoaded(ModuleLoad),
    /// Samples, nearly in order.
    Samples(Vec<CpuSample>),
    /// Something was lost: what, why, and how many.
    Lost(&'static str, &'static str, u64),
    /// For each event, the share of the time in which it was counted.
    EventShares(Vec<(PerfEvent, f64)>),
    /// From this time on there are so many samples per second: rate, time. With a rate of 0 neither
    /// samples are taken nor waits recorded.
    RateChanged(u32, u64),
    /// The kernel was sampled, but the names of its functions are hidden, for this reason.
    KernelNamesHidden(String),
    /// Something can't be recorded: the process (empty for all processes), what, and why.
    Missing(String, &'static str, String),
}

/// Number of times that the kernel interrupted the job's threads for the sampler.
#[derive(Debug, Default)]
pub struct Interruptions {
    /// Interruptions to sample running threads and threads that leave their processor.
    pub samples: AtomicU64,
    /// Interruptions to record that a thread left its processor.
    pub switches: AtomicU64,
    /// Samples of running threads by the clock. Each stands for one period.
    pub clocked: AtomicU64,
    /// Of the samples by the clock, those that found a thread in tprof's library, or in a system call
    /// of the library: their number by the time that a sample stood for, ns. Times at which none was
    /// found have an entry, too.
    in_library: Mutex<BTreeMap<u64, u64>>,
}

impl Interruptions {
    /// Counts a sample by the clock that stands for this time.
    pub(super) fn clocked(&self, period_ns: u64, in_library: bool) {
        self.clocked.fetch_add(1, Relaxed);
        *self.found().entry(period_ns).or_default() += u64::from(in_library);
    }

    /// Returns how many samples by the clock found a thread in tprof's library, by the time that a
    /// sample stood for, ns.
    pub fn in_library(&self) -> BTreeMap<u64, u64> {
        self.found().clone()
    }

    fn found(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.in_library.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
