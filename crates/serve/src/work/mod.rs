//! Runs `tprof` as a child process for reports, exports and comparisons, with limits. Caches the
//! output as long as the run's files stay the same.

mod child;
mod job_queue;
mod keep_keys;
mod output;
mod result_cache;

pub use child::{Limits, Tprof};
pub use job_queue::{Job, JobQueue, Priority};
pub use keep_keys::read_selected;
pub use output::Output;
