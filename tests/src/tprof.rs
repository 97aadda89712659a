//! Finds the tprof under test, makes jobs that run it, and compares jobs with and without it.

use crate::job::{Job, Outcome};
use crate::programs::target_dir;
use crate::scratch::Scratch;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

/// Options of `tprof run` that record every allocation.
pub const EXACT: &[&str] = &["--mem", "exact"];
/// No options: `tprof run` records what it records by default.
pub const DEFAULT: &[&str] = &[];

/// Returns the path of the tprof under test. By default that is the release build in the target
/// directory of the tests, which is first rebuilt if it is out of date; `TPROF_TEST_BIN` names
/// another. For a program in the folder of the release build, the path is that of a hard link in
/// `test-bin`.
pub fn tprof_at() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let build = target_dir().join("release/tprof");
        let path = match std::env::var_os("TPROF_TEST_BIN") {
            Some(path) => PathBuf::from(path),
            None => {
                rebuild_if_outdated();
                build.clone()
            }
        };
        let folder = |of: &Path| of.parent().and_then(|folder| folder.canonicalize().ok());
        let is_build = folder(&path).is_some_and(|at| folder(&build) == Some(at));
        if is_build { linked(&path) } else { path }
    })
}

/// Rebuilds the release build of tprof if its sources have changed. Panics if that fails.
fn rebuild_if_outdated() {
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--quiet", "-p", "tprof-cli", "--target-dir"])
        .arg(target_dir())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "cannot build tprof: {error}");
}

/// Links `tprof` and `tprof-serve` of a build into the folder `test-bin`, and returns the path of
/// `tprof` there. The links are needed because maturin, which packs the programs for a test of the
/// wheel, moves them away for a moment.
fn linked(build: &Path) -> PathBuf {
    let folder = target_dir().join("test-bin");
    std::fs::create_dir_all(&folder).unwrap();
    for program in ["tprof", "tprof-serve"] {
        let new = folder.join(format!("{program}-{}", std::process::id()));
        let _ = std::fs::remove_file(&new);
        let link = || std::fs::hard_link(build.with_file_name(program), &new);
        // Another test may be packing the program right now, so this tries for 2 s.
        let linked = (0..100).any(|_| {
            link().is_ok() || {
                sleep(Duration::from_millis(20));
                false
            }
        });
        assert!(linked, "no {program} beside {}", build.display());
        std::fs::rename(&new, folder.join(program)).unwrap();
        // rename does nothing if both names belong to the same file: then the new name is still
        // there.
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
    /// The job's output, and how it ended.
    pub outcome: Outcome,
    /// The run's directory.
    pub run: PathBuf,
    /// Seconds that a hypervisor took from the machine's cores meanwhile.
    pub stolen_s: f64,
}

/// Returns the job with `tprof run --quiet OPTIONS -o RUN --` in front of its command.
pub fn traced_job(job: &Job, options: &[&str], run: &Path) -> Job {
    let mut words: Vec<OsString> = vec![tprof_at().into(), "run".into(), "--quiet".into()];
    words.extend(options.iter().map(OsString::from));
    words.extend(["-o".into(), run.into(), "--".into()]);
    job.behind(&words)
}

/// Returns the seconds in which a hypervisor has run other machines on this machine's cores, by
/// `/proc/stat`; zero where the kernel doesn't count them. The kernel leaves them out of threads' CPU
/// time, but a thread keeps its core, so they are time on a core by context switches and samples.
pub fn stolen_s() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = text.lines().next().and_then(|line| line.split_whitespace().nth(8));
    ticks.and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) / 100.0
}

/// Runs a job under `tprof run`, in an empty working directory.
pub fn traced(job: &Job, options: &[&str], scratch: &Scratch) -> Traced {
    let run = scratch.run();
    let before_s = stolen_s();
    let outcome = traced_job(job, options, &run).run_in(scratch.cwd());
    Traced { outcome, run, stolen_s: stolen_s() - before_s }
}

/// Runs a job without tprof, then under tprof with each of these sets of options. Fails unless its
/// output and how it ends are the same each time. Returns the last run.
#[track_caller]
pub fn assert_unchanged(job: &Job, option_sets: &[&[&str]], scratch: &Scratch) -> Traced {
    let native = job.run_in(scratch.cwd());
    let mut last = None;
    for options in option_sets {
        let run = traced(job, options, scratch);
        assert!(
            run.outcome == native,
            "{} under {options:?} differs\n=== native: {native:?}\n=== traced: {:?}",
            job.name(),
            run.outcome
        );
        last = Some(run);
    }
    last.expect("at least one set of options")
}

/// Makes a job of `sh` that attaches itself by `tprof env` with these options, and then runs the
/// script `body`, in which `"$@"` are the arguments that are added to the job. It exits with 125 if
/// `tprof env` fails.
pub fn attach_script(options: &str, run: &Path, body: &str) -> Job {
    let script = format!(
        "eval \"$('{}' env {options} -o '{}')\" || exit 125\n{body}",
        tprof_at().display(),
        run.display()
    );
    Job::sh(&script)
}

/// Fails unless tprof refused to run: with status 125, nothing on standard output, and three lines
/// that say what failed, why, and what to try. Each of `words` must be in these lines.
#[track_caller]
pub fn assert_refused(outcome: &Outcome, words: &[&str]) {
    assert_eq!(outcome.code, Some(125), "{outcome:?}");
    let lines: Vec<&str> = outcome.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(lines.len(), 3, "an error is three lines: {outcome:?}");
    for (line, label) in lines.iter().zip(["error:", "cause:", "try:"]) {
        assert!(
            line.trim_start().starts_with(label),
            "{line:?} should begin with {label:?}: {outcome:?}"
        );
    }
    for word in words {
        assert!(outcome.stderr.contains(word), "{word:?} is missing: {outcome:?}");
    }
    assert_eq!(outcome.stdout, "", "an error prints nothing on stdout: {outcome:?}");
}
