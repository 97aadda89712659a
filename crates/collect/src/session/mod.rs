//! A session from its first process to its end: its directory and socket, and who answers there.

pub mod control;
pub mod job;
pub mod rundir;
pub mod server;
mod start;

pub use rundir::free;
pub use start::{Libraries, Session, collect_on_demand, injections};
