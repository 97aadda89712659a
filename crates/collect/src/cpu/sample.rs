//! What the sampler gives: samples, and what it learns of processes meanwhile.

use crate::config::PerfEvent;
use crate::modules::ModuleLoad;
use crate::python::PyFunction;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tprof_trace::model::ThreadState;

/// What was counted of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// It left its processor to wait.
    pub voluntary: u64,
    /// It was made to leave.
    pub involuntary: u64,
    /// It came back on another processor.
    pub migrations: u64,
}

/// Kinds of stretches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Ran, and no sample stands for it.
    Ran,
    /// Could have run.
    Ready,
    /// Waited.
    Waited,
}

/// What was counted of a thread until it ended, or the sampler.
#[derive(Clone, Copy, Debug)]
pub struct ThreadTotals {
    /// When.
    pub time_ns: u64,
    /// Switches; `None` if records of them were lost.
    pub counts: Option<Counts>,
    /// Minor and major page faults, if they are known.
    pub faults: Option<[u64; 2]>,
}

/// A sample, or a stretch of time without one.
#[derive(Clone, Debug)]
pub struct CpuSample {
    /// When.
    pub time_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Time that it stands for.
    pub weight_ns: u64,
    /// Of several waits that were added up, and of one at no exact time: it lies within so many
    /// nanoseconds from `time_ns` on.
    pub spread_ns: Option<u64>,
    /// What the thread did.
    pub kind: Kind,
    /// What it waited for, if its system call shows it.
    pub waits_for: Option<ThreadState>,
    /// Processor, of a sample.
    pub cpu: Option<u32>,
    /// Whether it held Python's lock, where that is known.
    pub gil: Option<bool>,
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// Why the frames end: a [`tprof_wire::record::StackEnd`].
    pub end: u8,
    /// What it holds.
    pub measure: Measure,
}

impl CpuSample {
    /// Of a thread that ran, and nothing else.
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

/// What a [`CpuSample`] holds.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// What a thread did for a while.
    Time,
    /// What was counted of it so far.
    Counted(ThreadTotals),
    /// So many events since the last such row of the thread.
    Events(PerfEvent, u64),
}

/// One frame of a sample.
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

/// What the sampler sends.
#[derive(Debug)]
pub enum SamplerEvent {
    /// A process began by a fork, at a time.
    Forked {
        /// The child.
        pid: u32,
        /// Its parent.
        parent: u32,
        /// When.
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
    /// Something was lost: what, why, how many.
    Lost(&'static str, &'static str, u64),
    /// For which share of the time events were counted.
    EventShares(Vec<(PerfEvent, f64)>),
    /// The kernel was sampled, but its functions have no names; why.
    KernelNamesHidden(String),
    /// Something cannot be recorded: of which process (empty: of all), what, why.
    Missing(String, &'static str, String),
}

/// How often the kernel interrupted the job's threads for the sampler.
#[derive(Debug, Default)]
pub struct Interruptions {
    /// For samples, of running threads and of those that leave their processor.
    pub samples: AtomicU64,
    /// To write down that they left their processor.
    pub switches: AtomicU64,
    /// Samples of running threads by the clock: each stands for a period.
    pub clocked: AtomicU64,
    /// Those of them that found a thread in tprof's library, or in the kernel for it.
    pub in_library: AtomicU64,
}
