//! Tests of UnfusedAttention, OddShapes, Recomputation and LowPrecisionUnused, and of modelled
//! bounds.

use tprof_trace::model::{NameId, Span, SpanKind};

use super::job::{Job, MS, US};

/// Adds an operator that launches a kernel 10 us after its own start. Both have the same length.
fn launches(job: &mut Job, at_ms: u64, long_ms: u64, name: &str, dims: &str) {
    let types = [r#""c10::BFloat16""#; 3].join(",");
    let args = format!(r#"{{"Input Dims":[{dims}],"Input type":[{types}]}}"#);
    operator(job, 0, [at_ms * MS, at_ms * MS + 100 * US], name, &args, None);
    let start_ns = at_ms * MS + 20 * US;
    job.kernel(at_ms * MS + 10 * US, start_ns, start_ns + long_ms * MS, name);
}

fn operator(
    job: &mut Job,
    thread: u32,
    [start_ns, end]: [u64; 2],
    name: &str,
    args: &str,
    sequence: Option<u64>,
) {
    let args = if args.is_empty() { NameId::default() } else { job.fixture.name(args) };
    let (duration_ns, kind) = (end - start_ns, SpanKind::Operator);
    let row = Span { start_ns, duration_ns, thread, kind, args, sequence, ..Span::default() };
    job.fixture.span(row, name);
}

/// Adds an attention with 64 heads, each with 1,024 by 1,024 scores.
fn attention(job: &mut Job, softmax: &str, values: &str) {
    launches(job, 1, 10, "aten::bmm", "[64,1024,128],[64,128,1024]");
    launches(job, 11, 5, "aten::mul", "[64,1024,1024],[1]");
    launches(job, 16, 15, softmax, "[1,64,1024,1024]");
    launches(job, 31, 10, "aten::bmm", values);
}

#[test]
fn products_around_a_softmax_are_unfused_attention() {
    let mut job = Job::new(1, 100 * MS).device(9);
    attention(&mut job, "aten::_softmax", "[64,1024,1024],[64,1024,128]");
    launches(&mut job, 50, 20, "aten::mm", "[4096,4096],[4096,4096]");
    let outcome = job.ask("UnfusedAttention");
    let (finding, places) = &outcome.found[0];
    assert_eq!(places.len(), 4, "{}", finding.seen);
    assert!(finding.seen.contains("take 40.0 ms a step"), "{}", finding.seen);
    // The products have 2 x 2 x 64 x 1024 x 1024 x 128 operations. They take this time at 989.4
    // TFLOP/s.
    let least = 2.0 * 2.0 * 64.0 * 1024.0 * 1024.0 * 128.0 / 989.4e3;
    assert_eq!(finding.bound_ns, 40 * MS - least as u64);
}

#[test]
fn only_a_softmax_between_matching_products_is_attention() {
    for (softmax, values) in [
        // The first softmax lies between products of other sizes, and the second operator is no
        // softmax.
        ("aten::_softmax", "[64,1024,512],[64,512,128]"),
        ("aten::relu", "[64,1024,1024],[64,1024,128]"),
    ] {
        let mut job = Job::new(1, 100 * MS).device(9);
        attention(&mut job, softmax, values);
        let outcome = job.ask("UnfusedAttention");
        assert!(outcome.found.is_empty() && outcome.no_problem.is_some(), "{softmax} {values}");
    }
}

#[test]
fn odd_sizes_that_cost_time_are_found() {
    let mut job = Job::new(1, 100 * MS).device(9);
    launches(&mut job, 1, 20, "aten::mm", "[4096,5185],[5185,4096]");
    // This product has aligned sizes, so it isn't found, although it is slow too.
    launches(&mut job, 30, 20, "aten::mm", "[4096,4096],[4096,4096]");
    let outcome = job.ask("OddShapes");
    let (finding, places) = &outcome.found[0];
    assert_eq!(places.len(), 1);
    assert!(finding.seen.contains("Sizes: 5185 (20.0 ms)"), "{}", finding.seen);
    let least = 2.0 * 4096.0 * 4096.0 * 5185.0 / 989.4e3;
    assert!(finding.bound_ns.abs_diff(20 * MS - least as u64) < 10, "{}", finding.bound_ns);
}

#[test]
fn odd_sizes_near_the_roof_or_of_small_matrices_are_not_found() {
    let mut job = Job::new(1, 100 * MS).device(9);
    // This product is at its roof: its operations alone would take 17 ms of its 20 ms.
    launches(&mut job, 1, 20, "aten::mm", "[20480,20481],[20481,20480]");
    launches(&mut job, 30, 20, "aten::mm", "[4096,7],[7,4096]");
    let outcome = job.ask("OddShapes");
    assert!(outcome.found.is_empty() && outcome.no_problem.is_some());
}

#[test]
fn without_sizes_nothing_is_judged_by_them() {
    for rule in ["UnfusedAttention", "OddShapes", "LowPrecisionUnused"] {
        let mut job = Job::new(1, 100 * MS).device(9);
        job.busy(10 * MS, 90 * MS);
        let unchecked = job.ask(rule).unchecked.unwrap();
        assert!(unchecked.needs.contains("--operators shapes"), "{rule}: {unchecked:?}");
    }
}

#[test]
fn a_repeated_forward_pass_is_found_with_its_time() {
    let mm = r#"{"Input Dims":[[64,32],[32,16]],"Input type":["float","float"]}"#;
    let node = "autograd::engine::evaluate_function: MmBackward0";
    let mut job = Job::new(1, 100 * MS).device(9);
    operator(&mut job, 0, [MS, 2 * MS], "aten::mm", mm, Some(1));
    job.kernel(MS + 10 * US, 2 * MS, 12 * MS, "gemm");
    operator(&mut job, 0, [20 * MS, 50 * MS], node, "", Some(1));
    operator(&mut job, 0, [21 * MS, 49 * MS], "MmBackward0", "", Some(1));
    operator(&mut job, 0, [22 * MS, 23 * MS], "aten::mm", mm, Some(7));
    job.kernel(22 * MS + 10 * US, 24 * MS, 34 * MS, "gemm");
    operator(&mut job, 0, [30 * MS, 31 * MS], "aten::mm", mm, None);
    job.kernel(30 * MS + 10 * US, 34 * MS, 44 * MS, "gemm");
    let outcome = job.ask("Recomputation");
    let (finding, places) = &outcome.found[0];
    assert_eq!((finding.bound_ns, places.len()), (10 * MS, 1));
    assert!(finding.seen.contains("33.3 % of all operations"), "{}", finding.seen);
}

#[test]
fn without_counters_the_limits_of_kernels_are_modelled() {
    let mut job = Job::new(1, 100 * MS).device(9);
    // The addition moves 4 x 4 GB, which takes 3.3 of its 4 ms at 4.8 TB/s. The product has 137
    // GFLOP, which take only 0.14 of its 20 ms.
    launches(&mut job, 1, 4, "aten::add", "[2000,2000,600],[2000,2000,600]");
    launches(&mut job, 10, 20, "aten::mm", "[4096,4096],[4096,4096]");
    let outcome = job.ask("MemoryBound");
    let (finding, places) = &outcome.found[0];
    assert!(finding.seen.starts_with("Modelled, not measured"), "{}", finding.seen);
    assert_eq!((finding.bound_ns, places.len()), (4 * MS, 1));
    assert!(job_without_sizes().ask("MemoryBound").unchecked.is_some());
}

fn job_without_sizes() -> Job {
    let mut job = Job::new(1, 100 * MS).device(9);
    job.busy(10 * MS, 90 * MS);
    job
}

/// Like `launches`, but with inputs in float32.
fn launches_float(job: &mut Job, at_ms: u64, long_ms: u64, dims: &str, kernel: &str) {
    let args = format!(r#"{{"Input Dims":[{dims}],"Input type":["float","float"]}}"#);
    operator(job, 0, [at_ms * MS, at_ms * MS + 100 * US], "aten::mm", &args, None);
    let start_ns = at_ms * MS + 20 * US;
    job.kernel(at_ms * MS + 10 * US, start_ns, start_ns + long_ms * MS, kernel);
}

#[test]
fn products_in_float32_would_be_faster_in_a_type_of_two_bytes() {
    let mut job = Job::new(1, 100 * MS).device(9);
    // Ordinary units reach 66.9 TFLOP/s. TF32 reaches half of the 989.4 TFLOP/s of bf16.
    launches_float(&mut job, 1, 20, "[4096,4096],[4096,4096]", "sgemm");
    launches_float(&mut job, 30, 20, "[4096,2048],[2048,4096]", "tf32gemm");
    launches(&mut job, 60, 20, "aten::mm", "[4096,4096],[4096,4096]");
    let outcome = job.ask("LowPrecisionUnused");
    let (finding, places) = &outcome.found[0];
    assert_eq!(places.len(), 2);
    let saved = 20e6 * (1.0 - 66.9 / 989.4) + 20e6 * (1.0 - 494.7 / 989.4);
    assert!(finding.bound_ns.abs_diff(saved as u64) < 100, "{}", finding.bound_ns);
    assert!(finding.seen.contains("50.0 % as fp32, 50.0 % as tf32"), "{}", finding.seen);
    assert!(finding.seen.contains("Estimate: "), "{}", finding.seen);
}

#[test]
fn a_product_that_is_bound_by_memory_saves_half_of_its_time_at_most() {
    let mut job = Job::new(1, 100 * MS).device(9);
    // Moving 4.3 GB at 4.8 TB/s takes longer than 2.1 GFLOP do, so memory limits the product.
    launches_float(&mut job, 1, 20, "[32768,32768],[32768,1]", "gemv");
    let outcome = job.ask("LowPrecisionUnused");
    let (finding, _) = &outcome.found[0];
    assert!(finding.bound_ns.abs_diff(10 * MS) < US, "{}", finding.bound_ns);
}

#[test]
fn products_in_short_types_are_not_found() {
    let mut job = Job::new(1, 100 * MS).device(9);
    launches(&mut job, 1, 20, "aten::mm", "[4096,4096],[4096,4096]");
    let outcome = job.ask("LowPrecisionUnused");
    assert!(outcome.found.is_empty() && outcome.no_problem.is_some());
}
