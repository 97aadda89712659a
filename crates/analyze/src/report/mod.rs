//! Makes the reports of a run. Each file of the run is read once for all reports.

mod after_end;
mod error;
mod kinds;
mod lost_rows;
mod pass;
pub mod summary;

pub use error::AnalyzeError;
pub use kinds::KINDS;
pub use pass::{
    DocumentContext, ReportRequest, Reports, document, make_reports, read_ranks, report,
    report_with,
};
