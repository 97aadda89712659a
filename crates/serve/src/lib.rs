//! `tprof serve`: pages and an API over a directory of runs.
//!
//! The server itself reads only the growing traces of live runs. `tprof` makes reports, exports and
//! comparisons as a child process with limits of memory and time, one after another, and its output
//! is cached as long as the run's files stay the same. So the API returns exactly what `tprof report
//! --json` prints, a hostile run can end only a child, and memory is bounded by the cache.
//!
//! The modules in reading order; each uses only those above it:
//!
//! - [`Options`], [`SiteOptions`], `failure`, `shutdown_signals`: the request, errors, signals;
//! - `runs`: the directory, which is rescanned, and files opened beneath it;
//! - `work`: child processes, their limits, and their output;
//! - `http`: connections, tokens, headers;
//! - `live`, `summary`: runs in progress, and figures for the list;
//! - `archive`: an archive of runs instead of a directory, read by `tprof-sql`;
//! - `app`: state that all requests share;
//! - `pages`: the server's page, and exported pages;
//! - `answers`: one file per kind of answer, and the table of routes;
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
