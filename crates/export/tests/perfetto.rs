//! Tests exported traces by queries in Perfetto's own engine.

use crate::common;
use crate::common::readers;
use crate::common::{NASTY, SMALL, START};
use serde_json::Value;
use std::path::Path;
use tprof_export::{ExportError, Options, Slice, Written, perfetto};
use tprof_trace::RunDir;
use tprof_trace::model::*;

fn export(run: &Path, to: &Path, slice: Slice) -> Written {
    let run = RunDir::open(run).unwrap();
    let options = Options { output: Some(to.to_path_buf()), slice, ..Options::default() };
    perfetto::export(&run, &options).unwrap()
}

fn number(rows: &[Value], key: &str) -> u64 {
    let value = &rows[0][key];
    value.as_u64().unwrap_or_else(|| panic!("{key} in {rows:?}"))
}

#[test]
fn perfetto_finds_every_slice_track_and_arrow() {
    let dir = tempfile::tempdir().unwrap();
    let counts = common::write_run(dir.path(), SMALL);
    for name in ["trace.pftrace", "trace.pftrace.gz"] {
        let path = dir.path().join(name);
        let written = export(dir.path(), &path, Slice::default());
        assert_eq!(written.left_out, 0);
        let Some(answers) = readers::perfetto(
            &path,
            &[
                readers::ERRORS,
                "select count(*) n from slice where dur < 0",
                "select category, count(*) n, sum(dur) ns from slice group by 1",
                "select count(*) n from flow",
                "select count(*) n from slice where category in ('mark', 'loss', 'process')",
                "select count(*) n from perf_sample",
                "select name, count(*) n from track where name like 'stream 7' group by 1",
                "select t.name, t.tid, p.pid from thread t join process p using (upid)
                 where t.name = 'autograd' order by p.pid",
                &format!(
                    "select min(ts) - {} t from slice where category = 'kernel'",
                    common::UNIX
                ),
            ],
        ) else {
            return;
        };
        assert!(answers[0].is_empty(), "{:?}", answers[0]);
        assert_eq!(number(&answers[1], "n"), 0);
        let of = |categories: &[&str], key: &str| -> u64 {
            let rows = answers[2].iter();
            let rows = rows.filter(|row| categories.iter().any(|c| row["category"] == *c));
            rows.map(|row| row[key].as_u64().unwrap()).sum()
        };
        let sum = |field: fn(&common::Counts) -> u64| counts.iter().map(field).sum::<u64>();
        let spans = ["cpu_op", "cuda_runtime", "user_annotation"];
        assert_eq!(of(&spans, "n"), sum(|c| c.spans));
        assert_eq!(of(&spans, "ns"), sum(|c| c.span_ns));
        assert_eq!(of(&["kernel"], "n"), sum(|c| c.kernels));
        assert_eq!(of(&["kernel"], "ns"), sum(|c| c.kernel_ns));
        assert_eq!(of(&["gpu_memcpy"], "n"), sum(|c| c.copies));
        assert_eq!(of(&["cuda_sync"], "n"), sum(|c| c.synchronizations));
        assert_eq!(of(&["gpu_user_annotation"], "n"), sum(|c| c.device_spans));
        assert_eq!(of(&["collective"], "n"), sum(|c| c.collectives));
        // Arrows lead from launches to kernels and waits, from forward to backward operators, and
        // from the collectives of rank 0 to those of rank 1.
        let arrows =
            sum(|c| c.kernels + c.synchronizations + c.flow_points / 2) + counts[0].collectives;
        assert_eq!(number(&answers[3], "n"), arrows);
        assert_eq!(number(&answers[4], "n"), 2 * 3);
        assert_eq!(number(&answers[5], "n"), sum(|c| c.samples));
        assert_eq!(number(&answers[6], "n"), 2, "one a rank");
        // Both ranks have a process with the pid 4242, so one of the two must get another number.
        let pids: Vec<_> = answers[7].iter().map(|row| row["pid"].as_u64().unwrap()).collect();
        assert_eq!(pids[0], 4242);
        assert!(pids.len() == 2 && pids[1] > 4_194_304, "no kernel gives {pids:?}");
        // The first kernels of both hosts begin at the same time on the run's clock, although the
        // hosts' clocks differ.
        let each = (common::STEP_NS - 2_000_000) / SMALL.operators;
        assert_eq!(number(&answers[8], "t"), 1_000_000 + 1000 + each);
    }
}

#[test]
fn arguments_names_and_stacks_are_read_back_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    common::write_run(dir.path(), SMALL);
    let path = dir.path().join("trace.pftrace");
    export(dir.path(), &path, Slice { ranks: Some(1.into()), ..Slice::default() });
    let Some(answers) = readers::perfetto(
        &path,
        &[
            "select distinct name from slice where category = 'kernel' and name like '%img%'",
            "select key, coalesce(string_value, int_value, real_value) v from args
             where key like 'debug.%' group by 1, 2",
            "select name, count(*) n from stack_profile_frame group by 1",
            "select ct.name, count(*) n, max(value) m from counter c
             join track ct on c.track_id = ct.id group by 1",
            "select name from process where pid = 4242",
        ],
    ) else {
        return;
    };
    assert_eq!(answers[0].len(), 1);
    assert_eq!(answers[0][0]["name"], NASTY);
    let arg = |key: &str| {
        let row = answers[1].iter().find(|row| row["key"] == key);
        row.unwrap_or_else(|| panic!("no {key} in {:?}", answers[1]))["v"].clone()
    };
    assert_eq!(arg("debug.grid"), "64, 1, 1");
    assert_eq!(arg("debug.registers per thread"), 32);
    assert_eq!(arg("debug.Concrete Inputs"), "x");
    assert_eq!(arg("debug.ratio"), 0.5);
    assert_eq!(arg("debug.Input Dims[0][1]"), 3);
    let frames: Vec<_> = answers[2].iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(frames.contains(&NASTY) && frames.contains(&"main"), "{frames:?}");
    assert!(frames.contains(&"[waiting for the GIL]"), "{frames:?}");
    let curve = |name: &str| {
        let row = answers[3].iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("no curve {name} in {:?}", answers[3])).clone()
    };
    assert_eq!(curve("heap")["m"], 100 << 20);
    assert_eq!(curve("reserved by the framework")["m"], 2 << 20);
    assert!(curve("launches that wait")["m"].as_f64().unwrap() >= 1.0);
    let busy = curve("kernels running")["m"].as_f64().unwrap();
    assert!(busy > 85.0 && busy <= 100.0, "{busy}");
    assert_eq!(answers[4][0]["name"], "rank 1 python3");
}

#[test]
fn a_slice_of_one_step_has_all_events_that_touch_it() {
    let dir = tempfile::tempdir().unwrap();
    let counts = common::write_run(dir.path(), SMALL);
    let path = dir.path().join("step.pftrace");
    let steps = Some("1".parse().unwrap());
    let written = export(dir.path(), &path, Slice { steps, ..Slice::default() });
    assert!(written.left_out > written.events, "{written:?}");
    let Some(answers) = readers::perfetto(
        &path,
        &[
            readers::ERRORS,
            "select count(*) n from slice where category = 'cpu_op'",
            "select name from slice where category = 'user_annotation' group by 1",
        ],
    ) else {
        return;
    };
    assert!(answers[0].is_empty(), "{:?}", answers[0]);
    assert_eq!(number(&answers[1], "n"), SMALL.operators * counts.len() as u64);
    assert_eq!(answers[2].len(), 1);
    assert_eq!(answers[2][0]["name"], "ProfilerStep#1");
}

#[test]
fn a_file_stops_at_its_size_and_reports_where() {
    let dir = tempfile::tempdir().unwrap();
    let job = common::Job { steps: 40, operators: 1000, ranks: 1 };
    common::write_run(dir.path(), job);
    let run = RunDir::open(dir.path()).unwrap();
    let options = |max_bytes| Options {
        output: Some(dir.path().join("out.pftrace")),
        max_bytes: Some(max_bytes),
        ..Options::default()
    };
    let error = perfetto::export(&run, &options(1000)).unwrap_err();
    assert!(matches!(error, ExportError::TooSmall { least_bytes: 262_144, .. }), "{error}");
    assert!(!dir.path().join("out.pftrace").exists());
    let max_bytes = 2 << 20;
    let written = perfetto::export(&run, &options(max_bytes)).unwrap();
    let size = std::fs::metadata(&written.paths[0]).unwrap().len();
    assert!(size <= max_bytes && size > max_bytes / 2, "{size}");
    assert!(written.left_out > 0);
    assert!(written.notes[0].contains("rank 0 is cut at 0."), "{:?}", written.notes);
    if let Some(answers) = readers::perfetto(&written.paths[0], &[readers::ERRORS]) {
        assert!(answers[0].is_empty(), "{:?}", answers[0]);
    }
}

#[test]
fn an_empty_slice_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    common::write_run(dir.path(), SMALL);
    let run = RunDir::open(dir.path()).unwrap();
    // The slice begins after the last event, and before the process ends.
    let from_ns = Some(SMALL.steps * common::STEP_NS + 1_999_000);
    let output = Some(dir.path().join("out.pftrace"));
    let slice = Slice { from_ns, ..Slice::default() };
    let error = perfetto::export(&run, &Options { output, slice, ..Options::default() });
    assert!(matches!(error.unwrap_err(), ExportError::EmptySlice));
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), SMALL.ranks as usize, "{left:?}");
}

#[test]
fn overlapping_kernels_of_a_stream_keep_their_durations() {
    use tprof_trace::{TraceHeader, TraceWriter};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank-0.tprof");
    let header = TraceHeader { start_ns: START, ..TraceHeader::default() };
    let mut writer = TraceWriter::create(&path, &header).unwrap();
    let kernel = |start: u64, duration_ns: u64| Kernel {
        start_ns: START + start,
        duration_ns,
        stream: 7,
        ..Kernel::default()
    };
    let spans = [(0, 10), (0, 0), (5, 10), (7, 1), (10, 10), (15, 0), (15, 3), (20, 0)];
    writer.write(&mut spans.map(|(start, length)| kernel(start, length)).to_vec()).unwrap();
    writer.finish().unwrap();
    let out = dir.path().join("out.pftrace");
    export(&path, &out, Slice::default());
    let sql = "select ts - (select min(ts) from slice where category = 'kernel') ts, dur from slice
               where category = 'kernel' order by ts, dur desc";
    let Some(answers) = readers::perfetto(&out, &[readers::ERRORS, sql]) else { return };
    assert!(answers[0].is_empty(), "{:?}", answers[0]);
    let found: Vec<(u64, u64)> = answers[1]
        .iter()
        .map(|row| (row["ts"].as_u64().unwrap(), row["dur"].as_u64().unwrap()))
        .collect();
    let mut expected = spans.to_vec();
    expected.sort_by_key(|(start, length)| (*start, std::cmp::Reverse(*length)));
    assert_eq!(found, expected);
}
