//! Options of a server, and of a site without a server.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::otlp::Collector;
use crate::work::Limits;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directories that contain runs, or runs.
    pub paths: Vec<PathBuf>,
    /// Address to listen on; any other than loopback needs `tls`.
    pub address: IpAddr,
    /// Port to listen on; 0 for any free port.
    pub port: u16,
    /// Certificate chain and key, both in PEM format.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Additional host names of this machine.
    pub hosts: Vec<String>,
    /// File of the token; `None` for a new token.
    pub token_file: Option<PathBuf>,
    /// Whether requests may change runs (`--control`).
    pub is_control: bool,
    /// The collector of OpenTelemetry that gets the figures of runs in progress.
    pub collector: Option<Collector>,
    /// The program that makes reports.
    pub tprof: PathBuf,
    /// Limits of each child process.
    pub limits: Limits,
    /// Opens an address in a browser by way of a page in a directory, and returns whether a browser
    /// was started. `None` if no browser is wanted.
    pub browser: Option<fn(&str, &Path) -> bool>,
}

/// Options of a site.
#[derive(Clone, Debug)]
pub struct SiteOptions {
    /// Directory that contains runs, or a run.
    pub path: PathBuf,
    /// Directory to write, `-` for an archive on stdout; `None` for `site` in `path`.
    pub output: Option<PathBuf>,
    /// Whether to replace an existing directory.
    pub force: bool,
    /// The program that makes reports.
    pub tprof: PathBuf,
    /// Limits of each child process.
    pub limits: Limits,
}
