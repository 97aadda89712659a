//! `tprof export`: writes a run in the formats of other tools.

mod args;
mod charts;
mod evidence_links;
mod failure;
mod gpu_time_chart;
mod host_charts;
mod memory_section;
mod page_table;
mod report;
mod roofline_chart;
mod shapes;
mod site;
pub mod tensorboard;
mod write;

pub use args::{ExportArgs, SliceArgs};
pub use write::{command, print, run, wanted, write};
