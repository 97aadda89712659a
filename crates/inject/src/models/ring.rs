//! The ring: a thread writes records, and the collector's reader ([`RingReader`]) finds each whole
//! or not at all; chunks pass from thread to reader and back.

use super::{explore, own, spawn};
use crate::block::Thread;
use crate::ring::{ext, give_back, heap, quick, take};
use crate::testing::Attached;
use crate::{gate, state};
use std::collections::HashSet;
use tprof_ring::{Found, Pass, ReadLimits, RingReader, Words};
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

/// The region, as the collector reads it.
struct SharedRegion;

impl Words for SharedRegion {
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset < REGION_BYTES);
        word(state::REGION.load(Relaxed) as usize + offset)
    }
}

/// What the scenarios write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Written {
    /// A block at this address was freed.
    Freed(u64),
    /// An extended record: its argument, its clock and its payload.
    Ext(u32, u64, Vec<u64>),
}

fn freed(addresses: &[u64]) -> Vec<Written> {
    addresses.iter().copied().map(Written::Freed).collect()
}

/// A reader of the running thread's ring, which has read everything written so far.
fn reader_of(thread: &Thread) -> RingReader {
    let mut reader = RingReader::new(ChunkRef(thread.slot().first_chunk.load(Relaxed)), CLOCK);
    read(&mut reader, false);
    reader
}

/// Reads as the collector does in one pass, and frees each chunk that the thread has left.
fn read(reader: &mut RingReader, may_be_unfinished: bool) -> Vec<Written> {
    let limits = ReadLimits { pass: Pass::Partial, now_ns: 1, agent_until: u64::MAX };
    let mut all = Vec::new();
    loop {
        match reader.find(&SharedRegion, &limits) {
            Found::Heap => {
                let (at, _) = reader.heap_slots();
                let [word0, word1] = [at, at + 8].map(|at| SharedRegion.word(at).load(Acquire));
                assert_eq!(Kind::of(word0), Some(Kind::Free));
                assert_eq!((record::stack(word1), record::clock(word1, CLOCK)), (7, CLOCK));
                all.push(Written::Freed(record::address(word0)));
                reader.advance(1, CLOCK);
            }
            // The ring begins with what a thread says of itself.
            Found::Ext(found) if found.kind != ExtKind::Map => {}
            Found::Ext(found) => {
                let word = |n| SharedRegion.word(found.payload + n * 8).load(Relaxed);
                let payload = (0..found.words).map(word).collect();
                all.push(Written::Ext(found.argument, found.clock, payload));
            }
            Found::ChunkEnd { chunk, used } => free(chunk, used),
            // Only an extended record may seem unfinished: the thread is not interrupted.
            Found::Unfinished => {
                assert!(may_be_unfinished);
                break;
            }
            Found::End => break,
        }
    }
    assert_eq!(reader.refused, 0);
    all
}

/// Reads twice at the same time as the running thread writes, and once afterwards. Each record must
/// be found whole, once and in order.
fn read_meanwhile(reader: RingReader, write: impl FnOnce(), written: &[Written]) -> RingReader {
    let has_ext = written.iter().any(|written| matches!(written, Written::Ext(..)));
    let meanwhile = spawn(move || {
        let mut reader = reader;
        let found = [(); 2].map(|()| read(&mut reader, has_ext)).concat();
        (reader, found)
    });
    write();
    let (mut reader, mut found) = meanwhile.join().unwrap();
    assert!(written.starts_with(&found), "{found:?}");
    found.extend(read(&mut reader, false));
    assert_eq!(found, written);
    reader
}

#[test]
fn a_heap_record_is_found_whole_or_not_at_all() {
    let _process = Attached::new();
    explore(|| {
        let thread = writer(8);
        let write = || heap(thread, Kind::Free, 0x5550, 0, 7, CLOCK);
        read_meanwhile(reader_of(thread), write, &freed(&[0x5550]));
    });
}

#[test]
fn an_extended_record_is_found_once_all_of_it_is_there() {
    let _process = Attached::new();
    explore(|| {
        let thread = writer(8);
        let written = [Written::Ext(9, 1234, vec![10, 20, 30, 40]), Written::Ext(0, 0, vec![])];
        let write = || {
            assert!(ext(thread, ExtKind::Map, 9, 1234, &[10, 20, 30, 40]));
            assert!(ext(thread, ExtKind::Map, 0, 0, &[]));
        };
        read_meanwhile(reader_of(thread), write, &written);
    });
}

#[test]
fn a_quick_record_is_found_once_all_of_it_is_there() {
    let _process = Attached::new();
    explore(|| {
        let thread = writer(8);
        let written = [Written::Ext(9, 1234, vec![10, 20, 30, 40])];
        let write = || assert!(quick(thread, ExtKind::Map, 9, 1234, &[10, 20, 30, 40]));
        read_meanwhile(reader_of(thread), write, &written);
    });
}

#[test]
fn a_reader_goes_on_in_the_next_chunk_once_it_has_all_of_the_one_before() {
    let process = Attached::new();
    process.set_free(1, 1);
    explore(|| {
        // The time record and the first event fill the chunk.
        let thread = writer(2);
        thread.slot().generation.store(77, Relaxed);
        let first = thread.chunk.get();
        let write = || {
            heap(thread, Kind::Free, 16, 0, 7, CLOCK);
            heap(thread, Kind::Free, 32, 0, 7, CLOCK);
        };
        let reader = read_meanwhile(reader_of(thread), write, &freed(&[16, 32]));
        assert_ne!(thread.chunk.get(), first);
        assert_eq!(reader.chunk().0, ChunkRef::large(0));
        // SAFETY: a chunk begins there.
        let head = unsafe { &*(thread.chunk.get() as *const ChunkHeader) };
        assert_eq!((head.generation.load(Relaxed), head.owner.load(Relaxed)), (77, 0));
        assert_eq!(thread.slot().lost.load(Relaxed), 0);
    });
}

/// Clears the used slots of a chunk and frees it.
fn free(chunk: ChunkRef, used: usize) {
    let (offset, _) = chunk.place().unwrap();
    (0..used / 8).for_each(|n| SharedRegion.word(offset + n * 8).store(0, Relaxed));
    let index = chunk.0 as usize - 1;
    let (bitmap, index) = match index < SMALL_CHUNKS {
        true => (SMALL_BITMAP_OFFSET, index),
        false => (LARGE_BITMAP_OFFSET, index - SMALL_CHUNKS),
    };
    // SAFETY: the thread that used the chunk has left it.
    unsafe { give_back(state::REGION.load(Relaxed), bitmap, index) };
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
            free(ChunkRef::large(0), 6 * 8);
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
        let mut reader = RingReader::new(ChunkRef::large(0), CLOCK);
        assert_eq!(read(&mut reader, false), freed(&[16]));
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
