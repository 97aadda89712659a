//! What `tprof` makes as a child: reports, exports, comparisons; one at a time, with limits, and
//! kept while the files are the same.

mod child;
mod job_queue;
mod keep_keys;
mod output;
mod result_cache;

pub use child::{Limits, Tprof};
pub use job_queue::{Job, JobQueue, Priority};
pub use keep_keys::only;
pub use output::Output;
