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
//! - `findings`: rules over a rank's metrics, and an upper bound of the time that each fix saves;
//! - `report`: the one pass over the files, the summary, the list of kinds;
//! - `joined`: the properties of single rows, for tables that list the rows;
//! - `diff`: two runs or sets of runs side by side;
//! - `schema`: JSON Schemas of all of these.

mod findings;

mod report;

pub mod joined;

pub mod diff;

pub mod schema;

pub use findings::{BUSY, RuleAbout, rules};
pub use report::summary::{self, Kind, Report};
pub use report::{
    AnalyzeError, KINDS, ReportRequest, Reports, document, read_together, report, report_with,
};
pub use tprof_document as document;
pub use tprof_document::{Document, DocumentKind};
pub use tprof_metrics::gpu::report_gpu::SampledGpu;
pub use tprof_metrics::memory;
pub use tprof_rank::base::reading::Reading;
pub use tprof_rank::base::{names, parallel};
pub use tprof_rank::run::{completeness, info::Run, processes, step_cost::StepCost};
