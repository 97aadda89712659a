//! An archive of runs: tables in a directory or an object store, which `tprof-sql` reads.
//!
//! This program has neither a reader of Parquet nor a client of any store. Everything of an archive
//! comes from `tprof sql` and `tprof archive --list`, as children with limits like all others; what
//! gives access to a store reaches them by the environment only, and is in no argument, page or file.
//!
//! - `address`: which of the named paths is an archive;
//! - `list`: what it states of its runs before any table is read;
//! - `queries`: what `tprof-sql` is asked, and its answers;
//! - `listed`: the runs that there are, each with its number;
//! - `sums`, `figures`: what the list has of each run, made for many at a time;
//! - `opened`: all of that together.

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
