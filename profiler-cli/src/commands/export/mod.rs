//! `tprof export`: a run in the formats of other tools.

mod args;
mod failure;
mod report;
mod write;

pub use args::{ExportArgs, SliceArgs};
pub use write::{run, wanted, write};
