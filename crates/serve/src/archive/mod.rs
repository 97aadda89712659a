//! An archive of runs: tables in a directory or an object store, which `tprof-sql` reads.
//!
//! This program has neither a Parquet reader nor a client of any store. It learns everything about
//! an archive from `tprof sql` and `tprof archive --list`, which it runs as child processes with
//! the usual limits. These inherit the credentials of a store in the environment, so that no
//! argument, page or file contains them.
//!
//! - `address`: which of the given paths is an archive;
//! - `list`: what an archive's own files say about its runs, before any table is read;
//! - `queries`: sends queries to `tprof-sql` and reads the results;
//! - `run_list`: the archived runs, each with its number;
//! - `run_totals`, `figures`: the figures of each run in the list, computed for many at a time;
//! - `open_archive`: an open archive, with the parts above.

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
