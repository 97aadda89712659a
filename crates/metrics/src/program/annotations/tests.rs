use tprof_fixture::Fixture;
use tprof_trace::model::{DeviceSpan, DeviceSpanKind, Kernel, Span};

use super::effects::RangeEffects;
use super::*;

fn range(thread: u32, start_ns: u64, duration_ns: u64) -> Span {
    Span { start_ns, duration_ns, thread, kind: SpanKind::Annotation, ..Span::default() }
}

fn kernel(stream: u64, start_ns: u64, duration_ns: u64, correlation: u64) -> Kernel {
    let correlation = Some(correlation);
    Kernel { start_ns, duration_ns, stream, correlation, ..Kernel::default() }
}

fn call(thread: u32, start_ns: u64, correlation: u64) -> Span {
    let correlation = Some(correlation);
    let kind = SpanKind::Runtime;
    Span { start_ns, duration_ns: 1000, thread, kind, correlation, ..Span::default() }
}

#[test]
fn a_range_causes_what_is_launched_within_it_even_if_it_runs_later() {
    let mut trace = Fixture::new();
    trace.span(range(0, 0, 100_000), "step");
    trace.span(range(0, 10_000, 20_000), "forward");
    trace.span(range(0, 50_000, 10_000), "forward");
    trace.span(call(0, 12_000, 1), "cudaLaunchKernel");
    trace.span(call(0, 55_000, 2), "cudaLaunchKernel");
    trace.span(call(0, 70_000, 3), "cudaLaunchKernel");
    // The autograd thread has no ranges, so its launches belong to the step.
    trace.span(call(1, 80_000, 4), "cudaLaunchKernel");
    trace.span(call(1, 180_000, 5), "cudaLaunchKernel");
    trace.kernel(kernel(7, 200_000, 10_000, 1), "a");
    trace.kernel(kernel(8, 205_000, 10_000, 2), "b");
    trace.kernel(kernel(7, 230_000, 1000, 3), "c");
    trace.kernel(kernel(7, 240_000, 2000, 4), "d");
    trace.kernel(kernel(7, 250_000, 2000, 5), "e");
    let file = trace.finish();
    let ranges = host::caused(&RankTrace::load(&file, needs()));
    let forward = RangeEffects {
        runs: 2,
        host_ns: 30_000,
        kernels: 2,
        kernels_of_other_threads: 0,
        busy_ns: 15_000,
        sum_ns: 20_000,
    };
    assert_eq!(ranges["forward"], forward);
    let step = RangeEffects {
        runs: 1,
        host_ns: 100_000,
        kernels: 4,
        kernels_of_other_threads: 1,
        busy_ns: 18_000,
        sum_ns: 23_000,
    };
    assert_eq!(ranges["step"], step);
}

#[test]
fn launches_of_other_threads_count_for_the_thread_that_names_steps() {
    let mut trace = Fixture::new();
    trace.span(range(0, 0, 100_000), "ProfilerStep#1");
    trace.span(range(0, 20_000, 60_000), "backward");
    trace.span(range(1, 30_000, 10_000), "nccl:all_reduce");
    trace.span(range(2, 0, 100_000), "loader");
    trace.span(call(1, 35_000, 1), "cudaLaunchKernel");
    trace.span(call(1, 90_000, 2), "cudaLaunchKernel");
    trace.span(call(0, 25_000, 3), "cudaLaunchKernel");
    trace.kernel(kernel(7, 40_000, 10_000, 1), "a");
    trace.kernel(kernel(7, 95_000, 1000, 2), "b");
    trace.kernel(kernel(7, 60_000, 1000, 3), "c");
    let file = trace.finish();
    let ranges = host::caused(&RankTrace::load(&file, needs()));
    let kernels = |name: &str| ranges[name].kernels;
    assert_eq!(kernels("ProfilerStep#1"), 3);
    assert_eq!(kernels("backward"), 2);
    assert_eq!((kernels("nccl:all_reduce"), kernels("loader")), (1, 0));
}

#[test]
fn if_two_threads_have_ranges_a_third_threads_work_belongs_to_none() {
    let mut trace = Fixture::new();
    trace.span(range(0, 0, 100_000), "a");
    trace.span(range(1, 0, 100_000), "b");
    trace.span(call(2, 10_000, 1), "cudaLaunchKernel");
    trace.kernel(kernel(7, 20_000, 10_000, 1), "k");
    let file = trace.finish();
    let ranges = host::caused(&RankTrace::load(&file, needs()));
    assert_eq!((ranges["a"].kernels, ranges["b"].kernels), (0, 0));
}

#[test]
fn work_belongs_to_the_shortest_image_that_overlaps_it_on_its_stream() {
    let mut trace = Fixture::new();
    let mut image = |stream, start_ns, duration_ns, name: &str| {
        let name = trace.writer.name(name);
        let kind = DeviceSpanKind::Annotation;
        let stream = Some(stream);
        trace.device_spans.push(DeviceSpan {
            start_ns,
            duration_ns,
            stream,
            kind,
            name,
            ..DeviceSpan::default()
        });
    };
    image(7, 0, 100_000, "outer");
    image(7, 20_000, 30_000, "inner");
    image(8, 0, 100_000, "elsewhere");
    trace.kernel(kernel(7, 5000, 10_000, 1), "a");
    trace.kernel(kernel(7, 15_000, 10_000, 2), "b");
    trace.kernel(kernel(7, 30_000, 5000, 3), "c");
    trace.kernel(kernel(7, 100_000, 5000, 4), "d");
    let file = trace.finish();
    let images = device::images(&RankTrace::load(&file, needs()));
    assert_eq!((images["outer"].kernels, images["outer"].kernel_ns), (1, 10_000));
    assert_eq!((images["inner"].kernels, images["inner"].kernel_ns), (2, 15_000));
    assert_eq!(images["elsewhere"].kernels, 0);
    assert_eq!(images["outer"].times_ns, [100_000]);
}

#[test]
fn a_modules_own_time_excludes_the_modules_that_it_calls() {
    let mut trace = Fixture::new();
    let mut call = |thread, start_ns, duration_ns, name: &str| {
        trace.span(range(thread, start_ns, duration_ns), &format!("nn.Module: {name}"));
    };
    for start_ns in [0, 1000] {
        call(0, start_ns, 100, "Net (Net)");
        call(0, start_ns + 10, 60, "Net.body (Body)");
        call(0, start_ns + 20, 30, "Net.body.fc (Linear)");
        call(0, start_ns + 75, 10, "Net.body.fc (Linear)");
    }
    // A module that calls itself, and a call of another module on another thread at the same time.
    call(1, 0, 100, "Tree (Tree)");
    call(1, 50, 40, "Tree (Tree)");
    call(1, 200, 10, "Tree (OptimizedModule)");
    trace.span(range(0, 0, 5000), "epoch");
    let file = trace.finish();
    let rank = RankTrace::load(&file, needs());
    let times = modules::times(&rank);
    let row = |path: &str, class: &str| {
        let module = &times[&(path.to_owned(), class.to_owned())];
        (module.runs, module.total_ns, module.self_ns)
    };
    assert_eq!(row("Net", "Net"), (2, 200, 60));
    assert_eq!(row("Net.body", "Body"), (2, 120, 60));
    assert_eq!(row("Net.body.fc", "Linear"), (4, 80, 80));
    assert_eq!(row("Tree", "Tree"), (2, 100, 100));
    // A wrapper of torch.compile has the path of the module that it wraps.
    assert_eq!(row("Tree", "OptimizedModule"), (1, 10, 10));
    assert_eq!(times.len(), 5);
    // Calls of modules aren't rows among the ranges.
    assert_eq!(host::caused(&rank).into_keys().collect::<Vec<_>>(), ["epoch"]);
}

#[test]
fn modules_that_torch_profiler_named_are_python_functions() {
    let mut trace = Fixture::new();
    let function = |start_ns| Span { kind: SpanKind::Python, ..range(0, start_ns, 100) };
    trace.span(function(0), "nn.Module: Linear_3");
    trace.span(function(200), "torch/nn/modules/module.py(1): __call__");
    trace.span(range(0, 0, 5000), "epoch");
    let file = trace.finish();
    let times = modules::times(&RankTrace::load(&file, needs()));
    let row = &times[&("Linear_3".to_owned(), "Linear".to_owned())];
    assert_eq!((times.len(), row.runs), (1, 1));
}
