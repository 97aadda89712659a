//! `tprof serve`: pages and an API over a directory of runs.
//!
//! The server reads no trace itself but the growing ones of live runs: reports, exports and
//! comparisons are made by `tprof` as a child process with a limit of memory and of time, one
//! after another, and what they print is kept for as long as the run's files are the same. So the API
//! returns exactly what `tprof report --json` prints, a hostile run ends at most a child, and
//! memory stays with the size of what is kept.
//!
//! In reading order; each uses only those above it:
//!
//! - [`Options`], [`SiteOptions`], `failure`, `ends`: what was asked for, what went wrong, signals;
//! - `runs`: the directory, found again and again, and files opened beneath it;
//! - `work`: children, their limits, and what they printed;
//! - `http`: connections, tokens, headers;
//! - `live`, `summary`: runs in progress, and figures for the list;
//! - `archive`: an archive of runs in place of a directory, read by `tprof-sql`;
//! - `app`: what all requests share;
//! - `pages`: the one page, and the exported ones;
//! - `answers`: one file for each kind of answer, and the table of all;
//! - `serve`: the life of the server;
//! - `site`: the same answers as files, without a server.

pub mod failure;

mod answers;
mod app;
mod archive;
mod http;
mod live;
mod options;
mod pages;
mod runs;
mod serve;
mod shutdown_signals;
mod site;
mod summary;
mod work;

pub use options::{Options, SiteOptions};
pub use pages::{shell, static_shell};
pub use serve::serve;
pub use site::site;
pub use work::Limits;
