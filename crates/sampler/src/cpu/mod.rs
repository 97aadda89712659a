//! Samples the job's threads from outside, by perf events of the whole process tree. A separate
//! thread of the collector reads and unwinds the samples.
//!
//! The kernel interrupts a running thread, copies its registers and the top of its stack, and lets
//! it continue. Nothing else stops the thread, and no code is loaded into the job, so the job
//! doesn't notice. The kernel also writes a record whenever a thread leaves its processor. From
//! these records the sampler computes how long the thread waited.
//!
//! - Samples of user code need a `kernel.perf_event_paranoid` of 2 or less. Kernel frames and
//!   stacks of short waits need 1 or less (or CAP_PERFMON). Where perf events are refused, the
//!   sampler reads the threads from `/proc` instead (`polled`).
//! - The sampling clock of a thread starts with the thread, so a thread that runs for less than one
//!   period has no sample. The time that it ran is known from context switches, but its functions
//!   aren't.
//! - Python frames must be read within 10 ms of the sample, or they count as lost. If a function
//!   has returned by then, it is missing. Above 250 Hz the frames are read some milliseconds late,
//!   so they may belong to a later call than the native stack does. This can't be detected if
//!   generated code (such as oneDNN's) has cut the native stack. At 499 Hz, 43 % of the samples in
//!   PyTorch's `relu` were in native code of the convolution before it; at 99 Hz, 3 % were.
//! - If the stack of a wait is read during the wait, the frame pointer is unknown. Such a stack
//!   ends at the first function that can't be unwound without the frame pointer.
//! - A thread may sleep in `poll` without descriptors (`time.sleep` before Python 3.11). If its
//!   stack was sampled when the wait began, the kind of the wait is `poll`. If the stack was read
//!   during the wait, the kind is `sleep`.
//! - If recording is switched off during a wait, the whole wait still counts.
//! - If a thread calls `exec`, all of its page faults count for the last program image.
//! - Counters of cycles, instructions and cache misses are untested, because no machine with such
//!   counters was available. The tests count page faults instead. On processors with two kinds of
//!   cores, Linux counts only one kind under these names.

mod blocked;
mod call;
mod cost;
mod counters;
mod descriptors;
mod events;
mod look;
mod options;
mod polled;
mod polled_thread;
mod probe;
mod rate;
mod refusal;
mod running;
mod sample;
mod sampler;
mod threads;
mod unwind;
mod worker;

pub use cost::{CostSpread, SamplingCosts, measure as measure_sampling};
pub use counters::processors;
pub use descriptors::Descriptors;
pub use look::{Looker, SeenThread};
pub use options::SamplingOptions;
pub use probe::{Permitted, permitted};
pub use rate::{DEFAULT_RATE, highest_rate};
pub use sample::{
    Counts, CpuSample, Frame, Interruptions, Kind, Measure, SamplerEvent, ThreadTotals,
};
pub use sampler::CpuSampler;
#[cfg(feature = "fuzzing")]
pub use worker::{RecordsRead, read_records};
