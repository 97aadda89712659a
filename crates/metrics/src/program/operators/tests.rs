use tprof_fixture::Fixture;
use tprof_trace::TraceFile;
use tprof_trace::model::{CopyKind, Kernel, MemoryCopy, Span, SpanKind};

use super::costs::Launched;
use super::*;

/// On thread 0, linear (0–100 us) calls addmm (10–60 us), which launches two kernels, and then
/// launches one kernel itself. Then copy_ (200–220 us) launches a copy. On thread 1, an operator
/// that began later than addmm surrounds thread 0's first launch in time. One more kernel is
/// launched outside of any operator.
fn file() -> TraceFile {
    let mut trace = Fixture::new();
    let operator = |start_ns, duration_ns, thread| Span {
        start_ns,
        duration_ns,
        thread,
        kind: SpanKind::Operator,
        ..Span::default()
    };
    trace.span(operator(0, 100_000, 0), "aten::linear");
    trace.span(operator(10_000, 50_000, 0), "aten::addmm");
    trace.span(operator(200_000, 20_000, 0), "aten::copy_");
    trace.span(operator(15_000, 30_000, 1), "aten::other");
    for (start, correlation, name) in [
        (20_000, 1, "cudaLaunchKernel"),
        (50_000, 2, "cudaLaunchKernel"),
        (70_000, 3, "cudaLaunchKernel"),
        (205_000, 4, "cudaMemcpyAsync"),
        (300_000, 5, "cudaLaunchKernel"),
    ] {
        trace.call(0, start, 5000, name, correlation);
    }
    let kernel = |start_ns, duration_ns, correlation| Kernel {
        start_ns,
        duration_ns,
        stream: 7,
        correlation: Some(correlation),
        ..Kernel::default()
    };
    trace.kernel(kernel(30_000, 8000, 1), "gemm");
    trace.kernel(kernel(52_000, 4000, 2), "bias");
    trace.kernel(kernel(75_000, 1000, 3), "relu");
    trace.kernel(kernel(310_000, 1000, 5), "lonely");
    trace.kernel(kernel(320_000, 1000, 9), "unlaunched");
    let copy = MemoryCopy {
        start_ns: 215_000,
        duration_ns: 2000,
        stream: 7,
        kind: CopyKind::DeviceToHost,
        correlation: Some(4),
        ..MemoryCopy::default()
    };
    trace.copy(copy, "");
    trace.finish()
}

fn sums(hta: bool) -> OperatorCosts {
    let file = file();
    let rank = RankTrace::load_as(&file, needs(), hta, 1);
    count_of(&rank, hta)
}

#[test]
fn own_time_excludes_called_operators() {
    let sums = sums(false);
    let of = |name: &str| sums.costs[name];
    let linear = of("aten::linear");
    assert_eq!((linear.runs, linear.total_ns, linear.own_ns), (1, 100_000, 50_000));
    assert_eq!(of("aten::addmm").own_ns, 50_000);
    let all: i64 = sums.costs.values().map(|cost| cost.own_ns).sum();
    assert_eq!(all, 100_000 + 20_000 + 30_000, "own times add up to the time in operators");
}

#[test]
fn a_launch_belongs_to_the_innermost_operator_of_its_own_thread() {
    let sums = sums(false);
    let addmm = sums.costs["aten::addmm"];
    assert_eq!((addmm.kernels, addmm.device_ns, addmm.device_total_ns), (2, 12_000, 12_000));
    assert_eq!(addmm.launched.mean_to_call_ns(), Some(10_000));
    assert_eq!(addmm.launched.mean_to_kernel_ns(), Some(10_000));
    assert_eq!(sums.costs["aten::linear"].kernels, 1);
    let other = sums.costs["aten::other"];
    assert_eq!((other.kernels, other.launched.mean_to_call_ns()), (0, None));
    assert_eq!((sums.unowned, sums.unlaunched), (1, 1));
    let mut sequences: Vec<_> = sums.sequences.keys().map(|(a, b)| format!("{a}: {b}")).collect();
    sequences.sort();
    assert_eq!(
        sequences,
        ["aten::addmm: gemm -> bias", "aten::copy_: Memcpy DtoH", "aten::linear: relu"]
    );
}

#[test]
fn hta_gives_a_launch_to_the_operator_that_began_last_on_any_thread() {
    let sums = sums(true);
    let mut sequences: Vec<_> = sums.sequences.keys().map(|(a, b)| format!("{a}: {b}")).collect();
    sequences.sort();
    // HTA doesn't count the call of a copy as a launch.
    assert_eq!(sequences, ["aten::addmm: bias", "aten::linear: relu", "aten::other: gemm"]);
    let key = ("aten::other".to_owned(), "gemm".to_owned());
    assert_eq!(sums.sequences[&key], Launched { runs: 1, to_call_ns: 5000, to_kernel_ns: 10_000 });
    assert!(sums.costs.is_empty());
}

#[test]
fn costs_of_ranks_add_up() {
    let one = sums(false);
    let mut two = one.clone();
    two.add(&one);
    let (one, two) = (one.costs["aten::addmm"], two.costs["aten::addmm"]);
    assert_eq!((two.runs, two.own_ns, two.kernels), (2, 100_000, 4));
    assert_eq!(two.launched.mean_to_call_ns(), one.launched.mean_to_call_ns());
}
