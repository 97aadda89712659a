//! Begins and ends a session: its run directory, its socket, and the server that answers processes.

mod answerer;
mod asker;
mod configure;
pub mod control;
pub mod dumps;
mod first_info;
mod hang_watch;
mod hourly;
mod idle_times;
mod injections;
mod job;
mod nccl_conf;
mod nccl_log;
mod numbered;
mod owners;
mod rundir;
mod server;
mod shared_requests;
mod slow_steps;
mod standstill;
mod start;

pub use injections::{Libraries, injections};
pub use rundir::{RunPath, free};
pub use start::{Session, collect_on_demand};
