//! Finds runs in a directory, and the newest of them.

use std::path::{Path, PathBuf};

use tprof_trace::live::is_collector_alive;
use tprof_trace::run::RunInfo;
use tprof_trace::{RankFile, RunDir, TraceFile, is_trace_file};

use crate::errors::{Failure, print_stderr};

/// A run that was found in a directory.
pub struct FoundRun {
    /// The run, without its ranks' rows.
    pub dir: RunDir,
    /// When it began, in nanoseconds since 1970; 0 if neither `run.json` nor a file has the time.
    pub start_unix_ns: u64,
}

impl FoundRun {
    /// Returns the run at a path; `None` if the path isn't a run.
    pub fn at(path: &Path) -> Option<FoundRun> {
        let dir = RunDir::open(path).ok()?;
        // The content of the files decides, because a user's files may have the same endings.
        let is_trace = |file: &RankFile| is_trace_file(&file.path).unwrap_or(true);
        if dir.infos().is_empty() && !dir.files().iter().any(is_trace) {
            return None;
        }
        let of_info = dir.infos().iter().map(|info| info.start_unix_ns).filter(|ns| *ns > 0).min();
        let of_file = || {
            let headers = dir.files().iter().filter_map(|f| TraceFile::read_header(&f.path).ok());
            headers.map(|header| header.start_unix_ns).filter(|ns| *ns > 0).min()
        };
        let start_unix_ns = of_info.or_else(of_file).unwrap_or(0);
        Some(FoundRun { dir, start_unix_ns })
    }

    /// Whether a collector is still writing the run.
    pub fn is_live(&self) -> bool {
        let lives = |info: &RunInfo| is_collector_alive(info, self.dir.path());
        self.dir.infos().iter().any(lives)
    }
}

/// Returns the runs in a directory, newest first. Runs with the same time are sorted by name.
pub fn runs_in(directory: &Path) -> std::io::Result<Vec<FoundRun>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        // An entry that was deleted since the directory was listed is skipped.
        let Ok(entry) = entry else { continue };
        let path = match directory {
            here if here == Path::new(".") => PathBuf::from(entry.file_name()),
            _ => entry.path(),
        };
        if path.is_dir() {
            found.extend(FoundRun::at(&path));
        }
    }
    found.sort_by(|a, b| {
        b.start_unix_ns.cmp(&a.start_unix_ns).then_with(|| a.dir.path().cmp(b.dir.path()))
    });
    Ok(found)
}

/// Returns the run for a command line that names none: the current directory if it is a run,
/// otherwise the newest run in it. Prints a line to stderr with the run's name. `what` says in it
/// what the command reads.
pub fn run_here(command: &str, what: &str) -> Result<PathBuf, Failure> {
    let here = Path::new(".");
    if FoundRun::at(here).is_some() {
        print_stderr(&format!("note: {what} of the run in this directory\n"));
        return Ok(here.canonicalize().unwrap_or_else(|_| here.to_owned()));
    }
    let runs = runs_in(here).map_err(|error| {
        Failure::new("cannot list the runs in this directory")
            .because(&error, format!("{command} RUN"))
    })?;
    let Some(newest) = runs.first() else {
        return Err(Failure::new(format!("no run given to `{command}`"))
            .cause("there is no run in this directory either")
            .hint(format!("tprof run -- COMMAND; {command}")));
    };
    let path = newest.dir.path().to_owned();
    let others = match runs.len() - 1 {
        0 => "the only run in this directory".to_owned(),
        1 => "the newest of 2 runs in this directory".to_owned(),
        more => format!("the newest of {} runs in this directory", more + 1),
    };
    print_stderr(&format!("note: {what} of {}, {others}\n", path.display()));
    Ok(path)
}

/// Returns the run for a command line that names none and needs a live run: the current directory
/// if it is a run, otherwise the newest run in it that is still being recorded. Prints its name to
/// stderr.
pub fn live_run_here(command: &str) -> Result<PathBuf, Failure> {
    let here = Path::new(".");
    if FoundRun::at(here).is_some() {
        return Ok(here.canonicalize().unwrap_or_else(|_| here.to_owned()));
    }
    let runs = runs_in(here).map_err(|error| {
        Failure::new("cannot list the runs in this directory")
            .because(&error, format!("{command} RUN"))
    })?;
    let Some(live) = runs.iter().find(|run| run.is_live()) else {
        return Err(Failure::new(format!("no run given to `{command}`"))
            .cause("no run in this directory is being recorded")
            .hint(format!("{command} RUN")));
    };
    let path = live.dir.path().to_owned();
    print_stderr(&format!("note: run {}\n", path.display()));
    Ok(path)
}
