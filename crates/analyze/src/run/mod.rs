//! A run without its ranks' rows: its processes, how complete the recording is, and
//! what recording cost.

pub mod completeness;
pub mod info;
mod minor;
mod missing;
pub mod overhead;
pub(crate) mod prices;
pub mod processes;
#[cfg(feature = "schema")]
mod schemas;
pub mod step_cost;
