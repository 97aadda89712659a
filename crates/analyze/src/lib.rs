//! What a run's files mean: one file per metric.
//!
//! Most kinds of report are a [`document::Document`]: [`KINDS`] lists them.
//! [`report`] reads a run directory or one of its files and returns everything
//! that `tprof report` prints, as values; times are nanoseconds since the run
//! began. Numbers are [`Reading`]s: measured, estimated with an error, or missing
//! with a reason. `docs/metrics.md` defines each.

pub mod annotations;
pub mod api;
mod at_once;
pub mod bandwidth;
pub mod breakdown;
mod call_tree;
pub mod clock;
pub mod collectives;
pub mod comm;
pub mod completeness;
pub mod counters;
pub mod cpu;
pub mod critical_path;
pub mod describe;
pub mod device_memory;
pub mod devices;
pub mod diff;
pub mod document;
pub mod findings;
#[cfg(test)]
mod fixture;
pub mod frames;
pub mod gemms;
pub mod gpu;
pub mod idle;
pub mod intervals;
pub mod kernels;
mod kinds;
pub mod launches;
pub mod memcpy;
pub mod memory;
pub mod names;
mod nested;
mod nsys;
pub mod nvtx;
pub mod operators;
mod over_ranks;
pub mod overhead;
pub mod overlap;
pub mod processes;
pub mod queue;
pub mod rank;
pub mod ranks;
pub mod reading;
mod search;
pub mod sequences;
pub mod spread;
pub mod steps;
pub mod stragglers;
pub mod summary;
mod together;
pub mod units;

pub use document::{Document, DocumentKind};
pub use kinds::KINDS;
pub use reading::Reading;
pub use summary::{AnalyzeError, Kind, Report, report, report_with};
pub use together::{Made, Wanted, read_together};
