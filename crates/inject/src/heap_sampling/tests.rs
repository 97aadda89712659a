//! Tests of counters and samples of allocations, with a real region.

use super::*;

#[test]
fn logarithm_is_exact_to_nine_digits() {
    for i in 1..10_000 {
        let x = f64::from(i) / 10_000.0;
        assert!((ln(x) - x.ln()).abs() < 1e-9 * (1.0 + x.ln().abs()), "{x}");
    }
    assert!((ln(1e-300) - 1e-300f64.ln()).abs() < 1e-6);
}

use crate::testing::{Attached, Written};
use tprof_wire::record;

/// A block of so many bytes, whose stack isn't taken.
fn allocate(thread: &Thread, block: usize, bytes: usize) -> bool {
    add(thread, block as *mut u8, (bytes, bytes), Kind::Alloc, 0, 0)
}

fn addresses(records: &[Written]) -> Vec<u64> {
    records.iter().map(|record| record::address(record.words[0])).collect()
}

fn kinds(records: &[Written]) -> Vec<Kind> {
    records.iter().map(|record| record.kind).collect()
}

#[test]
fn a_draw_has_the_interval_as_its_mean_and_an_exponential_tail() {
    let process = Attached::new();
    let thread = process.thread();
    thread.random.set(12345);
    let draws: Vec<i64> = (0..100_000).map(|_| draw(thread, 1000)).collect();
    let mean = draws.iter().sum::<i64>() as f64 / draws.len() as f64;
    assert!((mean - 1000.0).abs() < 15.0, "{mean}");
    let beyond = |limit: i64| draws.iter().filter(|draw| **draw > limit).count() as f64 / 1e5;
    assert!((beyond(1000) - (-1f64).exp()).abs() < 0.01);
    assert!((beyond(3000) - (-3f64).exp()).abs() < 0.005);
    assert!(draws.iter().all(|draw| *draw >= 0));
}

/// With 64 bytes each and an interval of 1,000, of 100,000 blocks 6,200 are expected, with a
/// deviation of 76.
#[test]
fn small_blocks_are_kept_with_the_probability_of_their_bytes() {
    let process = Attached::new();
    let thread = process.thread();
    state::INTERVAL.store(1000, Relaxed);
    thread.random.set(99);
    thread.draw_left.set(draw(thread, 1000));
    let mut kept = 0;
    for _ in 0..100_000 {
        if allocate(thread, 0x10_0000, 64) {
            (kept, _) = (kept + 1, remove(0x10_0000));
        }
    }
    let expected = 1e5 * (1.0 - (-0.064f64).exp());
    assert!((f64::from(kept) - expected).abs() < 400.0, "{kept} of {expected}");
    assert_eq!(thread.slot().allocations.load(Relaxed), 100_000);
    assert_eq!(thread.slot().allocated_bytes.load(Relaxed), 6_400_000);
}

#[test]
fn a_block_of_the_interval_or_more_is_always_kept() {
    let process = Attached::new();
    let thread = process.thread();
    state::INTERVAL.store(4096, Relaxed);
    for at in 0..500usize {
        allocate(thread, 0x20_0000, 100 + at);
        remove(0x20_0000);
        for bytes in [4096, 5000, 1 << 20] {
            assert!(allocate(thread, 0x20_0000, bytes), "{at} {bytes}");
            assert!(remove(0x20_0000));
        }
    }
}

#[test]
fn large_blocks_do_not_change_which_small_ones_are_kept() {
    let process = Attached::new();
    let thread = process.thread();
    state::INTERVAL.store(1000, Relaxed);
    let kept_of = |with_large: bool| {
        thread.random.set(7);
        thread.countdown.set(0);
        thread.draw_left.set(draw(thread, 1000));
        let kept = |at: usize| {
            if with_large && at.is_multiple_of(3) {
                assert!(allocate(thread, 0x30_0000, 3000) && remove(0x30_0000));
            }
            allocate(thread, 0x30_0000, 50) && remove(0x30_0000)
        };
        (0..2000).filter(|at| kept(*at)).collect::<Vec<_>>()
    };
    let without = kept_of(false);
    assert!(without.len() > 50);
    assert_eq!(kept_of(true), without);
}

#[test]
fn a_kept_block_has_a_record_with_its_bytes_and_so_has_its_free() {
    let process = Attached::new();
    let thread = process.thread();
    state::INTERVAL.store(100, Relaxed);
    assert!(allocate(thread, 0x40_0000, 777));
    freed(thread, 0x40_0000 as *mut u8, 777);
    let all = process.of_heap(thread);
    assert_eq!(kinds(&all), [Kind::Alloc, Kind::Free]);
    assert_eq!(addresses(&all), [0x40_0000, 0x40_0000]);
    assert_eq!(record::size(all[0].words[0], all[0].words[1]), 777);
}

#[test]
fn the_free_of_a_block_that_was_not_kept_is_counted_and_not_recorded() {
    let process = Attached::new();
    let thread = process.thread();
    freed(thread, 0x50_0000 as *mut u8, 64);
    assert_eq!(thread.slot().frees.load(Relaxed), 1);
    assert_eq!(thread.slot().live_delta(), -64);
    assert!(process.of_heap(thread).is_empty());
}

#[test]
fn live_bytes_are_added_to_the_process_once_they_have_changed_by_64_kib() {
    let process = Attached::new();
    let thread = process.thread();
    let (slot, header) = (thread.slot(), process.header());
    let bytes = || (slot.live_delta(), header.live_bytes.load(Relaxed));
    add_live(thread, 100);
    assert_eq!(bytes(), (100, 0));
    add_live(thread, ROOM - 100);
    assert_eq!(bytes(), (ROOM, 0));
    add_live(thread, 1);
    assert_eq!(bytes(), (0, ROOM + 1));
    add_live(thread, -ROOM - 1);
    assert_eq!(bytes(), (0, 0));
}

#[test]
fn blocks_that_come_and_go_never_reach_the_process() {
    let process = Attached::new();
    let thread = process.thread();
    for _ in 0..1000 {
        add_live(thread, 1000);
        add_live(thread, -1000);
    }
    add_live(thread, -30_000);
    assert_eq!(
        (thread.slot().live_delta(), process.header().live_bytes.load(Relaxed)),
        (-30_000, 0)
    );
    assert_eq!(process.header().peak_bytes.load(Relaxed), 0);
}

#[test]
fn the_total_is_exact_to_64_kib_whatever_the_order_of_allocations_and_frees() {
    let process = Attached::new();
    let thread = process.thread();
    let (mut live, mut x) = (0, 88_172_645_463_325_252_u64);
    for _ in 0..100_000 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let bytes = (x >> 20) as i64 % 40_000;
        let delta = if x & 1 == 0 { bytes } else { -bytes };
        live += delta;
        add_live(thread, delta);
        let total = process.header().live_bytes.load(Relaxed);
        assert_eq!(total + thread.slot().live_delta(), live);
        assert!((live - total).abs() <= ROOM, "{live} {total}");
    }
}

#[test]
fn the_peak_stays_when_live_bytes_fall() {
    let process = Attached::new();
    let thread = process.thread();
    let header = process.header();
    for (change, peak) in [(1 << 20, 1 << 20), (-(1 << 19), 1 << 20), (1 << 20, 3 << 19)] {
        add_live(thread, change);
        assert_eq!(header.peak_bytes.load(Relaxed), peak);
    }
    assert!(header.peak_clock.load(Relaxed) > 0);
}

#[test]
fn the_clock_of_a_peak_changes_only_with_the_peak() {
    let process = Attached::new();
    let thread = process.thread();
    let header = process.header();
    add_live(thread, 1 << 20);
    header.peak_clock.store(1, Relaxed);
    add_live(thread, -(1 << 19));
    add_live(thread, 1 << 18);
    assert_eq!(header.peak_clock.load(Relaxed), 1);
    add_live(thread, 1 << 20);
    assert!(header.peak_clock.load(Relaxed) > 1);
}

#[test]
fn live_bytes_include_those_that_the_thread_has_not_added_yet_and_are_never_negative() {
    let process = Attached::new();
    let thread = process.thread();
    add_live(thread, 1 << 20);
    add_live(thread, 100);
    assert_eq!(live_bytes(thread), Some((1 << 20) + 100));
    add_live(thread, -(1 << 21));
    assert_eq!(live_bytes(thread), Some(0));
}

#[test]
fn live_bytes_are_unknown_under_exact_and_once_blocks_were_not_counted() {
    let process = Attached::new();
    let thread = process.thread();
    state::MEM_MODE.store(mem_mode::EXACT, Relaxed);
    assert_eq!(live_bytes(thread), None);
    state::MEM_MODE.store(mem_mode::SAMPLED, Relaxed);
    assert_eq!(live_bytes(thread), Some(0));
    process.header().balance_lost.store(1, Relaxed);
    assert_eq!(live_bytes(thread), None);
}

#[test]
fn threads_that_flush_at_once_lose_no_bytes() {
    let process = Attached::new();
    let header = process.header();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let thread = crate::gate::recording().unwrap();
                (0..1000).for_each(|_| add_live(thread, 70_000));
                (0..1000).for_each(|_| add_live(thread, -70_000));
            });
        }
    });
    assert_eq!(header.live_bytes.load(Relaxed), 0);
    assert!((70_000_000..=280_000_000).contains(&header.peak_bytes.load(Relaxed)));
}

unsafe extern "C" {
    fn malloc(bytes: usize) -> *mut core::ffi::c_void;
    fn free(block: *mut core::ffi::c_void);
    fn malloc_usable_size(block: *mut core::ffi::c_void) -> usize;
}

fn with_blocks(test: impl Fn(&Attached, &'static Thread, *mut u8, *mut u8)) {
    let process = Attached::new();
    let thread = process.thread();
    state::USABLE_SIZE.store(malloc_usable_size as *const () as usize, Relaxed);
    state::INTERVAL.store(100, Relaxed);
    // SAFETY: the blocks are freed once.
    unsafe {
        let (one, other) = (malloc(50_000), malloc(50_000));
        test(&process, thread, one.cast(), other.cast());
        free(one);
        free(other);
    }
}

#[test]
fn a_realloc_of_a_kept_block_records_both_and_counts_one_of_each() {
    with_blocks(|process, thread, from, to| {
        assert!(allocate(thread, from as usize, 50_000));
        // SAFETY: both are live blocks.
        unsafe { reallocated(thread, reallocating(thread, from), to, 50_000, 0, 0) };
        let all = process.of_heap(thread);
        assert_eq!(kinds(&all), [Kind::Alloc, Kind::ReallocFree, Kind::ReallocAlloc]);
        assert_eq!(addresses(&all), [from as u64, from as u64, to as u64]);
        let slot = thread.slot();
        let counts = [&slot.allocations, &slot.frees].map(|count| count.load(Relaxed));
        assert_eq!(counts, [2, 1]);
        assert!(remove(to as usize) && !remove(from as usize));
    });
}

#[test]
fn a_realloc_that_failed_leaves_the_block_kept_and_counts_nothing() {
    with_blocks(|process, thread, from, _| {
        assert!(allocate(thread, from as usize, 50_000));
        // SAFETY: it is a live block.
        let old = unsafe { reallocating(thread, from) };
        not_reallocated(thread, old, from);
        let all = process.of_heap(thread);
        assert_eq!(kinds(&all), [Kind::Alloc, Kind::ReallocFree, Kind::ReallocFailed]);
        let slot = thread.slot();
        let counts = [&slot.allocations, &slot.frees].map(|count| count.load(Relaxed));
        assert_eq!(counts, [1, 0]);
        assert!(remove(from as usize));
    });
}

#[test]
fn a_realloc_that_freed_is_a_free_whose_end_is_recorded() {
    with_blocks(|process, thread, from, _| {
        assert!(allocate(thread, from as usize, 50_000));
        // SAFETY: it is a live block, and null is none.
        unsafe {
            let old = reallocating(thread, from);
            reallocated(thread, old, core::ptr::null_mut(), 0, 0, 0);
        }
        let all = process.of_heap(thread);
        assert_eq!(kinds(&all), [Kind::Alloc, Kind::ReallocFree, Kind::ReallocAlloc]);
        assert_eq!(addresses(&all)[2], 0);
        assert_eq!(thread.slot().frees.load(Relaxed), 1);
    });
}

#[test]
fn a_realloc_while_recording_is_off_changes_only_live_bytes() {
    with_blocks(|process, thread, from, to| {
        process.header().off.store(1, Relaxed);
        // SAFETY: both are live blocks.
        let usable = unsafe {
            reallocated(thread, reallocating(thread, from), to, 50_000, 0, 0);
            malloc_usable_size(to.cast()) as i64 - malloc_usable_size(from.cast()) as i64
        };
        let slot = thread.slot();
        let counts = [&slot.allocations, &slot.frees].map(|count| count.load(Relaxed));
        let live = slot.live_delta() + process.header().live_bytes.load(Relaxed);
        assert_eq!((counts, live), ([0, 0], usable));
        assert!(process.of_heap(thread).is_empty());
    });
}

#[test]
fn a_kept_block_that_is_freed_while_recording_is_off_is_recorded_as_free() {
    let process = Attached::new();
    let thread = process.thread();
    state::INTERVAL.store(100, Relaxed);
    assert!(allocate(thread, 0x60_0000, 777));
    process.header().off.store(1, Relaxed);
    allocated_while_off(thread, 100);
    freed_while_off(thread, 0x60_0000 as *mut u8, 777);
    assert_eq!(kinds(&process.of_heap(thread)), [Kind::Alloc, Kind::Free]);
    assert_eq!(thread.slot().frees.load(Relaxed), 0);
    assert_eq!(thread.slot().live_delta(), 100);
}

#[test]
fn a_kept_block_without_room_in_the_table_is_counted() {
    let process = Attached::new();
    let thread = process.thread();
    state::INTERVAL.store(100, Relaxed);
    (0..16).for_each(|_| assert!(allocate(thread, 0x70_0000, 100)));
    assert_eq!(process.header().samples_untracked.load(Relaxed), 0);
    assert!(allocate(thread, 0x70_0000, 100));
    assert_eq!(process.header().samples_untracked.load(Relaxed), 1);
    while remove(0x70_0000) {}
}

#[test]
fn glibcs_header_gives_the_usable_bytes() {
    // Larger than any block that glibc takes from its heap, however large the freed ones were.
    const MAPPED: usize = 64 << 20;
    for bytes in [1, 24, 25, 1000, 100_000, MAPPED] {
        // SAFETY: the block is live until it is freed.
        unsafe {
            let block = malloc(bytes);
            let word = header(block.cast());
            assert_eq!(by_header(word), malloc_usable_size(block), "{bytes}");
            assert_eq!(is_mapping(word), bytes == MAPPED, "{bytes}");
            free(block);
        }
    }
}
