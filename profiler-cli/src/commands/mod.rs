//! The commands. Each has a file or folder, with its options.

pub mod archive;
pub mod attach;
pub mod catalogue;
pub mod compare;
pub mod completions;
pub mod ctl;
pub mod diff;
pub mod doctor;
mod elsewhere;
pub mod env;
pub mod export;
pub mod import;
pub mod limited;
mod live;
pub mod ls;
pub mod open;
pub mod report;
pub mod rm;
pub mod run;
pub mod serve;
mod snapshot;
pub mod sql;
pub mod standstill;
mod steps_from;
