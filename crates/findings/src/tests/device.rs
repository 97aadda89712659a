//! Tests of DeviceErrors and DeviceMemoryGrowth.

use tprof_trace::model::{
    Device, DeviceAllocation, NameId, ProcessEnd, Sample, Span, SpanKind, Stack, Symbol,
    ThreadState,
};

use super::super::join::joined;
use super::super::severity::Severity;
use super::job::{Job, MS, ask, judged};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Adds a call that returned `status`.
fn returned(job: &mut Job, start_ns: u64, kind: SpanKind, name: &str, status: u32) {
    let category = match kind {
        SpanKind::Other => job.fixture.name("nccl"),
        _ => NameId(0),
    };
    let status = Some(status);
    let row = Span { start_ns, duration_ns: MS, kind, category, status, ..Span::default() };
    job.fixture.span(row, name);
}

/// Adds a call that requested `bytes` and failed for lack of memory.
fn lacked(job: &mut Job, start_ns: u64, bytes: u64) {
    let args = job.fixture.name(&format!(r#"{{"bytes":{bytes}}}"#));
    let (status, kind) = (Some(2), SpanKind::Runtime);
    let row = Span { start_ns, duration_ns: MS, kind, status, args, ..Span::default() };
    job.fixture.span(row, "cudaMalloc");
}

/// Adds a device with 140 GiB of memory.
fn large(job: &mut Job) {
    let name = job.fixture.name("NVIDIA H200");
    let memory_bytes = Some(140 * GIB);
    job.fixture.writer.device(&Device { name, memory_bytes, ..Device::default() });
}

/// Adds an allocation of device memory; with `free`, the release of one.
fn memory(job: &mut Job, time_ns: u64, address: u64, bytes: u64, free: bool) {
    job.fixture.allocations.push(DeviceAllocation {
        time_ns,
        address,
        bytes: (!free).then_some(bytes),
        free,
        device: Some(0),
        ..DeviceAllocation::default()
    });
}

/// Adds a sample of the thread in the function `grow` of `train.py`.
fn sampled(job: &mut Job, time_ns: u64) {
    let [function, file, module] =
        ["grow", "/me/train.py", "[python]"].map(|text| job.fixture.name(text));
    let symbol = Symbol { process: 0, address: 16, depth: 0, function, file, line: 80, module };
    job.fixture.writer.symbol(&symbol);
    job.fixture.writer.stack(&Stack { process: 0, stack: 1, end: 0, frames: vec![16] });
    let state = ThreadState::Running;
    let row = Sample { time_ns, weight_ns: 10 * MS, stack: 1, state, ..Sample::default() };
    job.fixture.writer.write(&mut vec![row]).unwrap();
}

/// Returns a job in which two allocations fail after 69 blocks of 2 GiB were allocated.
fn full() -> Job {
    let mut job = Job::new(1, 100 * MS);
    large(&mut job);
    for block in 0..69 {
        returned(&mut job, block * MS, SpanKind::Runtime, "cudaMalloc", 0);
        memory(&mut job, block * MS, 4096 + block, 2 * GIB, false);
    }
    for at in [70, 72] {
        returned(&mut job, at * MS, SpanKind::Runtime, "cudaMalloc", 2);
        // The runtime's call makes this call of the driver, so both fail.
        returned(&mut job, at * MS, SpanKind::Driver, "cuMemAlloc_v2", 2);
    }
    job
}

#[test]
fn a_device_that_ran_out_of_memory_comes_first() {
    let mut job = full();
    sampled(&mut job, 72 * MS + MS / 2);
    let file = job.fixture.finish();
    let outcome = ask(&file, "DeviceErrors");
    let [(finding, places)] = outcome.found.as_slice() else { panic!("{outcome:?}") };
    assert_eq!((finding.subject.as_str(), finding.bytes), ("out of memory", Some(138 * GIB)));
    assert_eq!(places.len(), 2, "the driver's calls are those of the runtime");
    for text in ["cudaMalloc (2 times)", "138.0 GiB of device 0 of its 140.0 GiB (98.6 %)"] {
        assert!(finding.seen.contains(text), "{}", finding.seen);
    }
    assert_eq!(finding.line.as_ref().map(|line| line.shown()).as_deref(), Some("train.py:80"));
    let ranks = [judged(&file, "rank 0")];
    let all = joined(&ranks);
    assert_eq!((all[0].rule, all[0].severity()), ("DeviceErrors", Severity::Critical));
}

/// Returns the text of DeviceErrors on the job [`full`] with more failed calls, which request
/// `bytes`. The failed calls of [`full`] have no recorded size.
fn asked(bytes: &[u64]) -> String {
    let mut job = full();
    for (at, bytes) in bytes.iter().enumerate() {
        lacked(&mut job, (80 + 2 * at as u64) * MS, *bytes);
    }
    let outcome = job.ask("DeviceErrors");
    outcome.found[0].0.seen.clone()
}

#[test]
fn the_text_has_the_requested_sizes_that_were_recorded() {
    for (bytes, expected) in [
        (&[][..], " How much was asked for is not recorded."),
        (&[3 * GIB], " How much 2 of them asked for is not recorded; the other asked for 3.0 GiB."),
        (&[3 * GIB, 4 * GIB], "not recorded; each other asked for 3.0 GiB to 4.0 GiB."),
    ] {
        let seen = asked(bytes);
        assert!(seen.contains(expected), "{seen}");
    }
    let mut job = Job::new(1, 100 * MS);
    lacked(&mut job, 10 * MS, GIB);
    let seen = &job.ask("DeviceErrors").found[0].0.seen;
    assert!(seen.contains(" It asked for 1.0 GiB."), "{seen}");
}

#[test]
fn an_allocation_that_succeeds_later_is_only_medium() {
    let mut job = full();
    returned(&mut job, 80 * MS, SpanKind::Runtime, "cudaMalloc", 0);
    let ranks = [judged(&job.fixture.finish(), "rank 0")];
    let all = joined(&ranks);
    let found = all.iter().find(|one| one.rule == "DeviceErrors").unwrap();
    assert_eq!(found.severity(), Severity::Medium);
}

#[test]
fn failed_pinning_of_host_memory_is_a_separate_finding() {
    let mut job = full();
    returned(&mut job, 90 * MS, SpanKind::Runtime, "cudaHostAlloc", 2);
    let outcome = job.ask("DeviceErrors");
    let subjects: Vec<&str> =
        outcome.found.iter().map(|(finding, _)| finding.subject.as_str()).collect();
    assert_eq!(subjects, ["out of host memory", "out of memory"]);
    let [host, device] = [0, 1].map(|at: usize| outcome.found[at].0.seen.as_str());
    assert!(host.contains("cudaHostAlloc, first") && !host.contains("device"), "{host}");
    assert!(device.contains("cudaMalloc (2 times)"), "{device}");
}

/// Returns the severity of a call that returned `status`, in a process with the end `end`.
fn severity(kind: SpanKind, name: &str, status: u32, end: ProcessEnd) -> Option<Severity> {
    let mut job = Job::new(1, 100 * MS);
    returned(&mut job, 50 * MS, kind, name, status);
    job.fixture.writer.process_end(0, 100 * MS, end);
    let ranks = [judged(&job.fixture.finish(), "rank 0")];
    let all = joined(&ranks);
    all.iter().find(|one| one.rule == "DeviceErrors").map(|one| one.severity())
}

#[test]
fn an_error_that_may_have_ended_the_job_is_critical() {
    let [fine, failed] = [ProcessEnd::Exited(0), ProcessEnd::Exited(1)];
    let (runtime, nccl) = (SpanKind::Runtime, SpanKind::Other);
    assert_eq!(severity(runtime, "cudaLaunchKernel", 1, fine), Some(Severity::Low));
    assert_eq!(severity(runtime, "cudaLaunchKernel", 1, failed), Some(Severity::Critical));
    let killed = ProcessEnd::Signal(6);
    assert_eq!(severity(runtime, "cudaLaunchKernel", 1, killed), Some(Severity::Critical));
    assert_eq!(severity(runtime, "cudaStreamSynchronize", 700, fine), Some(Severity::Critical));
    assert_eq!(severity(nccl, "ncclAllReduce", 6, fine), Some(Severity::Critical));
}

#[test]
fn the_text_on_an_error_has_the_end_of_its_process() {
    let mut job = full();
    job.fixture.writer.process_end(0, 1073 * MS, ProcessEnd::Exited(1));
    let outcome = job.ask("DeviceErrors");
    let seen = &outcome.found[0].0.seen;
    assert!(seen.contains("No later call had memory."), "{seen}");
    assert!(seen.ends_with("Its process ended with status 1 1.00 s later."), "{seen}");
}

#[test]
fn statuses_that_answer_a_query_are_not_errors() {
    for (name, status) in [
        ("cudaEventQuery", 600),
        ("cudaDeviceEnablePeerAccess", 704),
        ("cudaFuncGetAttributes", 209),
        ("cudaGetDeviceCount", 100),
    ] {
        assert_eq!(
            severity(SpanKind::Runtime, name, status, ProcessEnd::Exited(1)),
            None,
            "{name}"
        );
    }
}

#[test]
fn without_statuses_errors_are_unchecked() {
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 100 * MS);
    assert!(job.ask("DeviceErrors").unchecked.is_some());
    let mut job = Job::new(1, 100 * MS);
    returned(&mut job, MS, SpanKind::Runtime, "cudaMalloc", 0);
    let clear = job.ask("DeviceErrors").no_problem.unwrap();
    assert_eq!(clear, "none of 1 call with a status failed");
}

/// Returns a job of twenty steps of 100 ms. Step `n` allocates `taken(n)` MiB and never frees them.
fn growing(taken: impl Fn(u64) -> u64) -> Job {
    let mut job = Job::new(20, 100 * MS);
    large(&mut job);
    for step in 0..20 {
        job.call(step * 100 * MS + 50 * MS, MS, "cudaMalloc");
        let at = step * 100 * MS + 50 * MS + MS / 2;
        memory(&mut job, at, 4096 + step, taken(step) * MIB, false);
    }
    job
}

#[test]
fn memory_that_each_step_allocates_and_keeps_grows() {
    let mut job = growing(|_| 20);
    sampled(&mut job, 1050 * MS + MS / 2);
    let outcome = job.ask("DeviceMemoryGrowth");
    let [(finding, places)] = outcome.found.as_slice() else { panic!("{outcome:?}") };
    // From the start of the second step to the end of the last one, memory grows from 20 to 400
    // MiB.
    assert_eq!((finding.bytes, places.len()), (Some(380 * MIB), 19));
    assert!(finding.seen.contains("20.0 MiB a step, over 19 steps"), "{}", finding.seen);
    // 139.6 GiB are left. At a growth of 380 MiB in 1.9 s, they last for 11 min 53 s.
    assert!(finding.seen.contains("used up in another 11 min 5"), "{}", finding.seen);
    assert_eq!(finding.share, Some(1.0));
    assert_eq!(finding.line.as_ref().map(|line| line.line), Some(80));
}

#[test]
fn growth_that_ends_or_happens_once_is_not_found() {
    let clear = |job: Job| job.ask("DeviceMemoryGrowth").no_problem.unwrap();
    assert!(
        clear(growing(|step| if step < 12 { 20 } else { 0 }))
            .contains("not steadily until the end")
    );
    assert!(
        clear(growing(|step| if step == 9 { 400 } else { 0 }))
            .contains("not steadily until the end")
    );
    assert!(clear(growing(|step| if step == 0 { 400 } else { 0 })).contains("0 B"));
}

#[test]
fn memory_that_each_step_frees_does_not_grow() {
    let mut job = growing(|_| 20);
    for step in 0..20 {
        memory(&mut job, step * 100 * MS + 60 * MS, 4096 + step, 0, true);
    }
    assert!(job.ask("DeviceMemoryGrowth").found.is_empty());
}

#[test]
fn growth_is_unchecked_in_few_steps() {
    let mut job = Job::new(3, 100 * MS);
    memory(&mut job, MS, 4096, GIB, false);
    assert!(job.ask("DeviceMemoryGrowth").unchecked.is_some());
    assert!(Job::new(9, MS).ask("DeviceMemoryGrowth").unchecked.is_some());
}
