//! Tests of SmallBatches, UnoptimizedOp, MemoryBound and ComputeBound.

use tprof_trace::model::{CopyKind, Device, DeviceSpan, DeviceSpanKind, Kernel, MemoryKind};

use super::job::{Job, MS, US};

fn kernel_of(start_ns: u64, blocks: u32, stream: u64) -> Kernel {
    Kernel { start_ns, grid: [blocks, 1, 1], block: [128, 1, 1], stream, ..Kernel::default() }
}

#[test]
fn multiprocessors_without_a_block_are_empty() {
    let mut job = Job::new(1, 100 * MS).device(9);
    // One kernel fills a quarter of the device for 40 ms. In the second half of this time, another
    // kernel fills half of the device.
    job.kernel_of(0, kernel_of(0, 25, 7), 40 * MS, "small");
    job.kernel_of(0, kernel_of(20 * MS, 50, 8), 40 * MS, "smallish");
    job.kernel_of(0, kernel_of(40 * MS, 4096, 7), 100 * MS, "large");
    let outcome = job.ask("SmallBatches");
    let (finding, places) = &outcome.found[0];
    // In the first 20 ms, 0.75 of the device are empty; in the next 20 ms, 0.25.
    assert_eq!(finding.bound_ns, 20 * MS);
    assert_eq!((places.len(), places[0].stream), (2, Some(7)));
    assert!(finding.seen.contains("They run for 40.0 ms a step (40.0 %)"), "{}", finding.seen);
}

#[test]
fn kernels_that_nearly_fill_the_device_are_not_found() {
    let mut job = Job::new(1, 100 * MS).device(9);
    job.kernel_of(0, kernel_of(0, 99, 7), 99 * MS, "nearly full");
    assert_eq!(job.bound("SmallBatches"), None, "1 % of 99 ms");
    let mut job = Job::new(1, 100 * MS).device(9);
    job.kernel_of(0, kernel_of(0, 99, 7), 100 * MS, "nearly full");
    assert_eq!(job.bound("SmallBatches"), Some(MS));
}

#[test]
fn half_a_wave_fills_the_multiprocessors() {
    let mut job = Job::new(1, 100 * MS);
    let name = job.fixture.name("NVIDIA H200");
    let properties = job.fixture.name("{\"maxThreadsPerMultiprocessor\":2048}");
    let processors = Some(100);
    job.fixture.writer.device(&Device { name, processors, properties, ..Device::default() });
    // 16 blocks of 128 threads fit on each of 100 multiprocessors, so 800 blocks are half of a
    // wave.
    job.kernel_of(0, kernel_of(0, 200, 7), 40 * MS, "quarter");
    job.kernel_of(0, kernel_of(40 * MS, 800, 7), 100 * MS, "whole");
    assert_eq!(job.bound("SmallBatches"), Some(30 * MS));
}

/// Builds ten kernels of 1 ms that each fill a tenth of the device. The host launches each kernel 9
/// ms after the previous one ended. If `is_update`, the kernels lie in an optimizer's step.
fn waiting_for_small(is_update: bool) -> Job {
    let mut job = Job::new(1, 100 * MS).device(9);
    if is_update {
        job.range(0, 100 * MS, "Optimizer.step#SGD.step");
    }
    for kernel in 0..10 {
        let start = kernel * 10 * MS + 8 * MS;
        job.kernel_of(start, kernel_of(start + US, 10, 7), start + US + MS, "small");
    }
    job
}

#[test]
fn gaps_before_small_kernels_count_unless_in_an_optimizer_step() {
    // The kernels run for 10 ms, and nine tenths of the device are empty meanwhile. The gap before
    // the first kernel is 8.001 ms, the other nine gaps are 9 ms each. Nine tenths of the gaps
    // count.
    let before = 8 * MS + US + 9 * (9 * MS);
    let expected = 9 * MS + before / 10 * 9;
    let bound = waiting_for_small(false).bound("SmallBatches").unwrap();
    assert!(bound.abs_diff(expected) < 10 * US, "{bound} {expected}");
    assert_eq!(waiting_for_small(true).bound("SmallBatches"), Some(9 * MS));
}

#[test]
fn unknown_grids_or_devices_leave_small_batches_unchecked() {
    let mut job = Job::new(1, 100 * MS);
    job.kernel_of(0, kernel_of(0, 25, 7), 40 * MS, "small");
    assert!(job.ask("SmallBatches").unchecked.is_some());
    let mut job = Job::new(1, 100 * MS).device(9);
    job.busy(0, 100 * MS);
    assert!(job.ask("SmallBatches").unchecked.is_some());
}

/// Builds a job with a step of 100 ms in which a kernel with this name runs. During the second half
/// of the kernel, another kernel runs too.
fn pattern(name: &str, long_us: u64, compute_major: u32) -> Job {
    let mut job = Job::new(1, 100 * MS).device(compute_major);
    job.kernel(0, 0, long_us * US, name);
    job.busy(long_us * US / 2, 100 * MS);
    job
}

#[test]
fn replacing_a_kernel_gains_the_time_in_which_it_runs_alone() {
    let bound = |name: &str, long_us, major| pattern(name, long_us, major).bound("UnoptimizedOp");
    assert_eq!(bound("volta_sgemm_128x32_nt", 10_000, 7), Some(5 * MS));
    assert_eq!(bound("volta_sgemm_128x32_nt", 1_990, 7), None);
    assert_eq!(bound("maxwell_sgemm_128x32_nt", 10_000, 6), None, "no tensor cores");
    assert_eq!(bound("cutlass_80_tensorop_s1688gemm_256x64", 10_000, 8), None);
    assert_eq!(bound("void cudnn::ops::nchwToNhwcKernel<float>", 10_000, 8), Some(5 * MS));
    let xmma = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_ffma_execute_kernel_cublas";
    assert_eq!(bound(xmma, 10_000, 9), Some(5 * MS));
}

const ADD: &str =
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>";
const SUM: &str = "void at::native::reduce_kernel<512, 1>";

/// Returns the gain that the rule finds in a step of 100 ms. These kernels, given by name and
/// length in ms, follow each other, with other work before and after them.
fn gain_of_sequence(kernels: &[(&str, u64)]) -> Option<u64> {
    let mut job = Job::new(1, 100 * MS).device(9);
    job.busy(0, 20 * MS);
    let mut at = 20 * MS;
    for (name, long) in kernels {
        job.kernel(at, at, at + long * MS, name);
        at += long * MS;
    }
    job.busy(at, 100 * MS);
    job.bound("UnoptimizedOp")
}

#[test]
fn fused_kernels_take_as_long_as_the_longest_of_them() {
    assert_eq!(gain_of_sequence(&[(ADD, 4), (ADD, 7), (ADD, 4)]), Some(8 * MS));
    // A single kernel has no neighbor with which it could be fused.
    assert_eq!(gain_of_sequence(&[(ADD, 7)]), None);
    assert_eq!(gain_of_sequence(&[(ADD, 7), ("nvjet_tst_192x192_NNT", 9), (ADD, 7)]), None);
    // A sum remains in any case, because it has to read its input. So only an addition that is
    // shorter than the sum can be gained.
    assert_eq!(gain_of_sequence(&[(ADD, 4), (SUM, 6)]), Some(4 * MS));
    assert_eq!(gain_of_sequence(&[(ADD, 6), (SUM, 4)]), None);
}

#[test]
fn copies_within_the_device_are_found_with_their_kernels() {
    let mut job = Job::new(1, 100 * MS).device(9);
    let copy = "void at::native::elementwise_kernel<128, 2, direct_copy_kernel_cuda>";
    job.kernel(0, 0, 3 * MS, copy);
    job.copy(3 * MS, 2 * MS, CopyKind::DeviceToDevice, MemoryKind::Device, "cudaMemcpyAsync");
    job.busy(5 * MS, 100 * MS);
    let outcome = job.ask("UnoptimizedOp");
    let (finding, _) = &outcome.found[0];
    assert_eq!((finding.subject.as_str(), finding.bound_ns), ("copies", 5 * MS));
}

/// Builds a step of 100 ms with a kernel `k` of 20 ms, for which a range profiler recorded this
/// counter.
fn counted(counter: &str, percent: f64) -> Job {
    let mut job = Job::new(1, 100 * MS);
    job.kernel(0, 0, 20 * MS, "k");
    job.busy(20 * MS, 100 * MS);
    let (name, args) =
        (job.fixture.name("k"), job.fixture.name(&format!("{{\"{counter}\":{percent}}}")));
    job.fixture.device_spans.push(DeviceSpan {
        start_ns: 0,
        duration_ns: 20 * MS,
        kind: DeviceSpanKind::Counters,
        name,
        args,
        ..DeviceSpan::default()
    });
    job
}

#[test]
fn counters_show_what_limits_a_kernel() {
    let memory = "dram__throughput.avg.pct_of_peak_sustained_elapsed";
    let compute = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
    assert_eq!(counted(memory, 60.0).bound("MemoryBound"), Some(20 * MS));
    assert_eq!(counted(memory, 59.9).bound("MemoryBound"), None);
    assert!(counted(memory, 59.9).ask("MemoryBound").no_problem.is_some());
    assert_eq!(counted(compute, 60.0).bound("ComputeBound"), Some(20 * MS));
    assert!(counted(memory, 60.0).ask("ComputeBound").unchecked.is_some());
}

#[test]
fn without_counters_names_show_how_much_time_a_limit_may_affect() {
    let mut job = Job::new(1, 100 * MS);
    job.kernel(0, 0, 25 * MS, "ampere_sgemm_128x64_nn");
    job.kernel(0, 25 * MS, 100 * MS, "void at::native::reduce_kernel<512, 1>");
    let file = job.fixture.finish();
    let why = |rule| super::job::ask(&file, rule).unchecked.unwrap().why;
    assert!(why("MemoryBound").contains("take 75.0 % of compute time"), "{}", why("MemoryBound"));
    assert!(why("ComputeBound").contains("take 25.0 % of compute time"), "{}", why("ComputeBound"));
}
