//! The sampler's output: samples, and events of the processes that it watches.

use crate::config::PerfEvent;
use crate::modules::ModuleLoad;
use crate::python::PyFunction;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tprof_trace::model::ThreadState;

/// Counts of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Times that it left its processor to wait.
    pub voluntary: u64,
    /// Times that it was made to leave.
    pub involuntary: u64,
    /// Times that it came back on another processor.
    pub migrations: u64,
}

/// Kinds of stretches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It ran, for a time that no sample covers.
    Ran,
    /// Could have run.
    Ready,
    /// It waited for something.
    Waited,
}

/// The counts of a thread until it ended, or until the sampler did.
#[derive(Clone, Copy, Debug)]
pub struct ThreadTotals {
    /// Time of the counts.
    pub time_ns: u64,
    /// Context switches; `None` if records of them were lost.
    pub counts: Option<Counts>,
    /// Minor and major page faults, if they are known.
    pub faults: Option<[u64; 2]>,
}

/// A sample, or a stretch of time without one.
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
    /// For several waits that were added up, and for one at no exact time: the wait lies within so
    /// many nanoseconds from `time_ns` on.
    pub spread_ns: Option<u64>,
    /// What the thread did.
    pub kind: Kind,
    /// What it waited for, if its system call shows it.
    pub waits_for: Option<ThreadState>,
    /// Processor, of a sample.
    pub cpu: Option<u32>,
    /// Whether it held Python's lock, where that is known.
    pub gil: Option<bool>,
    /// Frames, the innermost first.
    pub frames: Vec<Frame>,
    /// Why the frames end: a [`tprof_wire::record::StackEnd`].
    pub end: u8,
    /// What the sample measures.
    pub measure: Measure,
}

impl CpuSample {
    /// A sample of a thread that ran, and nothing else.
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
    /// A time that a thread spent.
    Time,
    /// The counts of the thread so far.
    Counted(ThreadTotals),
    /// A number of events since the last such row of the thread.
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
    /// A function of an interpreter.
    Python(Arc<PyFunction>),
}

/// An event that the sampler sends.
#[derive(Debug)]
pub enum SamplerEvent {
    /// A process began by a fork, at a time.
    Forked {
        /// Pid of the child.
        pid: u32,
        /// Pid of its parent.
        parent: u32,
        /// Time of the fork.
        time_ns: u64,
    },
    /// A process runs another program since.
    Replaced(u32, u64),
    /// A process is gone since.
    Ended(u32, u64),
    /// A thread was given a name.
    Named(u32, u32, u64, String),
    /// A module that samples lie in.
    ModuleLoaded(ModuleLoad),
    /// Samples, nearly in order.
    Samples(Vec<CpuSample>),
    /// Something was lost: what, why, and how many.
    Lost(&'static str, &'static str, u64),
    /// The share of the time for which each event was counted.
    EventShares(Vec<(PerfEvent, f64)>),
    /// The kernel was sampled, but its functions have no names; why.
    KernelNamesHidden(String),
    /// Something cannot be recorded: of which process (empty: of all), what, and why.
    Missing(String, &'static str, String),
}

/// Number of times that the kernel interrupted the job's threads for the sampler.
#[derive(Debug, Default)]
pub struct Interruptions {
    /// Interruptions for samples, of running threads and of those that leave their processor.
    pub samples: AtomicU64,
    /// Interruptions to record that a thread left its processor.
    pub switches: AtomicU64,
    /// Samples of running threads by the clock, each of which covers one period.
    pub clocked: AtomicU64,
    /// Those of them that found a thread in tprof's library, or in the kernel on its behalf.
    pub in_library: AtomicU64,
}
