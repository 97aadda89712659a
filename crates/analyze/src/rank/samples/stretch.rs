//! Sums of one thread's samples in one place and state.

use tprof_trace::model::{ProcessIndex, StackId, ThreadIndex, ThreadState};

use super::names::FuncId;
use super::unsampled_share::UnsampledShare;

/// Time of one thread in one place and state.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// The state of the thread; waits are separated by cause.
    pub state: ThreadState,
    /// Functions, innermost first; empty if no stack was taken.
    pub stack: Vec<FuncId>,
    /// The stack's id: `CpuTrace::stack` has its lines.
    pub id: StackId,
    /// Number of the first functions that are inlined into the one after them.
    pub inlined: usize,
    /// The stack was cut.
    pub cut: bool,
    /// Time; of waits, with the part taken over from waits without a sample.
    pub weight_ns: u64,
    /// The part that was taken over, for its error.
    pub shared: UnsampledShare,
    /// Number of samples with a stack of their own, or of waits.
    pub samples: u64,
    /// The part of the weight in which it held Python's lock, ns; `None` if unknown.
    pub gil_ns: Option<u64>,
}
