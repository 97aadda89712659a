use super::*;
use super::{chunks, next_chunk};
use crate::state::{self, phase};
use crate::testing::Attached;
use tprof_wire::record::{self, ExtKind, Kind, MAX_FRAMES, SLOT_BYTES};
use tprof_wire::region::*;
use tprof_wire::sync::Ordering::SeqCst;

const CLOCK: u64 = 5 << record::EPOCH_SHIFT;

/// Writes so many records of freed blocks at one time.
fn write(thread: &crate::block::Thread, count: usize) {
    for block in 1..=count as u64 {
        heap(thread, Kind::Free, block * 16, 0, 0, CLOCK);
    }
}

#[test]
fn a_heap_record_is_found_where_it_was_reserved() {
    let process = Attached::new();
    let thread = process.thread();
    heap(thread, Kind::Alloc, 0x5550, 100, 7, CLOCK + 3);
    let all = process.of_heap(thread);
    let [word0, word1] = all[0].words[..] else { panic!("one slot") };
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].kind, Kind::Alloc);
    assert_eq!((record::address(word0), record::size(word0, word1)), (0x5550, 100));
    assert_eq!((record::stack(word1), record::clock(word1, CLOCK)), (7, CLOCK + 3));
}

#[test]
fn a_time_record_precedes_the_first_event_of_each_epoch_only() {
    let process = Attached::new();
    let thread = process.thread();
    for clock in [CLOCK, CLOCK + 1, CLOCK + (1 << record::EPOCH_SHIFT), CLOCK] {
        heap(thread, Kind::Free, 16, 0, 0, clock);
    }
    let kinds = process.records(thread).into_iter().map(|record| record.kind);
    let kinds: Vec<_> = kinds.filter(|kind| *kind != Kind::Ext).collect();
    use Kind::*;
    assert_eq!(kinds, [Time, Free, Free, Time, Free, Time, Free]);
}

#[test]
fn a_size_that_does_not_fit_a_slot_is_recorded_whole() {
    let process = Attached::new();
    let thread = process.thread();
    heap(thread, Kind::Alloc, 0x5550, 1 << 40, 7, CLOCK);
    let wide = process.of_kind(thread, ExtKind::Wide);
    assert_eq!(wide.len(), 1);
    assert_eq!(wide[0].argument(), Kind::Alloc as u32);
    assert_eq!(wide[0].payload()[..3], [0x5550, 1 << 40, 7]);
    assert!(process.of_heap(thread).is_empty());
}

#[test]
fn an_address_between_words_is_recorded_whole() {
    let process = Attached::new();
    let thread = process.thread();
    heap(thread, Kind::Free, 0x5551, 0, 0, CLOCK);
    assert_eq!(process.of_kind(thread, ExtKind::Wide)[0].payload()[0], 0x5551);
}

#[test]
fn an_extended_record_has_its_argument_time_and_payload() {
    let process = Attached::new();
    let thread = process.thread();
    for (payload, slots) in [(&[][..], 1), (&[1], 2), (&[1, 2], 2), (&[1, 2, 3], 3)] {
        assert!(ext(thread, ExtKind::Map, 9, 1234, payload));
        let last = process.records(thread).pop().unwrap();
        assert_eq!((last.ext, last.argument()), (Some(ExtKind::Map), 9));
        assert_eq!((last.words.len(), last.words[1]), (slots * 2, 1234));
        assert_eq!(&last.payload()[..payload.len()], payload);
    }
}

#[test]
fn a_quick_record_is_like_an_extended_one() {
    let process = Attached::new();
    let thread = process.thread();
    assert!(ext(thread, ExtKind::SpanPush, 9, 1234, &[1, 2, 3]));
    assert!(quick(thread, ExtKind::SpanPush, 9, 1234, &[1, 2, 3]));
    let all = process.of_kind(thread, ExtKind::SpanPush);
    assert_eq!(all.len(), 2);
    assert_eq!(all[0], all[1]);
}

#[test]
fn a_record_larger_than_any_chunk_is_refused_and_nothing_is_written() {
    let process = Attached::new();
    let thread = process.thread();
    let before = thread.cursor.get();
    assert!(!ext(thread, ExtKind::Stack, 1, 1, &[0; SMALL_BYTES / 8]));
    assert_eq!(thread.cursor.get(), before);
}

#[test]
fn a_stack_of_the_greatest_depth_fits_a_small_chunk() {
    let process = Attached::new();
    process.set_free(SMALL_CHUNKS, 0);
    let thread = process.thread();
    for id in 1..=10 {
        assert!(ext(thread, ExtKind::Stack, id, 1, &[id.into(); MAX_FRAMES + 1]));
    }
    let ids = process.of_kind(thread, ExtKind::Stack).into_iter().map(|stack| stack.payload()[192]);
    assert_eq!(ids.collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
}

#[test]
fn records_go_on_in_the_next_chunk_in_order_and_without_a_gap() {
    let process = Attached::new();
    let thread = process.thread();
    write(thread, 10_000);
    let blocks = process.of_heap(thread).into_iter().map(|record| record::address(record.words[0]));
    assert!(blocks.eq((1..=10_000).map(|block| block * 16)));
    assert!(thread.slot().filled_chunks.load(SeqCst) >= 2);
    assert_eq!(thread.slot().lost.load(SeqCst), 0);
}

#[test]
fn each_chunk_begins_with_a_time_record_of_its_own() {
    let process = Attached::new();
    let thread = process.thread();
    write(thread, 10_000);
    let times = process.records(thread).into_iter().filter(|record| record.kind == Kind::Time);
    assert_eq!(times.count() as u32, thread.slot().filled_chunks.load(SeqCst) + 1);
}

#[test]
fn records_that_find_no_chunk_are_counted_and_the_others_are_whole() {
    let process = Attached::new();
    let thread = process.thread();
    process.set_free(0, 0);
    write(thread, 1000);
    let written = process.of_heap(thread).len() as u64;
    assert!(written > 100 && written < SMALL_BYTES as u64 / 16);
    assert_eq!(written + thread.slot().lost.load(SeqCst), 1000);
}

#[test]
fn a_thread_fills_no_more_chunks_than_it_may_until_some_are_drained() {
    let process = Attached::new();
    let thread = process.thread();
    let slot = thread.slot();
    write(thread, 2 * CHUNKS_PER_THREAD as usize * LARGE_BYTES / SLOT_BYTES);
    assert_eq!(slot.filled_chunks.load(SeqCst), CHUNKS_PER_THREAD);
    let lost = slot.lost.load(SeqCst);
    assert!(lost > 0);
    slot.drained_chunks.store(1, SeqCst);
    write(thread, 10);
    assert_eq!(slot.lost.load(SeqCst), lost);
    assert_eq!(slot.filled_chunks.load(SeqCst), CHUNKS_PER_THREAD + 1);
}

#[test]
fn a_lost_definition_is_no_lost_event_and_a_lost_note_is_counted_as_one() {
    let process = Attached::new();
    let thread = process.thread();
    process.set_free(0, 0);
    while ext(thread, ExtKind::Map, 0, 0, &[0; 8]) {}
    let (lost, notes) = (&thread.slot().lost, &process.header().notes_lost);
    assert_eq!((lost.swap(0, SeqCst), notes.load(SeqCst)), (1, 0));
    assert!(!ext(thread, ExtKind::Name, 0, 0, &[0; 64]));
    assert!(!ext(thread, ExtKind::Stack, 0, 0, &[0; 64]));
    assert_eq!((lost.load(SeqCst), notes.load(SeqCst)), (0, 0));
    assert!(!ext(thread, ExtKind::Fork, 0, 0, &[0; 64]));
    assert!(!ext(thread, ExtKind::ThreadName, 0, 0, &[0; 64]));
    assert_eq!((lost.load(SeqCst), notes.load(SeqCst)), (0, 2));
    assert!(!ext(thread, ExtKind::HostCall, 0, 0, &[0; 64]));
    assert_eq!((lost.load(SeqCst), notes.load(SeqCst)), (1, 2));
}

#[test]
fn small_chunks_are_used_once_no_large_one_is_left() {
    let process = Attached::new();
    process.set_free(SMALL_CHUNKS, 1);
    let thread = process.thread();
    let count = LARGE_BYTES / SLOT_BYTES + 1000;
    write(thread, count);
    assert_eq!(thread.slot().lost.load(SeqCst), 0);
    assert_eq!(thread.chunk_bytes.get() as usize, SMALL_BYTES);
    assert_eq!(process.of_heap(thread).len(), count);
}

#[test]
fn a_new_thread_begins_with_a_small_chunk_or_a_large_one_if_none_is_left() {
    let process = Attached::new();
    assert_eq!(process.thread().chunk_bytes.get() as usize, SMALL_BYTES);
    process.set_free(0, 1);
    let chunk = next_chunk::first_chunk(process.thread()).unwrap();
    assert_eq!(chunk.place().unwrap().1, LARGE_BYTES);
    assert!(next_chunk::first_chunk(process.thread()).is_none());
}

#[test]
fn a_chunk_belongs_to_one_thread() {
    let process = Attached::new();
    let first = chunks::take_chunk(true, false).unwrap();
    let second = chunks::take_chunk(true, false).unwrap();
    assert_ne!(first, second);
    assert_eq!(process.free_large(), LARGE_CHUNKS as u32 - 2);
}

#[test]
fn a_bit_that_was_given_back_is_taken_next() {
    let process = Attached::new();
    process.set_free(0, 3);
    let region = state::REGION.load(SeqCst);
    // SAFETY: this is the process's region.
    let take = || unsafe { chunks::take(region, LARGE_BITMAP_OFFSET, LARGE_WORDS) };
    assert_eq!([take(), take(), take(), take()], [Some(0), Some(1), Some(2), None]);
    // SAFETY: the bit was taken.
    unsafe { give_back(region, LARGE_BITMAP_OFFSET, 1) };
    assert_eq!([take(), take()], [Some(1), None]);
}

#[test]
fn threads_that_take_at_once_never_get_the_same_bit() {
    let process = Attached::new();
    process.set_free(0, LARGE_CHUNKS);
    let region = state::REGION.load(SeqCst) as usize;
    let taken = || {
        // SAFETY: this is the process's region.
        let take = || unsafe { chunks::take(region as *mut u8, LARGE_BITMAP_OFFSET, LARGE_WORDS) };
        core::iter::from_fn(take).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(taken)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    assert!(all.into_iter().eq(0..LARGE_CHUNKS));
}

#[test]
fn a_quiet_thread_gets_a_chunk_that_was_opened_before_and_no_other() {
    let process = Attached::new();
    assert!(chunks::take_chunk(true, true).is_none());
    assert_eq!(process.free_large(), LARGE_CHUNKS as u32, "it was given back");
    assert!(!chunks::is_any_open());
    open_some();
    assert!(chunks::is_any_open());
    assert_eq!(process.free_large(), LARGE_CHUNKS as u32);
    let taken = core::iter::from_fn(|| chunks::take_chunk(true, true)).count();
    assert_eq!(taken, CHUNKS_PER_THREAD as usize);
}

#[test]
fn a_small_region_has_only_its_small_chunks() {
    let process = Attached::new();
    // SAFETY: this is the process's region, and no thread uses it yet.
    unsafe { prepare(state::REGION.load(SeqCst), true) };
    assert_eq!(process.free_large(), 0);
    let taken = core::iter::from_fn(|| chunks::take_chunk(false, false)).count();
    assert_eq!(taken, SPARING_CHUNKS);
}

#[test]
fn a_collector_that_has_ended_turns_recording_off_at_a_full_ring() {
    let process = Attached::new();
    let thread = process.thread();
    process.set_free(0, 0);
    process.header().wait_on_full.store(1, SeqCst);
    state::session().unwrap().closed.store(1, SeqCst);
    write(thread, 1000);
    assert_eq!(state::PHASE.load(SeqCst), phase::OFF);
    assert_eq!(process.header().off_reason.load(SeqCst), state::off_reason::COLLECTOR_GONE);
    assert!(!thread.may_record());
}

#[test]
fn a_thread_waits_for_room_and_its_wait_is_counted() {
    let process = Attached::new();
    let thread = process.thread();
    process.set_free(0, 0);
    process.header().wait_on_full.store(1, SeqCst);
    process.header().wait_ticks.store(u64::MAX >> 2, SeqCst);
    let header = process.header();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while header.waiting.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            process.set_free(0, 1);
        });
        write(thread, 1000);
    });
    assert_eq!(thread.slot().lost.load(SeqCst), 0);
    assert_eq!((thread.slot().waits.load(SeqCst), header.waiting.load(SeqCst)), (1, 0));
}

#[test]
fn a_wait_that_is_over_loses_the_record_and_is_counted() {
    let process = Attached::new();
    let thread = process.thread();
    process.set_free(0, 0);
    process.header().wait_on_full.store(1, SeqCst);
    process.header().wait_ticks.store(0, SeqCst);
    while thread.slot().lost.load(SeqCst) == 0 {
        heap(thread, Kind::Free, 16, 0, 0, CLOCK);
    }
    assert_eq!(thread.slot().waits.load(SeqCst), 1);
    assert_eq!(process.header().waiting.load(SeqCst), 0);
}

#[test]
fn a_stalled_collector_is_not_waited_for() {
    let process = Attached::new();
    let thread = process.thread();
    process.set_free(0, 0);
    process.header().wait_on_full.store(1, SeqCst);
    process.header().wait_ticks.store(1_000, SeqCst);
    state::session().unwrap().coarse_clock.store(0, SeqCst);
    write(thread, 1000);
    assert!(thread.slot().lost.load(SeqCst) > 0);
    assert_eq!(thread.slot().waits.load(SeqCst), 0);
}

#[test]
fn what_a_chunk_says_of_its_owner_is_the_slot_and_its_generation() {
    let process = Attached::new();
    let thread = process.thread();
    thread.slot().generation.store(77, SeqCst);
    write(thread, 1000);
    let head = thread.chunk.get() as *const ChunkHeader;
    // SAFETY: the thread's chunk begins there.
    let head = unsafe { &*head };
    assert_eq!(head.generation.load(SeqCst), 77);
    assert_eq!(head.owner.load(SeqCst) as usize, thread.slot_index(state::REGION.load(SeqCst)));
    assert_eq!(head.next.load(SeqCst), 0, "it is still written");
}
