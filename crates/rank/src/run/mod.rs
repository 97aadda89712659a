//! Describes a run as a whole, without reading its ranks' rows: its processes, the completeness of
//! the recording, and the cost of recording.

pub mod completeness;
pub mod info;
pub mod job_overhead;
mod minor;
mod missing;
pub mod processes;
mod schemas;
pub mod step_cost;
pub mod unit_costs;
