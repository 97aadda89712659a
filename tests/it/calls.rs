//! Compares the CUDA runtime and NCCL calls that the preloaded library records without CUPTI with
//! the log of what truly ran on the stand-ins (a simulation).

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use tprof_tests::{
    Job, Scratch, document, need_some, rank_file, stand_ins, traced, train, what_ran,
};
use tprof_trace::model::{Allocator, Collective, DeviceAllocation, MemoryKind, Span, SpanKind};
use tprof_trace::{TraceFile, TraceRow};

/// Calls that the preloaded library interposes and the program makes.
const SEEN: [&str; 14] = [
    "cudaSetDevice",
    "cudaMalloc",
    "cudaMallocHost",
    "cudaFree",
    "cudaFreeHost",
    "cudaMemcpyAsync",
    "cudaMemcpy",
    "cudaMemsetAsync",
    "cudaLaunchKernel",
    "__cudaLaunchKernel",
    "cudaStreamCreateWithFlags",
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventRecord",
];

const GPU: &[&str] = &["--activities", "gpu,comm,mem"];

pub fn rows<R: TraceRow>(run: &Path, rank: u32) -> (TraceFile, Vec<R>) {
    let file = rank_file(run, rank);
    let rows = tprof_tests::rows(&file);
    (file, rows)
}

fn text<'a>(line: &'a Value, key: &str) -> &'a str {
    line[key].as_str().unwrap_or_default()
}

/// Returns how often each of [`SEEN`] was called, according to the log.
fn logged(log: &[Value]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in log.iter().filter(|line| text(line, "what") == "call") {
        if SEEN.contains(&text(line, "name")) {
            *counts.entry(text(line, "name").to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Returns how often each call was recorded.
fn recorded(file: &TraceFile, spans: &[Span]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for span in spans.iter().filter(|span| span.kind == SpanKind::Runtime) {
        if SEEN.contains(&file.name(span.name)) {
            *counts.entry(file.name(span.name).to_owned()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn every_call_is_recorded_once_on_cuda_12_and_13() {
    for major in [12, 13] {
        let scratch = Scratch::new();
        let (job, log) = need_some!(train(major, &["6", "memory", "threads"], &scratch));
        let traced = traced(&job, GPU, &scratch);
        assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
        let (file, spans) = rows::<Span>(&traced.run, 0);
        let log = what_ran(&log);
        let wanted = logged(&log);
        let launch = if major == 12 { "cudaLaunchKernel" } else { "__cudaLaunchKernel" };
        assert!(wanted[launch] >= 2 * 6 * 6, "{wanted:?}");
        assert_eq!(recorded(&file, &spans), wanted, "CUDA {major}");
        for span in &spans {
            assert_eq!(span.status, Some(0), "{}", file.name(span.name));
        }
    }
}

#[test]
fn a_calls_interval_contains_what_the_library_did_in_it() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(train(12, &["4"], &scratch));
    let traced = traced(&job, GPU, &scratch);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    let of = |name: &str| -> Vec<(u64, u64)> {
        let spans = spans.iter().filter(|span| file.name(span.name) == name);
        spans.map(|span| (span.start_ns, span.start_ns + span.duration_ns)).collect()
    };
    for name in ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize"] {
        let inner: Vec<(u64, u64)> = what_ran(&log)
            .iter()
            .filter(|line| text(line, "what") == "call" && text(line, "name") == name)
            .map(|line| (line["start"].as_u64().unwrap(), line["end"].as_u64().unwrap()))
            .collect();
        let outer = of(name);
        assert_eq!(outer.len(), inner.len());
        // Both clocks are CLOCK_MONOTONIC; converted ticks are accurate to a microsecond.
        for ((start, end), (from, to)) in outer.iter().zip(&inner) {
            assert!(start <= &(from + 2000) && &(to.saturating_sub(2000)) <= end, "{name}");
        }
    }
}

#[test]
fn device_memory_is_recorded_with_the_stacks_that_allocated_it() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(train(12, &["5", "memory"], &scratch));
    let traced = traced(&job, GPU, &scratch);
    let (file, rows) = rows::<DeviceAllocation>(&traced.run, 0);
    // Operation 1 allocates memory, operation 2 frees it; kind 2 is pinned host memory.
    let changes_in_log: Vec<(bool, u64, bool)> = what_ran(&log)
        .iter()
        .filter(|line| text(line, "what") == "memory")
        .map(|line| {
            let free = line["operation"] == 2;
            (free, line["address"].as_u64().unwrap(), line["kind"] == 2)
        })
        .collect();
    let changes_in_run: Vec<(bool, u64, bool)> =
        rows.iter().map(|row| (row.free, row.address, row.kind == MemoryKind::Pinned)).collect();
    assert_eq!(changes_in_run, changes_in_log);
    for row in &rows {
        assert_eq!(row.allocator, Allocator::Library);
        assert_eq!(row.device, (row.kind == MemoryKind::Device).then_some(0));
        if row.free {
            assert_eq!(row.bytes, None);
            continue;
        }
        assert!(row.bytes.is_some_and(|bytes| bytes >= 4));
        let stack = file.stack(row.process, row.stack).expect("a stack");
        let names: Vec<&str> = stack
            .frames
            .iter()
            .flat_map(|frame| file.symbols(row.process, *frame))
            .map(|symbol| file.name(symbol.function))
            .collect();
        assert!(names.contains(&"train") && names.contains(&"main"), "{names:?}");
    }
    // The report sums by stack the allocations that the rows list one by one.
    let report = document("device-memory", &traced.run);
    let sites = report["tables"]["sites"].as_array().unwrap();
    let taken = |site: &Value| site["taken_bytes"].as_u64().unwrap();
    let on_device = |site: &&Value| site["device"] == 0;
    assert!(sites.iter().all(|site| site["stack"].as_str().unwrap().contains("train")));
    let whole: u64 =
        rows.iter().filter(|row| row.device.is_some()).filter_map(|row| row.bytes).sum();
    assert_eq!(sites.iter().filter(on_device).map(taken).sum::<u64>(), whole);
    let blocks: u64 = sites.iter().map(|site| site["allocations"].as_u64().unwrap()).sum();
    assert_eq!(blocks, rows.iter().filter(|row| !row.free).count() as u64);
    let left = |site: &Value| site["live_bytes"].as_u64().unwrap();
    assert_eq!(sites.iter().filter(on_device).map(left).sum::<u64>(), 0);
}

#[test]
fn collectives_know_their_communicator_and_their_group() {
    let scratch = Scratch::new();
    let meeting = scratch.join("meeting");
    let (_, log) = need_some!(train(12, &[], &scratch));
    let home = need_some!(stand_ins());
    let train = home.join("train-12");
    let both = format!(
        "RANK=0 {0} 3 nccl & first=$!; RANK=1 {0} 3 nccl; second=$?; wait $first && exit $second",
        train.display()
    );
    let job = Job::sh(&both)
        .env("WORLD_SIZE", "2")
        .env("MEETING", &meeting)
        .env("LD_LIBRARY_PATH", home.join("12"))
        .env("FAKE_CUDA_LOG", &log);
    let traced = traced(&job, GPU, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    assert!(!what_ran(&log).is_empty());
    let mut identities = Vec::new();
    for rank in [0, 1] {
        let (file, rows) = rows::<Collective>(&traced.run, rank);
        let names: Vec<&str> = rows.iter().map(|row| file.name(row.name)).collect();
        let mut wanted = vec!["broadcast"];
        wanted.extend(["all_reduce"; 6]);
        assert_eq!(names, wanted, "rank {rank}");
        let communicators = file.communicators();
        assert_eq!(communicators.len(), 1);
        assert_eq!((communicators[0].size, communicators[0].rank), (Some(2), Some(rank)));
        identities.push(communicators[0].communicator);
        for (at, row) in rows.iter().enumerate() {
            assert_eq!(row.communicator, Some(communicators[0].communicator));
            assert_eq!((row.sequence, row.group_size), (Some(at as u64), Some(2)));
            assert_eq!(file.name(row.element_type), "Float");
        }
        assert_eq!(rows[1].bytes, Some(4096 * 4));
        assert_eq!(rows[2].bytes, Some(4));
        // Both collectives of a group end with the group.
        let end = |row: &Collective| row.start_ns + row.duration_ns.unwrap();
        assert_eq!(end(&rows[1]), end(&rows[2]));
        assert!(end(&rows[1]) <= rows[3].start_ns);
    }
    assert_eq!(identities[0], identities[1]);
}

#[test]
fn calls_reach_the_right_one_of_two_cuda_majors_in_a_process() {
    let scratch = Scratch::new();
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/two_majors");
    let mut plugins = Vec::new();
    let compile = |arguments: &[&str]| {
        let job = Job::new("gcc").args(["-g", "-O1"]).args(arguments).run_in(scratch.path());
        assert_eq!(job.code, Some(0), "{job:?}");
    };
    for major in ["12", "13"] {
        let (library, plugin) = (format!("libcudart.so.{major}"), format!("plugin{major}.so"));
        let shared = ["-shared", "-fPIC"];
        let soname = format!("-Wl,-soname,{library}");
        let source = |name: &str| format!("{sources}/{name}.c");
        let define = format!("-DMAJOR={major}");
        compile(&[&shared[..], &[&define, &soname, &source("library"), "-o", &library]].concat());
        let rpath = ["-Wl,-rpath,$ORIGIN", &source("plugin"), "-o", &plugin];
        compile(&[&shared[..], &rpath, &[&format!("./{library}")]].concat());
        plugins.push(scratch.join(plugin));
    }
    compile(&[&format!("{sources}/main.c"), "-ldl", "-o", "main"]);
    let job = Job::new(scratch.join("main")).args(&plugins);
    let native = job.run_in(scratch.cwd());
    assert_eq!(native.stdout, "12\n13\n12\n13\n", "{native:?}");
    assert_eq!(traced(&job, GPU, &scratch).outcome, native);
}
