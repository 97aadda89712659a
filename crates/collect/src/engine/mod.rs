//! The collector's main loop: drains every target, writes the files, updates `run.json`, and ends
//! the run.
//!
//! `main_loop` contains the engine's state, and each of the other files adds one task. The threads
//! of `workers`, `pss` and `measure_costs` do the work that would delay the next pass over the rings.

mod budget;
mod collector_stall;
mod ending;
mod finish;
mod flush;
pub mod inbox;
mod keep;
mod main_loop;
pub mod measure_costs;
mod memory;
mod messages;
mod overhead_estimate;
pub mod prebuilt_tables;
pub mod pss;
mod recording;
mod requests;
mod reserve;
mod run_info;
pub mod scheduled;
mod standstill;
mod step_counts;
mod steps;
pub mod workers;
mod write_out;

pub use main_loop::{Engine, EngineParts};
