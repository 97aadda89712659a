//! Follows a run while it is recorded: its files are read as they grow, and give a
//! [`Snapshot`] a second. A run that is over is read the same way.
//!
//! [`Follower`] is the whole of it; [`prometheus()`] writes snapshots as text for a scraper.
//!
//! The modules in reading order; each uses only those above it:
//!
//! - `snapshot`: what is given, as JSON; `files`: where the files of a run come from;
//! - `metric`: which numbers there are of a rank; `history`: their course;
//! - `infos`: what the collectors wrote of the run; `pace`: steps and stalls of a rank;
//!   `activity`: what its main thread does, `readings`: what else is known of a rank; `rank`: a rank's file;
//! - `heat`: numbers by rank and time; `follower`: all ranks of a run;
//! - `prometheus`: its numbers for a scraper;
//! - `top`: its numbers in a terminal.

pub mod files;
mod snapshot;

mod history;
mod metric;

mod infos;
mod main_thread;
mod pace;
mod rank;
mod readings;

mod heat;

mod follower;

mod prometheus;

pub mod top;

pub use files::{FileEntry, PlainFiles, RunFiles};
pub use follower::Follower;
pub use metric::Metric;
pub use prometheus::prometheus;
pub use snapshot::{
    Event, EventKind, Heat, HeatColumn, HeatRow, History, MetricValues, RankState, RunState,
    Snapshot, Stall, Totals, VERSION,
};
