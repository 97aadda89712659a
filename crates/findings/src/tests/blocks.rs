//! Tests of OutOfDeviceMemory, EmptyCache and PeakHolder.

use tprof_trace::model::{
    Allocator, AllocatorEvent, Device, DeviceAllocation, ProcessEnd, Span, SpanKind, Stack, Symbol,
};

use super::job::{Job, MS};

const MIB: u64 = 1 << 20;
/// The stack of the line `train.py:80`.
const LINE: u32 = 1;

/// Returns a job of ten steps of 100 ms on a device with this much memory.
fn job(memory: u64) -> Job {
    let mut job = Job::new(10, 100 * MS);
    let [function, file, module] =
        ["grow", "/me/train.py", "[python]"].map(|text| job.fixture.name(text));
    let symbol = Symbol { process: 0, address: 16, depth: 0, function, file, line: 80, module };
    job.fixture.writer.symbol(&symbol);
    job.fixture.writer.stack(&Stack { process: 0, stack: LINE, end: 0, frames: vec![16] });
    job.fixture.writer.device(&Device { memory_bytes: Some(memory), ..Device::default() });
    job
}

/// Adds a change of memory; a negative size is a release.
fn change(job: &mut Job, allocator: Allocator, time_ns: u64, address: u64, mib: i64, stack: u32) {
    job.fixture.allocations.push(DeviceAllocation {
        time_ns,
        allocator,
        address,
        bytes: Some(mib.unsigned_abs() * MIB),
        free: mib < 0,
        device: Some(0),
        stack,
        ..DeviceAllocation::default()
    });
}

fn block(job: &mut Job, time_ns: u64, address: u64, mib: i64, stack: u32) {
    change(job, Allocator::Framework, time_ns, address, mib, stack);
}

/// Adds a request for 32 MiB that failed after 500 ms.
fn lacked(job: &mut Job) {
    let args = job.fixture.name(r#"{"allocated":104857600,"reserved":115343360,"thread":0}"#);
    let row = AllocatorEvent {
        time_ns: Some(500 * MS),
        device: Some(0),
        action: job.fixture.name("oom"),
        bytes: 32 * MIB,
        stack: LINE,
        args,
        ..AllocatorEvent::default()
    };
    job.fixture.writer.write(&mut vec![row]).unwrap();
}

#[test]
fn a_lack_of_memory_has_its_line_its_holders_and_what_became_of_the_job() {
    let of = |later_mib: i64, status: i32| {
        let mut job = job(128 * MIB);
        block(&mut job, 50 * MS, 0x1000, 100, LINE);
        lacked(&mut job);
        block(&mut job, 600 * MS, 0x1000, -100, 0);
        block(&mut job, 700 * MS, 0x2000, later_mib, 0);
        job.fixture.writer.process_end(0, 800 * MS, ProcessEnd::Exited(status));
        let outcome = job.ask("OutOfDeviceMemory");
        let (finding, places) = outcome.found[0].clone();
        assert_eq!((finding.line.map(|line| line.line), places.len()), (Some(80), 1));
        (finding.share, finding.seen)
    };
    let (share, seen) = of(1, 1);
    assert_eq!(share, Some(1.0));
    assert!(seen.contains("32.0 MiB were asked for on device 0, when 100.0 MiB were"), "{seen}");
    assert!(seen.contains("10.0 MiB free in what the allocator held"), "{seen}");
    assert!(seen.contains("100.0 MiB in 1 block by train.py:80"), "{seen}");
    assert!(seen.ends_with("Its process ended with status 1 300.0 ms later."), "{seen}");
    // If the process ends well, a later block of the size shows that it went on.
    assert_eq!((of(1, 0).0, of(32, 0).0), (Some(1.0), Some(0.099)));
}

#[test]
fn without_a_lack_of_memory_the_blocks_are_counted() {
    let mut job = job(128 * MIB);
    block(&mut job, 50 * MS, 0x1000, 100, LINE);
    let clear = job.ask("OutOfDeviceMemory").no_problem.unwrap();
    assert_eq!(clear, "the allocator had memory for each of 1 block");
    assert!(Job::new(9, MS).ask("OutOfDeviceMemory").found.is_empty());
}

/// Returns a job that takes a segment in each step and gives it back in the first `emptied`.
fn emptied(emptied: u64) -> Job {
    let mut job = job(128 * MIB);
    block(&mut job, MS, 0x1000, 1, 0);
    for step in 0..10 {
        let at = step * 100 * MS;
        job.call(at + 10 * MS, MS, "cudaMalloc");
        change(&mut job, Allocator::Library, at + 11 * MS, 0x9000 + step, 20, 0);
        if step < emptied {
            job.call(at + 50 * MS, 5 * MS, "cudaFree");
            change(&mut job, Allocator::Library, at + 50 * MS, 0x9000 + step, -20, LINE);
        }
    }
    job
}

#[test]
fn a_cache_that_is_emptied_in_most_steps_is_found_with_its_line() {
    let outcome = emptied(10).ask("EmptyCache");
    let (finding, places) = &outcome.found[0];
    assert!(finding.seen.starts_with("In 9 of 9 steps"), "{}", finding.seen);
    assert_eq!(finding.line.as_ref().map(|line| line.line), Some(80));
    assert_eq!(places.len(), 9);
    let clear = emptied(3).ask("EmptyCache").no_problem.unwrap();
    assert_eq!(clear, "memory goes back to the driver and is taken again in 2 of 9 steps");
}

/// Returns a job that asks for a larger block in each step. The device refuses, until the allocator
/// has given back the segment of the step before. Between two blocks are `gap` MiB.
fn refused(gap: u64) -> Job {
    let mut job = job(128 * MIB);
    let base = 0x1_0000_0000;
    change(&mut job, Allocator::Library, MS, base, 60 + gap as i64, 0);
    block(&mut job, 2 * MS, base, 30, 0);
    block(&mut job, 2 * MS, base + (30 + gap) * MIB, 30, 0);
    let segment = |step: u64| base + (step + 1) * 0x1000_0000;
    for step in 0..10 {
        let (at, mib) = (step * 100 * MS, 20 + step);
        let args = job.fixture.name(&format!("{{\"bytes\":{}}}", mib * MIB));
        for (start_ns, status) in [(at + 10 * MS, 2), (at + 20 * MS, 0)] {
            let kind = SpanKind::Runtime;
            let span = Span { start_ns, duration_ns: MS, kind, args, ..Span::default() };
            job.fixture.span(Span { status: Some(status), ..span }, "cudaMalloc");
        }
        if step > 0 {
            let last = segment(step - 1);
            job.call(at + 12 * MS, 5 * MS, "cudaFree");
            change(&mut job, Allocator::Library, at + 12 * MS, last, 1 - mib as i64, LINE);
        }
        change(&mut job, Allocator::Library, at + 21 * MS, segment(step), mib as i64, 0);
        block(&mut job, at + 22 * MS, segment(step), mib as i64, 0);
        block(&mut job, at + 30 * MS, segment(step), -(mib as i64), 0);
    }
    job
}

#[test]
fn memory_that_goes_back_because_what_is_free_is_in_pieces_is_fragmented() {
    let outcome = refused(19).ask("FragmentedMemory");
    let (finding, _) = &outcome.found[0];
    assert!(
        finding.seen.contains(
            "9 times the device had no more memory, until the allocator had given back 216.0 MiB \
             that it had cached; the largest asked for 29.0 MiB when 47.0 MiB were free in pieces \
             of at most 28.0 MiB"
        ),
        "{}",
        finding.seen
    );
    let clear = refused(19).ask("EmptyCache").no_problem.unwrap();
    assert!(clear.starts_with("9 of 9 segments"), "{clear}");
}

#[test]
fn memory_that_goes_back_because_the_device_is_full_is_not_fragmented() {
    let outcome = refused(0).ask("EmptyCache");
    let (finding, _) = &outcome.found[0];
    let seen = "9 segments were given back by requests that the device had no memory for at first";
    assert!(finding.seen.contains(seen), "{}", finding.seen);
    assert!(finding.advice.starts_with("The device is full"), "{}", finding.advice);
    assert!(refused(0).ask("FragmentedMemory").found.is_empty());
}

#[test]
fn a_line_with_a_third_of_a_full_device_is_found() {
    let of = |memory: u64, stack: u32| {
        let mut job = job(memory * MIB);
        block(&mut job, 50 * MS, 0x1000, 40, stack);
        block(&mut job, 60 * MS, 0x2000, 60, 0);
        block(&mut job, 90 * MS, 0x2000, -60, 0);
        job.ask("PeakHolder")
    };
    let (finding, places) = &of(128, LINE).found[0];
    assert_eq!((finding.bytes, places.len()), (Some(40 * MIB), 1));
    assert!(finding.seen.contains("held 100.0 MiB of the 128.0 MiB"), "{}", finding.seen);
    let clear = of(1000, LINE).no_problem.unwrap();
    assert_eq!(clear, "the peak is 10.0 % of the device's memory");
    let why = "blocks with 100.0 % of the peak have no line";
    assert!(format!("{:?}", of(128, 0).unchecked).contains(why), "{:?}", of(128, 0).unchecked);
}
