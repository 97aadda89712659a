//! A run without its ranks' rows: its processes, how complete the recording is, and
//! what recording cost.

pub mod completeness;
pub mod info;
mod minor;
mod missing;
pub mod overhead;
pub mod processes;
mod schemas;
