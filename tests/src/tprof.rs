//! Finds the binary under test, and compares jobs with and without it.

use crate::job::{Job, Outcome};
use crate::programs::target_dir;
use crate::scratch::Scratch;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

/// Options that record every event.
pub const EXACT: &[&str] = &["--mem", "exact"];
/// Options that record what tprof records by default.
pub const DEFAULT: &[&str] = &[];

/// Returns the path of the binary: `TPROF_TEST_BIN`, or the release build beside this test's own target
/// directory, which is rebuilt once if it is out of date.
pub fn tprof_at() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let build = target_dir().join("release/tprof");
        let path = std::env::var_os("TPROF_TEST_BIN").map_or_else(
            || {
                bring_up_to_date();
                build.clone()
            },
            PathBuf::from,
        );
        let folder = |of: &Path| of.parent().and_then(|folder| folder.canonicalize().ok());
        let is_build = folder(&path).is_some_and(|at| folder(&build) == Some(at));
        if is_build { linked(&path) } else { path }
    })
}

/// Rebuilds the release binary of tprof if its sources have changed.
fn bring_up_to_date() {
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--quiet", "-p", "tprof-cli", "--target-dir"])
        .arg(target_dir())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "cannot build tprof: {error}");
}

/// Returns the path of tprof in a folder of the tests' own, with hard links to the programs of a build.
/// Links are needed because maturin, which packs the programs for a test of the wheel, moves them away
/// for a moment.
fn linked(build: &Path) -> PathBuf {
    let folder = target_dir().join("test-bin");
    std::fs::create_dir_all(&folder).unwrap();
    for program in ["tprof", "tprof-serve"] {
        let new = folder.join(format!("{program}-{}", std::process::id()));
        let _ = std::fs::remove_file(&new);
        let link = || std::fs::hard_link(build.with_file_name(program), &new);
        // Another run of the tests may be packing the program right now.
        let linked = (0..100).any(|_| {
            link().is_ok() || {
                sleep(Duration::from_millis(20));
                false
            }
        });
        assert!(linked, "no {program} beside {}", build.display());
        std::fs::rename(&new, folder.join(program)).unwrap();
        // rename does nothing if both names belong to the same file: then the new name is still there.
        let _ = std::fs::remove_file(&new);
    }
    folder.join("tprof")
}

/// Makes a job that runs `tprof` with these arguments.
pub fn tprof<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Job {
    Job::new(tprof_at()).args(arguments)
}

/// A job that was run under `tprof run`.
pub struct Traced {
    /// The job's output and end.
    pub outcome: Outcome,
    /// The run's directory.
    pub run: PathBuf,
}

/// Returns the job behind `tprof run --quiet OPTIONS -o RUN --`.
pub fn traced_job(job: &Job, options: &[&str], run: &Path) -> Job {
    let mut words: Vec<OsString> = vec![tprof_at().into(), "run".into(), "--quiet".into()];
    words.extend(options.iter().map(OsString::from));
    words.extend(["-o".into(), run.into(), "--".into()]);
    job.behind(&words)
}

/// Runs a job under tprof, in an empty working directory.
pub fn traced(job: &Job, options: &[&str], scratch: &Scratch) -> Traced {
    let run = scratch.run();
    let outcome = traced_job(job, options, &run).run_in(scratch.cwd());
    Traced { outcome, run }
}

/// Runs a job natively, then traced with each set of options. Its output and its end must be the same
/// each time. Returns the last run.
#[track_caller]
pub fn assert_unchanged(job: &Job, modes: &[&[&str]], scratch: &Scratch) -> Traced {
    let native = job.run_in(scratch.cwd());
    let mut last = None;
    for options in modes {
        let run = traced(job, options, scratch);
        assert!(
            run.outcome == native,
            "{} under {options:?} differs\n=== native: {native:?}\n=== traced: {:?}",
            job.name(),
            run.outcome
        );
        last = Some(run);
    }
    last.expect("at least one mode")
}

/// Makes a script for `sh` that attaches with the output of `tprof env`, with these options, and goes
/// on with `body`, in which `"$@"` are the job's words.
pub fn attach_script(options: &str, run: &Path, body: &str) -> Job {
    let script = format!(
        "eval \"$('{}' env {options} -o '{}')\" || exit 125\n{body}",
        tprof_at().display(),
        run.display()
    );
    Job::sh(&script)
}

/// Fails unless tprof refused with status 125 and three lines that say what failed, why, and what to
/// try. Each of the words must be in these lines.
#[track_caller]
pub fn assert_refused(outcome: &Outcome, words: &[&str]) {
    assert_eq!(outcome.code, Some(125), "{outcome:?}");
    let lines: Vec<&str> = outcome.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(lines.len(), 3, "an error is three lines: {outcome:?}");
    for (line, head) in lines.iter().zip(["error:", "cause:", "try:"]) {
        assert!(
            line.trim_start().starts_with(head),
            "{line:?} should begin with {head:?}: {outcome:?}"
        );
    }
    for word in words {
        assert!(outcome.stderr.contains(word), "nothing about {word:?}: {outcome:?}");
    }
    assert_eq!(outcome.stdout, "", "stdout is data: {outcome:?}");
}
