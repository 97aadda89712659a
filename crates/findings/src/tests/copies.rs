//! Tests of PageableCopies, SynchronousCopies, SynchronousMemsets and ExposedCopies.

use tprof_trace::model::{
    CopyKind, MemoryCopy, MemoryKind, Module, Sample, Span, SpanKind, Stack, Symbol, ThreadState,
};

use super::job::{Job, MS, US};

/// Builds a step of 100 ms with a copy of `long_us` in its middle. Nothing else runs during the
/// copy.
fn job(long_us: u64, kind: CopyKind, host: MemoryKind, call: &str) -> Job {
    let mut job = Job::new(1, 100 * MS);
    let end = 40 * MS + long_us * US;
    job.busy(0, 40 * MS);
    job.copy(40 * MS, long_us * US, kind, host, call);
    job.busy(end, 100 * MS);
    job
}

#[test]
fn an_asynchronous_copy_of_pageable_memory_is_found() {
    let (kind, call) = (CopyKind::HostToDevice, "cudaMemcpyAsync");
    let outcome = job(10_000, kind, MemoryKind::Pageable, call).ask("PageableCopies");
    let (finding, places) = &outcome.found[0];
    assert_eq!((finding.bound_ns, finding.subject.as_str()), (10 * MS, "to the device"));
    // The places are the call and the copy itself.
    assert_eq!(places.len(), 2);
    assert!(places.iter().any(|place| place.stream == Some(0)), "{places:?}");
    assert_eq!(job(990, kind, MemoryKind::Pageable, call).bound("PageableCopies"), None);
    let pinned = job(10_000, kind, MemoryKind::Pinned, call).ask("PageableCopies");
    let clear = pinned.no_problem.unwrap();
    assert_eq!(clear, "all copies between host and device in the steps use pinned memory");
    assert!(job(10_000, kind, MemoryKind::Unknown, call).ask("PageableCopies").unchecked.is_some());
}

#[test]
fn advice_in_the_terms_of_pytorch_is_for_jobs_that_may_use_it() {
    let speaks_of_pytorch = |modules: &[&str]| {
        let kind = CopyKind::HostToDevice;
        let mut job = job(10_000, kind, MemoryKind::Pageable, "cudaMemcpyAsync");
        for path in modules {
            let path = job.fixture.name(path);
            let build_id = job.fixture.name("");
            let (process, start, end, bias, time_ns) = (0, 4096, 8192, 0, 0);
            let row = Module { process, start, end, bias, path, build_id, time_ns };
            job.fixture.writer.module(&row);
        }
        let outcome = job.ask("PageableCopies");
        let advice = &outcome.found[0].0.advice;
        assert!(advice.starts_with("Pin the host's memory"), "{advice}");
        advice.contains("PyTorch")
    };
    assert!(speaks_of_pytorch(&[]), "what is loaded isn't known");
    assert!(speaks_of_pytorch(&["/usr/lib/libc.so.6", "/venv/torch/lib/libtorch_cpu.so"]));
    assert!(!speaks_of_pytorch(&["/usr/lib/libc.so.6", "/venv/cupy/_core/core.so"]));
}

#[test]
fn only_the_direction_of_copies_in_the_steps_is_found() {
    let mut job = job(10_000, CopyKind::DeviceToHost, MemoryKind::Pageable, "cudaMemcpyAsync");
    job.copy(120 * MS, MS, CopyKind::HostToDevice, MemoryKind::Pageable, "cudaMemcpyAsync");
    let outcome = job.ask("PageableCopies");
    let subjects: Vec<&str> = outcome.found.iter().map(|(f, _)| f.subject.as_str()).collect();
    assert_eq!(subjects, ["to the host"], "the other one lies after the step");
}

#[test]
fn a_call_that_returns_when_the_copy_is_done_is_synchronous() {
    let copy = |long, call: &str| job(long, CopyKind::HostToDevice, MemoryKind::Pinned, call);
    assert_eq!(copy(10_000, "cudaMemcpy").bound("SynchronousCopies"), Some(10 * MS));
    assert_eq!(copy(10_000, "hipMemcpyWithStream").bound("SynchronousCopies"), Some(10 * MS));
    assert_eq!(copy(990, "cudaMemcpy").bound("SynchronousCopies"), None);
    let clear = copy(10_000, "cudaMemcpyAsync").ask("SynchronousCopies").no_problem.unwrap();
    assert_eq!(clear, "no synchronous copy was recorded");
}

#[test]
fn the_name_of_its_call_makes_a_memset_synchronous() {
    let set = |long, call: &str| job(long, CopyKind::Memset, MemoryKind::Device, call);
    assert_eq!(set(10_000, "cudaMemset").bound("SynchronousMemsets"), Some(10 * MS));
    assert_eq!(set(990, "cudaMemset").bound("SynchronousMemsets"), None);
    assert_eq!(set(10_000, "cudaMemsetAsync").bound("SynchronousMemsets"), None);
    assert_eq!(set(10_000, "cudaMemset").bound("SynchronousCopies"), None);
}

#[test]
fn copies_that_other_work_hides_gain_nothing() {
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 100 * MS);
    job.copy(40 * MS, 10 * MS, CopyKind::DeviceToHost, MemoryKind::Pageable, "cudaMemcpyAsync");
    assert_eq!(job.bound("PageableCopies"), None);
}

/// Builds ten steps of 100 ms. Each has kernels of 40 ms and then a copy of 50 ms on their stream.
/// If `is_ahead`, the host launched the next step's kernels well before the copy ended, otherwise
/// only after it.
fn behind(kind: CopyKind, host: MemoryKind, is_ahead: bool, copy_stream: u64) -> Job {
    let mut job = Job::new(10, 100 * MS);
    for step in 0..10 {
        let start = step * 100 * MS;
        let called = if is_ahead { start.saturating_sub(20 * MS) } else { start };
        job.kernel(called, start, start + 40 * MS, "k");
        let correlation = 1000 + step;
        job.fixture.call(0, called + 2 * US, US, "cudaMemcpyAsync", correlation);
        let (from, to) = match kind {
            CopyKind::HostToDevice => (host, MemoryKind::Device),
            _ => (MemoryKind::Device, host),
        };
        let row = MemoryCopy {
            start_ns: start + 40 * MS,
            duration_ns: 50 * MS,
            stream: copy_stream,
            bytes: Some(64 << 20),
            correlation: Some(correlation),
            kind,
            from,
            to,
            ..MemoryCopy::default()
        };
        job.fixture.copy(row, "");
    }
    job
}

#[test]
fn a_copy_that_delays_launched_kernels_is_exposed() {
    let (kind, pinned) = (CopyKind::DeviceToHost, MemoryKind::Pinned);
    let outcome = behind(kind, pinned, true, 0).ask("ExposedCopies");
    let [(finding, places)] = outcome.found.as_slice() else { panic!("{outcome:?}") };
    // No kernel follows the last copy, so nine copies count. The kernels are shorter than the
    // copies, so they limit the gain to 400 ms.
    assert_eq!((finding.subject.as_str(), finding.bound_ns), ("to the host", 400 * MS));
    assert_eq!(places.len(), 9);
    assert!(finding.seen.contains("copies a step of 64.0 MiB, to the host"), "{}", finding.seen);
    let to_device = behind(CopyKind::HostToDevice, pinned, true, 0).ask("ExposedCopies");
    assert_eq!(to_device.found[0].0.subject, "to the device");
}

#[test]
fn a_copy_that_delays_no_kernel_is_not_exposed() {
    let found = |kind, host, is_ahead, stream| {
        behind(kind, host, is_ahead, stream).bound("ExposedCopies").is_some()
    };
    let (kind, pinned) = (CopyKind::DeviceToHost, MemoryKind::Pinned);
    assert!(found(kind, pinned, true, 0));
    assert!(!found(kind, pinned, false, 0), "the host is late");
    assert!(!found(kind, pinned, true, 9), "it has a stream of its own");
    assert!(!found(kind, MemoryKind::Pageable, true, 0), "pageable");
    assert!(!found(CopyKind::DeviceToDevice, MemoryKind::Device, true, 0), "within the device");
}

/// Adds samples of the thread at lines of a loop: line 7 copies, line 6 doesn't.
fn sampled(job: &mut Job, samples: &[(u64, u32)]) {
    for line in [6, 7] {
        let [function, file, module] =
            ["loop", "/me/train.py", "[python]"].map(|text| job.fixture.name(text));
        let address = u64::from(line) * 16;
        let symbol = Symbol { process: 0, address, depth: 0, function, file, line, module };
        job.fixture.writer.symbol(&symbol);
        let stack = Stack { process: 0, stack: line, end: 0, frames: vec![address] };
        job.fixture.writer.stack(&stack);
    }
    let row = |&(time_ns, stack): &(u64, u32)| Sample {
        time_ns,
        weight_ns: MS,
        stack,
        state: ThreadState::Running,
        ..Sample::default()
    };
    let mut rows: Vec<Sample> = samples.iter().map(row).collect();
    job.fixture.writer.write(&mut rows).unwrap();
}

/// Returns the line that the rule finds for a copy from 40 ms to 50 ms, after an operator that ends
/// at 38 ms.
fn line_of_copy(samples: &[(u64, u32)]) -> Option<u32> {
    let (kind, host) = (CopyKind::HostToDevice, MemoryKind::Pageable);
    let mut job = job(10_000, kind, host, "cudaMemcpyAsync");
    let row = Span { duration_ns: 38 * MS, kind: SpanKind::Operator, ..Span::default() };
    job.fixture.span(row, "aten::mm");
    sampled(&mut job, samples);
    let outcome = job.ask("PageableCopies");
    let line = outcome.found[0].0.line.clone();
    line.inspect(|line| assert_eq!(line.function, "loop")).map(|line| line.line)
}

#[test]
fn a_copy_has_the_line_of_samples_within_its_call() {
    assert_eq!(line_of_copy(&[(20 * MS, 6), (30 * MS, 6), (45 * MS, 7)]), Some(7));
    assert_eq!(line_of_copy(&[(20 * MS, 6), (39 * MS, 7)]), Some(7), "on the way to it");
    assert_eq!(line_of_copy(&[(35 * MS, 6)]), Some(0), "only the function is known");
    assert_eq!(line_of_copy(&[(5 * MS, 6)]), None, "long before");
}
