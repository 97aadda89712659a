//! The output of a run: the rank files, and `run.json` with the fate of every process.

pub mod collector_stall;
pub mod destination;
pub mod files;
pub mod info;
pub mod losses;
pub mod module_names;
pub mod processes;
pub mod ranks;
pub mod sources;
pub mod stepping;
pub mod survivors;
