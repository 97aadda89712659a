//! Samples threads from outside: perf events of the whole process tree, read and unwound on a
//! separate thread.
//!
//! The kernel interrupts a running thread, copies its registers and the top of its stack, and
//! continues it. Nothing else stops the thread, no code is loaded into the job, and the job does
//! not notice. The kernel also writes a record whenever a thread leaves its processor; the thread's
//! waits are computed from these records.
//!
//! - User code needs `kernel.perf_event_paranoid` of 2 or less. Kernel frames and stacks of short
//!   waits need 1 or less (or CAP_PERFMON). Without perf events, threads are read from `/proc`
//!   (`polled`).
//! - The sampling clock of a thread starts with the thread, so a thread that runs for less than a
//!   period has no sample. Its time is known from context switches, but not its functions.
//! - Python frames are read up to 10 ms after the sample; later ones count as lost. A function that
//!   returned meanwhile is missing. Above 250 Hz they are read some milliseconds late, so they may
//!   belong to a later call than the native stack. This can't be detected if generated code (such
//!   as oneDNN's) has cut the native stack. At 499 Hz, 43 % of the samples in PyTorch's `relu` were
//!   in native code of the convolution before it; at 99 Hz, 3 % were.
//! - If the stack of a wait is read during the wait, the frame pointer is unknown. Such a stack
//!   ends at the first function that can only be unwound with the frame pointer.
//! - If a thread sleeps in `poll` without descriptors (`time.sleep` before Python 3.11), the kind
//!   of the wait is `poll` if the stack was sampled when the wait began, and `sleep` if it was read
//!   during the wait.
//! - If recording is switched off during a wait, the wait still counts with its whole length.
//! - All page faults of a thread that calls `exec` count for the program image that it ran last.
//! - Counters of cycles, instructions and cache misses are untested, because no machine with such
//!   counters was available. The tests count page faults in their place. On processors with two
//!   kinds of cores, Linux counts only one kind under these names.

mod blocked;
mod call;
mod cost;
mod counters;
mod descriptors;
mod events;
mod options;
mod polled;
mod polled_thread;
mod probe;
mod rate;
mod refusal;
mod sample;
mod sampler;
mod threads;
mod unwind;
mod worker;

pub use cost::{CostSpread, SamplingCosts, measure as measure_sampling};
pub use counters::processors;
pub use options::SamplingOptions;
pub use probe::{Permitted, permitted};
pub use rate::{DEFAULT_RATE, highest_rate};
pub use sample::{
    Counts, CpuSample, Frame, Interruptions, Kind, Measure, SamplerEvent, ThreadTotals,
};
pub use sampler::CpuSampler;
