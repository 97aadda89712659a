//! The metrics of a rank: one file or folder for each kind of report. `docs/metrics.md` defines each
//! metric.
//!
//! The modules in reading order; each uses only those above it:
//!
//! - `host`: the wall time of the thread that drives a rank;
//! - `machine`: errors of the machine, and what went over its network;
//! - `cpu`, `files`, `gpu`, `memory`, `program`: the metrics by subject;
//! - `recording`: what recording cost the steps of a rank.

pub mod host;

pub mod machine;

pub mod cpu;
pub mod files;
pub mod gpu;
pub mod memory;
pub mod program;

pub mod recording;
