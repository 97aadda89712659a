//! The sampler's output: samples, and events of the processes that it watches.

use crate::config::PerfEvent;
use crate::modules::ModuleLoad;
use crate::python::PyFunction;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tprof_trace::model::ThreadState;

/// Counts of a thread's context switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Number of times that it left its processor to wait.
    pub voluntary: u64,
    /// Number of times that it was preempted.
    pub involuntary: u64,
    /// Number of times that it came back on another processor.
    pub migrations: u64,
}

/// The activity of a thread in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The thread ran, for a time that no sample covers.
    Ran,
    /// The thread was ready.
    Ready,
    /// The thread waited.
    Waited,
}

/// The counts of a thread, until it ended or until the sampler did.
#[derive(Clone, Copy, Debug)]
pub struct ThreadTotals {
    /// Time of the counts.
    pub time_ns: u64,
    /// Context switches; `None` if records of them were lost.
    pub counts: Option<Counts>,
    /// Minor and major page faults, if they are known.
    pub faults: Option<[u64; 2]>,
}

/// A sample, or an interval without one.
#[derive(Clone, Debug)]
pub struct CpuSample {
    /// Time of the sample.
    pub time_ns: u64,
    /// Pid of the process.
    pub pid: u32,
    /// Tid of the thread.
    pub tid: u32,
    /// Time that the sample covers.
    pub weight_ns: u64,
    /// If several waits were added up, or the exact time is unknown: the time lies within this many
    /// nanoseconds from `time_ns` on.
    pub spread_ns: Option<u64>,
    /// The activity of the thread.
    pub kind: Kind,
    /// The kind of its wait, if its system call shows that.
    pub waits_for: Option<ThreadState>,
    /// The processor, for a sample.
    pub cpu: Option<u32>,
    /// Whether the thread held the GIL, if that is known.
    pub gil: Option<bool>,
    /// Frames, the innermost first.
    pub frames: Vec<Frame>,
    /// The reason why the frames end, a [`tprof_wire::record::StackEnd`].
    pub end: u8,
    /// The quantity that the sample measures.
    pub measure: Measure,
}

impl CpuSample {
    /// Returns a sample of a thread that ran, with only these values.
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

/// The quantity that a [`CpuSample`] measures.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// Time that the thread spent.
    Time,
    /// The thread's counts so far.
    Counted(ThreadTotals),
    /// Number of events since the last such row of the thread.
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

/// An event that the sampler sends.
#[derive(Debug)]
pub enum SamplerEvent {
    /// A process began by a fork.
    Forked {
        /// Pid of the child.
        pid: u32,
        /// Pid of its parent.
        parent: u32,
        /// Time of the fork.
        time_ns: u64,
    },
    /// A process runs another program since this time: pid, time.
    Replaced(u32, u64),
    /// A process has ended: pid, time.
    Ended(u32, u64),
    /// A thread was given a name: pid, tid, time, name.
    Named(u32, u32, u64, String),
    /// A module in which samples lie.
    ModuleLoaded(ModuleLoad),
    /// Samples, nearly in order.
    Samples(Vec<CpuSample>),
    /// Something was lost: what, why, and how many.
    Lost(&'static str, &'static str, u64),
    /// The share of the time for which each event was counted.
    EventShares(Vec<(PerfEvent, f64)>),
    /// The kernel was sampled, but the names of its functions are hidden, for this reason.
    KernelNamesHidden(String),
    /// Something cannot be recorded: the process (empty for all), what, and why.
    Missing(String, &'static str, String),
}

/// Number of times that the kernel interrupted the job's threads for the sampler.
#[derive(Debug, Default)]
pub struct Interruptions {
    /// Interruptions for samples of running threads and of threads that leave their processor.
    pub samples: AtomicU64,
    /// Interruptions to record that a thread left its processor.
    pub switches: AtomicU64,
    /// Samples of running threads by the clock. Each covers one period.
    pub clocked: AtomicU64,
    /// Interruptions by the clock that found a thread in tprof's library, or in the kernel on
    /// behalf of the library.
    pub in_library: AtomicU64,
}
