//! Samples threads from outside: perf events of the whole process tree, read and unwound on a
//! separate thread.
//!
//! The kernel interrupts a thread that runs, copies its registers and the top of its stack, and
//! goes on: nothing is stopped, nothing is loaded into the job, and the job does not notice. The
//! waits of a thread follow from the records of it leaving its processor.
//!
//! - User code needs `kernel.perf_event_paranoid` of 2 or less, kernel frames and stacks of short
//!   waits 1 or less (or CAP_PERFMON). Without perf events threads are read from `/proc`
//!   ([`polled`]).
//! - A thread's sampling clock starts with the thread, so that one that runs for less than a
//!   period has no sample. Its time is known from switches, without a function.
//! - Python frames are read up to 10 ms after the sample; later ones count as lost. A function
//!   that returned meanwhile is missing. Above 250 Hz they are read some milliseconds late, which
//!   a native stack that generated code (oneDNN's) cut cannot reveal: at 499 Hz 43 % of PyTorch's
//!   `relu` was code of the convolution before it, at 99 Hz 3 %.
//! - Stacks of waits that are read while they last lack the frame pointer; code that needs it
//!   cuts them.
//! - A thread that sleeps in `poll` without descriptors (`time.sleep` before Python 3.11) is
//!   `poll` if its stack was sampled when the wait began, and `sleep` if it was read during the
//!   wait.
//! - A wait that lasts while recording is switched off has its whole length.
//! - Page faults of a thread that calls `exec` count for its last program.
//! - Cycles, instructions and cache misses were only tested with page faults in their place: no
//!   machine with such counters was available. On processors with two kinds of cores, Linux
//!   counts one kind by these names.

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
