//! Measures an export of a run, or of a synthetic rank with a given number of events. Prints the
//! number of events, the CPU time and the size of the output: `cargo run --release -p tprof-tables
//! --example speed -- FORMAT [EVENTS|RUN [OUTPUT]]`.

#[path = "../../export/tests/common/mod.rs"]
mod common;

use common::Job;
use std::path::{Path, PathBuf};
use tprof_export::{ExportError, Options, Written, chrome, perfetto};
use tprof_tables::{csv, json, parquet};
use tprof_trace::RunDir;

fn main() {
    let mut args = std::env::args().skip(1);
    let format = args.next().unwrap_or_else(|| "perfetto".to_owned());
    let what = args.next().unwrap_or_else(|| "1000000".to_owned());
    let (export, name): (Export, &str) = match format.as_str() {
        "perfetto" => (perfetto::export, "out.pftrace.gz"),
        "chrome" => (chrome::export, "out.json.gz"),
        "parquet" => (parquet::export, "out"),
        "csv" => (csv::export, "out"),
        "json" => (json::export, "out.json.gz"),
        other => panic!("no format {other}"),
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let run = match what.parse::<u64>() {
        Ok(events) => {
            let job = Job { steps: events / 5000 + 1, operators: 1000, ranks: 1 };
            common::write_run(dir.path(), job);
            dir.path().to_path_buf()
        }
        Err(_) => PathBuf::from(what),
    };
    let run = RunDir::open(&run).expect("a run");
    let output = args.next().map_or_else(|| dir.path().join(name), PathBuf::from);
    let options = Options { output: Some(output), force: true, ..Options::default() };
    let before = cpu_ns();
    let written = export(&run, &options).expect("an export");
    let seconds = (cpu_ns() - before) as f64 / 1e9;
    let size = bytes(&written.paths[0]);
    let events = written.events as f64;
    println!(
        "{format}: {} events in {seconds:.2} CPU s, {:.2} million/s, {:.2} bytes/event, peak {} MB",
        written.events,
        events / seconds / 1e6,
        size as f64 / events,
        peak_kb() / 1024,
    );
}

type Export = fn(&RunDir, &Options<'_>) -> Result<Written, ExportError>;

/// Returns the size of a file, or of all files in a directory, in bytes.
fn bytes(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else {
        return std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    };
    entries.flatten().map(|entry| bytes(&entry.path())).sum()
}

/// Returns the CPU time of this process, from `/proc/self/schedstat`.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn peak_kb() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
