//! Tests of device memory by block: what PyTorch's allocator reports to a profiler. A stand-in calls
//! the same functions as `libc10_cuda`, in the signatures of all versions.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tprof_tests::{
    Job, Live, Refused, Scratch, Served, Traced, assert_unchanged, document, need_some, rank_file,
    rows, skip, stand_ins, tprof, tprof_at, traced, traced_job, wait_until,
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
    let job = job.env("FAKE_CUDA_LEFT_BYTES", (5 * MIB).to_string());
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
fn a_paused_job_has_its_blocks_counted_without_stacks() {
    let scratch = Scratch::new();
    let job = need_some!(job(2, "sums", &scratch));
    let traced = traced(&job, &[GPU, &["--paused"]].concat(), &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let mut blocks = rows::<DeviceAllocation>(&rank_file(&traced.run, 0));
    blocks.retain(|row| row.allocator == Allocator::Framework);
    assert_eq!(blocks.len(), 6 + 4);
    assert!(blocks.iter().all(|row| row.stack == 0), "{blocks:#?}");
}

#[test]
fn a_job_whose_blocks_are_recorded_is_unchanged() {
    let scratch = Scratch::new();
    assert_unchanged(&need_some!(job(2, "sums", &scratch)), &[GPU], &scratch);
}

/// The comparison is the one that `scripts/gpu-check.sh` makes with PyTorch's own allocator.
#[test]
fn each_block_is_the_allocators_own() {
    let scratch = Scratch::new();
    let listed = scratch.join("blocks.json");
    let job = need_some!(job(2, "mixed", &scratch)).arg(listed.display().to_string());
    let traced = traced(&job, GPU, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let compare = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/gpu-check/test_blocks.py");
    let words = [compare.into(), tprof_at().to_owned(), traced.run.clone(), listed];
    let compared = Job::new(PYTHON).args(words).run_in(scratch.path());
    assert_eq!(compared.code, Some(0), "{compared:?}");
    assert!(compared.stdout.contains("4 ok, 0 failed, 0 not checked"), "{compared:?}");
}

/// Returns the line of the job that is marked with this word.
fn marked(way: &str) -> u64 {
    let text = std::fs::read_to_string(format!("{SOURCES}/job.py")).unwrap();
    let at = text.lines().position(|line| line.contains(&format!("# HERE {way}")));
    at.unwrap_or_else(|| panic!("no line for {way}")) as u64 + 1
}

/// Runs the job with a mistake, and returns the run and its findings. A release of memory takes long,
/// as where a device must finish its work first.
fn planted(way: &str) -> Result<(Scratch, Traced, Value), String> {
    let scratch = Scratch::new();
    let job = job(2, way, &scratch)?.env("FAKE_CUDA_FREE_MS", "60");
    let traced = traced(&job, GPU, &scratch);
    let findings = document("findings", &traced.run);
    Ok((scratch, traced, findings))
}

/// Checks that the first finding has this rule and the marked line.
#[track_caller]
fn assert_first(findings: &Value, rule: &str, way: &str) {
    let first = &table(findings, "findings")[0];
    assert_eq!(first["rule"], rule, "{findings:#}");
    let file = first["file"].as_str().unwrap_or_default();
    assert!(file.ends_with("device_blocks/job.py"), "{first:#}");
    assert_eq!(first["line"], marked(way), "{first:#}");
}

#[test]
fn a_lack_of_memory_comes_first_with_the_line_that_asked() {
    let (_scratch, traced, findings) = need_some!(planted("oom"));
    assert_eq!(traced.outcome.code, Some(1), "{:?}", traced.outcome);
    assert_first(&findings, "OutOfDeviceMemory", "oom");
    let seen = findings["tables"]["findings"][0].to_string();
    assert!(seen.contains("ended with status 1"), "{seen}");
    let report = document("device-memory", &traced.run);
    let error = &table(&report, "errors")[0];
    let bytes = ["asked_bytes", "allocated_bytes", "reserved_bytes", "free_bytes"];
    let bytes = bytes.map(|key| error[key].as_u64().unwrap() / MIB);
    assert_eq!(bytes, [32, 256, 256, 5]);
    assert_eq!(error["line"], marked("oom"));
    let held = table(&report, "holders").iter().map(|row| row["bytes"].as_u64().unwrap());
    assert_eq!(held.sum::<u64>(), 256 * MIB);
}

#[test]
fn a_request_that_fails_at_first_is_a_near_miss() {
    let scratch = Scratch::new();
    let job = need_some!(job(2, "retries", &scratch));
    let job = job.env("FAKE_CUDA_DEVICE_BYTES", (128 * MIB).to_string());
    let traced = traced(&job, GPU, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let report = document("device-memory", &traced.run);
    let keys = ["device", "failures", "asked_bytes", "freed_bytes", "frees", "line"];
    let of_row = |row: &Value| keys.map(|key| row[key].as_u64().unwrap());
    let rows: Vec<_> = table(&report, "retries").iter().map(of_row).collect();
    let (line, mib) = (marked("retries"), |count| count * MIB);
    assert_eq!(rows, [[0, 1, mib(48), mib(40), 1, line], [0, 1, mib(56), mib(48), 1, line]]);
    assert!(table(&report, "errors").is_empty(), "{report:#}");
}

#[test]
fn a_failed_request_says_whether_it_would_have_fit() {
    let (_scratch, traced, findings) = need_some!(planted("pieces"));
    assert_first(&findings, "OutOfDeviceMemory", "pieces");
    let seen = findings["tables"]["findings"][0].to_string();
    assert!(seen.contains("64.0 MiB free in pieces of at most 16.0 MiB"), "{seen}");
    let report = document("device-memory", &traced.run);
    let error = &table(&report, "errors")[0];
    let bytes = ["asked_bytes", "free_in_segments_bytes", "largest_piece_bytes"];
    assert_eq!(bytes.map(|key| error[key].as_u64().unwrap() / MIB), [32, 64, 16]);
    assert_eq!(error["would_fit"], "in pieces");
}

#[test]
fn steps_that_take_or_keep_more_than_the_others_are_named() {
    let (_scratch, traced, _) = need_some!(planted("uneven"));
    let report = document("device-memory", &traced.run);
    let is_block = |row: &&Value| row["allocator"] == "framework";
    let bytes = |row: &Value, key: &str| row[key].as_i64().unwrap() / MIB as i64;
    let sums = |row: &Value| ["taken_bytes", "given_bytes", "net_bytes"].map(|key| bytes(row, key));
    let median = table(&report, "steps").iter().find(is_block).unwrap();
    assert_eq!((sums(median), &median["uneven_steps"]), ([16, 16, 0], &3.into()));
    let uneven: Vec<_> = table(&report, "uneven_steps").iter().filter(is_block).collect();
    let sums: Vec<_> = uneven.iter().map(|row| sums(row)).collect();
    assert_eq!(sums, [[32, 32, 0], [24, 16, 8], [24, 16, 8]]);
    let steps: Vec<u64> = uneven.iter().map(|row| row["step"].as_u64().unwrap()).collect();
    assert_eq!(steps[1..], [steps[0] + 2, steps[0] + 3]);
}

#[test]
fn a_running_job_shows_its_failed_requests() {
    let scratch = Scratch::new();
    let job = need_some!(job(2, "caught", &scratch));
    let runs = scratch.join("runs");
    std::fs::create_dir(&runs).unwrap();
    let run = runs.join("caught");
    let mut job = Live::start(&traced_job(&job, GPU, &run), scratch.path());
    job.wait_for("failed");
    let served = Served::start(&runs, &[]);
    let path = format!("/api/v1/runs/{}/live", served.id_of(&run));
    let mut now = Value::Null;
    wait_until("the page has the line that asked", || {
        now = served.json(&path);
        now["ranks"][0]["out_of_memory"]["line"].is_string()
    });
    assert_eq!(now["state"], "running");
    let failed = &now["ranks"][0]["out_of_memory"];
    let keys = ["asked_bytes", "allocated_bytes", "reserved_bytes", "free_bytes"];
    let figures = keys.map(|key| failed[key].as_u64().unwrap() / MIB);
    assert_eq!(
        (&failed["count"], &failed["device"], figures),
        (&2.into(), &0.into(), [32, 256, 256, 5])
    );
    let line = failed["line"].as_str().unwrap();
    assert!(
        line.ends_with(&format!("device_blocks/job.py:{} (caught)", marked("caught"))),
        "{line}"
    );
    let of_kind = |event: &&Value| event["kind"] == "out_of_memory";
    let event = now["events"].as_array().unwrap().iter().find(of_kind).unwrap();
    assert!(event["text"].as_str().unwrap().contains(line), "{event}");
    let top = tprof(["top", "--once"]).arg(&run).run_in(scratch.path());
    assert!(top.stdout.contains("2 requests for device memory failed"), "{top:?}");
    assert!(top.stdout.contains(line), "{top:?}");
    assert_eq!(job.finish().code, Some(0));
}

#[test]
fn blocks_that_each_step_keeps_are_found_with_the_line_that_took_them() {
    let (_scratch, _traced, findings) = need_some!(planted("leak"));
    assert_first(&findings, "DeviceMemoryGrowth", "leak");
}

#[test]
fn emptying_the_cache_in_each_step_is_found_with_its_line() {
    let (_scratch, _traced, findings) = need_some!(planted("empty_cache"));
    assert_first(&findings, "EmptyCache", "empty_cache");
}

#[test]
fn a_line_that_holds_most_of_a_full_device_is_found() {
    let scratch = Scratch::new();
    let job = need_some!(job(2, "holder", &scratch));
    let job = job.env("FAKE_CUDA_DEVICE_BYTES", (512 * MIB).to_string());
    let traced = traced(&job, GPU, &scratch);
    let findings = document("findings", &traced.run);
    let rows = table(&findings, "findings").iter();
    let row = rows.into_iter().find(|row| row["rule"] == "PeakHolder");
    let row = row.unwrap_or_else(|| panic!("{findings:#}"));
    assert_eq!((&row["line"], &row["size_bytes"]), (&marked("holder").into(), &(400 * MIB).into()));
}

/// The allocator of this job gives its cache back to a full device in most steps, as if
/// `empty_cache` were called, but what makes it do so is that free memory is in pieces.
#[test]
fn free_pieces_that_are_too_small_come_first_with_the_line_that_asked() {
    let scratch = Scratch::new();
    let job = need_some!(job(2, "fragments", &scratch)).env("FAKE_CUDA_FREE_MS", "60");
    let job = job.env("FAKE_CUDA_DEVICE_BYTES", (192 * MIB).to_string());
    let traced = traced(&job, GPU, &scratch);
    let findings = document("findings", &traced.run);
    assert_first(&findings, "FragmentedMemory", "fragments");
    let seen = findings["tables"]["findings"][0].to_string();
    assert!(seen.contains("until the allocator had given back"), "{seen}");
    let rules = table(&findings, "findings").iter().map(|row| &row["rule"]);
    assert!(rules.into_iter().all(|rule| rule != "EmptyCache"), "{findings:#}");
}

#[test]
fn a_job_without_a_mistake_has_no_finding_of_memory() {
    let (_scratch, _traced, findings) = need_some!(planted("calm"));
    for row in table(&findings, "findings") {
        let rule = row["rule"].as_str().unwrap();
        assert!(!rule.contains("Memory") && rule != "EmptyCache", "{row:#}");
    }
}

#[test]
fn the_snapshot_of_a_recorded_run_has_its_segments_and_blocks() {
    let (scratch, traced) = need_some!(ran(2, "sums"));
    let path = scratch.join("sums.pickle");
    let export = tprof(["export", "--to", "torch-memory-snapshot", "-o"]).arg(&path);
    let outcome = export.arg(&traced.run).run_in(scratch.path());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    // A pickle of plain values needs no PyTorch.
    let program = "
import pickle, sys
data = pickle.load(open(sys.argv[1], 'rb'))
segments = data['segments']
blocks = [block for segment in segments for block in segment['blocks']]
used = sum(block['size'] for block in blocks if block['state'] == 'active_allocated')
streams = [one['stream'] for one in segments + data['device_traces'][0]]
print('streams=%s' % sorted(set(streams)))
sizes = all(block['requested_size'] == block['size'] for block in blocks)
print('rounded=%s' % sizes)
print('reserved=%d' % sum(segment['total_size'] for segment in segments))
print('all=%d allocated=%d' % (sum(block['size'] for block in blocks), used))
actions = [entry['action'] for entry in data['device_traces'][0]]
for action in ('alloc', 'free_requested', 'free_completed', 'segment_alloc'):
    print('%s=%d' % (action, actions.count(action)))
";
    let read = Job::new(PYTHON).args(["-c", program]).arg(&path).run_in(scratch.path());
    let words: Vec<&str> = read.stdout.split_whitespace().collect();
    let truth = truth(&traced);
    let reserved = truth["reserved"];
    // What PyTorch reports has neither streams nor requested sizes.
    assert!(outcome.stderr.contains("streams and requested sizes are not recorded"), "{outcome:?}");
    let mut wanted: Vec<String> = ["streams=[0]", "rounded=True"].map(str::to_owned).into();
    wanted.extend([format!("reserved={reserved}"), format!("all={reserved}")]);
    wanted.push(format!("allocated={}", truth["allocated"]));
    let counts = ["alloc=6", "free_requested=4", "free_completed=4", "segment_alloc=2"];
    wanted.extend(counts.map(str::to_owned));
    assert_eq!(words, wanted, "{read:?}");
    let Some(torch) = std::env::var_os("TPROF_TEST_TORCH") else { return skip(Refused::PyTorch) };
    let program = "
import pickle, sys
from torch.cuda import _memory_viz as viz
data = pickle.load(open(sys.argv[1], 'rb'))
print(viz.segsum(data), viz.trace(data), len(viz.trace_plot(data)))
";
    let read = Job::new(torch).args(["-c", program]).arg(&path).run_in(scratch.path());
    assert!(read.stdout.contains("total_allocated: 3.7MiB"), "{read:?}");
}

/// Expandable segments have no address that a hook sees.
#[test]
fn the_snapshot_has_blocks_whose_segments_are_unknown_in_segments_of_their_own() {
    let scratch = Scratch::new();
    let job = need_some!(job(2, "sums", &scratch)).env("C10_HIDDEN", "1");
    let traced = traced(&job, GPU, &scratch);
    let path = scratch.join("sums.pickle");
    let export = tprof(["export", "--to", "torch-memory-snapshot", "-o"]).arg(&path);
    let outcome = export.arg(&traced.run).run_in(scratch.path());
    let note = "note: 6 blocks are written as segments of their own";
    assert!(outcome.stderr.contains(note), "{outcome:?}");
    let program = "
import pickle, sys
data = pickle.load(open(sys.argv[1], 'rb'))
print('reserved=%d' % sum(segment['total_size'] for segment in data['segments']))
print(*[entry['action'] for entry in data['device_traces'][0]][-5:])
";
    let read = Job::new(PYTHON).args(["-c", program]).arg(&path).run_in(scratch.path());
    let allocated = truth(&traced)["allocated"];
    let last = "segment_alloc alloc free_requested free_completed segment_free";
    assert_eq!(read.stdout, format!("reserved={allocated}\n{last}\n"), "{read:?}");
}

/// Returns the job that trains a model whose blocks PyTorch's own operators take; `None` without
/// PyTorch.
fn torch_job(scratch: &Scratch) -> Option<Job> {
    let python = std::env::var_os("TPROF_TEST_TORCH")?;
    let find = "import torch, os; print(os.path.dirname(torch.__file__))";
    let found = Job::new(&python).args(["-c", find]).run_in(scratch.path());
    let torch = found.stdout.trim();
    let library = scratch.join("libblocks.so");
    let build = Job::new("g++")
        .args(["-std=c++20", "-O1", "-shared", "-fPIC", &format!("-I{torch}/include")])
        .arg(format!("{SOURCES}/torch_allocator.cpp"))
        .args([&format!("-L{torch}/lib"), "-lc10", &format!("-Wl,-rpath,{torch}/lib"), "-o"])
        .arg(&library);
    let built = build.run_in(scratch.path());
    assert_eq!(built.code, Some(0), "{built:?}");
    Some(Job::new(&python).arg(format!("{SOURCES}/torch_job.py")).arg(&library))
}

/// Returns the bytes of each category at the peak.
fn held_by_category(report: &Value) -> BTreeMap<&str, u64> {
    let of_row = |row: &'_ Value| row["peak_bytes"].as_u64().unwrap();
    let rows = table(report, "categories").iter();
    rows.map(|row| (row["category"].as_str().unwrap(), of_row(row))).collect()
}

/// Compares the purposes of blocks with the bytes of the job's tensors.
#[test]
fn parameters_gradients_and_states_are_known_to_the_byte() {
    let scratch = Scratch::new();
    let Some(job) = torch_job(&scratch) else { return skip(Refused::PyTorch) };
    let traced = traced(&job, &[], &scratch);
    let truth = truth(&traced);
    let report = document("device-memory", &traced.run);
    assert_eq!(pool(&report, "framework")["peak_bytes"], truth["peak"]);
    let held = held_by_category(&report);
    assert_eq!(held["parameters"], truth["parameters"], "{held:?}");
    assert_eq!(held["gradients"], truth["gradients"], "{held:?}");
    assert_eq!(held["optimizer state"], truth["states"], "{held:?}");
    assert!(!held.contains_key("unknown"), "{held:?}");
    assert_eq!(held.values().sum::<u64>(), truth["peak"]);
}

#[test]
fn a_block_that_an_operator_fills_from_the_host_is_an_input() {
    let scratch = Scratch::new();
    let job = need_some!(job(2, "inputs", &scratch));
    let compile = |arguments: &[&str]| {
        let words = ["-O1", "-std=c++17", "-shared", "-fPIC", "-pthread", "-DSIGNATURE=2"];
        let layout = ["-DPYTHON_WORDS=1", "-DNAME_BYTES=40"];
        let job = Job::new("g++").args(words).args(layout).args(arguments);
        let built = job.run_in(scratch.path());
        assert_eq!(built.code, Some(0), "{built:?}");
    };
    let stand_in = |name: &str| format!("{SOURCES}/../torch_stand_in/{name}.cpp");
    compile(&[&stand_in("core"), &format!("{SOURCES}/c10.cpp"), "-o", "libc10.so"]);
    compile(&[&stand_in("cpu"), "libc10.so", "-o", "libtorch_cpu.so"]);
    let traced = traced(&job, GPU, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let report = document("device-memory", &traced.run);
    let held = held_by_category(&report);
    let truth = [("inputs", 4 * MIB), ("temporaries", 8 * MIB)];
    assert_eq!(held, BTreeMap::from(truth));
}
