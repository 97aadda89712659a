//! `tprof ctl snapshot`: prints the memory that each rank of a live run holds at this moment, and
//! saves the snapshot in the run's directory. The job continues meanwhile.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use tprof_analyze::document;
use tprof_document::Options;
use tprof_metrics::memory::snapshot;
use tprof_trace::live::is_collector_alive;
use tprof_ui::columns;
use tprof_ui::errors::{Failure, print_stderr};
use tprof_ui::newest;

use super::live::written_out;
use super::report::held_memory;
use crate::runs::{failure, symbols::LateSymbolizer};

/// Largest number of snapshots of a run.
const MOST: u32 = 100_000;

/// Arguments of `tprof ctl snapshot`.
#[derive(Args, Debug)]
pub struct SnapshotArgs {
    /// Run directory; without one, the newest live run in this directory
    #[arg(value_name = "RUN", value_hint = clap::ValueHint::DirPath)]
    pub run: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Number of sites to print; JSON and the saved file have all
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
}

/// Makes the collector write its state to the run, makes the snapshot from that, and prints and
/// saves it.
pub(super) fn run(args: SnapshotArgs) -> anyhow::Result<ExitCode> {
    let path = match args.run {
        Some(run) => run,
        None => newest::live_run_here("tprof ctl snapshot")?,
    };
    let unwritten = written_out(&path, None)?;
    let late = LateSymbolizer::default();
    let options =
        Options { data: true, is_running: Some(is_collector_alive), ..Options::default() };
    let mut made = document(&snapshot::KIND, &path, &options, Some(&late))
        .map_err(|error| failure::analyze_failure(&path, &error))?;
    made.notes.extend(late.notes().into_iter().chain(unwritten));
    let json = serde_json::to_string_pretty(&made)? + "\n";
    let saved = save(&path, json.as_bytes());
    let text =
        if args.json { json } else { held_memory::text(&made, args.top, columns::of_stdout()) };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    print_stderr(&format!("saved: {}\n", saved?.display()));
    Ok(ExitCode::SUCCESS)
}

/// Writes the snapshot under the next free name. No snapshot is ever overwritten.
fn save(run: &Path, json: &[u8]) -> Result<PathBuf, Failure> {
    let failed = |error: &std::io::Error| {
        Failure::new(format!("cannot save the snapshot in `{}`", run.display()))
            .because(error, "tprof ctl snapshot --json RUN > FILE")
    };
    for number in 1..MOST {
        let path = run.join(format!("snapshot-{number}.json"));
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                return file.write_all(json).map(|()| path).map_err(|error| failed(&error));
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&error)),
        }
    }
    Err(Failure::new("the run has too many snapshots")
        .cause(format!("there are {MOST}"))
        .hint("tprof ctl snapshot --json RUN > FILE"))
}
