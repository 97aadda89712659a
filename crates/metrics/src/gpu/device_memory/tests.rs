use tprof_fixture::Fixture;
use tprof_trace::model::{Allocator, MemoryKind, Span, SpanKind};

use super::category::Category;
use super::pools::Level;
use super::*;

fn event(time_ns: u64, address: u64, bytes: i64, total: Option<u64>) -> DeviceAllocation {
    DeviceAllocation {
        time_ns,
        allocator: Allocator::Framework,
        free: bytes < 0,
        device: Some(0),
        address,
        bytes: Some(bytes.unsigned_abs()),
        total_allocated_bytes: total,
        total_reserved_bytes: total.map(|total| total + 50),
        ..DeviceAllocation::default()
    }
}

/// Returns the memory of a rank's pools.
fn of_rank(rank: &RankTrace<'_>) -> Vec<PoolMemory> {
    let (rows, resets) = resets::expand(&rank.allocations);
    of_rows(rank, &rows, &resets)
}

/// Returns the categories that hold memory, with their bytes.
fn held_by(level: &Level) -> Vec<(Category, u64)> {
    let all = Category::ALL.into_iter().zip(level.by_category);
    all.filter(|(_, bytes)| *bytes > 0).collect()
}

fn memory(made: Fixture) -> PoolMemory {
    let file = made.finish();
    let needs = Needs::ALLOCATIONS | Needs::OPERATORS | Needs::ANNOTATIONS | Needs::CALLS;
    of_rank(&RankTrace::load(&file, needs)).remove(0)
}

#[test]
fn a_category_follows_from_when_a_block_was_allocated_and_freed() {
    let mut made = Fixture::new();
    let span =
        |start_ns, duration_ns, kind| Span { start_ns, duration_ns, kind, ..Span::default() };
    made.span(span(10, 20, SpanKind::Operator), "aten::linear");
    made.span(span(12, 10, SpanKind::Operator), "aten::addmm");
    made.span(span(50, 20, SpanKind::Operator), "autograd::engine::evaluate_function: Addmm");
    made.span(span(52, 10, SpanKind::Operator), "aten::mm");
    made.span(span(80, 20, SpanKind::Annotation), "Optimizer.step#SGD.step");
    made.span(span(82, 5, SpanKind::Operator), "aten::zeros");
    made.allocations = vec![
        event(13, 1, 100, Some(1100)),
        // Freed within the outermost operator, but not within the innermost.
        event(14, 2, 10, Some(1110)),
        event(25, 2, -10, Some(1100)),
        event(53, 3, 70, Some(1170)),
        event(60, 1, -100, Some(1070)),
        event(83, 4, 5, Some(1075)),
        event(90, 3, -70, Some(1005)),
        // Allocated before recording began.
        event(91, 9, -400, Some(605)),
    ];
    let found = memory(made);
    assert!(found.exact);
    assert_eq!((found.allocations, found.frees, found.taken_bytes), (4, 4, 185));
    assert_eq!((found.peak.time_ns, found.peak.allocated_bytes), (53, 1170));
    let first = [(Category::Gradient, 70), (Category::Activation, 100), (Category::Unknown, 1000)];
    assert_eq!(held_by(&found.peak), first);
    let last = [(Category::OptimizerState, 5), (Category::Unknown, 600)];
    assert_eq!(held_by(&found.last), last);
    assert_eq!(found.peak_reserved_bytes, Some(1220));
}

#[test]
fn a_block_that_outlives_an_optimizer_step_is_not_an_activation() {
    let mut made = Fixture::new();
    let span =
        |start_ns, duration_ns, kind| Span { start_ns, duration_ns, kind, ..Span::default() };
    made.span(span(10, 20, SpanKind::Operator), "aten::_to_copy");
    made.span(span(80, 20, SpanKind::Annotation), "Optimizer.step#SGD.step");
    made.span(span(110, 20, SpanKind::Operator), "aten::linear");
    made.allocations = vec![event(13, 1, 100, None), event(113, 2, 70, None)];
    // The second block may be an activation of a step that was unfinished when recording ended.
    let held = [(Category::Activation, 70), (Category::Unknown, 100)];
    assert_eq!(held_by(&memory(made).last), held);
}

#[test]
fn blocks_kept_over_steps_are_parameters_as_far_as_gradients_have_their_size() {
    let mut made = Fixture::new();
    let span =
        |start_ns, duration_ns, kind| Span { start_ns, duration_ns, kind, ..Span::default() };
    made.span(span(1, 8, SpanKind::Operator), "aten::_to_copy");
    for at in [100, 200] {
        made.span(span(at, 9, SpanKind::Operator), "aten::linear");
        made.span(span(at + 20, 20, SpanKind::Operator), "autograd::engine::evaluate_function: X");
        made.span(span(at + 50, 20, SpanKind::Annotation), "Optimizer.step#AdamW.step");
        made.span(span(at + 51, 4, SpanKind::Operator), "aten::zeros_like");
        made.allocations.extend([
            // The output, which a variable keeps until the next step.
            event(at + 1, at + 1, 40, None),
            // A gradient of an activation, and one of a parameter.
            event(at + 21, at + 2, 40, None),
            event(at + 25, at + 2, -40, None),
            event(at + 26, at + 3, 512, None),
            // The optimizer's temporary memory.
            event(at + 52, at + 4, 512, None),
            event(at + 60, at + 4, -512, None),
            event(at + 90, at + 3, -512, None),
            event(at + 101, at + 1, -40, None),
        ]);
    }
    made.allocations.extend([
        // A parameter, a buffer of the same size, and a table without a gradient.
        event(2, 7, 512, None),
        event(3, 8, 512, None),
        event(4, 9, 1024, None),
        event(153, 5, 512, None),
        event(310, 7, -512, None),
    ]);
    made.allocations.sort_by_key(|row| row.time_ns);
    let found = memory(made);
    let peak = [
        (Category::Parameter, 512),
        (Category::Gradient, 512),
        (Category::OptimizerState, 512),
        (Category::Activation, 40),
        (Category::Temporary, 512),
        (Category::Unknown, 1536),
    ];
    assert_eq!((found.peak.time_ns, held_by(&found.peak)), (153, peak.to_vec()));
    let last = [(Category::OptimizerState, 512), (Category::Unknown, 1536)];
    assert_eq!(held_by(&found.last), last);
}

#[test]
fn segments_of_a_caching_allocator_have_no_phase() {
    for (allocator, is_known) in
        [(Allocator::Library, false), (Allocator::Virtual, false), (Allocator::Pool, true)]
    {
        let mut made = Fixture::new();
        let row = Span { start_ns: 1, duration_ns: 9, kind: SpanKind::Operator, ..Span::default() };
        made.span(row, "aten::mm");
        made.allocations = vec![DeviceAllocation { allocator, ..event(3, 1, 100, None) }];
        let found = memory(made);
        assert_eq!((found.has_categories, found.is_segments), (is_known, !is_known));
    }
}

#[test]
fn without_totals_the_recorded_bytes_are_added_up() {
    let mut made = Fixture::new();
    made.allocations = vec![
        event(1, 1, 10, None),
        event(2, 7, -30, None),
        event(3, 2, 5, None),
        event(4, 1, -10, None),
    ];
    let found = memory(made);
    assert!(!found.exact && !found.has_categories);
    // A block of 30 bytes must have existed before the recording.
    assert_eq!((found.peak.time_ns, found.peak.allocated_bytes), (1, 40));
    assert_eq!(found.last.allocated_bytes, 5);
    assert_eq!(found.peak_reserved_bytes, None);
}

#[test]
fn without_addresses_bytes_are_added_up_without_categories() {
    let mut made = Fixture::new();
    let row = Span { start_ns: 1, duration_ns: 90, kind: SpanKind::Operator, ..Span::default() };
    made.span(row, "aten::mm");
    made.allocations = [100, 50, -100, -50, 100, 50, -100, -50, -30, 20]
        .into_iter()
        .zip(10..)
        .map(|(bytes, time_ns)| event(time_ns, 0, bytes, None))
        .collect();
    let found = memory(made);
    // 30 bytes must have existed before the recording; otherwise the frees exceed the allocations.
    assert_eq!((found.peak.time_ns, found.peak.allocated_bytes), (11, 180));
    assert_eq!(found.last.allocated_bytes, 20);
    assert_eq!((found.allocations, found.frees, found.taken_bytes), (5, 5, 320));
    assert!(!found.exact && !found.is_placed && !found.has_categories);
}

#[test]
fn categories_sum_to_the_bytes_given_out() {
    let mut made = Fixture::new();
    let mut total = 2000;
    for at in 0..300_u64 {
        let address = at * 7 % 13;
        let free = at % 3 == 2;
        let bytes = 10 + at % 5;
        total = if free { total - 12 } else { total + bytes };
        let bytes = if free { -12 } else { bytes as i64 };
        made.allocations.push(event(at, 100 * at + address, bytes, Some(total)));
    }
    let found = memory(made);
    for level in &found.curve {
        assert_eq!(level.by_category.iter().sum::<u64>(), level.allocated_bytes);
    }
}

#[test]
fn a_reset_frees_the_blocks_of_its_process_on_the_device() {
    let taken = |time_ns, process, device, address| DeviceAllocation {
        time_ns,
        process,
        device,
        address,
        bytes: Some(100),
        kind: if device.is_none() { MemoryKind::Pinned } else { MemoryKind::Device },
        ..DeviceAllocation::default()
    };
    let reset = DeviceAllocation {
        time_ns: 10,
        free: true,
        device: Some(0),
        ..DeviceAllocation::default()
    };
    let of_both = |other: Option<u32>| {
        let mut made = Fixture::new();
        made.allocations = vec![
            taken(1, 0, Some(0), 0x1000),
            taken(2, 0, Some(0), 0x2000),
            DeviceAllocation { free: true, bytes: None, ..taken(3, 0, Some(0), 0x1000) },
            taken(4, 0, None, 0x3000),
            // A block of another process, at the same address.
            taken(5, 1, Some(0), 0x2000),
            reset,
            taken(11, 0, Some(0), 0x2000),
        ];
        made.allocations.extend(other.map(|device| taken(6, 0, Some(device), 0x4000)));
        let file = made.finish();
        let rank = RankTrace::load(&file, Needs::ALLOCATIONS | Needs::OPERATORS);
        (of_rank(&rank), resets::expand(&rank.allocations).1)
    };
    let facts = |pool: &PoolMemory| (pool.frees, pool.reset_frees, pool.last.allocated_bytes);
    let (pools, resets) = of_both(None);
    let [host, device] = &pools[..] else { panic!("{pools:?}") };
    assert_eq!((facts(host), facts(device)), ((1, 1, 0), (2, 1, 200)));
    assert_eq!((device.peak.time_ns, device.reset_bytes), (2, 100));
    assert_eq!((resets.count, resets.unclear), (1, 0));
    // With a second device, the owner of the pinned memory is unknown.
    let (pools, resets) = of_both(Some(1));
    let [host, device, second] = &pools[..] else { panic!("{pools:?}") };
    assert_eq!((facts(host), facts(device)), ((0, 0, 100), (2, 1, 200)));
    assert_eq!((facts(second), resets.unclear), ((0, 0, 100), 1));
}
