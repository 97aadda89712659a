//! What `tprof`, `tprof-serve` and `tprof-sql` share towards their users.
//!
//! - `columns`, `paint`, `errors`: text in columns, its colours, and the message for a failure;
//! - `newest`: the run that a command reads if its line names none;
//! - `browser`: opens an address;
//! - `args`: the options of commands that another program executes. `tprof` has them too, so that
//!   its help works where that program isn't installed.

pub mod columns;
pub mod paint;

pub mod errors;

pub mod newest;

pub mod browser;

pub mod args;
