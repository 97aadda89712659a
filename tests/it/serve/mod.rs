//! Tests of `tprof serve` under attack: who gets answers, which files a path or parameter can
//! reach, what hostile runs and clients can do, and what remains after its end.

mod access;
mod archives;
mod clients;
mod control;
mod documents;
mod elsewhere;
mod ends;
mod hostile_runs;
mod limits;
mod live;
mod otlp;
mod parameters;
mod paths;
mod start;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tprof_tests::{EXACT, Job, Scratch, Synthetic, program, tprof, traced};

/// Returns a recorded run.
fn recorded() -> &'static Path {
    static RUN: OnceLock<(Scratch, PathBuf)> = OnceLock::new();
    let (_, run) = RUN.get_or_init(|| {
        let scratch = Scratch::new();
        let run = traced(&Job::new(program("fork")), EXACT, &scratch).run;
        (scratch, run)
    });
    run
}

/// Returns an imported run with device work.
fn imported() -> &'static Path {
    static RUN: OnceLock<(Scratch, PathBuf)> = OnceLock::new();
    let (_, run) = RUN.get_or_init(|| {
        let scratch = Scratch::new();
        let (trace, run) = (scratch.join("trace.json"), scratch.join("imported"));
        let mut file = std::io::BufWriter::new(fs::File::create(&trace).unwrap());
        Synthetic { rank: 0, ranks: 1, steps: 20 }.write(&mut file).unwrap();
        drop(file);
        let import = tprof([Path::new("import"), &trace, Path::new("-o"), &run]);
        import.run_in(scratch.path()).expect_code(0);
        (scratch, run)
    });
    run
}

/// Copies a run under a name into a directory.
fn copy(run: &Path, directory: &Path, name: &str) -> PathBuf {
    let to = directory.join(name);
    fs::create_dir_all(&to).unwrap();
    for entry in fs::read_dir(run).unwrap().flatten() {
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
    to
}

/// Makes a directory with both runs: `recorded` and `imported`.
fn runs(scratch: &Scratch) -> PathBuf {
    let directory = scratch.join("runs");
    copy(recorded(), &directory, "recorded");
    copy(imported(), &directory, "imported");
    directory
}
