//! A run without its ranks' rows: its processes, the completeness of the recording, and the cost of
//! recording.

pub mod completeness;
pub mod info;
mod minor;
mod missing;
pub mod overhead;
pub mod processes;
#[cfg(feature = "schema")]
mod schemas;
