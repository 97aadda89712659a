//! Tests of spans whose category says what their time is for.

use tprof_metrics::host::RankHost;
use tprof_rank::samples::Part;
use tprof_rank::{Needs, RankTrace};
use tprof_trace::model::{Sample, Span, SpanKind, Stack, Symbol, ThreadState};

use super::job::{Job, MS, ask};

/// Builds a job with two steps of 100 ms. Of every ten periods of 10 ms, the thread sleeps in three
/// and runs on a core in two, all five of them within a span. In the others it runs outside of the
/// span.
fn job(kind: SpanKind, name: &str, category: &str) -> tprof_trace::TraceFile {
    let mut job = Job::new(2, 100 * MS);
    for (address, function) in [(16, "fetch"), (17, "step")] {
        let [function, file, module] =
            [function, "/me/train.py", "[python]"].map(|text| job.fixture.name(text));
        let symbol = Symbol { process: 0, address, depth: 0, function, file, line: 3, module };
        job.fixture.writer.symbol(&symbol);
        let stack = Stack { process: 0, stack: address as u32, end: 0, frames: vec![address] };
        job.fixture.writer.stack(&stack);
    }
    for step in 0..2 {
        let args = match category {
            "" => job.fixture.name(""),
            category => job.fixture.name(&format!(r#"{{"category":"{category}"}}"#)),
        };
        let (start_ns, duration_ns) = (step * 100 * MS + MS, 49 * MS);
        job.fixture.span(Span { start_ns, duration_ns, kind, args, ..Span::default() }, name);
    }
    let row = |at: u64| match at % 10 {
        0..3 => Sample {
            time_ns: at * 10 * MS + MS,
            weight_ns: 9 * MS,
            state: ThreadState::Sleep,
            stack: 16,
            ..Sample::default()
        },
        of_ten => Sample {
            time_ns: at * 10 * MS + 9 * MS,
            weight_ns: 10 * MS,
            state: ThreadState::Running,
            stack: if of_ten < 5 { 16 } else { 17 },
            cpu: Some(0),
            ..Sample::default()
        },
    };
    let mut rows: Vec<Sample> = (0..20).map(row).collect();
    job.fixture.writer.write(&mut rows).unwrap();
    job.fixture.finish()
}

/// Returns the driving thread's time in a part of its wall time.
fn ns(file: &tprof_trace::TraceFile, part: Part) -> u64 {
    let rank = RankTrace::load(file, Needs::ALL | Needs::SAMPLES);
    let host = RankHost::of(&rank).unwrap();
    let of_steps: u64 = host.steps.iter().map(|step| step.ns(part)).sum();
    let all = host.ledger.ns(part);
    // Except for polling, time on a core doesn't belong to the waits in steps. So the waits are at
    // most the whole part.
    assert!(of_steps <= all, "{of_steps} of {all}");
    all
}

#[test]
fn a_sleep_in_a_span_that_loads_data_is_loading() {
    for (kind, name, category) in [
        (SpanKind::Annotation, "data_load", ""),
        (SpanKind::Nvtx, "load_batch", ""),
        (SpanKind::Annotation, "x", "data_load"),
    ] {
        let file = job(kind, name, category);
        assert!(ns(&file, Part::Data) > 2 * 3 * 9 * MS, "{name}");
        assert_eq!(ns(&file, Part::Other), 0, "{name}");
        let found = ask(&file, "DataInline").found;
        assert_eq!(found[0].0.line.as_ref().unwrap().function, "fetch", "{name}");
        assert!(ask(&file, "OtherWait").found.is_empty(), "{name}");
    }
}

#[test]
fn the_category_of_a_span_decides_the_part_of_its_sleeps() {
    let plain = job(SpanKind::Annotation, "x", "mine");
    assert_eq!((ns(&plain, Part::Other), ns(&plain, Part::Data)), (54 * MS, 0));
    // A span of the category `compute` computes, whatever its name says. So sleeps in it remain
    // sleeps and don't count as loading.
    let compute = job(SpanKind::Annotation, "data_load", "compute");
    assert_eq!((ns(&compute, Part::Other), ns(&compute, Part::Data)), (54 * MS, 0));
    let sync = job(SpanKind::Annotation, "x", "sync");
    assert!(ns(&sync, Part::Other) > 54 * MS);
    let found = ask(&sync, "OtherWait").found;
    assert_eq!(found[0].0.subject, "synchronisation");
    let memory = job(SpanKind::Annotation, "x", "memory");
    assert!(ns(&memory, Part::Allocator) > 0 && ns(&memory, Part::Other) == 54 * MS);
    assert!(ns(&job(SpanKind::Annotation, "x", "communication"), Part::Collective) > 54 * MS);
    assert_eq!(ns(&job(SpanKind::Annotation, "x", "io"), Part::FileIo), 54 * MS);
}

/// As `job`, but the thread waits for a worker of PyTorch's loader in two of the three sleeps, and
/// the third has no stack.
#[test]
fn a_wait_without_a_stack_beside_waits_for_workers_is_a_wait_for_them() {
    let mut job = Job::new(2, 100 * MS);
    for (address, function, file) in [
        (16, "Queue.get", "/lib/python3.11/multiprocessing/queues.py"),
        (17, "step", "/me/train.py"),
    ] {
        let [function, file, module] =
            [function, file, "[python]"].map(|text| job.fixture.name(text));
        let symbol = Symbol { process: 0, address, depth: 0, function, file, line: 3, module };
        job.fixture.writer.symbol(&symbol);
    }
    for (stack, frames) in [(16, vec![16, 17]), (17, vec![17])] {
        job.fixture.writer.stack(&Stack { process: 0, stack, end: 0, frames });
    }
    for step in 0..2 {
        let (start_ns, duration_ns) = (step * 100 * MS + MS, 49 * MS);
        let span = Span { start_ns, duration_ns, kind: SpanKind::Annotation, ..Span::default() };
        let name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
        job.fixture.span(span, name);
    }
    let row = |at: u64| match at % 10 {
        0..3 => Sample {
            time_ns: at * 10 * MS + MS,
            weight_ns: 9 * MS,
            state: ThreadState::Sleep,
            stack: if at % 10 == 2 { 0 } else { 16 },
            ..Sample::default()
        },
        _ => Sample {
            time_ns: at * 10 * MS + 9 * MS,
            weight_ns: 10 * MS,
            state: ThreadState::Running,
            stack: 17,
            cpu: Some(0),
            ..Sample::default()
        },
    };
    let mut rows: Vec<Sample> = (0..20).map(row).collect();
    job.fixture.writer.write(&mut rows).unwrap();
    let file = job.fixture.finish();
    // Two periods of ten are on a core in these spans, and belong to the loader's own code.
    assert!(ns(&file, Part::Data) >= 2 * 3 * 9 * MS);
    let rank = RankTrace::load(&file, Needs::ALL | Needs::SAMPLES);
    let host = RankHost::of(&rank).unwrap();
    let places = host.ledger.places(Some(Part::Data));
    let waiting: u64 = places.iter().filter(|(of, _)| !of.is_inline).map(|(_, of)| of.ns).sum();
    assert_eq!(waiting, 2 * 3 * 9 * MS, "{places:?}");
}
