use tprof_fixture::Fixture;
use tprof_trace::TraceFile;
use tprof_trace::model::{Kernel, Span, SpanKind};

use super::*;

/// A file with an annotation `block` around two runs of `mlp`. Each `mlp` calls `aten::linear`,
/// which launches three kernels, and then launches one more kernel. Another `aten::linear` runs
/// outside of the block.
fn file() -> TraceFile {
    let mut trace = Fixture::new();
    let span =
        |start_ns, duration_ns, kind| Span { start_ns, duration_ns, kind, ..Span::default() };
    trace.span(span(0, 90_000, SpanKind::Annotation), "block");
    let mut correlation = 0;
    let mut launch = |trace: &mut Fixture, at: u64, name: &str| {
        correlation += 1;
        trace.call(0, at, 100, "cudaLaunchKernel", correlation);
        let kernel = Kernel {
            start_ns: at + 5000,
            duration_ns: 200,
            stream: 7,
            correlation: Some(correlation),
            ..Kernel::default()
        };
        trace.kernel(kernel, name);
    };
    for start in [0, 40_000] {
        trace.span(span(start, 30_000, SpanKind::Operator), "mlp");
        trace.span(span(start + 1000, 10_000, SpanKind::Operator), "aten::linear");
        for (at, name) in [(2000, "set"), (3000, "gemm"), (4000, "bias"), (20_000, "relu<a | b>")] {
            launch(&mut trace, start + at, name);
        }
    }
    trace.span(span(100_000, 10_000, SpanKind::Operator), "aten::linear");
    for (at, name) in [(2000, "set"), (3000, "gemm"), (4000, "bias")] {
        launch(&mut trace, 100_000 + at, name);
    }
    trace.finish()
}

fn found(roots: Roots) -> Vec<(String, Pattern)> {
    let file = file();
    let rank = RankTrace::load(&file, Needs::WORK | Needs::ALL_SPANS);
    let patterns = patterns(&rank, rank.operator_tree(), roots);
    patterns.into_iter().map(|((a, b), pattern)| (format!("{a}: {b}"), pattern)).collect()
}

fn pattern(runs: u64, device_ns: u64, host_ns: u64, kernels: usize) -> Pattern {
    Pattern { runs, device_ns, host_ns, kernels }
}

#[test]
fn outermost_operators_have_the_kernels_of_inner_operators() {
    assert_eq!(
        found(Roots::Outermost),
        [
            ("aten::linear: set | gemm | bias".to_owned(), pattern(1, 600, 10_000, 3)),
            ("mlp: set | gemm | bias | relu<a | b>".to_owned(), pattern(2, 1600, 60_000, 4)),
        ]
    );
}

#[test]
fn an_operator_is_found_wherever_it_was_called() {
    let linear = "aten::linear: set | gemm | bias".to_owned();
    assert_eq!(found(Roots::Containing("linear")), [(linear.clone(), pattern(3, 1800, 30_000, 3))]);
    // HTA searches only the smallest depth.
    assert_eq!(found(Roots::Shallowest("linear")), [(linear, pattern(1, 600, 10_000, 3))]);
    assert_eq!(found(Roots::Containing("conv")), []);
}
