//! Tests of DataLoadBound, SyncBound, DeviceAllocations, Recompilation, Compilation and StartUp.

use tprof_document::{Cell, Value};
use tprof_trace::model::{Process, Sample, Span, SpanKind, Stack, Symbol, Thread, ThreadState};

use super::super::tables;
use super::job::{Job, MS, US, ask, judged};

const NEXT: &str = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";

/// Builds a job with a step of 100 ms. The host loads data for 10 ms, and the device is idle for
/// the last `idle_us` of these.
fn loading(idle_us: u64) -> Job {
    let mut job = Job::new(1, 100 * MS);
    job.range(10 * MS, 10 * MS, NEXT);
    job.busy(0, 20 * MS - idle_us * US);
    job.kernel(20 * MS, 20 * MS + 10 * US, 100 * MS, "k");
    job
}

#[test]
fn a_device_that_is_idle_during_loading_waits_for_data() {
    let outcome = loading(8000).ask("DataLoadBound");
    let (finding, places) = &outcome.found[0];
    // The device is idle for 8.01 ms. This is less than the time of loading, so it limits the gain.
    assert_eq!(finding.bound_ns, 8 * MS + 10 * US);
    assert!(finding.seen.contains("idle for 8.0 ms a step (8.0 %)"), "{}", finding.seen);
    assert_eq!((places[0].thread, places[0].process), (Some(4712), Some(4711)));
    let clear = loading(900).ask("DataLoadBound").no_problem.unwrap();
    assert_eq!(clear, "loading takes 10.0 ms a step; the device waits for 900.0 us of it");
}

#[test]
fn idle_time_without_a_range_that_loads_is_unchecked() {
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 50 * MS);
    job.kernel(60 * MS, 60 * MS, 100 * MS, "k");
    assert!(job.ask("DataLoadBound").unchecked.is_some());
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 100 * MS);
    let clear = job.ask("DataLoadBound").no_problem.unwrap();
    assert_eq!(clear, "the device hardly waits for the host");
}

#[test]
fn a_job_without_a_device_waits_for_its_data_too() {
    let mut job = Job::new(1, 100 * MS);
    job.range(20 * MS, 30 * MS, NEXT);
    assert_eq!(job.bound("DataLoadBound"), Some(30 * MS));
}

/// Adds a span of a thread; times are nanoseconds since the job began.
fn span(job: &mut Job, thread: u32, kind: SpanKind, start_ns: u64, end_ns: u64, name: &str) {
    let duration_ns = end_ns - start_ns;
    let row = Span { start_ns, duration_ns, thread, kind, ..Span::default() };
    job.fixture.span(row, name);
}

#[test]
fn a_job_without_device_and_steps_has_a_main_thread() {
    let mut job = Job::new(0, 0);
    // A thread that loads data ahead of time doesn't delay the job, and neither does a worker
    // process.
    job.fixture.writer.thread(&Thread { thread: 1, process: 0, tid: 4711, start_ns: 0 });
    span(&mut job, 0, SpanKind::Nvtx, 0, 1000 * MS, "data_load ahead");
    span(&mut job, 1, SpanKind::Nvtx, 100 * MS, 440 * MS, "data_load");
    span(&mut job, 1, SpanKind::Nvtx, 440 * MS, 600 * MS, "forward");
    let worker = Process { process: 1, pid: 5000, parent: 4711, ..job.process() };
    job.fixture.writer.process(&worker);
    job.fixture.writer.thread(&Thread { thread: 2, process: 1, tid: 5000, start_ns: 0 });
    span(&mut job, 2, SpanKind::Nvtx, 0, 900 * MS, "load_batch");
    let outcome = job.ask("DataLoadBound");
    let [(finding, places)] = outcome.found.as_slice() else { panic!("{outcome:?}") };
    assert_eq!(finding.bound_ns, 340 * MS);
    assert!(finding.seen.contains("340.0 ms in all (34.0 %)"), "{}", finding.seen);
    assert_eq!(places[0].thread, Some(4711));
}

#[test]
fn without_ranges_on_the_first_thread_the_longest_in_ranges_counts() {
    let mut job = Job::new(0, 0);
    for (thread, tid) in [(1, 4711), (2, 4713)] {
        job.fixture.writer.thread(&Thread { thread, process: 0, tid, start_ns: 0 });
    }
    span(&mut job, 0, SpanKind::Annotation, 0, 700 * MS, NEXT);
    span(&mut job, 0, SpanKind::Operator, 700 * MS, 1000 * MS, "aten::mm");
    span(&mut job, 2, SpanKind::Operator, 0, 600 * MS, "load_batch");
    assert_eq!(job.bound("DataLoadBound"), Some(700 * MS));
}

#[test]
fn the_text_mentions_loading_ranges_outside_of_the_steps() {
    let why = |job: Job| job.ask("DataLoadBound").unchecked.unwrap().why;
    let mut job = Job::new(1, 100 * MS);
    job.range(200 * MS, 50 * MS, NEXT);
    let reason = why(job);
    assert!(
        reason.starts_with(
            "no range with the name of a data loader lies in the steps on a main thread, only \
             elsewhere; no CPU sample in PyTorch's DataLoader was recorded"
        ),
        "{reason}"
    );
    let reason = why(Job::new(1, 100 * MS));
    assert!(reason.starts_with("no range with the name of a data loader was recorded"), "{reason}");
}

/// Builds a job whose driving thread waits for a batch for 30 of 100 ms and unpickles it for 10 ms,
/// while a worker process augments. Only samples show this.
fn sampled() -> Job {
    let mut job = Job::new(1, 100 * MS);
    let stacks: [&[(&str, &str)]; 4] = [
        &[("Queue.get", "/lib/queues.py"), ("_BaseDataLoaderIter.__next__", LOADER)],
        &[("loads", "/lib/pickle.py"), ("_BaseDataLoaderIter.__next__", LOADER)],
        &[("augment", "train.py"), ("_worker_loop", WORKER), ("DataLoader.__iter__", LOADER)],
        &[("train_step", "train.py")],
    ];
    for (stack, functions) in (1_u32..).zip(stacks) {
        let frames = (0..functions.len()).map(|at| u64::from(stack) * 16 + at as u64);
        let frames: Vec<u64> = frames.collect();
        for (&address, (function, file)) in frames.iter().zip(functions) {
            let symbol = Symbol {
                process: 0,
                address,
                depth: 0,
                function: job.fixture.name(function),
                file: job.fixture.name(file),
                line: 0,
                module: job.fixture.name("[python]"),
            };
            job.fixture.writer.symbol(&symbol);
        }
        job.fixture.writer.stack(&Stack { process: 0, stack, end: 0, frames });
    }
    let row = |time_ns, weight_ns, thread, stack, state| Sample {
        time_ns,
        weight_ns,
        thread,
        stack,
        state,
        ..Sample::default()
    };
    let mut rows = vec![
        row(20 * MS, 30 * MS, 0, 1, ThreadState::Poll),
        row(60 * MS, 10 * MS, 0, 2, ThreadState::Running),
        row(90 * MS, 25 * MS, 1, 3, ThreadState::Running),
        row(95 * MS, 10 * MS, 0, 4, ThreadState::Running),
    ];
    job.fixture.writer.write(&mut rows).unwrap();
    job
}

const LOADER: &str = "/lib/torch/utils/data/dataloader.py";
const WORKER: &str = "/lib/torch/utils/data/_utils/worker.py";

#[test]
fn samples_show_that_a_job_waits_for_pytorchs_loader() {
    // Without a device, DataWait judges the driving thread's own time, of which 30 ms are a wait.
    assert!(sampled().ask("DataLoadBound").found.is_empty());
    let outcome = sampled().ask("DataWait");
    let (finding, _) = &outcome.found[0];
    assert_eq!((finding.bound_ns, finding.of_ns, finding.places), (30 * MS, Some(100 * MS), 1));
    assert_eq!(
        finding.seen,
        "The driving thread waits for 30.0 ms (30.0 %): Queue.get (queues.py) 30.0 ms. No worker process was \
         sampled on a core."
    );
    let mut job = sampled();
    job.busy(0, MS);
    job.busy(90 * MS, 91 * MS);
    let outcome = job.ask("DataLoadBound");
    let (finding, _) = &outcome.found[0];
    assert_eq!((finding.bound_ns, finding.places), (40 * MS, 2));
    assert_eq!(
        finding.seen,
        "The device is idle for 40.0 ms a step (40.0 %) while a main thread is in PyTorch's \
         DataLoader for 40.0 ms a step (40.0 %), estimated from 2 waits and samples a step: it \
         waits for 30.0 ms of that. The workers run in augment (25.0 ms)."
    );
    // A device that is busy all the time doesn't wait for data.
    let mut job = sampled();
    job.busy(0, 100 * MS);
    let clear = job.ask("DataLoadBound").no_problem.unwrap();
    assert_eq!(
        clear,
        "PyTorch's DataLoader takes 40.0 ms a step, by CPU samples; the device waits for 0 ns of it"
    );
}

/// Builds a step of 100 ms in which the host waits for the first kernel before it launches the next
/// one.
fn waiting(gap_us: u64) -> Job {
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 50 * MS);
    job.range(4 * MS, 47 * MS, "aten::item");
    job.call(5 * MS, 45 * MS + US, "cudaStreamSynchronize");
    let start = 50 * MS + gap_us * US;
    job.kernel(start - 2 * US, start, 100 * MS, "k");
    job
}

#[test]
fn a_wait_followed_by_an_idle_device_is_found() {
    let outcome = waiting(10_000).ask("SyncBound");
    let finding = &outcome.found[0].0;
    // The host waits for 45 ms, but the device is idle for only 10 ms, so that is the gain.
    assert_eq!(finding.bound_ns, 10 * MS);
    assert!(finding.seen.contains("aten::item (45.0 ms)"), "{}", finding.seen);
    let clear = waiting(900).ask("SyncBound").no_problem.unwrap();
    assert_eq!(clear, "waits of 45.0 ms a step; the device then idles for 900.0 us");
}

#[test]
fn gaps_after_a_wait_are_not_launch_bound() {
    assert_eq!(waiting(999).bound("LaunchBound"), None);
}

/// Builds a job with a step of 100 ms. The host allocates device memory at 40 ms, and frees some
/// when half of that call is over. Each call takes `long_us`. The host launches its next kernel 1
/// ms after the calls. If the device has finished its first kernel at 45 ms by then, it is idle
/// until the launch.
fn allocating(long_us: u64) -> Job {
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 45 * MS);
    job.call(40 * MS, long_us * US, "cudaMalloc");
    job.call(40 * MS + long_us * US / 2, long_us * US, "cudaFree");
    let launch = 40 * MS + long_us * US * 3 / 2 + MS;
    job.kernel(launch, (launch + US).max(45 * MS), 100 * MS, "k");
    job
}

#[test]
fn idle_time_in_and_after_calls_for_device_memory_counts() {
    // The calls last until 52 ms, and the launch until 53.001 ms. The device waits from 45 ms on.
    let outcome = allocating(8000).ask("DeviceAllocations");
    let finding = &outcome.found[0].0;
    assert_eq!(finding.bound_ns, 8 * MS + US);
    assert!(finding.seen.contains("2 calls a step block host threads for 12.0 ms"), "{finding:?}");
    assert!(finding.seen.contains("1 cudaFree a step, 1 cudaMalloc a step"), "{finding:?}");
    // If the device has work until the next launch, the calls cost nothing.
    assert_eq!(allocating(2000).bound("DeviceAllocations"), None);
}

#[test]
fn calls_for_device_memory_have_the_line_of_samples_within() {
    let mut job = allocating(8000);
    for (stack, (function, line)) in (1_u32..).zip([("empty_cache", 38), ("other", 7)]) {
        let address = u64::from(stack) * 16;
        let [function, file, module] =
            [function, "/me/train.py", "[python]"].map(|text| job.fixture.name(text));
        let symbol = Symbol { process: 0, address, depth: 0, function, file, line, module };
        job.fixture.writer.symbol(&symbol);
        job.fixture.writer.stack(&Stack { process: 0, stack, end: 0, frames: vec![address] });
    }
    let row = |time_ns, stack| Sample {
        time_ns,
        weight_ns: 10 * MS,
        stack,
        state: ThreadState::Running,
        ..Sample::default()
    };
    // One sample lies within the calls. The other two stand for more time, but lie before the
    // calls.
    let mut rows: Vec<Sample> = vec![row(42 * MS, 1), row(20 * MS, 2), row(30 * MS, 2)];
    job.fixture.writer.write(&mut rows).unwrap();
    let outcome = job.ask("DeviceAllocations");
    let finding = &outcome.found[0].0;
    assert_eq!(finding.line.as_ref().map(|line| line.line), Some(38));
    assert!(finding.seen.contains("100.0 % of the time sampled in them"), "{}", finding.seen);
    assert!(finding.advice.starts_with("Leave out empty_cache()"), "{}", finding.advice);
}

#[test]
fn loading_code_after_the_first_step_is_recompilation() {
    let job = |at: u64, long_us: u64| {
        let mut job = Job::new(2, 100 * MS);
        job.busy(0, 200 * MS);
        job.call(at, long_us * US, "cuModuleLoadData");
        job
    };
    assert_eq!(job(150 * MS, 5000).bound("Recompilation"), Some(5 * MS));
    assert_eq!(job(150 * MS, 1999).bound("Recompilation"), None, "below 1 % of two steps");
    let first = job(50 * MS, 5000).ask("Recompilation");
    assert_eq!(first.no_problem.unwrap(), "no step after the first compiles or loads code");
}

#[test]
fn a_trace_that_cannot_show_compilation_leaves_it_unchecked() {
    let mut job = Job::new(2, 100 * MS);
    job.busy(0, 200 * MS);
    let unchecked = job.ask("Recompilation").unchecked.unwrap();
    assert_eq!(unchecked.why, "the trace has no calls or ranges that show compilation");
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 100 * MS);
    let unchecked = job.ask("Recompilation").unchecked.unwrap();
    assert_eq!(unchecked.why, "one step: later compilation cannot be separated from the first");
}

/// Adds a stack, the innermost frame first. A frame has the names of its function, file and module.
pub(super) fn add_stack(job: &mut Job, stack: u32, functions: &[[&str; 3]]) {
    let frames: Vec<u64> =
        (0..functions.len()).map(|at| u64::from(stack) * 16 + at as u64).collect();
    for (&address, names) in frames.iter().zip(functions) {
        let [function, file, module] = names.map(|text| job.fixture.name(text));
        let symbol = Symbol { process: 0, address, depth: 0, function, file, line: 3, module };
        job.fixture.writer.symbol(&symbol);
    }
    job.fixture.writer.stack(&Stack { process: 0, stack, end: 0, frames });
}

/// Ranks of a C program wait for each other in `MPI_Init`, and then in a collective.
#[test]
fn mpi_init_is_part_of_start_up() {
    let mut job = Job::new(0, MS);
    job.process();
    add_stack(
        &mut job,
        1,
        &[
            ["poll", "", "libc.so.6"],
            ["MPI_Init", "", "libmpich.so.12"],
            ["main", "train.c", "train"],
        ],
    );
    add_stack(
        &mut job,
        2,
        &[
            ["poll", "", "libc.so.6"],
            ["MPI_Allreduce", "", "libmpich.so.12"],
            ["main", "train.c", "train"],
        ],
    );
    let wait = |time_ns, weight_ns, stack| {
        let state = ThreadState::Poll;
        Sample { time_ns, weight_ns, stack, state, ..Sample::default() }
    };
    add_stack(&mut job, 3, &[["main", "train.c", "train"]]);
    let works = Sample {
        time_ns: 1000 * MS,
        weight_ns: 200 * MS,
        stack: 3,
        state: ThreadState::Running,
        cpu: Some(0),
        ..Sample::default()
    };
    let mut rows = vec![wait(0, 600 * MS, 1), wait(600 * MS, 200 * MS, 2), works];
    job.fixture.writer.write(&mut rows).unwrap();
    let file = job.fixture.finish();
    let start_up = ask(&file, "StartUp");
    let (found, _) = &start_up.found[0];
    assert_eq!((found.bound_ns, found.is_once), (600 * MS, true));
    assert!(found.seen.contains("until MPI_Init returns"), "{}", found.seen);
    let collectives = ask(&file, "CollectiveWait");
    assert_eq!(collectives.found[0].0.bound_ns, 200 * MS);
    assert!(ask(&file, "NetworkWait").found.is_empty());
}

/// Builds a job of four steps of 100 ms that begins with 600 ms of imports. In the first
/// `without_core` periods of 10 ms, its thread is ready to run but has no core.
fn slow_to_begin(without_core: u64) -> Job {
    let mut job = Job::new(0, MS);
    job.process();
    for step in 0..4 {
        let name = format!("ProfilerStep#{step}");
        let (start_ns, duration_ns) = ((700 + 100 * step) * MS, 100 * MS);
        job.range(start_ns, duration_ns, &name);
    }
    add_stack(
        &mut job,
        1,
        &[
            ["_find_and_load", "<frozen importlib._bootstrap>", "[python]"],
            ["<module>", "train.py", "[python]"],
        ],
    );
    add_stack(&mut job, 2, &[["train_step", "train.py", "[python]"]]);
    let row = |at: u64| {
        let stack = if at < 60 { 1 } else { 2 };
        let row = Sample { weight_ns: 10 * MS, stack, ..Sample::default() };
        match at < without_core {
            true => Sample { time_ns: at * 10 * MS, state: ThreadState::Runnable, ..row },
            false => Sample {
                time_ns: (at + 1) * 10 * MS,
                state: ThreadState::Running,
                cpu: Some(0),
                ..row
            },
        }
    };
    let mut rows: Vec<Sample> = (0..110).map(row).collect();
    job.fixture.writer.write(&mut rows).unwrap();
    job
}

#[test]
fn start_up_is_not_divided_by_steps() {
    let body = tables::body(&[judged(&slow_to_begin(0).fixture.finish(), "rank 0")]);
    let findings = &body.tables[0];
    let at = |key| findings.columns.iter().position(|column| column.key == key).unwrap();
    let row_of = |rule: &str| findings.rows.iter().find(|row| row[at("rule")] == rule.into());
    let start_up = row_of("StartUp").unwrap();
    // Start-up lasts until the first step, which begins later than the last import ends.
    assert_eq!(start_up[at("gain_ns")], Cell::from(700 * MS));
    assert_eq!(start_up[at("severity")], "low".into());
    assert_eq!(start_up[at("line")], 3_u32.into());
    assert!(matches!(start_up[at("gain_step_ns")], Cell::Missing(_)));
    let headline = start_up[at("headline")].value().unwrap();
    let Value::Text(headline) = headline else { panic!("{headline:?}") };
    assert!(headline.contains("up to 700.0 ms (63.6 %)"), "{headline}");
    // HotFunction reports only the part of the function's time that lies within the steps.
    let hot = row_of("HotFunction").unwrap();
    assert_eq!(hot[at("gain_step_ns")], Cell::from(100 * MS));
    assert_eq!(findings.rows.last().unwrap()[at("rule")], "StartUp".into(), "no step is behind it");
    let Some(Value::Text(seen)) = hot[at("seen")].value() else { panic!("{hot:?}") };
    assert!(seen.contains("400.0 ms (100.0 %), 100.0 % of its thread's CPU time"), "{seen}");
}

#[test]
fn compilation_before_the_first_step_does_not_count_as_start_up() {
    let job = || {
        let mut job = slow_to_begin(0);
        job.range(300 * MS, 200 * MS, "XlaCompile:#module=jit_step#");
        job.kernel(700 * MS, 701 * MS, 1100 * MS, "k");
        job
    };
    assert_eq!(job().bound("Compilation"), Some(200 * MS));
    let outcome = job().ask("StartUp");
    let (finding, _) = &outcome.found[0];
    assert_eq!(finding.bound_ns, 500 * MS);
    assert!(
        finding.seen.contains(", 200.0 ms while code for a device is compiled or loaded."),
        "{}",
        finding.seen
    );
}

#[test]
fn start_up_excludes_time_without_a_free_core() {
    assert_eq!(slow_to_begin(5).bound("StartUp"), Some(650 * MS));
    let clear = slow_to_begin(25).ask("StartUp").no_problem.unwrap();
    assert_eq!(clear, "start-up takes 700.0 ms (63.6 %), 250.0 ms without a free core");
}
