//! Reports what the CPU did, by samples of running threads, and why threads waited.
//!
//! Weights are time: a sample stands for the sampling period, and a wait for its length. Sums by
//! function add up samples and never the durations of spans, so that the parts of a thread's time
//! add up to the whole.

mod cells;
mod counted;
mod counted_tables;
mod filter;
mod functions;
mod groups;
mod joined;
mod line_tables;
mod lines;
mod loading;
mod ranges;
mod rank_cpu;
mod report;
mod split;
mod split_tables;
mod steps;
mod tables;
mod thread_row;
mod thread_tables;
mod threads;
mod tree;
mod waits;
mod windows;

pub use cells::shown;
pub use report::KIND as CPU;
pub use threads::KIND as THREADS;
