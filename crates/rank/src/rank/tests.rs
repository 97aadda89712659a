use tprof_fixture::Fixture;
use tprof_trace::model::{
    CopyKind, Kernel, Mark, MarkKind, MemoryCopy, Span, SpanKind, Synchronization,
};

use super::*;
use crate::base::intervals::Interval;

#[test]
fn work_finds_its_launch_within_its_own_process() {
    let mut made = Fixture::new();
    made.call(0, 100, 10, "cudaLaunchKernel", 7);
    // The runtime's call makes a call of the driver, which has the same correlation.
    made.call(0, 102, 6, "cuLaunchKernel", 7);
    made.call(1, 50, 10, "cudaLaunchKernel", 7);
    made.kernel(
        Kernel { process: 0, start_ns: 200, correlation: Some(7), ..Kernel::default() },
        "k",
    );
    made.kernel(
        Kernel { process: 1, start_ns: 300, correlation: Some(7), ..Kernel::default() },
        "k",
    );
    made.kernel(
        Kernel { process: 1, start_ns: 400, correlation: Some(8), ..Kernel::default() },
        "k",
    );
    let file = made.finish();
    let rank = RankTrace::load(&file, Needs::WORK | Needs::CALLS);
    let started = |at| rank.launches.call_of(at).map(|call| rank.calls[call].start_ns);
    assert_eq!([started(0), started(1), started(2)], [Some(100), Some(50), None]);
    assert_eq!(rank.launches.work_of(1), [0]);
    assert_eq!(rank.launches.work_of(2), [] as [u32; 0]);
}

#[test]
fn one_graph_launch_starts_many_kernels() {
    let mut made = Fixture::new();
    made.call(0, 10, 5, "cudaGraphLaunch", 3);
    for start_ns in [40, 20, 30] {
        let row = Kernel { start_ns, correlation: Some(3), graph: Some(1), ..Kernel::default() };
        made.kernel(row, "node");
    }
    let file = made.finish();
    let rank = RankTrace::load(&file, Needs::WORK | Needs::CALLS);
    assert_eq!(rank.launches.work_of(0), [0, 1, 2]);
    assert_eq!(rank.work.iter().map(|row| row.start_ns).collect::<Vec<_>>(), [20, 30, 40]);
}

#[test]
fn a_kernel_with_the_correlation_of_a_collective_communicates() {
    let mut made = Fixture::new();
    let at = |start_ns, correlation| Kernel { start_ns, correlation, ..Kernel::default() };
    made.kernel(at(1, Some(1)), "one_shot_all_reduce");
    made.kernel(at(2, Some(2)), "one_shot_all_reduce");
    made.kernel(at(3, None), "ncclDevKernel_AllGather");
    made.copy(MemoryCopy { start_ns: 4, kind: CopyKind::Memset, ..MemoryCopy::default() }, "");
    made.collective(1, "all_reduce");
    let file = made.finish();
    let rank = RankTrace::load(&file, Needs::WORK);
    let classes: Vec<Class> = rank.work.iter().map(|row| row.class).collect();
    use Class::{Communication, Compute, Memory};
    assert_eq!(classes, [Communication, Compute, Communication, Memory]);
    assert_eq!(rank.work_name(&rank.work[3]), "Memset");
    assert!(rank.calls.is_empty());
}

#[test]
fn stream_numbers_do_not_depend_on_which_work_ran_first() {
    let mut made = Fixture::new();
    for (start_ns, stream) in [(1, 20), (2, 7), (3, 20)] {
        made.kernel(Kernel { start_ns, stream, ..Kernel::default() }, "k");
    }
    let file = made.finish();
    let rank = RankTrace::load(&file, Needs::WORK);
    let streams: Vec<u64> = rank.work.iter().map(|row| rank.stream(row).stream).collect();
    assert_eq!(streams, [20, 7, 20]);
    assert_eq!(rank.streams.iter().map(|key| key.stream).collect::<Vec<_>>(), [7, 20]);
}

fn annotation(made: &mut Fixture, start_ns: u64, end_ns: u64, name: &str) {
    let kind = SpanKind::Annotation;
    let row = Span { start_ns, duration_ns: end_ns - start_ns, kind, ..Span::default() };
    made.span(row, name);
}

#[test]
fn work_belongs_to_the_step_that_launched_it() {
    let mut made = Fixture::new();
    annotation(&mut made, 0, 100, "ProfilerStep#7");
    annotation(&mut made, 100, 200, "ProfilerStep#8");
    annotation(&mut made, 0, 200, "ProfilerStep#x");
    annotation(&mut made, 10, 20, "forward");
    made.call(0, 90, 5, "cudaLaunchKernel", 1);
    // Work that runs after its step on the device, and work that was launched before the recording.
    for (start_ns, correlation) in [(150, Some(1)), (160, None), (99, Some(2)), (200, None)] {
        made.kernel(Kernel { start_ns, correlation, ..Kernel::default() }, "k");
    }
    let file = made.finish();
    let rank = RankTrace::load(&file, Needs::WORK | Needs::CALLS | Needs::STEPS);
    let steps = rank.steps();
    assert_eq!(steps.iter().map(|step| step.number).collect::<Vec<_>>(), [7, 8]);
    let of = rank.steps_of_work(&steps);
    let of: Vec<(u64, Option<u32>)> =
        rank.work.iter().zip(of).map(|(work, step)| (work.start_ns, step)).collect();
    assert_eq!(of, [(99, None), (150, Some(0)), (160, None), (200, None)]);
}

#[test]
fn without_recorded_launches_work_belongs_to_the_step_it_ran_in() {
    let mut made = Fixture::new();
    annotation(&mut made, 0, 100, "ProfilerStep#7");
    annotation(&mut made, 100, 200, "ProfilerStep#8");
    for start_ns in [99, 150, 200] {
        made.kernel(Kernel { start_ns, correlation: Some(start_ns), ..Kernel::default() }, "k");
    }
    let file = made.finish();
    let rank = RankTrace::load(&file, Needs::WORK | Needs::CALLS | Needs::STEPS);
    assert_eq!(rank.steps_of_work(&rank.steps()), [Some(0), Some(1), None]);
}

#[test]
fn the_needs_of_steps_leave_out_compile_logs() {
    assert!(!Needs::STEPS.has_any(Needs::COMPILE));
    assert!(Needs::ALL.has(Needs::STEPS | Needs::COMPILE));
}

#[test]
fn step_marks_are_steps_if_no_range_is() {
    let mut made = Fixture::new();
    let name = made.name("step");
    for (process, time_ns) in [(1, 5), (0, 30), (0, 10), (0, 20), (1, 9)] {
        let process = Some(process);
        made.writer.mark(Mark { time_ns, process, name, kind: MarkKind::Step });
    }
    made.writer.mark(Mark { time_ns: 12, process: Some(0), name, kind: MarkKind::Mark });
    let file = made.finish();
    let steps = RankTrace::load(&file, Needs::STEPS).steps();
    let all: Vec<_> = steps
        .iter()
        .map(|step| (step.process, step.number, step.interval.start, step.interval.end))
        .collect();
    assert_eq!(all, [(1, 0, 5, 9), (0, 0, 10, 20), (0, 1, 20, 30)]);
    assert_eq!(step_at(&steps, 0, 19), Some(1));
    assert_eq!(step_at(&steps, 0, 9), None);
    assert_eq!(step_at(&steps, 1, 8), Some(0));
    assert_eq!(step_at(&steps, 1, 9), None);
}

fn step(made: &mut Fixture, start_ns: u64, name: &str) {
    let kind = SpanKind::Annotation;
    made.span(Span { start_ns, duration_ns: 90_000, kind, ..Span::default() }, name);
}

#[test]
fn hta_leaves_out_work_that_the_last_step_launched() {
    let mut made = Fixture::new();
    step(&mut made, 0, "ProfilerStep#1");
    step(&mut made, 100_000, "ProfilerStep#2");
    made.call(0, 10_000, 5_000, "cudaLaunchKernel", 1);
    made.call(0, 110_000, 5_000, "cudaLaunchKernel", 2);
    for (start_ns, correlation) in [(20_500, 1), (120_000, 2), (130_000, 3)] {
        let row = Kernel {
            start_ns,
            duration_ns: 7_400,
            correlation: Some(correlation),
            ..Kernel::default()
        };
        made.kernel(row, "k");
    }
    let file = made.finish();
    assert_eq!(RankTrace::load_as(&file, Needs::WORK, false, 1).work.len(), 3);
    let rank = RankTrace::load_as(&file, Needs::WORK, true, 1);
    let times: Vec<(u64, u64)> = rank.work.iter().map(|row| (row.start_ns, row.end_ns())).collect();
    assert_eq!(times, [(21_000, 27_000)]);
    assert_eq!(rank.calls.len(), 1);
    assert_eq!(rank.extent, Some(Interval::new(0, 21_000)));
}

#[test]
fn hta_counts_waits_and_spans_on_streams_as_work() {
    let mut made = Fixture::new();
    let name = made.name("Stream Wait Event");
    made.synchronizations.push(Synchronization {
        start_ns: 1000,
        duration_ns: 1000,
        stream: Some(7),
        name,
        ..Synchronization::default()
    });
    let args = made.name(r#"{"stream":7,"grid":"(1, 1, 1)"}"#);
    let kind = SpanKind::Operator;
    made.span(
        Span { start_ns: 5000, duration_ns: 1000, kind, args, ..Span::default() },
        "triton_add",
    );
    let args = made.name(r#"{"stream":"0x0"}"#);
    let kind = SpanKind::Runtime;
    made.span(Span { start_ns: 6000, kind, args, ..Span::default() }, "hipLaunchKernel");
    made.kernel(Kernel { start_ns: 8000, stream: 7, ..Kernel::default() }, "BatchNormSync");
    let file = made.finish();
    let rank = RankTrace::load_as(&file, Needs::WORK, true, 1);
    let found: Vec<(WorkKind, Class)> = rank.work.iter().map(|row| (row.kind, row.class)).collect();
    assert_eq!(
        found,
        [
            (WorkKind::Wait, Class::Compute),
            (WorkKind::HostSpan, Class::Compute),
            (WorkKind::Kernel, Class::Other),
        ]
    );
    assert_eq!((rank.streams.len(), rank.calls.len()), (1, 1));
}
