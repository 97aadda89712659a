//! What a run leaves behind: the rank files, and `run.json` with what became of every process.

pub mod files;
pub mod info;
pub mod ranks;
pub mod story;
