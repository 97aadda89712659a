//! Analyses of a run's files: one file per metric.
//!
//! Most kinds of report are a [`Document`]; [`KINDS`] lists them. [`report()`] reads a
//! run directory or one of its files and returns everything that `tprof report` prints, as values;
//! times are nanoseconds since the run began. Numbers are [`Reading`]s: measured, estimated with an
//! error, or missing with a reason. `docs/metrics.md` defines each metric.
//!
//! The modules in reading order; each uses only those above it (`scripts/check-arrows.py` checks
//! that):
//!
//! - `report`: the one pass over the files, the summary, the list of kinds;
//! - `joined`: the properties of single rows, for tables that list the rows;
//! - `diff`: two runs or sets of runs side by side;
//! - `schema`: JSON Schemas of all of these.

mod report;

pub mod joined;

pub mod diff;

pub mod schema;

pub use report::summary::{self, Kind, Report};
pub use report::{
    AnalyzeError, KINDS, ReportRequest, Reports, document, read_together, report, report_with,
};
