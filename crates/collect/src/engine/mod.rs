//! The collector's main loop: drains every target, writes the files, keeps `run.json` up to date,
//! and ends the run.
//!
//! `main_loop` holds the engine's state; each other file does one thing with it. The threads of
//! `workers`, `pss` and `costs` do what takes longer than a pass over the rings may.

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
mod requests;
mod reserve;
pub mod scheduled;
mod steps;
mod summary;
pub mod workers;
mod write_out;

pub use main_loop::{Engine, EngineParts};
