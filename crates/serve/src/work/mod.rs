//! Runs `tprof` as a child process for reports, exports and comparisons: one at a time, with
//! limits. Output is cached as long as the run's files stay the same.

mod child;
mod job_queue;
mod keep_keys;
mod output;
mod result_cache;

pub use child::{Limits, Tprof};
pub use job_queue::{Job, JobQueue, Priority};
pub use keep_keys::only;
pub use output::Output;
