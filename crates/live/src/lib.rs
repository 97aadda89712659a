//! Follows a run while it is recorded: reads its files as they grow, and returns a [`Snapshot`] per
//! second. A finished run is read in the same way.
//!
//! [`Follower`] does all of that; [`prometheus()`] writes snapshots as text for a scraper, and
//! [`otlp()`] as a request for a collector of OpenTelemetry.
//!
//! The modules in reading order; each uses only those above it:
//!
//! - `figures`: sums over the history of a rank's steps, for a scraper;
//! - `snapshot`: the result, as JSON; `files`: the source of a run's files;
//! - `metric`: the metrics of a rank; `history`: their history;
//! - `infos`: the info files of the collectors; `pace`: steps and stalls of a rank; `main_thread`:
//!   activity of a rank's main thread; `failed_requests`: where device memory was out; `readings`:
//!   the other state of a rank; `rank`: a rank's file;
//! - `heat`: metrics by rank and time; `follower`: all ranks of a run;
//! - `prometheus`, `otlp`: metrics for a scraper, and for a collector of OpenTelemetry;
//! - `top`: metrics in a terminal.

mod figures;
pub mod files;
mod snapshot;

mod history;
mod metric;

mod failed_requests;
mod infos;
mod main_thread;
mod pace;
mod rank;
mod readings;

mod heat;

mod follower;

mod otlp;
mod prometheus;

pub mod top;

pub use files::{FileEntry, PlainFiles, RunFiles};
pub use follower::Follower;
pub use metric::Metric;
pub use otlp::otlp;
pub use prometheus::prometheus;
pub use snapshot::{
    Event, EventKind, Heat, HeatColumn, HeatRow, History, MetricValues, OutOfMemory, RankState,
    RunState, Snapshot, Stall, Totals, VERSION,
};
