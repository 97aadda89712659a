//! Opens runs for commands. A trace of another tool is first imported into a temporary run.

use super::import_failure::failure;
use crate::runs::scratch::Scratch;
use crate::terminal::progress;
use std::path::{Path, PathBuf};
use tprof_import::{ImportError, Imported, Options};
use tprof_ui::errors::{Failure, print_stderr, reason, remedy};

/// A run as a command reads it: a run directory, or a temporary run imported from a foreign trace.
/// The temporary run is removed when this value is dropped.
pub struct OpenRun {
    path: PathBuf,
    scratch: Option<Scratch>,
}

impl OpenRun {
    /// Returns the path of the run.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the run was imported only for this command.
    pub fn is_temporary(&self) -> bool {
        self.scratch.is_some()
    }
}

/// Opens a run. A foreign trace is imported into a temporary run, which takes about a thirtieth of
/// the JSON's size in the temporary directory.
pub fn open_run_or_import(path: &Path) -> anyhow::Result<OpenRun> {
    if !tprof_import::is_foreign(path) {
        return Ok(OpenRun { path: path.to_owned(), scratch: None });
    }
    let scratch = Scratch::new("import").map_err(|error| {
        Failure::new(format!("cannot import `{}`", path.display()))
            .cause(format!("no temporary directory could be created: {}", reason(&error)))
            .hint(remedy(&error, "set TMPDIR to a writable directory"))
    })?;
    // Pages and reports show the name of the run's directory, so it is named after the trace.
    let run = scratch.path().join(name_of(path));
    let options = Options::new(env!("CARGO_PKG_VERSION"));
    let imported = import(&[path.to_owned()], &run, &options)?;
    for note in &imported.notes {
        print_stderr(&format!("note: {note}\n"));
    }
    Ok(OpenRun { path: run, scratch: Some(scratch) })
}

/// Returns the name of a trace's file, as a relative path.
fn name_of(path: &Path) -> PathBuf {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().map_or_else(|| "trace".into(), PathBuf::from)
}

/// Imports files into a run directory, and shows progress on a terminal.
pub fn import(paths: &[PathBuf], output: &Path, options: &Options) -> Result<Imported, Failure> {
    let result: Result<Imported, ImportError> =
        progress::while_shown(&options.progress, || tprof_import::import(paths, output, options));
    result.map_err(|error| failure(&error))
}
