//! Samples of one thread in one place and state, added up.

use tprof_trace::model::{ProcessIndex, StackId, ThreadIndex, ThreadState};

use super::names::FuncId;
use super::unsampled_share::UnsampledShare;

/// Time of one thread in one place and state.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// Its thread.
    pub process: ProcessIndex,
    /// Which thread.
    pub thread: ThreadIndex,
    /// What it did; waits are separated by cause.
    pub state: ThreadState,
    /// Functions, innermost first; empty if no stack was taken.
    pub stack: Vec<FuncId>,
    /// The stack's id: `CpuTrace::stack` has its lines.
    pub id: StackId,
    /// How many of the first are inlined into the one after them.
    pub inlined: usize,
    /// The stack was cut.
    pub cut: bool,
    /// Time; of waits, with the part taken over from waits without a sample.
    pub weight_ns: u64,
    /// The part that was taken over, for its error.
    pub shared: UnsampledShare,
    /// Samples of it with a stack of their own, or waits.
    pub samples: u64,
    /// Of the weight, what was spent holding Python's lock; `None` if unknown.
    pub gil_ns: Option<u64>,
}
