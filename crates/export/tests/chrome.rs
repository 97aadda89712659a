//! Tests exported files by reading them with other parsers.

use crate::common;
use crate::common::readers;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;
use tprof_export::{ExportError, Options, Slice, Weight, Written, chrome, folded};
use tprof_trace::model::*;
use tprof_trace::{HeapBlock, RunDir, TraceHeader, TraceWriter};

const START: u64 = 7_000_000_000;
const UNIX: u64 = 1_790_000_000_000_000_123;
const NASTY: &str = "evil \"name\"\u{1}\u{1f}\n\\ <img src=x> \u{2028}";

/// A rank whose process lives for 10 ms, with two threads and an exec.
fn rank(dir: &Path, name: &str, late_ns: u64, memory: MemoryRecording) {
    let header = TraceHeader {
        host: "node1".into(),
        start_ns: START,
        start_unix_ns: UNIX + late_ns,
        ..TraceHeader::default()
    };
    let mut writer = TraceWriter::create(&dir.join(name), &header).unwrap();
    for (process, command) in [(0, "/bin/sh -c run"), (1, NASTY)] {
        let row = Process {
            process,
            pid: 42,
            parent: 1,
            rank: None,
            command: writer.name(command),
            exe: NameId(0),
            start_ns: START + 1_000_001 + u64::from(process) * 4_000_000,
            memory,
        };
        writer.process(&row);
    }
    writer.process_end(0, START + 5_000_000, ProcessEnd::Exec);
    writer.process_end(1, START + 11_000_000, ProcessEnd::Signal(9));
    for (thread, process, tid) in [(0, 0, 42), (1, 1, 42), (2, 1, 43)] {
        writer.thread(&Thread {
            thread,
            process,
            tid,
            start_ns: START + 1_000_001 + u64::from(thread) * 2_000_000,
        });
    }
    let worker = writer.name("worker;1");
    writer.thread_name(2, START, worker);
    writer.thread_end(2, START + 9_000_000);
    let (function, file) = (writer.name("f;g(int)"), writer.name("a.c"));
    let row =
        Symbol { process: 1, address: 0x10, depth: 0, function, file, line: 1, module: NameId(0) };
    writer.symbol(&row);
    writer.stack(&Stack { process: 1, stack: 1, end: 0, frames: vec![0x10, 0x20] });
    let mut heap = HeapBlock::new(1);
    for i in 0..1000u64 {
        heap.alloc(START + 6_000_000 + i * 1000, 1, 10, 1, false);
    }
    for i in 0..1000u64 {
        heap.free(START + 8_000_000 + i, 1, 1000 - i, false);
    }
    writer.heap(&mut heap).unwrap();
    let rss = writer.name(counter::RSS_BYTES);
    for (time_ns, value) in [(START + 6_000_000, 4096.0), (START + 6_500_000, f64::NAN)] {
        let (process, device) = (Some(1), None);
        writer.counter(Counter { time_ns, process, device, name: rss, value });
    }
    let mark = writer.name(NASTY);
    for (process, kind) in [(None, MarkKind::Mark), (Some(1), MarkKind::Step)] {
        writer.mark(Mark { time_ns: START + 7_000_123, process, name: mark, kind });
    }
    // This mark ends the step that the previous mark began.
    let (process, kind) = (Some(1), MarkKind::Step);
    writer.mark(Mark { time_ns: START + 7_000_456, process, name: mark, kind });
    writer.finish().unwrap();
}

fn options(output: Option<PathBuf>) -> Options<'static> {
    Options { output, ..Options::default() }
}

fn of_rank(rank: u32) -> Slice {
    Slice { ranks: Some(rank.into()), ..Slice::default() }
}

/// Returns the lines, the sum of their numbers, and the result of the export.
fn folded(run: &RunDir, slice: Slice, weight: Weight) -> (String, u64, Written) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stacks.folded");
    let options =
        Options { output: Some(path.clone()), slice, weight: Some(weight), ..Options::default() };
    let written = folded::export(run, &options).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let sum = text.lines().map(|l| l.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    (text, sum, written)
}

fn load(path: &Path) -> Value {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn of<'a>(json: &'a Value, ph: &str) -> Vec<&'a Value> {
    json["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == ph).collect()
}

#[test]
fn the_json_has_names_spans_counters_and_marks() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-3.tprof", 0, MemoryRecording::Exact);
    let run = RunDir::open(dir.path()).unwrap();
    let paths = chrome::export(&run, &options(None)).unwrap().paths;
    assert_eq!(paths, [dir.path().join("rank-3.trace.json.gz")]);
    let json = load(&paths[0]);
    assert_eq!(json["baseTimeNanoseconds"], UNIX);
    assert_eq!(json["distributedInfo"]["rank"], 3);

    let names: Vec<&Value> = of(&json, "M");
    let name = |what: &str| names.iter().find(|event| event["name"] == what).unwrap();
    assert_eq!(name("process_name")["args"]["name"], NASTY, "the image after the exec");
    assert_eq!(
        (&name("thread_name")["tid"], &name("thread_name")["args"]["name"]),
        (&43.into(), &"worker;1".into())
    );

    let spans = of(&json, "X");
    assert_eq!(spans.len(), 3);
    let shell = spans.iter().find(|span| span["name"] == "sh").unwrap();
    assert_eq!((shell["ts"].as_f64(), shell["dur"].as_f64()), (Some(1000.001), Some(3999.999)));
    assert_eq!(
        (&shell["pid"], &shell["tid"], &shell["args"]["end"]),
        (&42.into(), &42.into(), &"exec".into())
    );
    let worker = spans.iter().find(|span| span["tid"] == 43).unwrap();
    assert_eq!(worker["dur"].as_f64(), Some(3999.999));

    let marks = of(&json, "i");
    assert!(marks.iter().all(|mark| mark["name"] == NASTY));
    let times: Vec<_> = marks.iter().map(|mark| mark["ts"].as_f64().unwrap()).collect();
    assert_eq!(times, [7000.123, 7000.123, 7000.456]);
    let scopes: Vec<_> = marks.iter().map(|mark| mark["s"].as_str().unwrap()).collect();
    assert_eq!(scopes, ["g", "p", "p"]);
}

#[test]
fn downsampled_counters_keep_the_peak_and_end_at_zero() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-0.tprof", 0, MemoryRecording::Exact);
    let run = RunDir::open(dir.path()).unwrap();
    let json = load(&chrome::export(&run, &options(None)).unwrap().paths[0]);
    let mut points: HashMap<&str, Vec<(f64, f64)>> = HashMap::new();
    for event in of(&json, "C") {
        let point = (event["ts"].as_f64().unwrap(), event["args"]["bytes"].as_f64().unwrap());
        points.entry(event["name"].as_str().unwrap()).or_default().push(point);
    }
    // Events may be in any order in the file, because viewers sort them.
    points.values_mut().for_each(|points| points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let heap = &points["heap"];
    assert!(heap.len() < 40, "{} points of 2,000 events in 2 ms", heap.len());
    assert!(heap.iter().any(|point| point.1 == 10_000.0));
    assert_eq!(heap.last().unwrap().1, 0.0);
    assert_eq!(points["rss"], [(6000.0, 4096.0), (11000.001, 0.0)]);
    assert!(json["otherData"]["counters"].as_str().unwrap().contains("100 us"));
}

#[test]
fn ranks_of_several_hosts_share_a_clock() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-0.tprof", 0, MemoryRecording::Exact);
    rank(dir.path(), "rank-1.tprof", 2_000_000, MemoryRecording::Exact);
    rank(dir.path(), "rank-1.1.tprof", 0, MemoryRecording::Exact);
    rank(dir.path(), "launcher-node1.tprof", 0, MemoryRecording::Exact);
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("made");
    let paths = chrome::export(&run, &options(Some(out.clone()))).unwrap().paths;
    let names = ["rank-0", "rank-1", "rank-1.1", "launcher-node1"];
    assert_eq!(paths, names.map(|name| out.join(format!("{name}.trace.json.gz"))));
    let first = |path: &Path| of(&load(path), "X")[0]["ts"].as_f64().unwrap();
    assert_eq!((first(&paths[0]), first(&paths[1])), (1000.001, 3000.001));
}

#[test]
fn existing_files_are_replaced_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-0.tprof", 0, MemoryRecording::Exact);
    rank(dir.path(), "rank-1.tprof", 0, MemoryRecording::Exact);
    let run = RunDir::open(dir.path()).unwrap();
    let there = dir.path().join("rank-1.trace.json.gz");
    std::fs::write(&there, "mine").unwrap();
    assert!(
        matches!(chrome::export(&run, &options(None)), Err(ExportError::Exists { path }) if path == there)
    );
    assert!(
        !dir.path().join("rank-0.trace.json.gz").exists(),
        "refused before anything is written"
    );
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "mine");
    chrome::export(&run, &Options { force: true, ..options(None) }).unwrap();
    load(&there);
    let one = Some(dir.path().join("one.json.gz"));
    let refused = chrome::export(&run, &options(one.clone()));
    assert!(matches!(refused, Err(ExportError::NotADirectory { files: 2, .. })));
    chrome::export(&run, &Options { slice: of_rank(1), ..options(one.clone()) }).unwrap();
    load(&dir.path().join("one.json.gz"));
}

#[test]
fn a_full_disk_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    {
        let mut output = tprof_export::output::Output::create(&path).unwrap();
        std::io::Write::write_all(&mut output, &[0; 100_000]).unwrap();
        // Drop the output without finishing it, as happens after an error.
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn folded_lines_sum_to_the_allocated_bytes() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-0.tprof", 0, MemoryRecording::Exact);
    rank(dir.path(), "rank-1.tprof", 0, MemoryRecording::Exact);
    let run = RunDir::open(dir.path()).unwrap();
    let (text, bytes, written) = folded(&run, Slice::default(), Weight::Bytes);
    assert_eq!((bytes, text.lines().count(), written.events), (20_000, 2, 2 * 2000));
    assert!(written.notes.is_empty() && written.left_out == 0, "{written:?}");
    let (text, _, _) = folded(&run, of_rank(1), Weight::Count);
    assert_eq!(text, "rank 1;evil [42];0x20;f:g(int) 1000\n");
    let half = Slice { from_ns: Some(6_500_000), to_ns: Some(6_700_000), ..of_rank(1) };
    let (text, _, written) = folded(&run, half, Weight::Count);
    assert_eq!(text, "rank 1;evil [42];0x20;f:g(int) 200\n");
    assert_eq!((written.events, written.left_out), (200, 1800));
    let options = Options { slice: of_rank(7), ..Options::default() };
    assert!(matches!(folded::export(&run, &options), Err(ExportError::NoRank { rank: 7, .. })));
}

#[test]
fn a_slice_outside_the_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-0.tprof", 0, MemoryRecording::Exact);
    let run = RunDir::open(dir.path()).unwrap();
    let sliced = |from_ns, to_ns, steps: Option<&str>| {
        let steps = steps.map(|steps| steps.parse().unwrap());
        let slice = Slice { from_ns, to_ns, steps, ..Slice::default() };
        let output = Some(dir.path().join("out"));
        folded::export(&run, &Options { output, slice, ..Options::default() }).unwrap_err()
    };
    let second = Some(1_000_000_000);
    assert!(matches!(sliced(second, None, None), ExportError::OutsideRun { .. }));
    assert!(matches!(sliced(None, Some(1000), None), ExportError::OutsideRun { .. }));
    assert!(matches!(sliced(second, second, None), ExportError::Backwards { .. }));
    let error = sliced(None, None, Some("3-9"));
    assert!(
        matches!(&error, ExportError::NoStep { step: 3, available } if *available == [0]),
        "{error}"
    );
    assert!(!dir.path().join("out").exists());
}

#[test]
fn the_default_weight_is_time_with_samples_and_bytes_without() {
    let usual = |sampled: bool| {
        let dir = tempfile::tempdir().unwrap();
        rank(dir.path(), "rank-0.tprof", 0, MemoryRecording::Exact);
        if sampled {
            // This rank of the run was sampled but allocated nothing.
            let path = dir.path().join("rank-1.tprof");
            common::write_rank(&path, 1, common::SMALL);
        }
        let run = RunDir::open(dir.path()).unwrap();
        let written = folded::export(&run, &Options::default()).unwrap();
        assert_eq!(written.paths, [dir.path().join("stacks.folded")]);
        (std::fs::read_to_string(&written.paths[0]).unwrap(), written.notes.join("; "))
    };
    let (bytes, note) = usual(false);
    assert!(bytes.lines().next().unwrap().starts_with("rank 0;"), "{bytes}");
    assert!(note.contains("allocated bytes"), "{note}");
    let (time, note) = usual(true);
    assert!(time.lines().all(|line| line.starts_with("rank 1;")) && !time.is_empty(), "{time}");
    assert!(note.contains("nanoseconds on a core"), "{note}");
}

#[test]
fn an_export_creates_only_the_named_directory() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-0.tprof", 0, MemoryRecording::Exact);
    let run = RunDir::open(dir.path()).unwrap();
    let to = |path: &str| Options { output: Some(dir.path().join(path)), ..Options::default() };
    let missing = |result: Result<Written, ExportError>| match result {
        Err(ExportError::NoDirectory { directory, .. }) => directory == dir.path().join("no"),
        other => panic!("{other:?}"),
    };
    assert!(missing(folded::export(&run, &to("no/stacks"))));
    assert!(missing(chrome::export(&run, &to("no/rank.json.gz"))));
    assert!(missing(chrome::export(&run, &to("no/traces"))));
    assert!(missing(tprof_export::flame::export(&run, &to("no/page.html"))));
    assert!(!dir.path().join("no").exists());
    let written = chrome::export(&run, &to("traces")).unwrap();
    assert_eq!(written.paths, [dir.path().join("traces/rank-0.trace.json.gz")]);
}

#[test]
fn folded_samples_are_weighted() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-0.tprof", 0, MemoryRecording::Sampled { interval: 1000 });
    let run = RunDir::open(dir.path()).unwrap();
    let (_, sum, written) = folded(&run, Slice::default(), Weight::Count);
    let expected = 1000.0 / (1.0 - (-0.01f64).exp());
    assert!(written.notes.iter().any(|note| note.contains("estimates")), "{written:?}");
    assert_eq!(sum, expected.round() as u64);
}

#[test]
fn perfetto_finds_every_slice_and_arrow_in_the_json() {
    let dir = tempfile::tempdir().unwrap();
    let counts = common::write_run(dir.path(), common::SMALL);
    let run = RunDir::open(dir.path()).unwrap();
    let written = chrome::export(&run, &options(None)).unwrap();
    assert!(written.notes.iter().all(|note| note.contains("samples were left out")), "{written:?}");
    for (path, count) in written.paths.iter().zip(&counts) {
        let Some(answers) = readers::perfetto(
            path,
            &[
                readers::ERRORS,
                "select category, count(*) n, sum(dur) ns from slice group by 1",
                "select count(*) n from flow",
                "select count(*) n from slice where dur < 0",
                "select distinct name from slice where name like '%img%'",
            ],
        ) else {
            return;
        };
        assert!(answers[0].is_empty(), "{:?}", answers[0]);
        let of = |categories: &[&str], key: &str| -> u64 {
            let rows = answers[1].iter();
            let rows = rows.filter(|row| categories.iter().any(|c| row["category"] == *c));
            rows.map(|row| row[key].as_u64().unwrap()).sum()
        };
        let spans = ["cpu_op", "cuda_runtime", "user_annotation"];
        // The call of a collective is written as an operator.
        assert_eq!(of(&spans, "n"), count.spans + count.collectives);
        assert_eq!(of(&spans, "ns"), count.span_ns + 70 * count.collectives);
        assert_eq!(of(&["kernel"], "n"), count.kernels);
        assert_eq!(of(&["kernel"], "ns"), count.kernel_ns);
        assert_eq!(of(&["gpu_memcpy"], "n"), count.copies);
        assert_eq!(of(&["cuda_sync"], "n"), count.synchronizations);
        assert_eq!(of(&["gpu_user_annotation"], "n"), count.device_spans);
        let arrows = count.kernels + count.synchronizations + count.flow_points / 2;
        assert_eq!(answers[2][0]["n"], arrows);
        assert_eq!(answers[3][0]["n"], 0);
        assert_eq!(answers[4][0]["name"], common::NASTY);
    }
}

#[test]
fn events_have_the_keys_of_kinetos_traces() {
    let dir = tempfile::tempdir().unwrap();
    common::write_run(dir.path(), common::SMALL);
    let run = RunDir::open(dir.path()).unwrap();
    let json = load(&chrome::export(&run, &options(None)).unwrap().paths[1]);
    assert_eq!(json["schemaVersion"], 1);
    let info = &json["distributedInfo"];
    assert_eq!(
        (&info["rank"], &info["world_size"], &info["backend"]),
        (&1.into(), &2.into(), &"nccl".into())
    );
    let device = &json["deviceProperties"][0];
    assert_eq!(
        (&device["name"], &device["numSms"], &device["warpSize"]),
        (&"NVIDIA H200".into(), &132.into(), &32.into())
    );
    let spans = of(&json, "X");
    let find = |category: &str| *spans.iter().find(|span| span["cat"] == category).unwrap();
    let kernel = find("kernel");
    assert_eq!((&kernel["pid"], &kernel["tid"]), (&0.into(), &7.into()));
    assert_eq!(kernel["args"]["grid"], serde_json::json!([64, 1, 1]));
    for key in ["External id", "correlation", "stream", "device", "registers per thread"] {
        assert!(kernel["args"][key].is_number(), "{key} in {kernel}");
    }
    let operator = find("cpu_op");
    assert_eq!(operator["args"]["Input Dims"], serde_json::json!([[8, 3], []]));
    assert!(operator["args"]["Sequence number"].is_number(), "{operator}");
    let named = |category: &str| find(category)["name"].as_str().unwrap().to_owned();
    assert_eq!(named("gpu_memcpy"), "Memcpy HtoD (Pinned -> Device)");
    assert_eq!(named("cuda_sync"), "Stream Sync");
    let comms = spans.iter().find(|span| span["name"] == "record_param_comms").unwrap();
    assert_eq!(comms["args"]["Process Group Name"], "default_pg");
    assert_eq!(comms["args"]["In msg nelems"], 1000);
    let memory = of(&json, "i").into_iter().find(|event| event["name"] == "[memory]").unwrap();
    assert_eq!(
        (&memory["args"]["Bytes"], &memory["args"]["Device Type"]),
        (&512.into(), &1.into())
    );
}

#[test]
fn kernels_have_their_operators_id_and_their_occupancy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank-0.tprof");
    let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    let properties = writer.name(
        r#"{"warpSize":32,"maxThreadsPerMultiprocessor":2048,"maxBlocksPerMultiprocessor":32,
            "regsPerMultiprocessor":65536,"sharedMemPerMultiprocessor":233472}"#,
    );
    let (processors, compute_major) = (Some(132), Some(9));
    writer.device(&Device { processors, compute_major, properties, ..Device::default() });
    let names = ["aten::linear", "aten::mm", "cudaLaunchKernel"].map(|name| writer.name(name));
    let [outer, inner, call] = [(0, 100, None), (10, 50, None), (20, 5, Some(7))];
    let mut spans: Vec<Span> = Vec::new();
    for (name, (start_ns, duration_ns, correlation)) in names.into_iter().zip([outer, inner, call])
    {
        let kind = if correlation.is_some() { SpanKind::Runtime } else { SpanKind::Operator };
        let span = Span { start_ns, duration_ns, kind, name, correlation, ..Span::default() };
        spans.push(span);
    }
    writer.write(&mut spans).unwrap();
    let row = Kernel {
        start_ns: 40,
        duration_ns: 5,
        correlation: Some(7),
        grid: [16, 1, 1],
        block: [128, 1, 1],
        registers: Some(18),
        shared_dynamic_bytes: Some(0),
        ..Kernel::default()
    };
    let of_none = Kernel { correlation: Some(8), registers: None, ..row };
    writer.write(&mut vec![row, of_none]).unwrap();
    writer.finish().unwrap();
    let run = RunDir::open(dir.path()).unwrap();
    let json = load(&chrome::export(&run, &options(None)).unwrap().paths[0]);
    let spans = of(&json, "X");
    let args = |category: &str, at: usize| {
        &spans.iter().filter(|span| span["cat"] == category).nth(at).unwrap()["args"]
    };
    assert_eq!(args("cpu_op", 1)["External id"], 2);
    assert_eq!(args("cuda_runtime", 0)["External id"], 2);
    let kernel = args("kernel", 0);
    assert_eq!(kernel["External id"], 2);
    assert_eq!(kernel["blocks per SM"], 0.121212);
    assert_eq!(kernel["warps per SM"], 0.484848);
    assert_eq!(kernel["est. achieved occupancy %"], 1);
    let other = args("kernel", 1);
    assert_eq!((&other["External id"], &other["blocks per SM"]), (&Value::Null, &0.121212.into()));
    assert_eq!(other["est. achieved occupancy %"], Value::Null);
}

#[test]
fn a_slice_is_exported_as_a_complete_trace() {
    let dir = tempfile::tempdir().unwrap();
    common::write_run(dir.path(), common::SMALL);
    let run = RunDir::open(dir.path()).unwrap();
    let slice = Slice { steps: Some("2".parse().unwrap()), ..of_rank(0) };
    let written = chrome::export(&run, &Options { slice, ..options(None) }).unwrap();
    let json = load(&written.paths[0]);
    let operators = of(&json, "X").iter().filter(|span| span["cat"] == "cpu_op").count() as u64;
    assert_eq!(operators, common::SMALL.operators + 1, "the collective's call is an operator too");
    assert_eq!(json["otherData"]["slice_from_ns"], 1_000_000 + 2 * common::STEP_NS);
    assert!(written.left_out > written.events);
}

#[test]
fn crossing_slices_are_moved_to_separate_tracks() {
    let dir = tempfile::tempdir().unwrap();
    common::write_two_threads(&dir.path().join("rank-0.tprof"), |writer| {
        let (mut spans, mut kernels) = (Vec::new(), Vec::new());
        // Of events that begin together, the longer one may come later. A shorter one inside it
        // does not cross it.
        for (thread, start, duration) in
            [(0, 10, 50), (0, 20, 10), (0, 20, 20), (0, 30, 60), (0, 95, 5), (1, 30, 60)]
        {
            let name = writer.name(&format!("span {start}+{duration}"));
            let (start_ns, duration_ns) = (1000 * (start + 1), 1000 * duration);
            let row = Span { start_ns, duration_ns, name, thread, ..Span::default() };
            spans.push(row);
        }
        for (start, duration) in [(10, 50), (20, 60)] {
            let name = writer.name(&format!("kernel {start}+{duration}"));
            let (start_ns, duration_ns) = (1000 * (start + 1), 1000 * duration);
            kernels.push(Kernel { start_ns, duration_ns, name, stream: 7, ..Kernel::default() });
        }
        writer.write(&mut spans).unwrap();
        writer.write(&mut kernels).unwrap();
    });
    let run = RunDir::open(dir.path()).unwrap();
    let written = chrome::export(&run, &options(None)).unwrap();
    assert!(written.notes[0].contains("2 slices that cross"), "{:?}", written.notes);
    let json = load(&written.paths[0]);
    let tid = |name: &str| {
        let spans = of(&json, "X");
        spans.iter().find(|span| span["name"] == name).unwrap()["tid"].as_u64().unwrap()
    };
    let same = ["span 10+50", "span 20+10", "span 20+20", "span 95+5"];
    assert_eq!(same.map(tid), [5; 4]);
    assert_eq!((tid("span 30+60") > 1_000_000, tid("kernel 10+50")), (true, 7));
    let labels = of(&json, "M");
    let label = labels.iter().find(|label| label["tid"] == tid("kernel 20+60")).unwrap();
    assert_eq!(label["args"]["name"], "stream 7 (overlapping)");
    let Some(answers) = readers::perfetto(
        &written.paths[0],
        &[
            "select count(*) n, sum(dur) ns from slice where name like 'span %' or name like 'kernel %'",
            "select value from stats where name = 'slice_drop_overlapping_complete_event'",
        ],
    ) else {
        return;
    };
    assert_eq!((&answers[0][0]["n"], &answers[0][0]["ns"]), (&8.into(), &315_000.into()));
    assert_eq!(answers[1][0]["value"], 0);
}
