//! Tests of device memory by block: what PyTorch's allocator reports to a profiler. A stand-in calls
//! the same functions as `libc10_cuda`, in the signatures of all versions.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tprof_tests::{
    Job, Scratch, Traced, assert_unchanged, document, need_some, rank_file, rows, stand_ins, traced,
};
use tprof_trace::model::{Allocator, DeviceAllocation};

const PYTHON: &str = "/usr/bin/python3";
const MIB: u64 = 1 << 20;
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/device_blocks");
const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../python");
const GPU: &[&str] = &["--activities", "cpu,gpu"];

/// Builds the stand-in for one version of the signatures, and returns the job that uses it in this
/// way.
fn job(signature: u32, way: &str, scratch: &Scratch) -> Result<Job, String> {
    if !Path::new(PYTHON).exists() {
        return Err("there is no /usr/bin/python3".to_owned());
    }
    let libraries = stand_ins()?.join("12");
    let define = format!("-DSIGNATURE={signature}");
    let compile = |arguments: &[&str]| {
        let job = Job::new("g++").args(["-O1", "-shared", "-fPIC", &define]).args(arguments);
        let job = job.run_in(scratch.path());
        assert_eq!(job.code, Some(0), "{job:?}");
    };
    let source = |name: &str| format!("{SOURCES}/{name}");
    let runtime = libraries.join("libcudart.so.12").display().to_string();
    compile(&[&source("c10.cpp"), "-o", "libc10.so"]);
    compile(&[&source("c10_cuda.cpp"), "libc10.so", &runtime, "-o", "libc10_cuda.so"]);
    let folders = format!("{}:{}", scratch.path().display(), libraries.display());
    let job = Job::new(PYTHON).arg("-B").arg(source("job.py")).arg(way);
    Ok(job.env("LD_LIBRARY_PATH", &folders).env("PYTHONPATH", MODULE))
}

fn ran(signature: u32, way: &str) -> Result<(Scratch, Traced), String> {
    let scratch = Scratch::new();
    let job = job(signature, way, &scratch)?;
    let traced = traced(&job, GPU, &scratch);
    Ok((scratch, traced))
}

/// Returns what the job printed of its own sums: `key=number` words.
fn truth(traced: &Traced) -> BTreeMap<String, u64> {
    let words = traced.outcome.stdout.split_whitespace();
    words
        .filter_map(|word| word.split_once('='))
        .filter_map(|(key, number)| Some((key.to_owned(), number.parse().ok()?)))
        .collect()
}

fn table<'v>(report: &'v Value, name: &str) -> &'v [Value] {
    report["tables"][name].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the report's row of an allocator of device 0.
fn pool<'v>(report: &'v Value, allocator: &str) -> &'v Value {
    let row = table(report, "pools").iter().find(|row| row["allocator"] == allocator);
    row.unwrap_or_else(|| panic!("no {allocator} in {report:#}"))
}

#[test]
fn blocks_have_the_allocators_own_sums_in_every_signature() {
    for signature in [0, 1, 2] {
        let (_scratch, traced) = need_some!(ran(signature, "sums"));
        assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
        let truth = truth(&traced);
        // The library still gets every report, also those of the host's memory.
        assert_eq!((truth["reports"], truth["failures"]), (11, 0), "{signature}");
        assert_eq!(truth["bytes"], truth["allocated"] + 4096, "{signature}");
        let report = document("device-memory", &traced.run);
        let framework = pool(&report, "framework");
        assert_eq!(framework["peak_bytes"], truth["most_allocated"], "{signature}");
        assert_eq!(framework["last_bytes"], truth["allocated"], "{signature}");
        assert_eq!((&framework["allocations"], &framework["frees"]), (&6.into(), &4.into()));
        let reserved = (signature > 0).then_some(truth["most_reserved"]);
        assert_eq!(framework["peak_reserved_bytes"].as_u64(), reserved, "{signature}");
        assert_eq!(pool(&report, "device")["peak_bytes"], truth["most_reserved"], "{signature}");
        let mut blocks = rows::<DeviceAllocation>(&rank_file(&traced.run, 0));
        blocks.retain(|row| row.allocator == Allocator::Framework);
        assert!(blocks.iter().all(|row| row.device == Some(0)), "{blocks:#?}");
        // Each block from a MiB on has a stack.
        let large = |row: &&DeviceAllocation| !row.free && row.bytes.unwrap() >= MIB;
        assert!(blocks.iter().filter(large).all(|row| row.stack != 0), "{blocks:#?}");
        assert_eq!(blocks.iter().filter(large).count(), 2);
    }
}

#[test]
fn a_job_whose_blocks_are_recorded_is_unchanged() {
    let scratch = Scratch::new();
    assert_unchanged(&need_some!(job(2, "sums", &scratch)), &[GPU], &scratch);
}
