//! Runs other tools on exported files. `scripts/test-readers.sh` downloads these tools.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A query for the errors that Perfetto found while reading a trace. It returns no rows if there
/// are none.
pub const ERRORS: &str =
    "select name, value from stats where severity in ('error', 'data_loss') and value <> 0";

/// Returns the directory of the tools. If it is missing, prints a line and returns `None`, or fails
/// the test if `TPROF_TEST_NEED_READERS` is set.
pub fn dir(what: &str) -> Option<PathBuf> {
    let cache = || {
        let home = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
    };
    let dir = match std::env::var_os("TPROF_TEST_READERS") {
        Some(dir) => PathBuf::from(dir),
        None => cache()?.join("tprof-test-readers"),
    };
    if dir.join(what).exists() {
        return Some(dir);
    }
    let missing = format!("{} is not there (scripts/test-readers.sh)", dir.join(what).display());
    assert!(std::env::var_os("TPROF_TEST_NEED_READERS").is_none(), "{missing}");
    eprintln!("skipped: {missing}");
    None
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers").join(name)
}

fn json(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{command:?}: {error}: {} {stderr}", String::from_utf8_lossy(&output.stdout))
    })
}

/// Runs SQL on a trace in Perfetto's trace processor, and returns the rows of each statement.
pub fn perfetto(trace: &Path, statements: &[&str]) -> Option<Vec<Vec<Value>>> {
    let dir = dir("trace-processor")?.join("trace-processor");
    let mut command = Command::new("node");
    command.arg(script("perfetto.mjs")).arg(dir).arg(trace).args(statements);
    Some(serde_json::from_value(json(&mut command)).unwrap())
}

/// Runs a script of `tests/readers` in the Python environment of the tools.
pub fn python(name: &str, arguments: &[&Path]) -> Option<Value> {
    let python = dir("python")?.join("python/bin/python");
    Some(json(Command::new(python).arg(script(name)).args(arguments)))
}

/// Returns all runs of a log directory, as TensorBoard reads them. Uses the Python that
/// `TPROF_TEST_TENSORBOARD` names, otherwise the Python of the tools.
pub fn tensorboard(dir: &Path) -> Option<Value> {
    match std::env::var_os("TPROF_TEST_TENSORBOARD") {
        Some(python) => Some(json(Command::new(python).arg(script("event_files.py")).arg(dir))),
        None => python("event_files.py", &[dir]),
    }
}

/// Returns what Go's pprof finds in a profile: for each kind of value its name with unit and the
/// sum over all samples, and everything else that it prints.
pub fn pprof(profile: &Path) -> Option<(Vec<(String, u64)>, String)> {
    let dir = dir("pprof")?;
    let mut command = Command::new(dir.join("pprof/pprof"));
    // pprof stores settings in the home directory, so use another one.
    let output = command.arg("-raw").arg(profile).env("HOME", &dir).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().skip_while(|line| *line != "Samples:").skip(1);
    let kinds = lines.next().unwrap().split_whitespace();
    let mut sums: Vec<(String, u64)> = kinds.map(|kind| (kind.replace("[dflt]", ""), 0)).collect();
    // A line contains the values of a sample and, after a colon, its locations. The labels of the
    // sample are on another line.
    for line in lines.take_while(|line| *line != "Locations") {
        let Some((values, _)) = line.split_once(": ") else { continue };
        let values: Vec<u64> = values.split_whitespace().flat_map(str::parse).collect();
        if values.len() == sums.len() {
            sums.iter_mut().zip(values).for_each(|(sum, value)| sum.1 += value);
        }
    }
    Some((sums, text))
}
