//! What `tprof` makes as a child: reports, exports, comparisons; one at a time, with limits, and
//! kept while the files are the same.

mod child;
mod desk;
mod kept;
mod output;
mod pruned;

pub use child::{Limits, Tprof};
pub use desk::{Desk, Job, Lane};
pub use output::Output;
pub use pruned::only;
