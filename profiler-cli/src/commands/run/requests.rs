//! Exports that the job requested while it ran, with `profile.export_chrome_trace` of the Python
//! module. Each request is a file in the run's directory. The requests are executed after the job,
//! when all data is written.

use crate::commands::export::{self, ExportArgs, SliceArgs};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use tprof_trace::run::RunInfo;
use tprof_ui::errors::{self, Failure, print_stderr, reason};

/// Directory of the requests within the run's directory. `python/tprof/_session.py` writes them.
const REQUESTS: &str = "requests";

/// A request, as the Python module writes it.
#[derive(Debug, Deserialize)]
struct ExportRequest {
    /// Session directory of the process that wrote the request. Other sessions may use the same run
    /// directory.
    session: String,
    host: String,
    /// Format to export.
    format: String,
    /// Absolute path of the file to write.
    path: PathBuf,
    rank: u32,
    /// Part of the run to export, on the clock of `host`.
    from_ns: Option<u64>,
    to_ns: Option<u64>,
}

impl ExportRequest {
    /// Converts the request to arguments of `tprof export`. Its times are ignored if they are of
    /// another host's clock.
    fn args(&self, run: &Path, info: &RunInfo) -> ExportArgs {
        let is_this_machine = self.host == info.host;
        let time = |given: Option<u64>| {
            let since = given.filter(|_| is_this_machine)?.saturating_sub(info.start_ns);
            Some(format!("{since}ns"))
        };
        ExportArgs {
            path: run.to_owned(),
            to: self.format.clone(),
            output: Some(self.path.clone()),
            output_is_file: true,
            force: true,
            slice: SliceArgs {
                rank: Some(self.rank.to_string()),
                from_time: time(self.from_ns),
                to_time: time(self.to_ns),
                allows_empty_chrome_trace: true,
                ..SliceArgs::default()
            },
            ..ExportArgs::default()
        }
    }
}

/// Returns the request files of a run, sorted by name.
pub fn pending(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run.join(REQUESTS)).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    paths
}

/// Executes the requests that processes of this session wrote. Errors are printed.
pub fn make(run: &Path, info: &RunInfo) {
    for path in pending(run) {
        let read = tprof_trace::read_plain(&path).map_err(|error| reason(&error));
        let request: Result<ExportRequest, String> =
            read.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
        let made = match request {
            Ok(request) if request.session != info.session => continue,
            Ok(request) => export::run(request.args(run, info)).map(drop).inspect_err(|_| {
                print_stderr(&format!("tprof: `{}` is not written:\n", request.path.display()));
            }),
            Err(why) => Err(Failure::new(format!("`{}` is not an export request", path.display()))
                .cause(why)
                .hint("tprof export RUN --to chrome")
                .into()),
        };
        if let Err(error) = made {
            errors::show(&error);
        }
        let _ = fs::remove_file(path);
    }
    // This fails, as intended, while the directory contains requests of other sessions.
    let _ = fs::remove_dir(run.join(REQUESTS));
}
