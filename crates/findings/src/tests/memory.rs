//! Tests of FragmentedMemory and AllocationChurn.

use tprof_trace::model::{
    Allocator, AllocatorBlock, AllocatorSegment, DeviceAllocation, NameId, Sample, Stack, Symbol,
    ThreadState,
};

use super::job::{Job, MS};

const MIB: u64 = 1 << 20;

/// Makes an event of the framework's allocator, with the allocator's totals after the event.
fn event(time_ns: u64, bytes: u64, allocated: u64, reserved: u64) -> DeviceAllocation {
    DeviceAllocation {
        time_ns,
        allocator: Allocator::Framework,
        device: Some(0),
        bytes: Some(bytes),
        total_allocated_bytes: Some(allocated),
        total_reserved_bytes: Some(reserved),
        ..DeviceAllocation::default()
    }
}

#[test]
fn a_pool_that_grows_although_enough_is_free_is_fragmented() {
    let job = |asked: u64| {
        let mut job = Job::new(1, 100 * MS);
        job.busy(0, 100 * MS);
        job.call(50 * MS, 3 * MS, "cudaMalloc");
        // After this request, 40 of 100 reserved MiB are free. The second request asks for `asked`
        // MiB, and the reserved memory grows by as much.
        job.fixture.allocations.push(event(MS, 60 * MIB, 60 * MIB, 100 * MIB));
        let (allocated, reserved) = ((60 + asked) * MIB, (100 + asked) * MIB);
        job.fixture.allocations.push(event(50 * MS, asked * MIB, allocated, reserved));
        job
    };
    let outcome = job(40).ask("FragmentedMemory");
    let (finding, places) = &outcome.found[0];
    // The bound is only the time of the calls that allocate device memory.
    assert_eq!((finding.bound_ns, places.len()), (3 * MS, 1));
    assert!(finding.seen.contains("1 of its requests took 40.0 MiB more"), "{}", finding.seen);
    let clear = job(41).ask("FragmentedMemory").no_problem.unwrap();
    assert_eq!(
        clear,
        "no misfit in the recording; at the peak 40.0 MiB of 141.0 MiB held are free"
    );
}

#[test]
fn a_snapshot_with_free_pieces_in_used_segments_is_fragmented() {
    let job = |free: u64| {
        let mut job = Job::new(1, 100 * MS);
        job.busy(0, 100 * MS);
        let (state, inactive) =
            (job.fixture.name("active_allocated"), job.fixture.name("inactive"));
        let bytes = 100 * MIB;
        let mut segments =
            vec![AllocatorSegment { device: Some(0), bytes, ..AllocatorSegment::default() }];
        let block = |bytes, state| AllocatorBlock { bytes, state, ..AllocatorBlock::default() };
        let mut blocks = vec![block(bytes - free * MIB, state), block(free * MIB, inactive)];
        job.fixture.writer.write(&mut segments).unwrap();
        job.fixture.writer.write(&mut blocks).unwrap();
        job
    };
    let outcome = job(30).ask("FragmentedMemory");
    let (finding, _) = &outcome.found[0];
    assert!(finding.seen.contains("30.0 MiB of the 100.0 MiB"), "{}", finding.seen);
    // 24 MiB are less than a quarter of the memory. With 100 MiB free, the segment is completely
    // free, so the allocator can release it.
    for free in [24, 100] {
        assert!(job(free).ask("FragmentedMemory").no_problem.is_some(), "{free}");
    }
}

#[test]
fn without_the_allocators_totals_fragmentation_is_unknown() {
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 100 * MS);
    assert!(job.ask("FragmentedMemory").unchecked.is_some());
}

/// Builds a job whose thread has samples in `malloc` for `in_malloc` of a hundred milliseconds.
fn sampled(in_malloc: u64) -> Job {
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 100 * MS);
    for (stack, function) in [(1, "_int_malloc"), (2, "forward")] {
        let frames = vec![u64::from(stack) * 16];
        let symbol = Symbol {
            process: 0,
            address: frames[0],
            depth: 0,
            function: job.fixture.name(function),
            file: NameId(0),
            line: 0,
            module: job.fixture.name("libtrain.so"),
        };
        job.fixture.writer.symbol(&symbol);
        job.fixture.writer.stack(&Stack { process: 0, stack, end: 0, frames });
    }
    let mut samples: Vec<Sample> = (0..100)
        .map(|at| Sample {
            time_ns: at * MS,
            stack: if at < in_malloc { 1 } else { 2 },
            weight_ns: MS,
            state: ThreadState::Running,
            ..Sample::default()
        })
        .collect();
    job.fixture.writer.write(&mut samples).unwrap();
    job
}

#[test]
fn the_time_of_samples_in_the_allocator_is_the_bound() {
    let outcome = sampled(12).ask("AllocationChurn");
    let (finding, _) = &outcome.found[0];
    assert_eq!((finding.bound_ns, finding.places), (12 * MS, 12));
    let few = sampled(3).ask("AllocationChurn").unchecked.unwrap();
    assert_eq!(few.why, "only 3 samples of it: use `--sample-rate 999` or record 50 steps");
    assert!(sampled(0).ask("AllocationChurn").no_problem.is_some());
}

#[test]
fn without_samples_the_cost_of_allocations_is_unknown() {
    let unchecked = Job::new(1, MS).ask("AllocationChurn").unchecked.unwrap();
    assert!(unchecked.why.starts_with("host allocations were not recorded"), "{}", unchecked.why);
}
