//! Tests reports of one cycle of a schedule: which values are known for a cycle, and which are not.

use std::path::Path;

use serde_json::Value;
use tprof_analyze::{AnalyzeError, KINDS, Kind, ReportRequest, Reports, make_reports};
use tprof_document::{Options, Window};
use tprof_fixture::runs::{Maker, START, run_json};
use tprof_trace::model::*;

const MS: u64 = 1_000_000;

/// A rank with a cycle from 10 to 20 ms, and one from 50 to 60 ms.
fn rank(dir: &Path, memory: MemoryRecording) -> Maker {
    let mut maker = Maker::new(dir, "rank-0.tprof");
    let process = maker.process(100, 0, memory);
    maker.stack(process, 1, &["first", "main"]);
    maker.stack(process, 2, &["second", "main"]);
    for (at, name) in [(10, "cycle 1: step 2 (--schedule)"), (50, "cycle 2: step 6 (--schedule)")] {
        maker.mark(at * MS, name, MarkKind::RecordingOn);
        maker.mark((at + 10) * MS, "--schedule", MarkKind::RecordingOff);
    }
    maker.end(process, 100 * MS, ProcessEnd::Exited(0));
    run_json(dir, 100 * MS, Vec::new());
    maker
}

fn made(dir: &Path, kinds: &[&str], cycle: u32) -> Result<Reports, AnalyzeError> {
    let reports: &[Kind] =
        if kinds.contains(&"memory") { &[Kind::Summary, Kind::Memory] } else { &[] };
    let kinds: Vec<_> = KINDS.iter().filter(|kind| kinds.contains(&kind.name)).collect();
    let options = Options { cycle: Some(cycle), data: true, ..Options::default() };
    make_reports(dir, &ReportRequest { reports, kinds: &kinds }, &options, None)
}

/// A document of a cycle, as JSON.
fn document(dir: &Path, kind: &str, cycle: u32) -> Value {
    serde_json::to_value(&made(dir, &[kind], cycle).unwrap().documents[0]).unwrap()
}

/// The heap and the timeline of a cycle, in the summary and in the report on memory.
fn memory(dir: &Path, cycle: u32) -> [Value; 2] {
    let reports = made(dir, &["memory"], cycle).unwrap().reports;
    let [summary, full] = &reports[..] else { panic!("{reports:?}") };
    for report in [summary, full] {
        assert!(report.notes[0].starts_with(&format!("only cycle {cycle}: step")), "{report:?}");
    }
    [summary, full].map(|report| serde_json::to_value(&report.ranks[0]).unwrap())
}

#[test]
fn a_heap_is_counted_from_the_beginning_of_its_cycle() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = rank(dir.path(), MemoryRecording::Exact);
    let first: Vec<u64> = (0..3).map(|i| maker.alloc(0, 12 * MS + i, 1000, 1)).collect();
    let second: Vec<u64> = (0..2).map(|i| maker.alloc(0, 52 * MS + i, 500, 2)).collect();
    maker.free(0, 55 * MS, first[0]);
    maker.free(0, 56 * MS, second[0]);
    for (at, rss) in [(5, 1e6), (15, 2e6), (40, 3e6), (70, 9e6)] {
        maker.counter(Some(0), at * MS, counter::RSS_BYTES, rss);
    }
    maker.finish();
    for rank in memory(dir.path(), 2) {
        let heap = &rank["host_memory"];
        assert_eq!((&heap["allocations"], &heap["frees"]), (&2.into(), &2.into()));
        assert_eq!((&heap["allocated_bytes"], &heap["unmatched_frees"]), (&1000.into(), &1.into()));
        assert_eq!(heap["churn"]["allocations_per_s"], 200.0);
        for key in ["peak_bytes", "live_at_exit_bytes", "growth"] {
            let why = heap[format!("{key}_missing")].as_str().unwrap();
            assert!(heap[key].is_null() && why.contains("part"), "{key}: {why}");
        }
        let sites = heap["sites"].as_array().unwrap();
        assert_eq!(sites.len(), 1);
        assert!(sites[0]["stack"][0].as_str().unwrap().starts_with("second"));
        // Resident memory was read when the cycle began. This value holds until the next reading.
        assert_eq!(rank["timeline"]["rss_peak_bytes"], 3_000_000);
        assert_eq!(rank["timeline"]["start_ns"], 50 * MS);
    }
    let [_, first] = memory(dir.path(), 1);
    assert_eq!(
        (&first["host_memory"]["allocations"], &first["host_memory"]["frees"]),
        (&3.into(), &0.into())
    );
    assert_eq!(first["timeline"]["rss_peak_bytes"], 2_000_000);
}

#[test]
fn a_cycle_of_a_sampled_heap_is_estimated_from_its_samples() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = rank(dir.path(), MemoryRecording::Sampled { interval: 4096 });
    for i in 0..100 {
        maker.alloc(0, 12 * MS + i, 64, 1);
        maker.alloc(0, 52 * MS + i, 64, 2);
    }
    maker.writer.totals(HeapTotals {
        time_ns: START + 90 * MS,
        process: 0,
        allocations: 13_000,
        frees: 7,
        allocated_bytes: 500_000,
        live_bytes: None,
        peak_bytes: None,
        peak_at_ns: None,
    });
    maker.finish();
    let [_, rank] = memory(dir.path(), 2);
    let heap = &rank["host_memory"];
    let all = 100.0 / (1.0 - (-64.0f64 / 4096.0).exp());
    assert_eq!(heap["allocations"], all.round() as u64);
    let error = heap["error_allocations"].as_f64().unwrap();
    assert!((0.15..0.4).contains(&(error / all)), "{error} of {all}");
    assert!(heap["frees"].is_null() && heap["frees_missing"].is_string());
}

#[test]
fn live_bytes_of_a_sampled_heap_are_those_during_the_cycle() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = rank(dir.path(), MemoryRecording::Sampled { interval: 4096 });
    // Live bytes are read when recording is switched on or off. What was allocated while it was off
    // shows as a jump between two readings.
    for (at, live) in [(10, 1e6), (20, 2e6), (50, 30e6), (60, 40e6)] {
        maker.counter(Some(0), at * MS, counter::HEAP_BYTES, live);
    }
    let block = maker.alloc(0, 12 * MS, 5_000_000, 1);
    maker.alloc(0, 13 * MS, 1_000_000, 1);
    maker.free(0, 14 * MS, block);
    maker.alloc(0, 55 * MS, 10_000_000, 2);
    maker.writer.totals(HeapTotals {
        time_ns: START + 90 * MS,
        process: 0,
        allocations: 3,
        frees: 1,
        allocated_bytes: 16_000_000,
        live_bytes: Some(1000),
        peak_bytes: Some(50_000_000),
        peak_at_ns: Some(START + 70 * MS),
    });
    maker.finish();
    for (cycle, peak, live) in [(1, 7_000_000, 2_000_000), (2, 40_000_000, 40_000_000)] {
        let [_, rank] = memory(dir.path(), cycle);
        let heap = &rank["host_memory"];
        assert_eq!(
            (&heap["peak_bytes"], &heap["live_at_exit_bytes"]),
            (&peak.into(), &live.into())
        );
        assert!(heap["peak_at_ns"].is_null() && heap["sites"][0]["live_bytes"].is_null());
    }
}

#[test]
fn readings_of_a_cycle_are_those_within_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = rank(dir.path(), MemoryRecording::Off);
    for (at, value) in [(15, 1.0), (40, 100.0), (52, 5.0), (58, 6.0), (61, 200.0)] {
        maker.counter(Some(0), at * MS, "queue", value);
    }
    maker.finish();
    let report = document(dir.path(), "counters", 2);
    let row = &report["tables"]["counters"][0];
    assert_eq!((&row["samples"], &row["min"], &row["max"]), (&2.into(), &5.0.into(), &6.0.into()));
}

#[test]
fn the_driving_thread_is_judged_over_its_cycle() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = rank(dir.path(), MemoryRecording::Off);
    let sample = |ms: u64| Sample {
        time_ns: START + ms * MS,
        weight_ns: MS,
        stack: 2,
        state: ThreadState::Running,
        cpu: Some(0),
        ..Sample::default()
    };
    let wait = Sample {
        time_ns: START + 56 * MS,
        weight_ns: 4 * MS,
        state: ThreadState::Sleep,
        cpu: None,
        ..sample(0)
    };
    let mut rows: Vec<Sample> = (11..20).chain(51..57).map(sample).chain([wait]).collect();
    maker.writer.write(&mut rows).unwrap();
    maker.finish();
    let report = document(dir.path(), "host", 2);
    let parts = report["tables"]["parts"].as_array().unwrap();
    let wall: u64 = parts.iter().map(|row| row["wall_ns"].as_u64().unwrap()).sum();
    assert_eq!(wall, 10 * MS, "{parts:?}");
    assert!(report["notes"][0].as_str().unwrap().contains("part to its end"), "{report}");
    let report = document(dir.path(), "threads", 2);
    let row = &report["tables"]["threads"][0];
    assert_eq!((&row["running_ns"], &row["waited_ns"]), (&(6 * MS).into(), &(4 * MS).into()));
    assert!(
        row["minor_faults_missing"].as_str().unwrap().contains("not by part of the run"),
        "{row}"
    );
    let findings = document(dir.path(), "findings", 2);
    let not_checked = findings["tables"]["not_checked"].as_array().unwrap();
    let start_up = not_checked.iter().find(|row| row["rule"] == "StartUp").unwrap();
    assert!(start_up["why"].as_str().unwrap().contains("may lack its start-up"), "{start_up}");
}

/// Names and numbers of calls in one kind of report of a window, and the report's notes.
fn of_window(dir: &Path, kind: &str, window: Window, name: &str) -> (Vec<(String, u64)>, Value) {
    let kinds: Vec<_> = KINDS.iter().filter(|one| one.name == kind).collect();
    let options = Options { window: Some(window), data: true, ..Options::default() };
    let made = make_reports(dir, &ReportRequest { reports: &[], kinds: &kinds }, &options, None);
    let report = serde_json::to_value(&made.unwrap().documents[0]).unwrap();
    let rows = report["tables"][kind].as_array().unwrap().iter();
    let count = if kind == "spans" { "runs" } else { "count" };
    let rows = rows.map(|row| (row[name].as_str().unwrap().into(), row[count].as_u64().unwrap()));
    (rows.collect(), report["notes"].clone())
}

/// Spans at 12, 22 and 32 ms; kernels that were launched at 13, 23 and 33 ms and began 5 ms later.
fn launching(dir: &Path) {
    let mut maker = Maker::new(dir, "rank-0.tprof");
    let process = maker.process(100, 0, MemoryRecording::Off);
    let writer = &mut maker.writer;
    let (own, launch) = (writer.name(OWN_SPANS), writer.name("cudaLaunchKernel"));
    let (mut spans, mut kernels) = (Vec::new(), Vec::new());
    for (number, at) in [(1, 12), (2, 22), (3, 32)] {
        let span = |start_ms: u64, kind, name| Span {
            start_ns: START + start_ms * MS,
            duration_ns: MS,
            process,
            kind,
            name,
            ..Span::default()
        };
        let name = writer.name(&format!("span {number}"));
        spans.push(Span { category: own, ..span(at, SpanKind::Annotation, name) });
        let correlation = Some(number);
        spans.push(Span { correlation, ..span(at + 1, SpanKind::Runtime, launch) });
        let name = writer.name(&format!("kernel {number}"));
        let start_ns = START + (at + 6) * MS;
        let kernel =
            Kernel { start_ns, duration_ns: MS, process, name, correlation, ..Kernel::default() };
        kernels.push(kernel);
    }
    writer.write(&mut spans).unwrap();
    writer.write(&mut kernels).unwrap();
    maker.end(process, 100 * MS, ProcessEnd::Exited(0));
    run_json(dir, 100 * MS, Vec::new());
    maker.finish();
}

#[test]
fn a_window_has_the_events_that_began_within_it() {
    let dir = tempfile::tempdir().unwrap();
    launching(dir.path());
    let (spans, notes) = of_window(dir.path(), "spans", Window::OfRun(20 * MS, 30 * MS), "name");
    assert_eq!(spans, [("span 2".to_owned(), 1)]);
    assert_eq!(notes[0], "only what began from 20.0 ms to 30.0 ms");
    let (spans, notes) = of_window(dir.path(), "spans", Window::OfRun(20 * MS, u64::MAX), "name");
    assert_eq!(spans.len(), 2);
    assert_eq!(notes[0], "only what began after 20.0 ms");
}

#[test]
fn a_window_has_the_device_work_that_its_program_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    launching(dir.path());
    let of = |to: u64, until: Option<u64>| {
        let window = Window::OfProgram {
            from_ns: START + 20 * MS,
            to_ns: START + to * MS,
            device_until_ns: until.map(|until| START + until * MS),
        };
        let (kernels, notes) = of_window(dir.path(), "kernels", window, "name");
        let names: Vec<String> = kernels.into_iter().map(|(name, _)| name).collect();
        (names, notes.to_string().contains("kernels and copies began behind the end of this part"))
    };
    // The kernel began after the end of the window. In the first case, the program waited for the
    // kernel; in the second, it did not.
    assert_eq!(of(26, Some(30)), (vec!["kernel 2".to_owned()], false));
    assert_eq!(of(26, None), (Vec::new(), true));
    // The third kernel was launched before the wait, so it is unknown which part the work in that
    // time belongs to.
    assert_eq!(of(27, Some(36)), (Vec::new(), true));
    assert_eq!(of(35, Some(40)).0.len(), 2);
    assert!(!of(35, Some(40)).1);
}

#[test]
fn every_report_accepts_an_existing_cycle() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), MemoryRecording::Exact).finish();
    let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).chain(["memory"]).collect();
    assert_eq!(made(dir.path(), &kinds, 1).unwrap().documents.len(), KINDS.len());
    assert!(matches!(made(dir.path(), &kinds, 3), Err(AnalyzeError::NoCycle { cycle: 3, .. })));
}
