//! What the CPU did: samples of running threads, and why threads waited.
//!
//! Weights are time: a sample stands for the sampling period, a wait for its
//! length. Sums over functions are over samples, never over spans, so that the
//! parts of a thread's time add up to it.

mod counted;
mod counted_tables;
mod functions;
mod load;
mod loading;
mod names;
mod ranges;
mod report;
mod split;
mod split_tables;
mod threads;
mod tree;
mod unseen;
mod waits;

pub use functions::{Function, Functions, Sum};
pub use load::{CpuTrace, Stretch};
pub use loading::Loading;
pub(crate) use loading::Role;
pub use names::{Func, FuncId, Layer, Names};
pub(crate) use report::shown;
pub use report::{CpuReport, KIND as CPU};
pub use threads::{KIND as THREADS, ThreadsReport};
pub use tree::{Node, Tree};
pub use waits::{wait_of, word};

/// What to do where a run has no samples.
pub(crate) const NO_SAMPLES: &str =
    "the run has no CPU samples: record with --activities cpu (`tprof doctor` says what it needs)";
