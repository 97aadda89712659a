extern crate std;

use super::*;
use std::vec::Vec;
use std::{eprintln, vec};
use tprof_wire::record::{self, ExtKind, Kind, SLOT_BYTES};
use tprof_wire::region::{ChunkRef, SMALL_BYTES};
use tprof_wire::sync::{AtomicU64, Ordering::*};

/// Time of the first pass, ns.
const START_NS: u64 = 1_000_000_000;
/// A time after which a hole that was seen at [`START_NS`] is skipped, ns.
const LATER_NS: u64 = 2_000_000_000;

/// The first small chunks of a region.
struct Chunks(Vec<AtomicU64>);

impl Words for Chunks {
    fn word(&self, offset: usize) -> &AtomicU64 {
        let (first, _) = ChunkRef::small(0).place().unwrap();
        &self.0[(offset - first) / 8]
    }
}

impl Chunks {
    fn new(count: usize) -> Chunks {
        Chunks((0..count * SMALL_BYTES / 8).map(|_| AtomicU64::new(0)).collect())
    }

    /// Writes words into a chunk, beginning with this slot.
    fn put(&self, chunk: usize, slot: usize, words: &[u64]) {
        let (base, _) = ChunkRef::small(chunk).place().unwrap();
        for (n, value) in words.iter().enumerate() {
            self.word(base + slot * SLOT_BYTES + n * 8).store(*value, SeqCst);
        }
    }

    /// Writes a record of a freed block.
    fn put_freed(&self, chunk: usize, slot: usize, address: u64) {
        let (word0, word1) = record::heap(Kind::Free, address, 0, 0, 0);
        self.put(chunk, slot, &[word0, word1]);
    }

    /// Links a chunk, whose records end before `slot`, to another.
    fn link(&self, chunk: usize, slot: usize, next: ChunkRef) {
        self.put(chunk, 0, &[((slot * SLOT_BYTES) as u64) << 32 | u64::from(next.0)]);
    }

    /// Returns the addresses of freed blocks and the arguments of extended records that one pass
    /// finds, and whether it found everything. Reads a limited number of chunks.
    fn pass(&self, reader: &mut RingReader, pass: Pass, now_ns: u64) -> (Vec<u64>, bool) {
        let limits = ReadLimits { pass, now_ns, agent_until: 1_000 };
        let mut all = Vec::new();
        let mut chunks = 0;
        loop {
            match reader.find(self, &limits) {
                Found::Heap => {
                    let (at, end) = reader.heap_slots();
                    assert!(at < end);
                    all.push(record::address(self.word(at).load(SeqCst)));
                    reader.advance(1, 0);
                }
                Found::Ext(found) => {
                    // Every word of the payload is in the chunk.
                    (0..found.words).for_each(|n| _ = self.word(found.payload + n * 8));
                    all.push(u64::from(found.argument));
                }
                Found::ChunkEnd { used, .. } => {
                    assert!(used >= SLOT_BYTES);
                    chunks += 1;
                    if chunks == 100 {
                        return (all, false);
                    }
                }
                Found::Unfinished => return (all, false),
                Found::End => return (all, true),
            }
        }
    }
}

fn reader() -> RingReader {
    RingReader::new(ChunkRef::small(0), 0)
}

const fn ext(kind: ExtKind, slots: usize, argument: u32) -> u64 {
    record::ext(kind, slots, argument)
}

#[test]
fn a_pass_finds_what_was_written_since_the_one_before() {
    let (chunks, mut reader) = (Chunks::new(1), reader());
    chunks.put_freed(0, 1, 8);
    chunks.put_freed(0, 2, 16);
    assert_eq!(chunks.pass(&mut reader, Pass::Partial, START_NS), (vec![8, 16], true));
    assert_eq!(chunks.pass(&mut reader, Pass::Partial, START_NS), (vec![], true));
    chunks.put(0, 3, &[ext(ExtKind::Map, 2, 5), 77, 1, 2]);
    assert_eq!(chunks.pass(&mut reader, Pass::Partial, START_NS), (vec![5], true));
    assert_eq!((reader.clock(), reader.refused), (77, 0));
}

#[test]
fn a_live_pass_leaves_the_chunk_that_is_being_filled() {
    let (chunks, mut reader) = (Chunks::new(2), reader());
    chunks.put_freed(0, 1, 8);
    assert_eq!(chunks.pass(&mut reader, Pass::Live, START_NS), (vec![], true));
    assert_eq!(reader.partial_at(), 0);
    chunks.link(0, 2, ChunkRef::small(1));
    chunks.put_freed(1, 1, 16);
    assert_eq!(chunks.pass(&mut reader, Pass::Live, START_NS), (vec![8], true));
    assert_eq!(chunks.pass(&mut reader, Pass::Partial, START_NS), (vec![16], true));
    assert_eq!(reader.partial_at(), START_NS);
}

#[test]
fn times_and_pads_are_no_records() {
    let (chunks, mut reader) = (Chunks::new(1), reader());
    chunks.put(0, 1, &[Kind::Time as u64, 99, Kind::Pad as u64 | 3 << 16]);
    chunks.put_freed(0, 5, 8);
    assert_eq!(chunks.pass(&mut reader, Pass::Partial, START_NS), (vec![8], true));
    assert_eq!(reader.refused, 0);
}

#[test]
fn an_unfinished_record_is_waited_for_and_then_found() {
    let (chunks, mut reader) = (Chunks::new(1), reader());
    chunks.put(0, 1, &[Kind::Pending as u64 | 2 << 16]);
    chunks.put_freed(0, 3, 8);
    for _ in 0..3 {
        assert_eq!(chunks.pass(&mut reader, Pass::Partial, START_NS), (vec![], false));
    }
    chunks.put(0, 1, &[ext(ExtKind::Map, 2, 5), 0, 1, 2]);
    assert_eq!(chunks.pass(&mut reader, Pass::Partial, START_NS), (vec![5, 8], true));
    assert_eq!(reader.refused, 0);
}

#[test]
fn an_unfinished_record_is_skipped_and_counted_only_if_later_ones_have_followed_it_for_long() {
    let (chunks, mut reader) = (Chunks::new(1), reader());
    chunks.put(0, 1, &[Kind::Pending as u64 | 2 << 16]);
    assert_eq!(chunks.pass(&mut reader, Pass::Partial, START_NS), (vec![], false));
    assert_eq!(chunks.pass(&mut reader, Pass::Partial, LATER_NS), (vec![], false));
    chunks.put_freed(0, 3, 8);
    assert_eq!(chunks.pass(&mut reader, Pass::Partial, LATER_NS), (vec![], false));
    assert_eq!(chunks.pass(&mut reader, Pass::Partial, 2 * LATER_NS), (vec![8], true));
    assert_eq!(reader.refused, 1);
}

#[test]
fn a_hole_is_skipped_and_counted_after_a_while() {
    let (chunks, mut reader) = (Chunks::new(1), reader());
    chunks.put_freed(0, 1, 8);
    chunks.put_freed(0, 3, 16);
    assert_eq!(chunks.pass(&mut reader, Pass::Partial, START_NS), (vec![8], false));
    assert_eq!(chunks.pass(&mut reader, Pass::Partial, START_NS + 1), (vec![], false));
    assert_eq!(chunks.pass(&mut reader, Pass::Partial, LATER_NS), (vec![16], true));
    assert_eq!(reader.refused, 1);
}

#[test]
fn the_last_pass_waits_for_nothing() {
    let (chunks, mut reader) = (Chunks::new(1), reader());
    chunks.put_freed(0, 2, 8);
    chunks.put(0, 3, &[Kind::Pending as u64 | 2 << 16]);
    chunks.put_freed(0, 5, 16);
    assert_eq!(chunks.pass(&mut reader, Pass::Last, START_NS), (vec![8, 16], true));
    assert_eq!(reader.refused, 2);
}

#[test]
fn the_agents_records_from_after_a_time_are_left() {
    let (chunks, mut reader) = (Chunks::new(1), reader());
    chunks.put(0, 1, &[ext(ExtKind::Kernel, 2, 1), 1_000, 0, 0]);
    chunks.put(0, 3, &[ext(ExtKind::Map, 2, 2), 5_000, 0, 0]);
    chunks.put(0, 5, &[ext(ExtKind::Kernel, 2, 3), 1_001, 0, 0]);
    assert_eq!(chunks.pass(&mut reader, Pass::Last, START_NS), (vec![1, 2], false));
    assert_eq!(reader.refused, 0);
}

#[test]
fn a_record_that_passes_the_end_of_its_chunk_is_refused() {
    let (chunks, mut reader) = (Chunks::new(2), reader());
    chunks.put(0, 1, &[ext(ExtKind::Map, 3, 1), 0, 0, 0, 0, 0]);
    chunks.link(0, 3, ChunkRef::small(1));
    chunks.put_freed(1, 1, 8);
    // Without its first slot, the payload is empty slots.
    assert_eq!(chunks.pass(&mut reader, Pass::Last, START_NS), (vec![8], true));
    assert_eq!(reader.refused, 2);
}

#[test]
fn an_end_beyond_the_chunk_is_refused_and_the_chunk_is_read_up_to_its_own() {
    let (chunks, mut reader) = (Chunks::new(2), reader());
    chunks.put_freed(0, 1, 8);
    chunks.link(0, 1 << 20, ChunkRef::small(1));
    chunks.put_freed(1, 1, 16);
    assert_eq!(chunks.pass(&mut reader, Pass::Last, START_NS), (vec![8, 16], true));
    assert_eq!(reader.refused, 1 + (SMALL_BYTES / SLOT_BYTES - 2) as u64);
}

#[test]
fn a_link_to_no_chunk_ends_the_ring_and_is_counted() {
    for wrong in [ChunkRef(0), ChunkRef(u32::MAX)] {
        let (chunks, mut reader) = (Chunks::new(1), reader());
        chunks.put_freed(0, 1, 8);
        chunks.link(0, 2, wrong);
        let found = chunks.pass(&mut reader, Pass::Partial, START_NS);
        assert_eq!((found, reader.refused), ((vec![8], true), 1), "{wrong:?}");
        assert_eq!(reader.chunk().1, 0);
        assert_eq!(chunks.pass(&mut reader, Pass::Last, START_NS), (vec![], true));
    }
}

#[test]
fn a_circle_of_chunks_ends_where_the_caller_stops() {
    let (chunks, mut reader) = (Chunks::new(2), reader());
    chunks.link(0, 1, ChunkRef::small(1));
    chunks.link(1, 1, ChunkRef::small(0));
    assert_eq!(chunks.pass(&mut reader, Pass::Last, START_NS), (vec![], false));
}

/// A small generator of numbers (SplitMix64), so that each failure can be repeated.
fn numbers(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[test]
fn whatever_the_chunks_contain_a_pass_stays_inside_them_and_ends() {
    for seed in 0..2_000 {
        let chunks = Chunks::new(4);
        let mut number = numbers(seed);
        for word in &chunks.0 {
            let value = match number() % 8 {
                0 => number(),
                1 => number() & 0x0003_ffff,
                2..5 => {
                    ((number() % 5) << 32)
                        | (number() % 16)
                        | ((number() % 80) << 4)
                        | ((number() % 6) << 16)
                }
                _ => 0,
            };
            word.store(value, SeqCst);
        }
        for chunk in 0..4 {
            let next = ChunkRef(number() as u32 % 5);
            chunks.link(chunk, (number() % 300) as usize, next);
        }
        let mut reader = reader();
        for pass in [Pass::Live, Pass::Partial, Pass::Partial, Pass::Last] {
            // A word outside of the chunks would be a panic.
            eprintln!("seed {seed}, {pass:?}");
            chunks.pass(&mut reader, pass, START_NS);
        }
    }
}
