//! The collector's main loop: drains every target, writes the files, updates `run.json`, and ends
//! the run.
//!
//! `main_loop` contains the engine's state, and each of the other files adds one task. The threads
//! of `workers`, `pss` and `costs` do the work that would delay the next pass over the rings.

mod collector_stall;
pub mod costs;
mod ending;
mod finish;
mod flush;
mod in_place;
pub mod inbox;
mod main_loop;
mod memory;
mod messages;
pub mod prebuilt_tables;
pub mod pss;
mod recording;
mod requests;
mod reserve;
pub mod scheduled;
mod standstill;
mod step_counts;
mod steps;
mod summary;
pub mod workers;
mod write_out;

pub use main_loop::{Engine, EngineParts};
