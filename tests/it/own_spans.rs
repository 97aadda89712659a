//! Tests of spans, steps and values that a program records itself through the table `tprof_abi`.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use tprof_tests::{
    EXACT, Job, Scratch, document, program, rank_file, report, rows, run_info, traced, traced_job,
};
use tprof_trace::TraceFile;
use tprof_trace::model::{HeapChange, MarkKind, Span, SpanKind};

const TIMES: usize = 4 * 500;

fn job(mode: &str) -> Job {
    Job::new(program("own_spans")).args([mode])
}

fn spans(file: &TraceFile) -> Vec<Span> {
    let all = rows::<Span>(file).into_iter();
    all.filter(|span| file.name(span.category) == "tprof").collect()
}

fn counts(file: &TraceFile) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for span in spans(file) {
        assert_eq!(span.kind, SpanKind::Annotation);
        let name: String = file.name(span.name).chars().take(9).collect();
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn lost(run: &Path, what: &str) -> Vec<(String, u64)> {
    let lost = run_info(run, |_| true)["completeness"]["losses"].as_array().unwrap().clone();
    let of = lost.iter().filter(|row| row["what"] == what);
    of.map(|row| (row["why"].as_str().unwrap().to_owned(), row["count"].as_u64().unwrap()))
        .collect()
}

#[test]
fn without_tprof_there_is_no_table() {
    let scratch = Scratch::new();
    assert_eq!(job("all").run_in(scratch.cwd()).expect_code(0).stdout, "no table\n");
    let run = traced(&job("none"), &[], &scratch);
    assert_eq!(run.outcome.stdout, "a table\n");
}

#[test]
fn spans_steps_and_values_are_those_of_the_program() {
    let scratch = Scratch::new();
    let run = traced(&job("all"), EXACT, &scratch);
    assert_eq!(run.outcome.stdout, "off 0 0 on 1 1\n");
    let file = rank_file(&run.run, 0);
    let expected = [
        ("(no name)", 3),
        ("around", 1),
        ("child", 1),
        ("handed on", 1),
        ("inner", TIMES + 2),
        ("nnnnnnnnn", 2),
        ("outer", TIMES),
        ("\u{fffd}bad", 1),
    ];
    let expected = expected.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(counts(&file), BTreeMap::from(expected));
    for span in spans(&file) {
        let args = file.name(span.args);
        match file.name(span.name) {
            "outer" => assert_eq!(args, r#"{"flops":10}"#),
            "handed on" => assert_eq!(args, r#"{"style":"start/end"}"#),
            _ => assert!(matches!(args, "" | r#"{"flops":1}"#), "{args}"),
        }
    }
    let lengths = spans(&file).iter().map(|span| file.name(span.name).chars().count()).max();
    assert_eq!(lengths, Some(3801), "a cut name ends in `…`");
    assert_eq!(lost(&run.run, "ends of names"), [("they were too long".to_owned(), 1)]);
    assert_eq!(lost(&run.run, "ends of spans"), []);

    let marks = |kind| {
        let of = file.marks().iter().filter(move |mark| mark.kind == kind);
        of.map(|mark| file.name(mark.name).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(marks(MarkKind::Step), [10, 11, 12, 13, 14].map(|step| format!("step {step}")));
    assert_eq!(marks(MarkKind::Mark), ["instant"]);
    assert_eq!(marks(MarkKind::RecordingOff), ["by the program"]);
    assert_eq!(marks(MarkKind::RecordingOn), ["by the program"]);
    let values = file.counters().to_vec();
    let values: Vec<f64> =
        values.iter().filter(|row| file.name(row.name) == "loss").map(|row| row.value).collect();
    assert_eq!(values, [10.0, 11.0, 12.0, 13.0, 14.0].map(|step| 1.5 / step));

    let steps = document("steps", &run.run);
    let steps = steps["tables"]["steps"].as_array().unwrap().clone();
    let numbers: Vec<_> = steps.iter().map(|row| row["step"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [10, 11, 12, 13], "the last step has no end");
}

/// Compares the bytes that the file counts for each span with the allocations of its thread within
/// the span's times. Times of successive records may be equal, because AMD's time-stamp counter
/// advances in steps of 10 ns.
#[test]
fn bytes_allocated_within_a_span_are_exact() {
    let scratch = Scratch::new();
    let run = traced(&job("all"), EXACT, &scratch);
    let file = rank_file(&run.run, 0);
    let mut within: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for event in file.heap_events() {
        if let HeapChange::Alloc { size, .. } = event.what {
            within.entry(event.thread).or_default().push((event.time_ns, size));
        }
    }
    let mut seen = 0;
    for span in spans(&file) {
        let expected = match file.name(span.name) {
            "inner" if !file.name(span.args).is_empty() => 400,
            "outer" => 450,
            _ => continue,
        };
        let end_ns = span.start_ns + span.duration_ns;
        let of_thread = within.get(&span.thread).unwrap().iter();
        let sum = |within: &dyn Fn(u64) -> bool| -> u64 {
            of_thread.clone().filter(|(at, _)| within(*at)).map(|(_, bytes)| bytes).sum()
        };
        let surely = sum(&|at| span.start_ns < at && at < end_ns);
        let perhaps = sum(&|at| span.start_ns <= at && at <= end_ns);
        let name = file.name(span.name);
        assert_eq!(span.allocated_bytes, Some(expected), "{name}");
        assert!((surely..=perhaps).contains(&expected), "{name}: {surely} to {perhaps}");
        seen += 1;
    }
    assert_eq!(seen, 2 * TIMES);
    let all = within.values().flatten().any(|(_, bytes)| *bytes == 7777);
    assert!(!all, "bytes allocated while recording was off");
}

/// A span has exactly its thread's bytes, whether allocations are recorded or only counted.
#[test]
fn the_report_has_the_bytes_and_operations_of_each_span() {
    for (options, why) in
        [(EXACT, None), (&["--mem", "sampled"], None), (&["--mem", "off"], Some("off"))]
    {
        let scratch = Scratch::new();
        let run = traced(&job("all"), options, &scratch);
        let document = document("spans", &run.run);
        let rows = document["tables"]["spans"].as_array().unwrap();
        let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
        let (outer, inner) = (row("outer"), row("inner"));
        assert_eq!((outer["runs"].as_u64(), inner["runs"].as_u64()), (Some(2000), Some(2002)));
        assert_eq!((outer["flops"].as_u64(), inner["flops"].as_u64()), (Some(20_000), Some(2000)));
        assert!(row("child")["flops"].is_null());
        let total = |row: &Value| row["total_ns"].as_u64().unwrap();
        assert_eq!(outer["self_ns"].as_u64().unwrap() > 0, total(outer) > total(inner));
        for row in [outer, inner] {
            let quantiles = ["min_ns", "p50_ns", "p95_ns", "p99_ns", "max_ns"];
            let of: Vec<u64> = quantiles.iter().map(|key| row[key].as_u64().unwrap()).collect();
            assert!(of.is_sorted(), "{of:?}");
        }
        let allocated =
            |row: &Value| (row["allocations"].as_u64(), row["allocated_bytes"].as_u64());
        let times = TIMES as u64;
        match why {
            None => {
                assert_eq!(allocated(outer), (Some(5 * times), Some(450 * times)), "{options:?}");
                assert_eq!(allocated(inner), (Some(4 * times), Some(400 * times)), "{options:?}");
                assert_eq!(allocated(row("child")), (Some(0), Some(0)));
                let around = row("around")["allocated_bytes_missing"].as_str().unwrap();
                assert!(around.contains("recording was off"), "{around}");
            }
            Some(_) => assert_eq!(allocated(outer), (None, None)),
        }
        assert!(row("handed on")["self_ns"].is_null() && row("handed on")["any_thread"] == true);
        let slowest = document["tables"]["slowest_spans"].as_array().unwrap();
        assert!(slowest.iter().all(|row| row["tid"].as_u64().unwrap() > 0), "{slowest:?}");
    }
}

#[test]
fn open_spans_last_until_their_process_ends_and_are_counted() {
    let scratch = Scratch::new();
    let run = scratch.run();
    traced_job(&job("kill"), &[], &run).run_in(scratch.cwd());
    let file = rank_file(&run, 0);
    let named = [("inner".to_owned(), 1), ("outer".to_owned(), 2)];
    assert_eq!(counts(&file), BTreeMap::from(named));
    let why = "their process ended before them".to_owned();
    assert_eq!(lost(&run, "ends of spans"), [(why, 3)]);

    let scratch = Scratch::new();
    let run = traced(&job("exec"), &[], &scratch);
    let named = [("inner".to_owned(), 1), ("outer".to_owned(), 1)];
    assert_eq!(counts(&rank_file(&run.run, 0)), BTreeMap::from(named));
    let why = "their process ended before them".to_owned();
    assert_eq!(lost(&run.run, "ends of spans"), [(why, 1)]);
}

/// A signal handler pushes spans while its thread pops others, even while the thread waits for room
/// in its ring.
#[test]
fn a_signal_handler_within_a_pop_costs_no_span() {
    let scratch = Scratch::new();
    let job = Job::new(program("own_spans")).args(["signals", "200000"]);
    let run = traced(&job, &[], &scratch);
    let handled: usize = run.outcome.stdout.trim().parse().unwrap();
    assert!(handled > 0);
    let named = [("handler", handled), ("inner", 200_000), ("outer", 200_000)];
    let named = named.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(counts(&rank_file(&run.run, 0)), BTreeMap::from(named));
    assert_eq!(lost(&run.run, "ends of spans"), []);
}

#[test]
fn spans_that_a_thread_leaves_open_end_with_it() {
    let scratch = Scratch::new();
    let run = traced(&job("threads"), &[], &scratch);
    let file = rank_file(&run.run, 0);
    let spans = spans(&file);
    let after = spans.iter().find(|span| file.name(span.name) == "after").unwrap();
    let left: Vec<_> = spans.iter().filter(|span| span.thread != after.thread).collect();
    assert_eq!(left.len(), 2);
    for span in left {
        assert!(span.start_ns + span.duration_ns <= after.start_ns, "{span:?}");
    }
    let why = "their thread ended before them".to_owned();
    assert_eq!(lost(&run.run, "ends of spans"), [(why, 2)]);
}

/// Whatever a program does with the table, it ends as without tprof, and its later spans are
/// correct.
#[test]
fn wrong_use_costs_no_other_span() {
    let scratch = Scratch::new();
    let run = traced(&job("hostile"), EXACT, &scratch);
    assert_eq!(run.outcome.stdout, "done\n");
    let file = rank_file(&run.run, 0);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for span in spans(&file) {
        let name = file.name(span.name);
        let name = if name.starts_with("name ") { "name" } else { name };
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    for (name, count) in [
        ("outer", 3),
        ("first", 3),
        ("second", 3),
        ("name", 20_000),
        ("thread's end", 1),
        ("at exit", 1),
        ("after main", 1),
    ] {
        assert_eq!(counts.get(name), Some(&count), "{name}");
    }
    // Spans deeper than 65,535 share one counter, so those without an end of their own are counted
    // as lost ends.
    let endless: u64 = lost(&run.run, "ends of spans").iter().map(|(_, count)| count).sum();
    assert_eq!(counts["inner"] as u64 + endless, 70_000);
    let rows = document("spans", &run.run);
    let rows = rows["tables"]["spans"].as_array().unwrap();
    let bytes = |name: &str| {
        rows.iter().find(|row| row["name"] == name).unwrap()["allocated_bytes"].as_u64()
    };
    assert_eq!(bytes("after main"), Some(100));
}

#[test]
fn spans_without_room_are_counted() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let times = 3_000_000;
    let job = Job::new(program("own_spans")).args(["flood", "3000000"]);
    traced_job(&job, &["--on-full", "drop"], &run).run_in(scratch.cwd()).expect_code(0);
    let kept = spans(&rank_file(&run, 0)).len() as u64;
    let endless: u64 = lost(&run, "ends of spans").iter().map(|(_, count)| count).sum();
    let records = report(&run).lost_of("records") as u64;
    // A pop whose push was lost ends no span, and there are no more such pops than lost pushes.
    assert!(kept + endless <= times, "{kept} {endless}");
    assert!(kept * 2 + endless + records * 2 >= times * 2, "{kept} {endless} {records}");
}
