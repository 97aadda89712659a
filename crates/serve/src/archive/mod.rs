//! An archive of runs: tables in a directory or an object store, which `tprof-sql` reads.
//!
//! This program has neither a Parquet reader nor a client of any store. Everything about an archive
//! comes from `tprof sql` and `tprof archive --list`, as children with the usual limits.
//! Credentials of a store reach them only by the environment, and are in no argument, page or file.
//!
//! - `address`: which of the given paths is an archive;
//! - `list`: what an archive states about its runs before any table is read;
//! - `queries`: what `tprof-sql` is asked, and its answers;
//! - `run_list`: the archived runs, each with its number;
//! - `run_totals`, `figures`: the figures of each run in the list, computed for many at a time;
//! - `open_archive`: all of that together.

mod address;
mod figures;
mod list;
mod open_archive;
mod queries;
mod run_list;
mod run_totals;

pub use address::Address;
pub use list::ArchivedRun;
pub use open_archive::Archive;
