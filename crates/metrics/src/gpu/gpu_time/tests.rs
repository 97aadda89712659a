use proptest::prelude::*;
use tprof_facts::compile::RankCompile;
use tprof_fixture::Fixture;
use tprof_rank::base::intervals::Interval;
use tprof_rank::judged_window;
use tprof_trace::model::{
    CopyKind, Kernel, MemoryCopy, MemoryKind, Process, SYNTHETIC_FRAME, Sample, Span, SpanKind,
    Stack, Symbol, ThreadState,
};
use tprof_trace::{TraceFile, TraceRow};

use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Adds a kernel, joined to its launch by `correlation`.
fn kernel(made: &mut Fixture, start_ns: u64, end_ns: u64, correlation: u64) {
    let duration_ns = end_ns - start_ns;
    let correlation = Some(correlation).filter(|number| *number > 0);
    made.kernel(Kernel { start_ns, duration_ns, correlation, ..Kernel::default() }, "k");
}

/// Adds a span of process 0.
fn span(made: &mut Fixture, kind: SpanKind, thread: u32, from: u64, to: u64, name: &str) {
    let row = Span { start_ns: from, duration_ns: to - from, thread, kind, ..Span::default() };
    made.span(row, name);
}

fn of_device(rank: &RankTrace<'_>, threads: &Threads, window: &Cover, busy: &Busy) -> Waterfall {
    let work = rank.work_by_device();
    super::of_device(rank, (threads, &RecordingStart::of(rank)), window, busy, &work[&busy.device])
}

/// Returns the waterfall of the only device, from its first work to its last.
fn waterfall(file: &TraceFile) -> Waterfall {
    let rank = RankTrace::load(file, Needs::ALL);
    let busy = &rank.devices()[0];
    of_device(&rank, &Threads::of(&rank), &judged_window(&rank, &[]), busy)
}

fn causes(file: &TraceFile) -> Vec<(IdleCause, u64)> {
    waterfall(file).causes()
}

#[test]
fn idle_time_is_the_hosts_until_the_launch_and_then_the_devices() {
    let mut made = Fixture::new();
    made.call(0, 0, 10 * US, "cudaLaunchKernel", 1);
    made.call(0, 60 * US, 10 * US, "cudaLaunchKernel", 2);
    kernel(&mut made, 20 * US, 50 * US, 1);
    // If work begins more than 100 us after its launch, something on the device held it up.
    kernel(&mut made, 250 * US, 260 * US, 2);
    let found = waterfall(&made.finish());
    assert_eq!(found.window_ns, 240 * US);
    assert_eq!(found.compute_ns, 40 * US);
    assert_eq!(found.causes(), [(IdleCause::Launch, 120 * US), (IdleCause::Stream, 80 * US)]);
}

#[test]
fn idle_time_from_a_wait_to_the_next_launch_counts_for_the_wait() {
    let mut made = Fixture::new();
    made.call(0, 0, 10 * US, "cudaLaunchKernel", 1);
    made.call(0, 20 * US, 100 * US, "cudaStreamSynchronize", 9);
    made.call(0, 150 * US, 10 * US, "cudaLaunchKernel", 2);
    kernel(&mut made, 10 * US, 110 * US, 1);
    kernel(&mut made, 165 * US, 200 * US, 2);
    let found = waterfall(&made.finish());
    assert_eq!(found.causes(), [(IdleCause::Sync, 55 * US)]);
    assert_eq!(found.calls(IdleCause::Sync), [(1, 55 * US)]);
}

#[test]
fn a_long_silence_after_a_short_wait_does_not_count_for_it() {
    let mut made = Fixture::new();
    made.call(0, 0, 10 * US, "cudaLaunchKernel", 1);
    made.call(0, 20 * US, 100 * US, "cudaStreamSynchronize", 9);
    made.call(0, 5000 * MS, 10 * US, "cudaLaunchKernel", 2);
    kernel(&mut made, 10 * US, 110 * US, 1);
    kernel(&mut made, 5000 * MS + 10 * US, 5001 * MS, 2);
    let expected = [
        (IdleCause::Unknown, 5000 * MS - 220 * US),
        (IdleCause::Sync, 110 * US),
        (IdleCause::Launch, 10 * US),
    ];
    assert_eq!(causes(&made.finish()), expected);
}

#[test]
fn a_sampled_wait_for_the_device_needs_no_call() {
    let mut made = Fixture::new();
    made.call(0, 0, 10 * US, "cudaLaunchKernel", 1);
    kernel(&mut made, 10 * US, 110 * US, 1);
    stack(&mut made, 1, "cuStreamSynchronize", "", 0);
    let wait = Sample {
        time_ns: 20 * US,
        weight_ns: 2 * MS,
        stack: 1,
        state: ThreadState::Device,
        ..Sample::default()
    };
    write(&mut made, vec![wait]);
    made.call(0, 10 * MS, 10 * US, "cudaLaunchKernel", 2);
    kernel(&mut made, 10 * MS + 10 * US, 11 * MS, 2);
    let found = waterfall(&made.finish());
    assert_eq!(found.ns(IdleCause::Sync), 2 * MS - 90 * US);
    assert_eq!(found.ns(IdleCause::Unknown), 8 * MS - 20 * US);
}

#[test]
fn a_long_silence_stays_unknown_if_another_thread_makes_calls() {
    let mut made = Fixture::new();
    made.call(0, 0, 10 * US, "cudaLaunchKernel", 1);
    kernel(&mut made, 10 * US, 20 * US, 1);
    for at in 1..30 {
        let row = Span {
            start_ns: at * 330 * US,
            duration_ns: 3 * US,
            thread: 2,
            kind: SpanKind::Runtime,
            ..Span::default()
        };
        made.span(row, "cudaEventQuery");
    }
    made.call(0, 10 * MS, 10 * US, "cudaLaunchKernel", 2);
    kernel(&mut made, 10 * MS + 10 * US, 11 * MS, 2);
    let found = waterfall(&made.finish());
    assert!(found.ns(IdleCause::Unknown) > 9 * MS, "{:?}", found.causes());
}

#[test]
fn a_thread_that_waits_every_few_launches_never_launches_ahead() {
    let mut made = Fixture::new();
    let mut at = 0;
    for (is_wait, number) in [false, true, false, false, true, false].into_iter().zip(1..) {
        match is_wait {
            true => made.call(0, at, 10 * US, "cudaStreamSynchronize", 100 + number),
            false => {
                made.call(0, at, 10 * US, "cudaLaunchKernel", number);
                kernel(&mut made, at + 10 * US, at + 12 * US, number);
            }
        }
        at += 20 * US;
    }
    // The device is idle from the first kernel's end to the last kernel's start, except during two
    // kernels. Before the first wait, nothing shows that the host couldn't launch ahead.
    let expected = [(IdleCause::Sync, (110 - 20 - 4) * US), (IdleCause::Launch, (20 - 12) * US)];
    assert_eq!(causes(&made.finish()), expected);
}

#[test]
fn calls_that_block_are_causes_of_their_own() {
    let mut made = Fixture::new();
    made.call(0, 0, 5 * US, "cudaLaunchKernel", 1);
    kernel(&mut made, 5 * US, 10 * US, 1);
    made.call(0, 20 * US, 30 * US, "cudaMalloc", 50);
    made.call(0, 55 * US, 5 * US, "cudaLaunchKernel", 2);
    kernel(&mut made, 60 * US, 70 * US, 2);
    made.call(0, 75 * US, 40 * US, "cudaMemcpyAsync", 3);
    let copy = MemoryCopy {
        start_ns: 110 * US,
        duration_ns: 10 * US,
        bytes: Some(1 << 20),
        kind: CopyKind::HostToDevice,
        from: MemoryKind::Pageable,
        correlation: Some(3),
        ..MemoryCopy::default()
    };
    made.copy(copy, "");
    made.call(0, 130 * US, 20 * US, "cuLibraryLoadData", 51);
    made.call(0, 155 * US, 5 * US, "cudaLaunchKernel", 4);
    kernel(&mut made, 160 * US, 170 * US, 4);
    let found = waterfall(&made.finish());
    let expected = [
        (IdleCause::Allocation, 40 * US),
        (IdleCause::PageableCopy, 35 * US),
        (IdleCause::Launch, 10 * US + 5 * US + 10 * US + 10 * US),
        (IdleCause::Compile, 20 * US),
    ];
    let mut causes = found.causes();
    causes.sort();
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(causes, expected);
    assert_eq!(found.copies, [(CopyKind::HostToDevice, 10 * US)]);
}

#[test]
fn the_names_of_ranges_decide_the_cause_of_their_idle_time() {
    let mut made = Fixture::new();
    made.call(0, 0, 5 * US, "cudaLaunchKernel", 1);
    kernel(&mut made, 5 * US, 10 * US, 1);
    span(
        &mut made,
        SpanKind::Annotation,
        0,
        10 * US,
        3 * MS,
        "enumerate(DataLoader)#_Iter.__next__",
    );
    span(&mut made, SpanKind::Annotation, 0, 3 * MS, 8 * MS, "XlaCompile:#module=jit_f#");
    // Compilers also launch kernels and wait for them, for example to tune, so calls in the range
    // count as compilation.
    made.call(0, 4 * MS, MS, "cudaStreamSynchronize", 60);
    made.call(0, 8 * MS, 5 * US, "cudaLaunchKernel", 2);
    kernel(&mut made, 8 * MS + 5 * US, 9 * MS, 2);
    let expected = [
        (IdleCause::Compile, 5 * MS),
        (IdleCause::Data, 3 * MS - 10 * US),
        (IdleCause::Launch, 5 * US),
    ];
    assert_eq!(causes(&made.finish()), expected);
}

/// Adds a stack that consists of one Python function.
fn stack(made: &mut Fixture, stack: u32, function: &str, file: &str, line: u32) {
    let [function, file, module] = [function, file, "[python]"].map(|text| made.name(text));
    let address = SYNTHETIC_FRAME | u64::from(stack);
    let symbol = Symbol { process: 0, address, depth: 0, function, file, line, module };
    made.writer.symbol(&symbol);
    made.writer.stack(&Stack { process: 0, stack, end: 0, frames: vec![address] });
}

fn write<R: TraceRow>(made: &mut Fixture, mut rows: Vec<R>) {
    made.writer.write(&mut rows).unwrap();
}

#[test]
fn samples_attribute_a_long_time_without_calls_to_user_code() {
    let mut made = Fixture::new();
    made.call(0, 0, 5 * US, "cudaLaunchKernel", 1);
    kernel(&mut made, 5 * US, 10 * US, 1);
    made.call(0, 20 * MS, 5 * US, "cudaLaunchKernel", 2);
    kernel(&mut made, 20 * MS + 5 * US, 21 * MS, 2);
    stack(&mut made, 1, "slow_metrics", "/me/train.py", 56);
    let loader = "/x/torch/utils/data/dataloader.py";
    stack(&mut made, 2, "_BaseDataLoaderIter.__next__", loader, 700);
    let row = |at: u64, stack| Sample {
        time_ns: at,
        weight_ns: 10 * MS,
        stack,
        state: ThreadState::Running,
        cpu: Some(0),
        ..Sample::default()
    };
    write(&mut made, vec![row(8 * MS, 1), row(18 * MS, 2)]);
    let file = made.finish();
    let expected = [
        (IdleCause::Data, 12 * MS),
        (IdleCause::Python, 8 * MS - 10 * US),
        (IdleCause::Launch, 5 * US),
    ];
    assert_eq!(causes(&file), expected);
    let rank = RankTrace::load(&file, Needs::ALL);
    let threads = Threads::of(&rank);
    let places = waterfall(&file).places(&rank, &threads, IdleCause::Python);
    let line = main_line(&places).unwrap();
    assert_eq!((&*line.function, line.line), ("slow_metrics", 56));
}

#[test]
fn an_operator_that_launches_nothing_computes_on_the_host() {
    // In a step that takes 20 ms on the host, one operator launches work and two others, nested in
    // each other, don't.
    let of = |inner: &str| {
        let mut made = Fixture::new();
        made.call(0, 0, 10 * US, "cudaLaunchKernel", 1);
        span(&mut made, SpanKind::Operator, 0, MS, 9 * MS, "aten::linear");
        span(&mut made, SpanKind::Operator, 0, 2 * MS, 9 * MS, inner);
        span(&mut made, SpanKind::Operator, 0, 10 * MS, 15 * MS, "aten::mm");
        made.call(0, 14 * MS, 10 * US, "cudaLaunchKernel", 2);
        kernel(&mut made, 10 * US, MS, 1);
        kernel(&mut made, 14 * MS + 10 * US, 15 * MS, 2);
        made.finish()
    };
    let file = of("aten::sort");
    let found = causes(&file);
    let time = |cause| found.iter().find(|(of, _)| *of == cause).map_or(0, |(_, ns)| *ns);
    assert_eq!(time(IdleCause::Python), 8 * MS, "{found:?}");
    assert!(time(IdleCause::Launch) > 4 * MS, "{found:?}");
    let rank = RankTrace::load(&file, Needs::ALL);
    let threads = Threads::of(&rank);
    let window = judged_window(&rank, &[]);
    let fall = of_device(&rank, &threads, &window, &rank.devices()[0]);
    let computing = tables::computes(&rank, &threads, &fall);
    assert_eq!(computing.as_deref(), Some("aten::sort on the host"));
}

#[test]
fn an_inner_span_of_another_category_is_cut_out_of_loading() {
    let mut made = Fixture::new();
    made.call(0, 0, 10 * US, "cudaLaunchKernel", 1);
    made.call(0, 100 * MS, 10 * US, "cudaLaunchKernel", 2);
    kernel(&mut made, 10 * US, MS, 1);
    kernel(&mut made, 100 * MS + 10 * US, 101 * MS, 2);
    for (from, to, name, category) in [
        (10, 50, "x", "data_load"),
        (20, 30, "y", "compute"),
        (60, 70, "z", "sync"),
        (80, 85, "get_batch", "memory"),
    ] {
        let args = made.name(&format!(r#"{{"category":"{category}"}}"#));
        let (start_ns, duration_ns) = (from * MS, (to - from) * MS);
        let kind = SpanKind::Annotation;
        made.span(Span { start_ns, duration_ns, kind, args, ..Span::default() }, name);
    }
    let found = causes(&made.finish());
    let time = |cause| found.iter().find(|(of, _)| *of == cause).map_or(0, |(_, ns)| *ns);
    assert_eq!(time(IdleCause::Data), 30 * MS, "{found:?}");
    assert_eq!(time(IdleCause::Sync), 10 * MS, "{found:?}");
    assert_eq!(time(IdleCause::Allocation), 5 * MS, "{found:?}");
}

#[test]
fn a_call_with_a_stack_has_its_line_without_a_sample() {
    let mut made = Fixture::new();
    made.call(0, 0, 10 * US, "cudaLaunchKernel", 1);
    stack(&mut made, 7, "log_loss", "/me/train.py", 19);
    let wait = Span {
        start_ns: 20 * US,
        duration_ns: 100 * US,
        kind: SpanKind::Runtime,
        stack: 7,
        ..Span::default()
    };
    made.span(wait, "cudaStreamSynchronize");
    made.call(0, 150 * US, 10 * US, "cudaLaunchKernel", 2);
    kernel(&mut made, 10 * US, 110 * US, 1);
    kernel(&mut made, 165 * US, 200 * US, 2);
    let file = made.finish();
    let rank = RankTrace::load(&file, Needs::ALL);
    let places = waterfall(&file).places(&rank, &Threads::of(&rank), IdleCause::Sync);
    let line = main_line(&places).unwrap();
    assert_eq!((&*line.function, line.line), ("log_loss", 19));
}

#[test]
fn time_of_a_waiting_thread_has_the_cause_of_the_awaited_thread() {
    let mut made = Fixture::new();
    // Thread 1 launches the backward pass, while thread 0 waits on a condition variable.
    let call = |made: &mut Fixture, thread, start_ns, correlation| {
        let row = Span {
            start_ns,
            duration_ns: 5 * US,
            thread,
            kind: SpanKind::Runtime,
            correlation: Some(correlation),
            ..Span::default()
        };
        made.span(row, "cudaLaunchKernel");
    };
    call(&mut made, 1, 0, 1);
    kernel(&mut made, 5 * US, 10 * US, 1);
    span(
        &mut made,
        SpanKind::Operator,
        1,
        10 * US,
        3 * MS,
        "autograd::engine::evaluate_function: F",
    );
    call(&mut made, 0, 3 * MS + 20 * US, 2);
    kernel(&mut made, 3 * MS + 25 * US, 4 * MS, 2);
    let wait = Sample {
        time_ns: 0,
        weight_ns: 3 * MS,
        thread: 0,
        state: ThreadState::Lock,
        ..Sample::default()
    };
    write(&mut made, vec![wait]);
    assert_eq!(causes(&made.finish()), [(IdleCause::Launch, 3 * MS + 15 * US)]);
}

#[test]
fn idle_time_without_launches_and_samples_is_unknown() {
    let mut made = Fixture::new();
    made.call(0, 0, 5 * US, "cudaLaunchKernel", 1);
    kernel(&mut made, 5 * US, 10 * US, 1);
    // This kernel has no recorded launch. After it, the host has no call or sample for a long time.
    kernel(&mut made, 50 * US, 60 * US, 0);
    made.call(0, 5 * MS, 5 * US, "cudaLaunchKernel", 2);
    kernel(&mut made, 5 * MS + 5 * US, 6 * MS, 2);
    let expected = [(IdleCause::Unknown, 40 * US + 5 * MS - 60 * US), (IdleCause::Launch, 5 * US)];
    assert_eq!(causes(&made.finish()), expected);
}

#[test]
fn two_devices_have_a_waterfall_each() {
    let mut made = Fixture::new();
    for (device, at) in [(0, 0), (1, 100 * US)] {
        made.call(0, at, 5 * US, "cudaLaunchKernel", u64::from(device) + 1);
        let row = Kernel {
            start_ns: at + 5 * US,
            duration_ns: 10 * US,
            device,
            correlation: Some(u64::from(device) + 1),
            ..Kernel::default()
        };
        made.kernel(row, "k");
    }
    let file = made.finish();
    let rank = RankTrace::load(&file, Needs::ALL);
    let (threads, window) = (Threads::of(&rank), judged_window(&rank, &[]));
    let of = |busy| of_device(&rank, &threads, &window, busy).causes();
    assert_eq!(of(&rank.devices()[0]), [(IdleCause::End, 100 * US)]);
    assert_eq!(of(&rank.devices()[1]), [(IdleCause::Launch, 100 * US)]);
}

#[test]
fn work_of_another_device_at_the_same_moment_does_not_end_a_gap() {
    let mut made = Fixture::new();
    let mut on = |device, start_ns, correlation: Option<u64>| {
        let row =
            Kernel { start_ns, duration_ns: 10 * US, device, correlation, ..Kernel::default() };
        made.kernel(row, "k");
    };
    // The first two kernels have no recorded launch, as at the beginning of a trace.
    on(1, 0, None);
    on(0, 100 * US, None);
    on(1, 100 * US, Some(1));
    made.call(0, 90 * US, 5 * US, "cudaLaunchKernel", 1);
    let file = made.finish();
    let rank = RankTrace::load(&file, Needs::ALL);
    let window = Cover::of([Interval::new(0, 110 * US)]);
    let found = of_device(&rank, &Threads::of(&rank), &window, &rank.devices()[1]);
    assert_eq!(found.causes(), [(IdleCause::Launch, 90 * US)]);
}

#[test]
fn blocking_memsets_and_pinned_allocations_are_causes() {
    let memset = |made: &mut Fixture, called_us: u64, long_us: u64, start_us: u64, number| {
        made.call(0, called_us * US, long_us * US, "cudaMemset", number);
        let row = MemoryCopy {
            start_ns: start_us * US,
            duration_ns: 5 * US,
            kind: CopyKind::Memset,
            correlation: Some(number),
            ..MemoryCopy::default()
        };
        made.copy(row, "");
    };
    let mut made = Fixture::new();
    made.call(0, 0, 5 * US, "cudaLaunchKernel", 1);
    kernel(&mut made, 5 * US, 10 * US, 1);
    // The call returns long after its work is done. Then memory is pinned.
    memset(&mut made, 10, 40, 20, 2);
    made.call(0, 60 * US, 30 * US, "cudaHostAlloc", 50);
    made.call(0, 92 * US, 3 * US, "cudaLaunchKernel", 3);
    kernel(&mut made, 95 * US, 100 * US, 3);
    // This call returns at once, so it doesn't block the thread.
    memset(&mut made, 110, 3, 113, 4);
    let mut causes = causes(&made.finish());
    causes.sort();
    let expected = [
        (IdleCause::Launch, 13 * US),
        (IdleCause::Sync, 10 * US + 35 * US),
        (IdleCause::Allocation, 35 * US),
    ];
    assert_eq!(causes, expected);
}

#[test]
fn a_driver_call_as_long_as_its_runtime_call_is_a_part_of_it() {
    let mut made = Fixture::new();
    made.call(0, 0, 5 * US, "cudaLaunchKernel", 1);
    kernel(&mut made, 5 * US, 10 * US, 1);
    let row = Span { start_ns: 20 * US, duration_ns: 30 * US, ..Span::default() };
    made.span(Span { kind: SpanKind::Driver, ..row }, "cuMemAlloc");
    made.span(Span { kind: SpanKind::Runtime, ..row }, "cudaMalloc");
    made.call(0, 52 * US, 5 * US, "cudaLaunchKernel", 2);
    kernel(&mut made, 60 * US, 70 * US, 2);
    let file = made.finish();
    let rank = RankTrace::load(&file, Needs::ALL);
    let calls = waterfall(&file).calls(IdleCause::Allocation);
    let names: Vec<&str> = calls.iter().map(|(at, _)| rank.name(rank.calls[*at].name)).collect();
    assert_eq!(names, ["cudaMalloc"]);
}

#[test]
fn a_log_of_compilation_counts_only_for_its_own_process() {
    let path = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../trace/tests/compile/torch-2.8.log.zst");
    let log = RankCompile::of_logs_at(std::slice::from_ref(&path), Some(0));
    let read = &log.logs[0];
    let (start_ns, end_ns) =
        read.log.frames.iter().find_map(|frame| read.interval_ns(frame)).unwrap();
    let (pid, long_ns) = (read.log.pid.unwrap(), end_ns - start_ns);
    let compiled = |pids: [u32; 2]| {
        let mut made = Fixture::new();
        for (process, pid) in (0..).zip(pids) {
            let name = made.name("train.py");
            let row = Process {
                process,
                pid,
                parent: 1,
                rank: Some(0),
                command: name,
                exe: name,
                start_ns: 0,
                memory: Default::default(),
            };
            made.writer.process(&row);
            made.call(process, 0, US, "cudaLaunchKernel", u64::from(process) + 1);
        }
        kernel(&mut made, 0, US, 1);
        let file = made.finish();
        let mut rank = RankTrace::load(&file, Needs::ALL);
        let paths = std::slice::from_ref(&path);
        rank.compile = RankCompile::of_logs_at(paths, Some(-i128::from(start_ns)));
        let threads = Threads::of(&rank);
        [0, 1].map(|thread| {
            let of = threads.explain(threads.index(thread).unwrap(), Interval::new(0, long_ns));
            of.iter().any(|one| one.cause == IdleCause::Compile)
        })
    };
    assert_eq!(compiled([pid, pid + 1]), [true, false]);
    assert_eq!(compiled([pid + 1, pid]), [false, true]);
    // A process may have another pid in its own pid namespace than on the host.
    assert_eq!(compiled([pid + 1, pid + 2]), [true, true]);
}

proptest! {
    #[test]
    fn parts_add_up_to_the_window(
        calls in prop::collection::vec((0_u64..2_000, 1_u64..60, 0_usize..5, 0_u32..2), 1..20),
        kernels in prop::collection::vec((0_u64..2_500, 0_u64..80, 0_u64..25), 1..20),
        operators in prop::collection::vec((0_u64..2_000, 1_u64..400, 0_u32..2), 0..6),
        samples in prop::collection::vec((0_u64..2_500, 1_u64..200, 0_u8..3, 0_u32..2), 0..12),
    ) {
        let mut made = Fixture::new();
        let names =
            ["cudaLaunchKernel", "cudaStreamSynchronize", "cudaMalloc", "cudaMemcpy", "cuModuleLoad"];
        for (&(at, long, name, thread), number) in calls.iter().zip(1_u64..) {
            let row = Span {
                start_ns: at * US,
                duration_ns: long * US,
                thread,
                kind: SpanKind::Runtime,
                correlation: Some(number),
                ..Span::default()
            };
            made.span(row, names[name]);
        }
        for &(at, long, number) in &kernels {
            kernel(&mut made, at * US, (at + long) * US, number);
        }
        for &(at, long, thread) in &operators {
            span(&mut made, SpanKind::Operator, thread, at * US, (at + long) * US, "aten::mm");
        }
        stack(&mut made, 1, "train", "/me/train.py", 3);
        let states = [ThreadState::Running, ThreadState::Lock, ThreadState::Sleep];
        let row = |&(at, long, state, thread): &(u64, u64, u8, u32)| Sample {
            time_ns: at * US,
            weight_ns: long * US,
            stack: 1,
            thread,
            state: states[state as usize],
            cpu: (state == 0).then_some(0),
            ..Sample::default()
        };
        let rows: Vec<Sample> = samples.iter().map(row).collect();
        write(&mut made, rows);
        let found = waterfall(&made.finish());
        let copies: u64 = found.copies.iter().map(|(_, ns)| ns).sum();
        let parts = found.compute_ns + found.communication_ns + copies + found.idle_ns();
        prop_assert_eq!(parts, found.window_ns);
        // Each idle moment is counted once.
        prop_assert_eq!(Cover::of(found.idle.iter().map(|one| one.interval)).length(), found.idle_ns());
    }
}
