//! `tprof run`: launches a command, records it, and exits with the command's status.

mod args;
mod first_finding;
mod live_log;
mod peak;
mod record;
mod requests;
mod summary;

pub use args::RunArgs;
pub use first_finding::first_finding;
pub use record::{agent_for, current_directory, end_as, run, warn_renamed, withdraw};
pub use summary::counted_events;
