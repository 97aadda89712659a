//! Exports that the job asked for while it ran: `profile.export_chrome_trace` of the Python module.
//! Each is a file in the run, made after the job, when all that was recorded is there.

use crate::commands::export::{self, ExportArgs, SliceArgs};
use crate::terminal::errors::{self, Failure, print_stderr, reason};
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use tprof_trace::run::RunInfo;

/// Directory of the requests, in the run's: python/tprof/_session.py writes them.
const REQUESTS: &str = "requests";
const GZIP: &str = "gz";

/// A request, as it was written.
#[derive(Debug, Deserialize)]
struct ExportRequest {
    /// Directory of the session of the process that wrote it: others share the run's directory.
    session: String,
    host: String,
    /// Format of the export.
    format: String,
    /// File to write, absolute.
    path: PathBuf,
    rank: u32,
    /// The part of the run, by the clock of that host.
    from_ns: Option<u64>,
    to_ns: Option<u64>,
}

impl ExportRequest {
    /// As `tprof export` takes it. Times of another host's clock do not apply here.
    fn args(&self, run: &Path, info: &RunInfo) -> ExportArgs {
        let is_here = self.host == info.host;
        let time = |given: Option<u64>| {
            let since = given.filter(|_| is_here)?.saturating_sub(info.start_ns);
            Some(format!("{since}ns"))
        };
        ExportArgs {
            path: run.to_owned(),
            to: self.format.clone(),
            output: Some(self.compressed()),
            force: true,
            slice: SliceArgs {
                rank: Some(self.rank.to_string()),
                from_time: time(self.from_ns),
                to_time: time(self.to_ns),
                may_be_empty: true,
                ..SliceArgs::default()
            },
            ..ExportArgs::default()
        }
    }

    fn is_plain(&self) -> bool {
        self.path.extension().is_none_or(|extension| extension != GZIP)
    }

    /// The export writes one compressed file; a plain one comes of that.
    fn compressed(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        if self.is_plain() {
            path.push(".");
            path.push(GZIP);
        }
        path.into()
    }

    fn make(&self, run: &Path, info: &RunInfo) -> anyhow::Result<()> {
        export::run(self.args(run, info))?;
        if self.is_plain() {
            let compressed = self.compressed();
            unpack(&compressed, &self.path).map_err(|error| {
                Failure::new(format!("cannot write `{}`", self.path.display()))
                    .cause(reason(&error))
                    .hint(format!("gunzip {}", compressed.display()))
            })?;
        }
        Ok(())
    }
}

fn unpack(compressed: &Path, path: &Path) -> io::Result<()> {
    let mut text = MultiGzDecoder::new(File::open(compressed)?);
    io::copy(&mut text, &mut File::create(path)?)?;
    fs::remove_file(compressed)
}

/// Files of requests in a run, in the order of their names.
pub fn pending(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run.join(REQUESTS)).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    paths
}

/// Makes the exports that processes of this session asked for. One that fails is printed.
pub fn make(run: &Path, info: &RunInfo) {
    for path in pending(run) {
        let read = fs::read(&path).map_err(|error| reason(&error));
        let request: Result<ExportRequest, String> =
            read.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
        let made = match request {
            Ok(request) if request.session != info.session => continue,
            Ok(request) => request.make(run, info).inspect_err(|_| {
                print_stderr(&format!("tprof: `{}` is not written:\n", request.path.display()));
            }),
            Err(why) => {
                Err(Failure::new(format!("`{}` is no request of an export", path.display()))
                    .cause(why)
                    .hint("tprof export RUN --to chrome")
                    .into())
            }
        };
        if let Err(error) = made {
            errors::show(&error);
        }
        let _ = fs::remove_file(path);
    }
    // Refused while there are others' requests in it.
    let _ = fs::remove_dir(run.join(REQUESTS));
}
