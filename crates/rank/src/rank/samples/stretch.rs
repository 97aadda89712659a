//! Sums of the samples of one thread with the same stack and state.

use tprof_trace::model::{ProcessIndex, StackId, ThreadIndex, ThreadState};

use super::names::FuncId;
use super::unsampled_share::UnsampledShare;

/// Time of one thread with one stack and state.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// The state of the thread; waits are separated by cause.
    pub state: ThreadState,
    /// Functions, innermost first, inlined ones included; empty if no stack was taken.
    pub stack: Vec<FuncId>,
    /// The stack's id; `CpuTrace::stack` returns the lines of that stack.
    pub id: StackId,
    /// Whether the stack was cut.
    pub cut: bool,
    /// Time, ns; for waits, this includes a share of the waits without a sample.
    pub weight_ns: u64,
    /// The share of the waits without a sample, from which the error is computed.
    pub shared: UnsampledShare,
    /// Number of samples with this stack, or of waits.
    pub samples: u64,
    /// The part of the weight in which the thread held Python's lock, ns; `None` if unknown.
    pub gil_ns: Option<u64>,
}
