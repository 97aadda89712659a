//! `tprof export`: writes a run in the formats of other tools.

mod args;
mod failure;
mod report;
mod shapes;
mod site;
pub mod tensorboard;
mod write;

pub use args::{ExportArgs, SliceArgs};
pub use write::{command, print, run, wanted, write};
