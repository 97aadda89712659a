//! `tprof serve`: pages and an API over a directory of runs.
//!
//! The server itself reads only the growing traces of live runs. For reports, exports and
//! comparisons it runs `tprof` as a child process, only a few at a time, with limits on memory and
//! time. It caches the output as long as the run's files stay the same. So the API returns exactly
//! what `tprof report --json` prints, a hostile run can crash only a child, and the limit of the
//! cache bounds memory.
//!
//! The modules in reading order; each uses only those above it:
//!
//! - [`Options`], [`SiteOptions`], `failure`, `shutdown_signals`: what the user asked for, errors,
//!   signals;
//! - `runs`: finds the runs in the directory, again and again, and opens files beneath it;
//! - `work`: child processes, their limits, and their output;
//! - `http`: connections, tokens, headers;
//! - `live`, `summary`: runs in progress, and figures for the list;
//! - `archive`: an archive of runs instead of a directory, read by `tprof-sql`;
//! - `app`: state that all requests share;
//! - `nonce`: the nonces of exported pages;
//! - `answers`: one file per kind of answer, and the table of routes;
//! - `otlp`: sends figures of runs in progress to a collector of OpenTelemetry;
//! - `serve`: starts the server and ends it;
//! - `site`: the same answers as files, without a server;
//! - `fuzzing`: the entry point of a fuzz target, without which it is not compiled.

pub mod failure;

mod answers;
mod app;
mod archive;
mod http;
mod live;
mod nonce;
mod options;
mod otlp;
mod runs;
mod serve;
mod shutdown_signals;
mod site;
mod summary;
mod work;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use options::{Options, SiteOptions};
pub use otlp::Collector;
pub use serve::serve;
pub use site::site;
pub use work::Limits;
