//! Tests of the cost of recording per step, on traces that the tests write.

use serde_json::json;
use tprof_rank::run::step_cost::StepCost;
use tprof_trace::model::{
    HeapTotals, MemoryRecording, Module, NameId, Process, RecordingTotals, Sample, Span, Stack,
};
use tprof_trace::run::{OVERHEAD_VERSION, Overhead, OverheadPart, RunInfo};
use tprof_trace::{TraceFile, TraceHeader, TraceWriter};

use super::*;

const MS: u64 = 1_000_000;

/// Prices of a run of one second: an event costs 10 to 20 ns, a note 30 to 50, an operator 100 to
/// 300, a sample 1 to 3 us.
fn info() -> RunInfo {
    let part = |part: &str, count: u64, ns_low: u64, ns_high: u64| OverheadPart {
        part: part.to_owned(),
        count,
        ns_low: count * ns_low,
        ns_high: Some(count * ns_high),
    };
    let overhead = Overhead {
        version: OVERHEAD_VERSION,
        parts: vec![
            part("events", 1000, 10, 20),
            part("notes", 1000, 30, 50),
            part("operators", 1000, 100, 300),
            part("samples", 1000, 1000, 3000),
            OverheadPart {
                ns_low: 90 * MS,
                ns_high: Some(90 * MS),
                part: "stacks".into(),
                count: 0,
            },
        ],
        wait_ns: 80 * MS,
        job_cpu_ns: Some(1000 * MS),
        collector_cpu_ns: 100 * MS,
        ..Overhead::default()
    };
    let machine = json!({"cpus": 2});
    RunInfo { overhead, machine, finished: true, end_ns: Some(1000 * MS), ..RunInfo::default() }
}

/// Returns the cost of recording per step in a file with ten steps of 10 ms from 100 ms on, and
/// with the rows that `write` adds.
fn with_steps(write: impl FnOnce(&mut TraceWriter)) -> Reading<StepCost> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rank-0.tprof");
    let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    let (command, exe) = (writer.name("job"), writer.name("/x/job"));
    writer.process(&Process {
        process: 0,
        pid: 7,
        parent: 1,
        rank: Some(0),
        command,
        exe,
        start_ns: 0,
        memory: MemoryRecording::Exact,
    });
    let mut spans: Vec<Span> = (0..10_u64)
        .map(|step| Span {
            start_ns: (100 + step * 10) * MS,
            duration_ns: 10 * MS,
            kind: SpanKind::Nvtx,
            name: writer.name(&format!("step {step}")),
            ..Span::default()
        })
        .collect();
    writer.write(&mut spans).unwrap();
    write(&mut writer);
    writer.finish().unwrap();
    let file = TraceFile::open(&path).unwrap();
    let rank = RankTrace::load(&file, Needs::ALL);
    of_rank(&rank, "rank 0", &Prices::of(&[info()]))
}

fn part<'a>(cost: &'a StepCost, name: &str) -> &'a StepPart {
    cost.parts.iter().find(|part| part.part == name).unwrap()
}

fn bounds(cost: &StepCost, name: &str) -> (u64, u64) {
    let part = part(cost, name);
    (part.ns_low, part.ns_high.get().unwrap())
}

#[test]
fn the_work_of_start_up_does_not_count_for_steps() {
    let of = with_steps(|writer| {
        // The start does a thousand times the work of a step.
        for (time_ns, times) in [(100 * MS, 10_000_u64), (200 * MS, 10_100), (300 * MS, 90_000)] {
            let (allocations, frees) = (50 * times, 50 * times);
            writer.totals(HeapTotals { time_ns, allocations, frees, ..HeapTotals::default() });
            writer.recording(RecordingTotals {
                time_ns,
                notes: 20 * times,
                operators: 30 * times,
                stack_ns: 1000 * times,
                wait_ns: 500 * times,
                collector_ns: 2000 * times,
                ..RecordingTotals::default()
            });
        }
    });
    let cost = of.value().unwrap();
    assert_eq!((cost.steps, cost.step_ns, cost.has_totals), (10, 10 * MS, true));
    // The ten steps do 100 of the 90,000 units of work.
    assert_eq!(bounds(cost, "heap"), (10_000, 20_000));
    assert_eq!(part(cost, "heap").count, Reading::Is(1000.0));
    assert_eq!(bounds(cost, "calls"), (6_000, 10_000));
    assert_eq!(bounds(cost, "operators"), (30_000, 90_000));
    assert_eq!(bounds(cost, "stacks"), (10_000, 10_000));
    assert_eq!(bounds(cost, "waits"), (0, 5_000));
    // The job kept half of the processors busy, so half of the collector's 20 us may have cost it
    // time.
    assert_eq!(bounds(cost, "collector"), (0, 10_000));
    assert_eq!((cost.ns_low.get(), cost.ns_high.get()), (Some(56_000), Some(145_000)));
    assert!(!cost.parts.iter().any(|part| part.part == "cupti"), "{cost:?}");
    assert!(cost.paired.value().is_none() && cost.device_idle_ns.value().is_none());
}

#[test]
fn without_totals_over_time_the_rows_are_counted_and_the_text_says_so() {
    let of = with_steps(|writer| {
        let name = writer.name("aten::add");
        let mut spans: Vec<Span> = (0..200_u64)
            .map(|at| Span {
                start_ns: at * MS,
                duration_ns: 10,
                kind: SpanKind::Operator,
                name,
                ..Span::default()
            })
            .collect();
        writer.write(&mut spans).unwrap();
    });
    let cost = of.value().unwrap();
    assert_eq!(part(cost, "operators").count, Reading::Is(10.0));
    assert_eq!(bounds(cost, "operators"), (1_000, 3_000));
    // All stacks and waits of the run may lie in the steps.
    assert_eq!((bounds(cost, "stacks"), bounds(cost, "waits")), ((0, 9 * MS), (0, 8 * MS)));
    assert!(!cost.has_totals && cost.text.contains("an older tprof"), "{}", cost.text);
}

#[test]
fn samples_in_tprofs_library_cost_more_than_its_counted_events() {
    let sampled = |in_library: bool| {
        let of = with_steps(|writer| {
            writer.recording(RecordingTotals { time_ns: 300 * MS, ..RecordingTotals::default() });
            let path = writer.name(if in_library { "/x/libtprof_preload.so" } else { "/x/job" });
            let job = writer.name("/x/job");
            for (start, path) in [(0x1000, path), (0x8000, job)] {
                let end = start + 0x1000;
                writer.module(&Module {
                    start,
                    end,
                    path,
                    process: 0,
                    bias: 0,
                    build_id: NameId(0),
                    time_ns: 0,
                });
            }
            writer.stack(&Stack { process: 0, stack: 1, end: 0, frames: vec![0x1100, 0x8100] });
            let mut rows: Vec<Sample> = (0..20_u64)
                .map(|at| Sample {
                    time_ns: (100 + 5 * at) * MS,
                    weight_ns: 5 * MS,
                    stack: 1,
                    ..Sample::default()
                })
                .collect();
            writer.write(&mut rows).unwrap();
        });
        let cost = of.value().unwrap().clone();
        assert_eq!(part(&cost, "samples").count, Reading::Is(2.0));
        bounds(&cost, "in_place")
    };
    let (low, high) = sampled(true);
    assert!(low == 0 && high > 10 * MS, "{high}");
    // If no sample was in the library, up to 3.8 samples may have been missed.
    assert!((MS..2 * MS).contains(&sampled(false).1));
}

#[test]
fn without_steps_or_prices_the_cost_of_a_step_is_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rank-0.tprof");
    TraceWriter::create(&path, &TraceHeader::default()).unwrap().finish().unwrap();
    let file = TraceFile::open(&path).unwrap();
    let rank = RankTrace::load(&file, Needs::ALL);
    assert_eq!(of_rank(&rank, "rank 0", &Prices::of(&[info()])), Reading::missing(NO_STEPS));
    let older = RunInfo { overhead: Overhead { version: 1, ..info().overhead }, ..info() };
    assert!(of_rank(&rank, "rank 0", &Prices::of(&[older])).value().is_none());
}
