//! Imports a trace that PyTorch wrote into the run in the directory `kineto`, which contains all
//! windows.
//!
//! Times of a run are those of CLOCK_MONOTONIC, Kineto's times count from 1970. So the import
//! subtracts the difference of the two clocks at the moment when the trace arrived. A window is not
//! stored in the rank's file, because then reports would count its operators twice.

use serde_json::json;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use tprof_import::{ImportError, Options};
use tprof_trace::run::{BlindSpot, RunInfo};

/// Largest number of files per rank.
const MOST_FILES: u32 = 10_000;

/// A trace that arrived, and its origin.
#[derive(Debug)]
pub struct ArrivedTrace {
    /// Path of the trace.
    pub json: PathBuf,
    /// Process that wrote it.
    pub pid: u32,
    /// Offset to subtract from the trace's times, in nanoseconds.
    pub offset_ns: i64,
    /// Name of the host.
    pub host: String,
}

/// The result of importing a window.
#[derive(Debug, PartialEq, Eq)]
pub struct ImportedWindow {
    /// Number of operators, ranges and Python functions in the window.
    pub rows: u64,
}

/// Imports a trace into the directory `home`, and removes the trace. If the import fails, the trace
/// stays.
pub fn import_window(arrived: &ArrivedTrace, home: &Path) -> Result<ImportedWindow, String> {
    let made = home.join(format!("import-{}", arrived.pid));
    let mut options = Options::new(env!("CARGO_PKG_VERSION"));
    options.offset_ns = arrived.offset_ns;
    let taken = tprof_import::import(std::slice::from_ref(&arrived.json), &made, &options)
        .map_err(|error: ImportError| error.to_string())
        .and_then(|imported| {
            place(&made, home, arrived).map_err(|error| error.to_string())?;
            Ok(ImportedWindow { rows: imported.rows })
        });
    let _ = fs::remove_dir_all(&made);
    if taken.is_ok() {
        let _ = fs::remove_file(&arrived.json);
    }
    taken
}

/// Moves the imported files into `home`, and writes an info file that describes them.
fn place(made: &Path, home: &Path, arrived: &ArrivedTrace) -> std::io::Result<()> {
    let text = fs::read(made.join("run.json"))?;
    let mut info: RunInfo = serde_json::from_slice(&text)?;
    let mut names = Vec::new();
    for file in &info.files {
        let stem = file.strip_suffix(".tprof").unwrap_or(file);
        let name = free_name(home, stem)?;
        fs::rename(made.join(file), home.join(&name))?;
        for process in &mut info.processes {
            if process.file.as_ref() == Some(file) {
                process.file = Some(name.clone());
            }
        }
        names.push(name);
    }
    let read = info.options["imported"][0]["read"].take();
    info.options = json!({ "imported": [{ "path": "PyTorch's profiler", "read": read }] });
    info.files = names;
    info.host.clone_from(&arrived.host);
    let what = "device work";
    let why = "--kineto asks for what the host does only; the run has the device work";
    info.completeness.blind.push(BlindSpot::new(format!("pid {}", arrived.pid), what, why));
    let name = format!("run-{}-{}.json", arrived.host, arrived.pid);
    let partial = home.join(format!("{name}.partial"));
    fs::write(&partial, tprof_trace::info_text(&info)?)?;
    fs::rename(partial, home.join(name))
}

/// Reserves a unique file name by creating an empty file, because several collectors of a job may
/// use the directory.
fn free_name(home: &Path, stem: &str) -> std::io::Result<String> {
    for number in 0..MOST_FILES {
        let name = match number {
            0 => format!("{stem}.tprof"),
            number => format!("{stem}.{number}.tprof"),
        };
        match OpenOptions::new().write(true).create_new(true).open(home.join(&name)) {
            Ok(_) => return Ok(name),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::{RunDir, TraceFile};

    const TRACE: &str = r#"{"baseTimeNanoseconds": 1700000000000000000, "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 5.5, "dur": 2},
        {"ph": "X", "cat": "python_function", "name": "f.py(1): f", "pid": 7, "tid": 7, "ts": 5,
         "dur": 4, "args": {"Python id": 1}}]}"#;

    fn arrived(home: &Path, name: &str, pid: u32) -> ArrivedTrace {
        let json = home.join(name);
        fs::write(&json, TRACE).unwrap();
        let offset_ns = 1_700_000_000_000_000_000 - 9_000;
        ArrivedTrace { json, pid, offset_ns, host: "node".to_owned() }
    }

    #[test]
    fn windows_of_all_processes_become_one_run_on_its_clock() {
        let home = tempfile::tempdir().unwrap();
        for (name, pid) in [("rank-0_7.json", 7), ("rank-1_8.json", 8), ("rank-1_9.json", 9)] {
            let taken = import_window(&arrived(home.path(), name, pid), home.path());
            assert_eq!(taken, Ok(ImportedWindow { rows: 2 }));
        }
        let run = RunDir::open(home.path()).unwrap();
        assert!(run.problems().is_empty(), "{:?}", run.problems());
        let names = run.files().iter().map(|file| file.path.file_name().unwrap().to_owned());
        let names: Vec<_> = names.collect();
        assert_eq!(names, ["rank-0.tprof", "rank-1.tprof", "rank-1.1.tprof"]);
        assert_eq!((run.infos().len(), run.infos()[0].host.as_str()), (3, "node"));
        let file = TraceFile::open(&run.files()[0].path).unwrap();
        let header = file.header();
        assert_eq!((header.start_ns, header.start_unix_ns), (14_000, 1_700_000_000_000_005_000));
        let left = fs::read_dir(home.path()).unwrap().flatten();
        let is_left = |name: &str| !name.ends_with(".tprof") && !name.starts_with("run-");
        let mut left = left.map(|entry| entry.file_name().into_string().unwrap());
        assert_eq!(left.find(|name| is_left(name)), None);
    }

    #[test]
    fn a_file_that_is_not_a_trace_is_not_removed() {
        let home = tempfile::tempdir().unwrap();
        let arrived = arrived(home.path(), "rank-0_7.json", 7);
        fs::write(&arrived.json, "[1, 2").unwrap();
        assert!(import_window(&arrived, home.path()).is_err());
        let left: Vec<_> = fs::read_dir(home.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
    }
}
