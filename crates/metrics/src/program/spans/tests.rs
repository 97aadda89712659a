use tprof_facts::Clock;
use tprof_fixture::Fixture;
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::reading::Reading;
use tprof_rank::{Needs, RankTrace};
use tprof_trace::HeapBlock;
use tprof_trace::model::{
    DeviceAllocation, HeapTotals, Kernel, Loss, Mark, MarkKind, MemoryKind, MemoryRecording,
    OWN_SPANS, Process, ProcessEnd, Sample, Span, SpanKind, ThreadState, loss,
};

use super::per_rank::of_rank;
use super::sums::{SpanSums, SumsByName};

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
    let file = made.finish();
    let needs = Needs::STEPS | Needs::SAMPLES | Needs::WORK | Needs::CALLS | Needs::ALLOCATIONS;
    of_rank(&RankTrace::load(&file, needs), Interval::new(from, to), Clock::default())
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
fn a_span_within_a_span_of_the_same_name_counts_once_in_totals() {
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
fn values_that_were_not_recorded_are_missing_with_a_reason() {
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
    assert_eq!(
        allocated(of(&paused, "b")),
        (Some(0), Some(0)),
        "no allocation was recorded, which counts as 0"
    );

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
fn counts_of_sampled_processes_are_exact_and_cover_only_the_part() {
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

use ThreadState::{Blocked, Io, Lock, Runnable, Running, Sleep};

fn row(time_ns: u64, weight_ns: u64, state: ThreadState) -> Sample {
    let cpu = (state == Running).then_some(0);
    Sample { time_ns, weight_ns, state, cpu, ..Sample::default() }
}

fn timed(rows: &[Row<'_>], samples: &[Sample]) -> SumsByName {
    let mut made = made(MemoryRecording::Off, rows);
    made.writer.write(&mut samples.to_vec()).unwrap();
    sums(made, 0, u64::MAX)
}

fn estimate(value: u64, error: u64) -> Reading<u64> {
    Reading::Estimate { value, error }
}

/// Returns the times on a core, ready, and waiting.
fn times(sums: &SpanSums) -> [Reading<u64>; 3] {
    let time = &sums.time;
    [&time.cpu_ns, &time.ready_ns, &time.waited_ns].map(Clone::clone)
}

#[test]
fn the_rest_of_a_span_without_its_waits_is_time_on_a_core() {
    let rows = [
        (0, 1000, 1000, "outer", ""),
        (0, 1200, 300, "inner", ""),
        (0, 1600, 100, "outer", ""),
        (0, 3000, 500, "inner", ""),
        (1, 1000, 1000, "other", ""),
    ];
    let samples = [
        row(1150, 100, Sleep),
        row(1400, 250, Lock),
        row(1690, 20, Runnable),
        row(3400, 900, Io),
        row(1100, 10, Running),
        Sample { thread: 1, ..row(1500, 10, Running) },
        Sample { thread: 2, ..row(1500, 10, Lock) },
    ];
    let sums = timed(&rows, &samples);
    assert_eq!(times(of(&sums, "outer")), [1000 - 370, 20, 350].map(Reading::Is));
    assert_eq!(times(of(&sums, "inner")), [800 - 250, 0, 250].map(Reading::Is));
    assert_eq!(times(of(&sums, "other")), [1000, 0, 0].map(Reading::Is));
    let kinds = |name| of(&sums, name).time.waits_ns.clone().map(|wait| wait.get().unwrap());
    assert_eq!(kinds("outer"), [250, 0, 100, 0, 0, 0, 0]);
    assert_eq!(kinds("inner"), [100, 100, 50, 0, 0, 0, 0]);
    let slowest = &of(&sums, "inner").slowest;
    assert_eq!(slowest[0].time.waited_ns, Reading::Is(100));
    assert_eq!(slowest[1].time.cpu_ns, Reading::Is(300 - 150));
}

#[test]
fn times_of_summed_waits_are_known_within_bounds() {
    let rows = [(0, 0, 600, "read", ""), (0, 600, 400, "work", "")];
    let spread = Sample { spread_ns: Some(1000), ..row(0, 500, Blocked) };
    let read = |samples: &[Sample]| times(of(&timed(&rows, samples), "read"));
    // The wait took 500 ns somewhere in 1000 ns. The span covers 600 ns of these, so at least 100
    // and at most 500 ns of the wait lie in it.
    let waited = estimate(300, 200);
    assert_eq!(read(&[spread]), [estimate(300, 200), Reading::Is(0), waited.clone()]);
    // Forty samples on a core are a better estimate than the bounds.
    let samples: Vec<Sample> = (0..40).map(|at| row(600 + at * 10, 10, Running)).collect();
    let few: Vec<Sample> = samples.iter().map(|row| Sample { time_ns: 50, ..*row }).collect();
    let few = [&[spread], &few[..20]].concat();
    assert_eq!(read(&few), [estimate(200, 88), Reading::Is(0), waited.clone()]);
    // For a span that contains the whole wait, the time is exact.
    let whole = timed(&[(0, 0, 1000, "all", "")], &[spread]);
    assert_eq!(times(of(&whole, "all")), [500, 0, 500].map(Reading::Is));
}

#[test]
fn time_of_a_thread_that_was_not_recorded_is_unknown() {
    let why = |sums: &SumsByName, name: &str| match &of(sums, name).time.cpu_ns {
        Reading::Missing(why) => why.clone(),
        known => panic!("{known:?}"),
    };
    let rows = [(0, 100, 100, "a", ""), (1, 300, 10, "b", "")];
    assert!(why(&timed(&rows, &[]), "a").contains("no CPU samples"));
    let sums = timed(&rows, &[row(150, 10, Running)]);
    assert!(why(&sums, "b").contains("was not sampled"));
    assert_eq!(of(&sums, "a").time.cpu_ns, Reading::Is(100));

    let with = |change: &dyn Fn(&mut Fixture)| {
        let mut made = made(MemoryRecording::Off, &rows);
        made.writer.write(&mut vec![row(150, 10, Running)]).unwrap();
        change(&mut made);
        super::tests::sums(made, 0, u64::MAX)
    };
    let paused = with(&|made| {
        let name = made.name("");
        made.writer.mark(Mark { time_ns: 150, process: None, name, kind: MarkKind::RecordingOff });
    });
    assert!(why(&paused, "a").contains("off for a part"));
    let lost = with(&|made| {
        let (what, why) = (made.name(loss::PERF_RECORDS), made.name("the ring was full"));
        made.writer.loss(Loss { time_ns: 5, process: None, what, count: 3, why });
    });
    assert_eq!(why(&lost, "a"), "3 records of perf events lost (the ring was full)");
}

#[test]
fn work_belongs_to_the_spans_around_its_launch() {
    let rows = [
        (0, 100, 100, "outer", ""),
        (0, 120, 20, "inner", ""),
        (0, 150, 20, "outer", ""),
        (0, 300, 10, "none", ""),
        (0, 100, 300, "any", r#"{"style":"start/end"}"#),
    ];
    let mut with_work = made(MemoryRecording::Off, &rows);
    for (start_ns, correlation) in [(110, 1), (125, 2), (160, 3), (250, 4)] {
        with_work.call(0, start_ns, 5, "cudaLaunchKernel", correlation);
        let start_ns = 1000 + 60 * correlation;
        let correlation = Some(correlation);
        let work = Kernel { start_ns, duration_ns: 100, correlation, ..Kernel::default() };
        with_work.kernel(work, "k");
    }
    let sums = sums(with_work, 0, u64::MAX);
    let launched = |name: &str| {
        let launched = &of(&sums, name).launched;
        (launched.kernels.get(), launched.device_ns.get())
    };
    // The kernels overlap: 1060 to 1160, 1120 to 1220, 1180 to 1280.
    assert_eq!(launched("outer"), (Some(3), Some(220)));
    assert_eq!(launched("inner"), (Some(1), Some(100)));
    assert_eq!(launched("none"), (Some(0), Some(0)));
    assert_eq!(sums[&("any".to_owned(), true)].launched.kernels.get(), None);
    let none = super::tests::sums(made(MemoryRecording::Off, &rows), 0, u64::MAX);
    assert_eq!(of(&none, "outer").launched.kernels.get(), None, "no device work was recorded");
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

/// Returns peak and rise of the heap, then of device memory, for the spans of a name.
fn held(sums: &SumsByName, name: &str) -> [Reading<u64>; 4] {
    let of = of(sums, name);
    let (heap, device) = (of.heap.clone().unwrap(), of.device.clone().unwrap());
    [heap.peak_bytes, heap.rise_bytes, device.peak_bytes, device.rise_bytes]
}

#[test]
fn a_span_has_the_peak_memory_of_its_process_while_it_was_open() {
    let rows = [(0, 100, 100, "a", ""), (0, 300, 100, "a", ""), (1, 150, 10, "b", "")];
    let mut made = made(MemoryRecording::Exact, &rows);
    let mut block = HeapBlock::new(0);
    block.alloc(50, 0, 1000, 0, false);
    // Blocks that another thread allocates count as well.
    block.alloc(120, 1, 5000, 0, false);
    block.free(130, 1, 1, false);
    block.alloc(310, 0, 2000, 0, false);
    made.writer.heap(&mut block).unwrap();
    for (time_ns, address, bytes, free) in
        [(90, 1, 10, false), (110, 2, 40, false), (180, 2, 40, true), (350, 3, 20, false)]
    {
        made.allocations.push(DeviceAllocation {
            time_ns,
            address,
            bytes: Some(bytes),
            free,
            device: Some(0),
            kind: MemoryKind::Device,
            ..DeviceAllocation::default()
        });
    }
    let sums = sums(made, 0, 400);
    assert_eq!(held(&sums, "a"), [6000, 5000, 50, 40].map(Reading::Is));
    assert_eq!(held(&sums, "b"), [1000, 0, 50, 0].map(Reading::Is));
}

#[test]
fn the_peak_of_a_sampled_heap_in_a_span_is_estimated_between_readings() {
    let rows = [(0, 100, 100, "large", ""), (0, 240, 20, "none", ""), (0, 700, 100, "late", "")];
    let mut made = made(MemoryRecording::Sampled { interval: 1000 }, &rows);
    let mut block = HeapBlock::new(0);
    block.alloc(110, 0, 50_000, 0, false);
    block.free(120, 0, 1, false);
    made.writer.heap(&mut block).unwrap();
    // By the counters, 6,000 bytes are live at 200, and 100 more bytes are requested until 300.
    // There are no samples in between.
    for (time_ns, live_bytes, allocated_bytes) in [(200, 6000, 56_000), (300, 6000, 56_100)] {
        let (peak_bytes, peak_at_ns) = (Some(53_000), Some(110));
        let live_bytes = Some(live_bytes);
        let row = HeapTotals {
            time_ns,
            allocated_bytes,
            live_bytes,
            peak_bytes,
            peak_at_ns,
            ..HeapTotals::default()
        };
        made.writer.totals(row);
    }
    let sums = sums(made, 0, 900);
    let [peak, rise, device, _] = held(&sums, "large");
    assert_eq!(peak, Reading::Is(53_000), "the process's own counter has this peak");
    assert!((50_000..=53_000).contains(&rise.get().unwrap()), "{rise:?}");
    assert!(matches!(&device, Reading::Missing(why) if why.contains("no device memory")));
    assert_eq!(held(&sums, "none")[..2], [6000, 0].map(Reading::Is));
    assert_eq!(held(&sums, "late")[..2], [6000, 0].map(Reading::Is));
}

#[test]
fn memory_within_a_span_is_unknown_if_it_was_not_counted() {
    let missing = |made: Fixture| match held(&sums(made, 0, 900), "a") {
        [Reading::Missing(why), Reading::Missing(_), ..] => why,
        known => panic!("{known:?}"),
    };
    let rows = [(0, 100, 100, "a", "")];
    assert!(missing(made(MemoryRecording::Off, &rows)).contains("not recorded"));
    let mut paused = made(MemoryRecording::Exact, &rows);
    let name = paused.name("");
    let mark = Mark { time_ns: 50, process: None, name, kind: MarkKind::RecordingOn };
    paused.writer.mark(mark);
    assert!(missing(paused).contains("recording was off"));
    let mut late = made(MemoryRecording::Sampled { interval: 1000 }, &rows);
    late.writer.totals(HeapTotals { time_ns: 300, ..HeapTotals::default() });
    assert!(missing(late).contains("stood still"));
}
