use proptest::prelude::*;
use tprof_fixture::Fixture;
use tprof_trace::model::{CopyKind, Kernel, MemoryCopy, Span, SyncKind, Synchronization};

use super::path::{Bound, Segment};
use super::*;

fn operator(thread: u32, start_ns: u64, duration_ns: u64) -> Span {
    Span { start_ns, duration_ns, thread, kind: SpanKind::Operator, ..Span::default() }
}

fn call(thread: u32, start_ns: u64, duration_ns: u64, correlation: u64) -> Span {
    let correlation = Some(correlation);
    let kind = SpanKind::Runtime;
    Span { start_ns, duration_ns, thread, kind, correlation, ..Span::default() }
}

fn kernel(stream: u64, start_ns: u64, duration_ns: u64, correlation: u64) -> Kernel {
    let correlation = Some(correlation);
    Kernel { start_ns, duration_ns, stream, correlation, ..Kernel::default() }
}

/// Returns the parts of the critical path as (start, end, bound, name).
fn found(trace: Fixture, within: Option<Interval>) -> Vec<(u64, u64, Bound, String)> {
    let file = trace.finish();
    let rank = RankTrace::load(&file, Needs::ALL);
    let window = within.or_else(|| extent(&rank)).unwrap();
    let path = critical_path(&rank, window).unwrap();
    let part = |part: &Segment| {
        (part.interval.start, part.interval.end, part.bound, rank.name(part.name).to_owned())
    };
    path.segments.iter().map(part).collect()
}

fn expected(rows: &[(u64, u64, Bound, &str)]) -> Vec<(u64, u64, Bound, String)> {
    rows.iter().map(|&(from, to, bound, name)| (from, to, bound, name.to_owned())).collect()
}

/// A trace in which the operator `add` launches the kernels a and b. Kernel a starts 8 ns after its
/// launch call, and b is queued behind a. The host waits for both kernels and then runs on.
fn two_kernels() -> Fixture {
    let mut trace = Fixture::new();
    trace.span(operator(0, 0, 30), "add");
    trace.span(call(0, 10, 5, 1), "cudaLaunchKernel");
    trace.span(call(0, 20, 5, 2), "cudaLaunchKernel");
    trace.span(call(0, 40, 160, 3), "cudaDeviceSynchronize");
    trace.span(operator(0, 210, 40), "print");
    trace.kernel(kernel(7, 18, 80, 1), "a");
    trace.kernel(kernel(7, 100, 90, 2), "b");
    trace
}

#[test]
fn the_path_goes_from_host_to_device_and_back() {
    assert_eq!(
        found(two_kernels(), None),
        expected(&[
            (0, 10, Bound::Host, "add"),
            (10, 18, Bound::Launch, "a"),
            (18, 98, Bound::Compute, "a"),
            (98, 100, Bound::KernelGap, "b"),
            (100, 190, Bound::Compute, "b"),
            (190, 200, Bound::Return, "cudaDeviceSynchronize"),
            (200, 210, Bound::Untraced, ""),
            (210, 250, Bound::Host, "print"),
        ])
    );
}

#[test]
fn a_range_cuts_the_path() {
    assert_eq!(
        found(two_kernels(), Some(Interval::new(50, 230))),
        expected(&[
            (50, 98, Bound::Compute, "a"),
            (98, 100, Bound::KernelGap, "b"),
            (100, 190, Bound::Compute, "b"),
            (190, 200, Bound::Return, "cudaDeviceSynchronize"),
            (200, 210, Bound::Untraced, ""),
            (210, 230, Bound::Host, "print"),
        ])
    );
}

#[test]
fn a_late_host_is_on_the_path_and_an_idle_device_is_not() {
    let mut trace = Fixture::new();
    trace.span(call(0, 0, 5, 1), "cudaLaunchKernel");
    trace.span(operator(0, 5, 95), "think");
    trace.span(call(0, 100, 5, 2), "cudaLaunchKernel");
    trace.kernel(kernel(7, 10, 10, 1), "a");
    trace.kernel(kernel(7, 108, 10, 2), "b");
    assert_eq!(
        found(trace, None),
        expected(&[
            (0, 5, Bound::Host, "cudaLaunchKernel"),
            (5, 100, Bound::Host, "think"),
            (100, 108, Bound::Launch, "b"),
            (108, 118, Bound::Compute, "b"),
        ])
    );
}

#[test]
fn a_stream_waits_for_another_through_an_event() {
    let mut trace = Fixture::new();
    trace.span(call(0, 0, 1, 1), "cudaLaunchKernel");
    trace.span(call(0, 2, 1, 2), "cudaEventRecord");
    trace.span(call(0, 4, 1, 3), "cudaStreamWaitEvent");
    trace.span(call(0, 6, 1, 4), "cudaLaunchKernel");
    trace.synchronizations.push(Synchronization {
        start_ns: 5,
        device: Some(0),
        stream: Some(8),
        kind: SyncKind::StreamWaitEvent,
        correlation: Some(3),
        event_stream: Some(7),
        event_correlation: Some(2),
        ..Synchronization::default()
    });
    trace.kernel(kernel(7, 5, 50, 1), "produce");
    trace.kernel(kernel(8, 57, 10, 4), "consume");
    assert_eq!(
        found(trace, None),
        expected(&[
            (0, 5, Bound::Launch, "produce"),
            (5, 55, Bound::Compute, "produce"),
            (55, 57, Bound::KernelGap, "consume"),
            (57, 67, Bound::Compute, "consume"),
        ])
    );
}

#[test]
fn an_idle_thread_waited_for_the_one_that_finished_last() {
    let mut trace = Fixture::new();
    trace.span(operator(0, 0, 50), "forward");
    trace.span(operator(1, 60, 100), "backward");
    trace.span(operator(0, 170, 30), "step");
    assert_eq!(
        found(trace, None),
        expected(&[
            (0, 50, Bound::Host, "forward"),
            (50, 60, Bound::Untraced, ""),
            (60, 160, Bound::Host, "backward"),
            (160, 170, Bound::Untraced, ""),
            (170, 200, Bound::Host, "step"),
        ])
    );
}

#[test]
fn a_copy_blocks_its_call_and_nodes_of_a_graph_follow_each_other() {
    let mut trace = Fixture::new();
    trace.span(call(0, 0, 5, 1), "cudaGraphLaunch");
    trace.span(call(0, 10, 60, 2), "cudaMemcpyAsync");
    trace.kernel(kernel(7, 9, 11, 1), "first");
    trace.kernel(kernel(8, 21, 20, 1), "second");
    trace.copy(
        MemoryCopy {
            start_ns: 42,
            duration_ns: 20,
            stream: 8,
            kind: CopyKind::DeviceToHost,
            correlation: Some(2),
            ..MemoryCopy::default()
        },
        "Memcpy DtoH",
    );
    assert_eq!(
        found(trace, None),
        expected(&[
            (0, 9, Bound::Launch, "first"),
            (9, 20, Bound::Compute, "first"),
            (20, 21, Bound::KernelGap, "second"),
            (21, 41, Bound::Compute, "second"),
            (41, 42, Bound::KernelGap, "Memcpy DtoH"),
            (42, 62, Bound::Copy, "Memcpy DtoH"),
            (62, 70, Bound::Return, "cudaMemcpyAsync"),
        ])
    );
}

#[test]
fn without_events_late_work_waited_for_the_work_that_ended_last() {
    let streams = |late_ns: u64| {
        let mut trace = Fixture::new();
        trace.span(call(0, 0, 5000, 1), "cudaLaunchKernel");
        trace.span(call(0, 5000, 5000, 2), "cudaLaunchKernel");
        trace.kernel(kernel(9, 8000, 10_000 + late_ns, 1), "nccl");
        trace.kernel(kernel(7, 20_000 + late_ns, 5000, 2), "next");
        found(trace, None).into_iter().map(|part| (part.2, part.3)).collect::<Vec<_>>()
    };
    let part = |bound, name: &str| (bound, name.to_owned());
    let (host, next) = (part(Bound::Host, "cudaLaunchKernel"), part(Bound::Compute, "next"));
    let launch = |name| part(Bound::Launch, name);
    assert_eq!(streams(0), [host.clone(), launch("next"), next.clone()]);
    let waited =
        [launch("nccl"), part(Bound::Communication, "nccl"), part(Bound::KernelGap, "next")];
    assert_eq!(streams(50_000), [waited.to_vec(), vec![next]].concat());
}

#[test]
fn the_cause_of_work_without_a_launch_is_unknown() {
    let mut trace = Fixture::new();
    trace.span(operator(0, 0, 20), "op");
    trace.kernel(kernel(7, 50, 30, 9), "a");
    assert_eq!(
        found(trace, None),
        expected(&[(0, 50, Bound::Unknown, ""), (50, 80, Bound::Compute, "a")])
    );
}

#[test]
fn a_long_gap_before_work_without_a_launch_is_unknown_too() {
    let mut trace = Fixture::new();
    trace.span(call(0, 0, 5, 1), "cudaLaunchKernel");
    trace.kernel(kernel(7, 8, 10, 1), "a");
    trace.kernel(kernel(7, 20, 10, 8), "b");
    trace.kernel(kernel(7, 90_000, 10, 9), "c");
    assert_eq!(
        found(trace, None),
        expected(&[
            (0, 8, Bound::Launch, "a"),
            (8, 18, Bound::Compute, "a"),
            (18, 20, Bound::KernelGap, "b"),
            (20, 30, Bound::Compute, "b"),
            (30, 90_000, Bound::Unknown, "c"),
            (90_000, 90_010, Bound::Compute, "c"),
        ])
    );
}

#[test]
fn a_span_without_a_duration_does_not_extend_the_window() {
    let mut trace = Fixture::new();
    trace.span(call(0, 0, 5, 1), "cudaLaunchKernel");
    trace.kernel(kernel(7, 8, 10, 1), "a");
    trace.span(operator(0, 249, 0), "op");
    let found = found(trace, None);
    assert_eq!(found, expected(&[(0, 8, Bound::Launch, "a"), (8, 18, Bound::Compute, "a")]));
}

#[test]
fn the_path_goes_through_the_steps_if_a_rank_has_steps() {
    let window = |steps: &[(u64, u64)]| {
        let mut trace = two_kernels();
        for &(start_ns, duration_ns) in steps {
            let kind = SpanKind::Annotation;
            let row = Span { start_ns, duration_ns, kind, ..Span::default() };
            trace.span(row, "ProfilerStep#1");
        }
        let file = trace.finish();
        window(
            &RankTrace::load(&file, CriticalPath.needs(&Options::default())),
            &Options::default(),
        )
    };
    assert_eq!(window(&[]), Some(Interval::new(0, 250)));
    // The kernel that the step launches first keeps the device busy until 98.
    assert_eq!(window(&[(9, 6)]), Some(Interval::new(9, 98)));
    assert_eq!(window(&[(9, 195)]), Some(Interval::new(9, 204)));
}

#[test]
fn a_range_is_named_by_text_and_number() {
    assert_eq!(text_and_number("ProfilerStep:2"), ("ProfilerStep", Some(2)));
    assert_eq!(text_and_number("nccl:all_reduce"), ("nccl:all_reduce", None));
    assert_eq!(text_and_number("nccl:all_reduce:1"), ("nccl:all_reduce", Some(1)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_parts_of_a_path_touch_and_sum_to_the_window(
        operators in prop::collection::vec((0_u32..3, 0_u64..300, 0_u64..60), 0..12),
        launches in prop::collection::vec(
            (0_u32..3, 0_u64..300, 0_u64..20, 0_u64..3, 0_u64..60, 0_u64..80), 1..16),
        waits in prop::collection::vec((0_u32..3, 0_u64..300, 0_u64..90), 0..6),
    ) {
        let mut trace = Fixture::new();
        let lasts = operators.iter().any(|row| row.2 > 0)
            || launches.iter().any(|row| row.2 > 0 || row.5 > 0)
            || waits.iter().any(|row| row.2 > 0);
        for (thread, start, long) in operators {
            trace.span(operator(thread, start, long), "op");
        }
        for (correlation, (thread, start, long, stream, later, ran)) in (1..).zip(launches) {
            trace.span(call(thread, start, long, correlation), "cudaLaunchKernel");
            trace.kernel(kernel(stream, (start + later).saturating_sub(10), ran, correlation), "k");
        }
        for (correlation, (thread, start, long)) in (100..).zip(waits) {
            trace.span(call(thread, start, long, correlation), "cudaDeviceSynchronize");
        }
        let file = trace.finish();
        let rank = RankTrace::load(&file, Needs::ALL);
        let window = extent(&rank).unwrap();
        if let Some(path) = critical_path(&rank, window) {
            let mut now = window.start;
            for part in &path.segments {
                prop_assert_eq!(part.interval.start, now);
                prop_assert!(part.interval.length() > 0);
                now = part.interval.end;
            }
            prop_assert_eq!(now, window.end);
        } else {
            prop_assert!(!lasts);
        }
    }
}
