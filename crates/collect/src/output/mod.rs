//! The output of a run: the rank files, and `run.json` with the fate of every process.

pub mod collector_stall;
pub mod common_rows;
pub mod destination;
pub mod files;
pub mod flushing;
pub mod keeping;
pub mod losses;
pub mod module_names;
pub mod own_program;
pub mod processes;
pub mod ranks;
pub mod run_json;
pub mod shown_path;
pub mod sources;
pub mod stepping;
pub mod survivors;
pub mod transfers;
