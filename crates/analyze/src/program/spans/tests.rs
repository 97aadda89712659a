use tprof_facts::Clock;
use tprof_trace::HeapBlock;
use tprof_trace::model::{
    Mark, MarkKind, MemoryRecording, OWN_SPANS, Process, ProcessEnd, Span, SpanKind,
};

use super::sums::{SpanSums, SumsByName, of_rank};
use crate::base::intervals::Interval;
use crate::base::reading::Reading;
use crate::fixture::Fixture;

/// Thread, start, duration, name, arguments.
type Row<'a> = (u32, u64, u64, &'a str, &'a str);

fn made(memory: MemoryRecording, rows: &[Row<'_>]) -> Fixture {
    let mut made = Fixture::new();
    let command = made.name("train");
    made.writer.process(&Process {
        process: 0,
        pid: 7,
        parent: 1,
        rank: Some(0),
        command,
        exe: command,
        start_ns: 0,
        memory,
    });
    made.writer.process_end(0, 10_000, ProcessEnd::Exited(0));
    let category = made.name(OWN_SPANS);
    for &(thread, start_ns, duration_ns, name, args) in rows {
        let args = made.name(args);
        let kind = SpanKind::Annotation;
        let row = Span { start_ns, duration_ns, thread, kind, category, args, ..Span::default() };
        made.span(row, name);
    }
    made
}

fn sums(made: Fixture, from: u64, to: u64) -> SumsByName {
    of_rank(&made.finish(), Interval::new(from, to), Clock::default())
}

fn of<'s>(sums: &'s SumsByName, name: &str) -> &'s SpanSums {
    &sums[&(name.to_owned(), false)]
}

fn allocated(sums: &SpanSums) -> (Option<u64>, Option<u64>) {
    (sums.allocated.allocations.get(), sums.allocated.bytes.get())
}

#[test]
fn allocations_count_for_the_spans_of_their_own_thread() {
    let mut made = made(
        MemoryRecording::Exact,
        &[(0, 100, 100, "outer", ""), (0, 120, 20, "inner", ""), (1, 0, 500, "other", "")],
    );
    let mut block = HeapBlock::new(0);
    for (time, thread, size) in [
        (99, 0, 1),
        (100, 0, 2),
        (120, 0, 4),
        (140, 0, 8),
        (141, 0, 16),
        (200, 0, 32),
        (201, 0, 64),
    ] {
        block.alloc(time, thread, size, 0, false);
    }
    block.alloc(300, 1, 128, 0, false);
    made.writer.heap(&mut block).unwrap();
    let sums = sums(made, 0, u64::MAX);
    assert_eq!(allocated(of(&sums, "inner")), (Some(2), Some(4 + 8)));
    assert_eq!(allocated(of(&sums, "outer")), (Some(5), Some(2 + 4 + 8 + 16 + 32)));
    assert_eq!(allocated(of(&sums, "other")), (Some(1), Some(128)));
    let times = |name| (of(&sums, name).total_ns, of(&sums, name).self_ns);
    assert_eq!((times("outer"), times("inner")), ((100, 80), (20, 20)));
}

#[test]
fn a_span_within_one_of_its_name_counts_once_in_totals() {
    let rows = [
        (0, 0, 100, "walk", r#"{"flops":10}"#),
        (0, 10, 50, "leaf", r#"{"flops":5}"#),
        (0, 20, 30, "walk", r#"{"flops":3}"#),
        (0, 100, 10, "walk", ""),
    ];
    let sums = sums(made(MemoryRecording::Off, &rows), 0, u64::MAX);
    let walk = of(&sums, "walk");
    assert_eq!((walk.durations.len(), walk.total_ns, walk.self_ns), (3, 110, 50 + 30 + 10));
    assert_eq!((walk.flops, walk.flops_within), (13, 18));
    assert_eq!((of(&sums, "leaf").flops, of(&sums, "leaf").flops_within), (5, 8));
    let slowest: Vec<u64> = walk.slowest.iter().map(|one| one.duration_ns).collect();
    assert_eq!(slowest, [100, 30, 10]);
    assert_eq!((walk.slowest[0].pid, walk.slowest[1].start_ns), (7, 20));
}

#[test]
fn bytes_and_categories_are_those_of_spans_that_have_them() {
    let rows = [
        (0, 0, 100, "read", r#"{"bytes":10,"category":"io"}"#),
        (0, 100, 300, "read", r#"{"bytes":30}"#),
        (0, 400, 999, "read", ""),
        (0, 2000, 1, "mixed", r#"{"category":"io"}"#),
        (0, 2001, 1, "mixed", r#"{"category":"sync","bytes":"many"}"#),
    ];
    let sums = sums(made(MemoryRecording::Off, &rows), 0, u64::MAX);
    let read = of(&sums, "read");
    assert_eq!((read.moved, read.category.as_deref()), ((40, 400), Some("io")));
    let mixed = of(&sums, "mixed");
    assert_eq!((mixed.moved, mixed.category.as_deref()), ((0, 0), Some("several")));
}

#[test]
fn what_was_not_recorded_is_missing_with_its_reason() {
    let why = |sums: &SumsByName| match &of(sums, "a").allocated.bytes {
        Reading::Missing(why) => why.clone(),
        known => panic!("{known:?}"),
    };
    let row = (0, 100, 100, "a", "");
    assert!(why(&sums(made(MemoryRecording::Off, &[row]), 0, 999)).contains("--mem off"));
    let sampled = MemoryRecording::Sampled { interval: 1024 };
    assert!(why(&sums(made(sampled, &[row]), 0, 999)).contains("end was not recorded"));

    let mut paused = made(MemoryRecording::Exact, &[row, (0, 300, 1, "b", "")]);
    let name = paused.name("tprof ctl stop");
    paused.writer.mark(Mark { time_ns: 150, process: None, name, kind: MarkKind::RecordingOff });
    let paused = sums(paused, 0, 999);
    assert!(why(&paused).contains("off for a part"));
    assert_eq!(allocated(of(&paused, "b")), (Some(0), Some(0)), "none were recorded: that is 0");

    let mut lost = made(MemoryRecording::Exact, &[row]);
    let (what, why_lost) = (lost.name("records"), lost.name("the ring stayed full"));
    lost.writer.loss(tprof_trace::model::Loss {
        time_ns: 5,
        process: None,
        what,
        count: 3,
        why: why_lost,
    });
    assert_eq!(why(&sums(lost, 0, 999)), "3 records lost (the ring stayed full)");
}

#[test]
fn counts_of_sampled_processes_are_exact_and_a_cut_leaves_the_rest_out() {
    let sampled = MemoryRecording::Sampled { interval: 1024 };
    let rows = [(0, 100, 10, "a", ""), (0, 200, 20, "a", ""), (0, 300, 40, "a", "")];
    let mut made = made(sampled, &rows);
    for (span, at) in made.spans.iter_mut().zip(1..) {
        (span.allocations, span.allocated_bytes) = (Some(at), Some(at * 1000));
    }
    let sums = sums(made, 200, 300);
    let a = of(&sums, "a");
    assert_eq!((a.durations.as_slice(), allocated(a)), (&[20][..], (Some(2), Some(2000))));
}

#[test]
fn spans_that_any_thread_may_end_have_rows_of_their_own() {
    let rows =
        [(0, 0, 100, "a", r#"{"style":"start/end"}"#), (0, 50, 100, "a", ""), (0, 60, 10, "b", "")];
    let sums = sums(made(MemoryRecording::Exact, &rows), 0, 999);
    let free = &sums[&("a".to_owned(), true)];
    assert_eq!((free.total_ns, allocated(free)), (100, (None, None)));
    assert_eq!((of(&sums, "a").self_ns, of(&sums, "b").self_ns), (90, 10));
}
