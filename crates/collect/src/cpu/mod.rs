//! Samples threads from outside: perf events of the whole process tree, read and unwound on a
//! separate thread.
//!
//! The kernel interrupts a thread that runs, copies its registers and the top of its stack, and
//! goes on: nothing is stopped, nothing is loaded into the job, and the job does not notice. The
//! waits of a thread follow from the records of it leaving its processor.

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
