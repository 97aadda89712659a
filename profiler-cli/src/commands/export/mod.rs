//! `tprof export`: a run in the formats of other tools.

mod args;
mod failure;
mod host_charts;
mod host_times;
mod places;
mod report;
mod write;

pub use args::{ExportArgs, SliceArgs};
pub use write::{run, wanted, write};
