//! Makes the reports of a run's files.
//!
//! Most kinds of report are a [`Document`](tprof_document::Document); [`KINDS`] lists them.
//! [`report()`] reads a run directory or one of its files and returns everything that `tprof
//! report` prints, as values; times are nanoseconds since the run began. Numbers are
//! [`Reading`](tprof_rank::base::reading::Reading)s: measured, estimated with an error, or missing
//! with a reason. `docs/metrics.md` defines each metric.
//!
//! Analyses are crates one above the other, so that none uses what is above it:
//!
//! - `tprof-rank`: intervals, readings, statistics; a run without its rows; one rank's rows in
//!   memory, joined and in order;
//! - `tprof-document`: the interface of analyses, and the tables that they make;
//! - `tprof-metrics`: the metrics of a rank, one file or folder per kind;
//! - `tprof-findings`: rules over a rank's metrics, and an upper bound of the time that each fix
//!   saves;
//! - this crate: `report`, which is the one pass over the files, the summary and the list of kinds;
//!   and `joined`, the properties of single rows, for tables that list the rows;
//! - `tprof-diff`: two runs or sets of runs side by side;
//! - `tprof-schema`: JSON Schemas of all of these.

mod report;

pub mod joined;

pub use report::summary::{self, Kind, Report};
pub use report::{
    AnalyzeError, DocumentContext, KINDS, ReportRequest, Reports, document, make_reports,
    read_ranks, report, report_with,
};
