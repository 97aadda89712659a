//! The ring: a thread writes records, and a reader finds each whole or not at all; chunks pass from
//! thread to reader and back.
//!
//! The reader here does only what the layout of records and chunks ([`tprof_wire::record`],
//! [`tprof_wire::region`]) lets every reader do. The collector's reader maps its memory itself, and
//! isn't part of the model.

use super::{explore, own, spawn};
use crate::block::Thread;
use crate::ring::{ext, give_back, heap, quick, take};
use crate::testing::Attached;
use crate::{gate, state};
use std::collections::HashSet;
use tprof_wire::record::{self, ExtKind, Kind, SLOT_BYTES};
use tprof_wire::region::*;
use tprof_wire::sync::{AtomicU64, Ordering::*};

const CLOCK: u64 = 5 << record::EPOCH_SHIFT;

fn word(address: usize) -> &'static AtomicU64 {
    // SAFETY: the scenarios use addresses in the region, which stays mapped.
    unsafe { &*(address as *const AtomicU64) }
}

/// The running thread, whose chunk has room for so many slots.
fn writer(slots: usize) -> &'static Thread {
    let thread = own(gate::recording().expect("the process is attached"));
    leave(thread, slots);
    thread
}

/// Leaves room for so many slots in a thread's chunk.
fn leave(thread: &Thread, slots: usize) {
    thread.limit.set(thread.cursor.get() + slots * SLOT_BYTES);
}

/// The words of a written slot; `None` if it isn't written yet.
fn slot(at: usize) -> Option<(u64, u64)> {
    let word0 = word(at).load(Acquire);
    (word0 != 0).then(|| (word0, word(at + 8).load(Relaxed)))
}

/// The address of a block that a slot says was freed.
fn freed((word0, word1): (u64, u64)) -> u64 {
    assert_eq!(Kind::of(word0), Some(Kind::Free));
    assert_eq!((record::stack(word1), record::clock(word1, CLOCK)), (7, CLOCK));
    record::address(word0)
}

#[test]
fn a_heap_record_is_read_whole_or_not_at_all() {
    let _process = Attached::new();
    explore(|| {
        let thread = writer(8);
        let first = thread.cursor.get();
        let reader = spawn(move || {
            if let Some((word0, word1)) = slot(first) {
                assert_eq!((Kind::of(word0), word1), (Some(Kind::Time), CLOCK));
            }
            if let Some(words) = slot(first + SLOT_BYTES) {
                assert_eq!(freed(words), 0x5550);
                assert!(slot(first).is_some(), "the time record was written first");
            }
        });
        heap(thread, Kind::Free, 0x5550, 0, 7, CLOCK);
        reader.join().unwrap();
        assert_eq!(slot(first + SLOT_BYTES).map(freed), Some(0x5550));
    });
}

/// Reads an extended record with one argument, one time and three words.
fn read_ext(at: usize) {
    let Some((word0, word1)) = slot(at) else { return };
    assert_eq!(word0 >> 16 & 0xffff, 3);
    match Kind::of(word0) {
        Some(Kind::Pending) => {}
        Some(Kind::Ext) => {
            assert_eq!((ExtKind::of(word0), word0 >> 32, word1), (Some(ExtKind::Map), 9, 1234));
            let payload = [0, 1, 2].map(|n| word(at + SLOT_BYTES + n * 8).load(Relaxed));
            assert_eq!(payload, [10, 20, 30]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_extended_record_is_pending_until_all_of_it_is_there() {
    let _process = Attached::new();
    explore(|| {
        let thread = writer(8);
        let first = thread.cursor.get();
        let reader = spawn(move || {
            let is_next = slot(first + 3 * SLOT_BYTES).is_some();
            let is_there = slot(first).is_some();
            assert!(is_there || !is_next, "its place is marked before the next record is written");
            read_ext(first);
        });
        assert!(ext(thread, ExtKind::Map, 9, 1234, &[10, 20, 30]));
        assert!(ext(thread, ExtKind::Map, 0, 0, &[]));
        reader.join().unwrap();
    });
}

#[test]
fn a_quick_record_is_pending_until_all_of_it_is_there() {
    let _process = Attached::new();
    explore(|| {
        let thread = writer(8);
        let first = thread.cursor.get();
        let reader = spawn(move || read_ext(first));
        assert!(quick(thread, ExtKind::Map, 9, 1234, &[10, 20, 30]));
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_that_finds_the_next_chunk_finds_all_of_the_one_before() {
    let process = Attached::new();
    process.set_free(1, 1);
    explore(|| {
        let thread = writer(2);
        thread.slot().generation.store(77, Relaxed);
        let (first, at) = (thread.chunk.get(), thread.cursor.get());
        let region = state::REGION.load(Relaxed) as usize;
        let reader = spawn(move || {
            let next = word(first).load(Acquire);
            let Some((offset, _)) = ChunkRef(next as u32).place() else { return };
            let end = (next >> 32) as usize;
            assert_eq!(first + end, at + 2 * SLOT_BYTES);
            assert!(slot(at).is_some());
            assert_eq!(slot(at + SLOT_BYTES).map(freed), Some(16));
            // SAFETY: a chunk begins there.
            let head = unsafe { &*((region + offset) as *const ChunkHeader) };
            assert_eq!((head.generation.load(Relaxed), head.owner.load(Relaxed)), (77, 0));
            if slot(region + offset + SLOT_BYTES).is_some() {
                assert!(slot(region + offset + 2 * SLOT_BYTES).is_none_or(|s| freed(s) == 32));
            }
        });
        heap(thread, Kind::Free, 16, 0, 7, CLOCK);
        heap(thread, Kind::Free, 32, 0, 7, CLOCK);
        reader.join().unwrap();
        assert_eq!(thread.slot().lost.load(Relaxed), 0);
    });
}

/// Clears the used slots of a chunk and frees it.
fn free(index: usize, used: usize) {
    let region = state::REGION.load(Relaxed);
    let at = region as usize + LARGE_OFFSET + index * LARGE_BYTES;
    (0..used / 8).for_each(|n| word(at + n * 8).store(0, Relaxed));
    // SAFETY: the thread that used the chunk has left it.
    unsafe { give_back(region, LARGE_BITMAP_OFFSET, index) };
}

#[test]
fn a_thread_that_takes_a_chunk_again_finds_it_empty_and_loses_nothing_while_it_waits() {
    let process = Attached::new();
    crate::ring::open_some();
    process.set_free(1, 0);
    process.header().wait_on_full.store(1, SeqCst);
    process.header().wait_ticks.store(u64::MAX >> 2, SeqCst);
    let region = state::REGION.load(SeqCst) as usize;
    let chunk = region + LARGE_OFFSET;
    // An earlier use has left records, which the reader has read.
    (0..6).for_each(|n| word(chunk + n * 8).store(99, SeqCst));
    explore(move || {
        let thread = writer(1);
        let slot_of_thread = thread.slot();
        let reader = spawn(move || {
            free(0, 6 * 8);
            slot_of_thread.drained_chunks.fetch_add(0, Release);
        });
        // The time record fills the chunk.
        heap(thread, Kind::Free, 16, 0, 7, CLOCK);
        assert_eq!(thread.chunk.get(), chunk);
        let found = [3, 4, 5].map(|n| word(chunk + n * 8).load(Relaxed));
        assert_eq!(found.iter().filter(|word| **word == 99).count(), 0);
        reader.join().unwrap();
        let header = state::header().unwrap();
        assert_eq!(thread.slot().lost.load(Relaxed), 0);
        assert_eq!(header.waiting.load(Relaxed), 0);
        assert_eq!(slot(chunk + SLOT_BYTES).map(freed), Some(16));
    });
}

#[test]
fn a_thread_that_has_filled_its_share_writes_or_counts_each_record() {
    let process = Attached::new();
    process.set_free(1, 2);
    explore(|| {
        let thread = writer(1);
        let slot_of_thread = thread.slot();
        slot_of_thread.filled_chunks.store(CHUNKS_PER_THREAD - 1, Relaxed);
        let reader = spawn(move || slot_of_thread.drained_chunks.fetch_add(1, Release));
        heap(thread, Kind::Free, 16, 0, 7, CLOCK);
        leave(thread, 0);
        heap(thread, Kind::Free, 32, 0, 7, CLOCK);
        let slot = thread.slot();
        let (filled, lost) = (slot.filled_chunks.load(Relaxed), slot.lost.load(Relaxed));
        assert!(filled - slot.drained_chunks.load(Relaxed) <= CHUNKS_PER_THREAD);
        reader.join().unwrap();
        let all = u64::from(filled - (CHUNKS_PER_THREAD - 1)) + lost;
        assert_eq!(all, 2, "each record is in a chunk or counted as lost");
    });
}

#[test]
fn threads_never_take_the_same_chunk() {
    let process = Attached::new();
    process.set_free(0, 2);
    explore(|| {
        let region = state::REGION.load(Relaxed);
        let at = region as usize;
        let take_one = move || {
            // SAFETY: this is the process's region.
            unsafe { take(at as *mut u8, LARGE_BITMAP_OFFSET, LARGE_WORDS) }
        };
        let others = [spawn(take_one), spawn(take_one)];
        let own = take_one();
        let taken: Vec<_> =
            others.map(|other| other.join().unwrap()).into_iter().chain([own]).collect();
        let some: HashSet<_> = taken.iter().flatten().collect();
        assert_eq!((some.len(), taken.iter().flatten().count()), (2, 2), "{taken:?}");
    });
}

#[test]
fn a_chunk_that_is_given_back_while_others_are_taken_is_free_once() {
    let process = Attached::new();
    process.set_free(0, 2);
    explore(|| {
        let at = state::REGION.load(Relaxed) as usize;
        let take_one = move || {
            // SAFETY: this is the process's region.
            unsafe { take(at as *mut u8, LARGE_BITMAP_OFFSET, LARGE_WORDS) }
        };
        let first = take_one().unwrap();
        let other = spawn(take_one);
        // SAFETY: `take` returned it.
        unsafe { give_back(at as *mut u8, LARGE_BITMAP_OFFSET, first) };
        let other = other.join().unwrap();
        assert!(other.is_some());
        assert_eq!(word(at + LARGE_BITMAP_OFFSET).load(Relaxed).count_ones(), 1);
    });
}
