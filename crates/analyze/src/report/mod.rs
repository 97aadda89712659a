//! What makes reports of a run's files: every file is read once for all of them.

mod behind;
mod error;
mod kinds;
mod lost_rows;
mod pass;
pub mod summary;

pub use error::AnalyzeError;
pub use kinds::KINDS;
pub use pass::{Made, Wanted, read_together, report, report_with};
pub(crate) use pass::{OfKind, read_ranks};
