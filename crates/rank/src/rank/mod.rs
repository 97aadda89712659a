//! Loads one rank's device work and host spans into memory, in order of time, and joins them.
//!
//! [`RankTrace::load`] reads the tables that a report needs, and keeps only a few fields of each
//! row. Each core loads one rank at a time and drops it when it has been summarised, so that memory
//! does not grow with the number of ranks.

mod busy;
pub mod call_names;
mod call_tree;
mod collective_kernels;
pub mod collectives;
mod descent;
mod device_steps;
mod hta;
mod hta_class;
mod launches;
mod load;
pub mod meetings;
pub mod messages;
mod modules;
mod needs;
mod nested;
mod nesting;
pub mod roles;
mod rows;
pub mod samples;
mod span_purpose;
mod step;
mod steps;
mod streams;
#[cfg(test)]
mod tests;
mod trace;
mod windows;

pub use busy::Busy;
pub use call_tree::{CallTree, TreeSpan};
pub use descent::descends;
pub use hta_class::hta_class;
pub use needs::Needs;
pub use nested::{Nested, place_of_span};
pub use nesting::{Moment, OnThread, enclosing, nesting_order, parents};
pub use rows::{HostSpan, MaybeNumber, StreamIndex, StreamKey, Work, WorkKind};
pub use span_purpose::SpanPurpose;
pub use step::{Step, step_at};
pub use steps::{PROFILER_STEP, steps_of_one_process};
pub use tprof_facts::Class;
pub use trace::RankTrace;
pub use windows::{DeviceWindow, WINDOW_NEEDS, judged_window, judges, of_devices, window_of};
