//! Creates the runs to query once, and runs the program that queries them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;
use tprof_export::Options;
use tprof_trace::RunDir;

use crate::many_ranks::many_ranks;
use crate::synthetic::Synthetic;

/// Number of ranks of the run.
pub const RANKS: u32 = 8;

/// A run, and the data set made from it.
pub struct Runs {
    directory: TempDir,
}

impl Runs {
    /// Returns the directory of the run.
    pub fn run(&self) -> PathBuf {
        self.directory.path().join("r8")
    }

    /// Returns the directory of the data set.
    pub fn set(&self) -> PathBuf {
        self.directory.path().join("set")
    }
}

/// Returns the runs that all tests share. No test writes into them.
pub fn runs() -> &'static Runs {
    static RUNS: OnceLock<Runs> = OnceLock::new();
    RUNS.get_or_init(|| {
        let directory = TempDir::new().unwrap();
        let trace = directory.path().join("trace.json");
        let mut file = BufWriter::new(File::create(&trace).unwrap());
        Synthetic { rank: 0, ranks: 1, steps: 20 }.write(&mut file).unwrap();
        file.flush().unwrap();
        let base = directory.path().join("base");
        let options = tprof_import::Options::new("test");
        tprof_import::import(&[trace], &base, &options).unwrap();
        let run = directory.path().join("r8");
        many_ranks(&base, &run, RANKS).unwrap();
        let options = Options { output: Some(directory.path().join("set")), ..Options::default() };
        tprof_tables::parquet::export(&RunDir::open(&run).unwrap(), &options).unwrap();
        Runs { directory }
    })
}

/// Copies the run, so that it can be damaged.
pub fn copy() -> TempDir {
    let directory = TempDir::new().unwrap();
    for entry in std::fs::read_dir(runs().run()).unwrap() {
        let from = entry.unwrap().path();
        std::fs::copy(&from, directory.path().join(from.file_name().unwrap())).unwrap();
    }
    directory
}

/// Returns the program with these arguments.
pub fn program<W: AsRef<std::ffi::OsStr>>(words: impl IntoIterator<Item = W>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tprof-sql"));
    command.args(words).stdin(Stdio::null()).current_dir(runs().directory.path());
    command
}

/// Output and exit status of a program.
pub struct Ended {
    /// Text on stdout.
    pub out: String,
    /// Text on stderr.
    pub err: String,
    /// Exit status of the program.
    pub code: i32,
}

/// Starts the program and waits for its end.
pub fn ended<W: AsRef<std::ffi::OsStr>>(words: impl IntoIterator<Item = W>) -> Ended {
    of(program(words).output().unwrap())
}

/// Converts an output to text.
pub fn of(output: Output) -> Ended {
    Ended {
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code().unwrap_or(-1),
    }
}

/// Returns the rows of a query on a run, as CSV without a header.
pub fn rows(run: &Path, query: &str) -> Vec<String> {
    let ended = ended([run.as_os_str(), query.as_ref(), "--format=csv".as_ref()]);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{query}");
    ended.out.lines().skip(1).map(str::to_owned).collect()
}

/// Returns the only value of a query.
pub fn number(run: &Path, query: &str) -> i64 {
    rows(run, query)[0].parse().unwrap()
}
