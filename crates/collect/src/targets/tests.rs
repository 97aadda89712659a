//! Tests that the collector can read any region, even one that its process has filled with garbage.
//! Reading must end, must not panic, and must not use more memory than the region's size explains.
//!
//! The garbage is made from fixed seeds, so a failure can be reproduced.

use crate::gpu::{self, Gpu, ThreadRows};
use crate::output::files::{FileOwner, OpenFile};
use crate::output::losses::Losses;
use crate::shared::Region;
use crate::shared::clock::Clock;
use crate::targets::image::{FollowedThread, Image, Note, Notes, Pass};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tprof_trace::model::ThreadIndex;
use tprof_trace::{HeapBlock, TraceHeader, TraceWriter};
use tprof_wire::record::{self, ExtKind, Kind, SLOT_BYTES};
use tprof_wire::region::*;

/// Time limit for work that takes a few seconds, long enough for a busy machine. Work that takes
/// longer counts as endless.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of 8-byte words in a slot.
const WORDS: usize = SLOT_BYTES / 8;

/// Marsaglia's xorshift random number generator.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Returns a number that is often one at which arithmetic overflows.
    fn number(&mut self) -> u64 {
        let odd = [
            0,
            1,
            15,
            16,
            17,
            4095,
            4096,
            65_535,
            1 << 32,
            i64::MAX as u64,
            1 << 63,
            u64::MAX - 1,
            u64::MAX,
        ];
        match self.below(3) {
            0 => odd[self.below(odd.len())],
            1 => self.next() >> self.below(64),
            _ => self.next(),
        }
    }
}

/// Receives what the collector reads from a region, and checks that its size is bounded.
struct TestSink {
    notes: u64,
    file: OpenFile,
    gpu: Gpu,
    losses: Losses,
    tids: HashMap<u32, ThreadIndex>,
    _directory: tempfile::TempDir,
}

impl TestSink {
    fn new() -> TestSink {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tprof");
        let writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let file = OpenFile::new(writer, FileOwner::Unranked, path);
        let (gpu, losses) =
            (Gpu::new(0, "1 job".to_owned(), std::path::Path::new(""), false), Losses::default());
        TestSink { notes: 0, file, gpu, losses, tids: HashMap::new(), _directory: directory }
    }
}

impl Notes for TestSink {
    fn note(&mut self, _: &mut FollowedThread, _: u64, note: Note) {
        self.notes += 1;
        match note {
            Note::Stack(id, _, frames, python) => {
                assert!(id < record::STACK_ID_LIMIT && frames.len() <= record::MAX_FRAMES);
                assert!(python.keys.len() <= tprof_wire::python::MAX_PYTHON_FRAMES);
            }
            Note::PythonFrame(frame) => {
                assert!(
                    frame.named.function.len() <= 3 * 1024 && frame.named.file.len() <= 3 * 2048
                );
            }
            Note::Name(name) => assert!(name.len() <= 3 * 16),
            Note::Exec(_, _, _, path) => assert!(path.len() <= 3 * LARGE_BYTES),
            _ => {}
        }
    }

    fn agent(
        &mut self,
        thread: &FollowedThread,
        at: u64,
        kind: ExtKind,
        argument: u32,
        p: &[u64],
    ) -> bool {
        let mut place = ThreadRows { file: &mut self.file, threads: &mut self.tids };
        let record =
            gpu::AgentRecord { kind, argument, clock: at, thread: thread.index, payload: p };
        self.gpu.take(record, &mut place, clock(), &mut self.losses, &|_| true)
    }

    fn block_full(&mut self, block: &mut HeapBlock) {
        self.file.writer.heap(block).unwrap();
    }
}

/// Returns a clock that all tests share, because setting up a clock takes milliseconds.
fn clock() -> &'static Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(Clock::new)
}

/// Runs `work`, and fails if it does not end in time, instead of hanging.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = channel();
    let worker = std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    match ended.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Timeout) => panic!("the drain does not end"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
    }
    if let Err(panic) = worker.join() {
        std::panic::resume_unwind(panic);
    }
}

fn put(region: &Region, offset: usize, value: u64) {
    region.slots(offset & !(SLOT_BYTES - 1), REGION_BYTES)[0][offset / 8 % WORDS]
        .store(value, Relaxed);
}

/// Writes `slots` into a chunk, from its first slot on.
fn fill(region: &Region, chunk: ChunkRef, slots: &[(u64, u64)]) {
    let Some((base, bytes)) = chunk.place() else { return };
    for (place, slot) in region.slots(base + SLOT_BYTES, base + bytes).iter().zip(slots) {
        place[0].store(slot.0, Relaxed);
        place[1].store(slot.1, Relaxed);
    }
}

/// Marks a slot as taken by a thread whose first chunk is `first`.
fn thread(region: &Region, slot: usize, first: ChunkRef) {
    let place = region.slot(slot);
    place.state.store(slot_state::LIVE, Relaxed);
    place.tid.store(slot as u32 + 1, Relaxed);
    place.first_chunk.store(first.0, Relaxed);
    place.start_clock.store(clock().now(), Relaxed);
    let word = SLOT_BITMAP_OFFSET + slot / 64 * 8;
    put(region, word, region.free_slots(slot / 64) & !(1 << (slot % 64)));
    region.header().threads_changed.fetch_add(1, Relaxed);
}

fn chunk(random: &mut Random) -> ChunkRef {
    match random.below(8) {
        0 => ChunkRef(random.next() as u32),
        1 => ChunkRef(0),
        2 => ChunkRef((SMALL_CHUNKS + LARGE_CHUNKS) as u32 + random.below(2) as u32),
        3 | 4 => ChunkRef::large(random.below(4)),
        _ => ChunkRef::small(random.below(8)),
    }
}

/// Returns records that a well-behaved process could write.
fn honest(random: &mut Random, slots: usize) -> Vec<(u64, u64)> {
    let mut out = vec![(Kind::Time as u64, clock().now())];
    while out.len() < slots {
        let now = clock().now();
        let (address, size) =
            (0x10_0000 + random.below(4096) as u64 * 16, random.below(1 << 20) as u64);
        match random.below(12) {
            0 => out.push((Kind::Time as u64, now)),
            1 => out.push((Kind::Pad as u64 | (1 + random.below(4) as u64) << 16, 0)),
            2 | 3 => {
                let kind = match ExtKind::of((1 + random.below(16) as u64) << 4) {
                    Some(kind) => kind,
                    None => continue,
                };
                let payload = 1 + random.below(12);
                let argument =
                    if random.one_in(2) { random.below(64) as u32 } else { random.next() as u32 };
                out.push((record::ext(kind, 1 + payload, argument), now));
                for _ in 0..payload {
                    out.push((random.number(), random.number()));
                }
            }
            4..8 => {
                out.push(record::heap(Kind::Alloc, address, size, 1 + random.below(99) as u32, now))
            }
            8 => out.push(record::heap(Kind::ReallocAlloc, address, size, 0, now)),
            9 => out.push(record::heap(Kind::ReallocFree, address, 0, 0, now)),
            _ => out.push(record::heap(Kind::Free, address, 0, 0, now)),
        }
    }
    out
}

/// Fills chunks of a region with random records of one of six styles, and registers threads that
/// own the chunks.
fn scribble(region: &Region, random: &mut Random) {
    let style = random.below(6);
    let threads = 1 + random.below(6);
    for index in 0..threads {
        let first = chunk(random);
        let mut current = first;
        for _ in 0..4 {
            let Some((base, bytes)) = current.place() else { break };
            let most = bytes / SLOT_BYTES - 1;
            let count = if random.one_in(4) { most } else { random.below(most.min(600)) };
            let mut slots = match style {
                0 => (0..count).map(|_| (random.next(), random.next())).collect(),
                1 => (0..count).map(|_| (random.number(), random.number())).collect(),
                _ => honest(random, count),
            };
            if style == 2 {
                for _ in 0..1 + random.below(20) {
                    let at = random.below(slots.len().max(1));
                    if let Some(slot) = slots.get_mut(at) {
                        let bit = 1 << random.below(64);
                        if random.one_in(2) { slot.0 ^= bit } else { slot.1 ^= bit }
                    }
                }
            }
            if style == 3 {
                // Records whose lengths reach beyond every limit, and records that are never
                // finished.
                for slot in &mut slots {
                    if !random.one_in(16) {
                        continue;
                    }
                    let kind = [Kind::Ext, Kind::Pad, Kind::Pending][random.below(3)];
                    *slot = (kind as u64 | random.next() & !15 | 0xff00 << 16, random.number());
                }
            }
            if style == 4 {
                // Holes: empty slots.
                for slot in &mut slots {
                    if random.one_in(8) {
                        *slot = (0, random.next());
                    }
                }
            }
            fill(region, current, &slots);
            let next = if random.one_in(4) { current } else { chunk(random) };
            let end = match random.below(4) {
                0 => SLOT_BYTES * (1 + slots.len()),
                1 => random.number() as usize,
                2 => random.below(bytes + 64),
                _ => bytes,
            };
            if !random.one_in(4) {
                put(region, base, (end as u64) << 32 | u64::from(next.0));
            }
            put(region, base + 8, random.next());
            current = next;
        }
        thread(region, random.below(MAX_THREADS), first);
        region.slot(index).generation.store(random.next() as u32, Relaxed);
    }
    if random.one_in(8) {
        // Garbage in the header, the module table, the bitmaps, and the slots of threads that never
        // existed.
        for word in 0..SLOTS_OFFSET / 8 {
            put(region, word * 8, random.number());
        }
        for word in 0..16 * size_of::<ThreadSlot>() / 8 {
            put(region, SLOTS_OFFSET + word * 8, random.number());
        }
    }
}

/// Begins to read the ring of every thread that the region claims to have.
fn follow(image: &mut Image) {
    for new in image.new_threads() {
        let index = image.threads.len() as u32;
        image.follow(&new, index);
    }
}

/// Returns the number of bytes of this process that are resident.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Reads a region to its end, as the collector does. Returns the image, and the number of notes in
/// its rings.
fn drained(region: Region) -> (Image, u64) {
    let mut image = Image::new(Arc::new(region), 0);
    let mut sink = TestSink::new();
    let mut now = 1_000_000_000;
    // While the process lives, the collector waits at holes.
    for _ in 0..4 {
        follow(&mut image);
        image.drain(clock(), now, Pass::Live, u64::MAX, &mut sink);
        now += 150_000_000;
    }
    let mut passes = 0;
    loop {
        follow(&mut image);
        if image.drain(clock(), now, Pass::Last, u64::MAX, &mut sink) == 0 && image.is_settled() {
            break;
        }
        passes += 1;
        // All chunks together have 6 million slots, and nobody writes during this loop, so it must
        // end.
        assert!(passes < 10_000, "the rings should be empty, and yet records are read");
    }
    image.slot_totals();
    while !image.threads.is_empty() {
        image.retire(0);
    }
    (image, sink.notes)
}

/// Returns an image of one thread whose ring begins with these records.
fn image_of(slots: &[(u64, u64)]) -> Image {
    let (region, _file) = Region::new().unwrap();
    fill(&region, ChunkRef::small(0), slots);
    thread(&region, 0, ChunkRef::small(0));
    let mut image = Image::new(Arc::new(region), 0);
    follow(&mut image);
    image
}

#[test]
fn an_agents_record_waits_for_earlier_records_of_hooks() {
    let began = clock().now();
    let (wide, two) = (record::ext(ExtKind::Name, 2, 0), (0, 0));
    let unfinished = (Kind::Pending as u64 | 2 << 16, 0);
    let mut sink = TestSink::new();
    let mut read_until = |slots: &[(u64, u64)], pass| {
        let mut hooks = image_of(slots);
        hooks.drain(clock(), 1_000_000_000, pass, u64::MAX, &mut sink);
        hooks.read_until
    };
    // The second record is still being written, so it may be of any time after the first.
    let (first, second) = ((wide, began), [unfinished, two]);
    assert_eq!(read_until(&[[first, two], second].concat(), Pass::Partial), began);
    assert!(read_until(&[first, two], Pass::Partial) > began);
    assert_eq!(read_until(&[first, two], Pass::Last), u64::MAX);

    let text = record::ext(ExtKind::AgentNote, 3, 0);
    let mut agent = image_of(&[(text, began), two, two, (text, began + 2), two, two]);
    let mut drained = |until| agent.drain(clock(), 1_000_000_000, Pass::Partial, until, &mut sink);
    let counts = [began - 1, began + 1, began + 1, u64::MAX, u64::MAX].map(&mut drained);
    assert_eq!(counts, [0, 1, 0, 1, 0]);
}

#[test]
fn no_garbage_in_a_region_stops_or_crashes_the_collector() {
    in_time(|| {
        let (mut recorded, mut refused, mut notes) = (0, 0, 0);
        let before = resident();
        for seed in 1..=300 {
            let (region, _file) = Region::new().unwrap();
            scribble(&region, &mut Random::new(seed));
            let (image, seen) = drained(region);
            // A region has room for one record per slot at most.
            assert!(image.recorded <= (REGION_BYTES / SLOT_BYTES) as u64, "seed {seed}");
            recorded += image.recorded;
            refused += image.refused;
            notes += seen;
        }
        assert!(
            recorded > 10_000 && notes > 1_000,
            "{recorded} events, {notes} notes: the regions are too poor"
        );
        assert!(refused > 1_000, "too few records count as refused: {refused}");
        let grown = resident().saturating_sub(before);
        assert!(grown < 512 << 20, "{grown} bytes are kept");
    });
}

/// Returns a region with one thread, whose first chunk contains `slots` and has `next` as its next
/// word.
fn with_chunk(slots: &[(u64, u64)], next: u64) -> Region {
    let (region, _) = Region::new().unwrap();
    let first = ChunkRef::small(3);
    fill(&region, first, slots);
    put(&region, first.place().unwrap().0, next);
    thread(&region, 0, first);
    region
}

fn allocs(count: usize) -> Vec<(u64, u64)> {
    (0..count)
        .map(|i| record::heap(Kind::Alloc, 0x1000 + i as u64 * 16, 8, 1, clock().now()))
        .collect()
}

#[test]
fn a_chunk_that_names_itself_is_read_once() {
    in_time(|| {
        let own = u64::from(ChunkRef::small(3).0);
        for end in [0, SLOT_BYTES, 11 * SLOT_BYTES, SMALL_BYTES, usize::MAX >> 32] {
            let (image, _) = drained(with_chunk(&allocs(10), (end as u64) << 32 | own));
            assert!(image.recorded <= 10, "end {end}: {} records of 10", image.recorded);
        }
    });
}

#[test]
fn two_chunks_that_name_each_other_are_read_once() {
    in_time(|| {
        let (a, b) = (ChunkRef::small(3), ChunkRef::large(7));
        let region = with_chunk(&allocs(10), 11 << 36 | u64::from(b.0));
        fill(&region, b, &allocs(10));
        put(&region, b.place().unwrap().0, 11 << 36 | u64::from(a.0));
        assert!(drained(region).0.recorded <= 20);
    });
}

#[test]
fn a_chunk_end_within_a_slot_does_not_stop_the_collector() {
    in_time(|| {
        for end in [1, 8, 17, 24, 31, 33, SMALL_BYTES - 1, SMALL_BYTES + 1] {
            let next = (end as u64) << 32 | u64::from(ChunkRef::large(0).0);
            for slot in [
                allocs(1)[0],
                (record::ext(ExtKind::Stack, 2, 1), 0),
                (u64::MAX, 0),
                (Kind::Pad as u64, 0),
            ] {
                drained(with_chunk(&[slot; 255], next));
            }
        }
    });
}

#[test]
fn impossible_block_sizes_do_not_overflow() {
    in_time(|| {
        let wide = |address: u64, kind: Kind| {
            let head = (record::ext(ExtKind::Wide, 3, kind as u32), clock().now());
            [head, (address, u64::MAX), (1, 0)]
        };
        let mut slots = Vec::new();
        for round in 0..4 {
            slots.extend(wide(0x1000, Kind::Alloc));
            slots.extend(wide(0x2000 * (round + 1), Kind::Alloc));
            slots.extend(wide(0x1000, Kind::Free));
        }
        let (image, _) = drained(with_chunk(&slots, 0));
        assert_eq!((image.recorded, image.refused), (12, 0));
        assert!(image.heap.peak_bytes >= image.heap.live_bytes);
    });
}

#[test]
fn wide_records_of_no_heap_event_are_refused() {
    let head = |argument, slots| (record::ext(ExtKind::Wide, slots, argument), clock().now());
    let payload = [(0x1000, 1 << 40), (0, 0)];
    let mut slots = Vec::new();
    for argument in [0, Kind::Time as u32, Kind::Pad as u32, Kind::Pending as u32, 15, u32::MAX] {
        slots.push(head(argument, 3));
        slots.extend(payload);
    }
    // A record that is too short for an address, a size and a stack.
    slots.extend([head(Kind::Alloc as u32, 2), payload[0]]);
    let (image, _) = drained(with_chunk(&slots, 0));
    assert_eq!((image.recorded, image.refused), (0, 7));
}

#[test]
fn reallocations_that_never_end_do_not_slow_those_of_other_threads() {
    in_time(|| {
        let (region, _file) = Region::new().unwrap();
        // Each thread fills half of the large chunks, a thread with one kind of record.
        for (slot, kind) in [Kind::ReallocFree, Kind::ReallocFailed].into_iter().enumerate() {
            let count = LARGE_BYTES / SLOT_BYTES - 1;
            let records = vec![record::heap(kind, 0x1000, 0, 0, clock().now()); count];
            let chunk = |index| ChunkRef::large(slot * LARGE_CHUNKS / 2 + index);
            for index in 0..LARGE_CHUNKS / 2 {
                fill(&region, chunk(index), &records);
                let next = if index + 1 < LARGE_CHUNKS / 2 { chunk(index + 1).0 } else { 0 };
                let end = if next == 0 { 0 } else { LARGE_BYTES as u64 };
                put(&region, chunk(index).place().unwrap().0, end << 32 | u64::from(next));
            }
            thread(&region, slot, chunk(0));
        }
        let (image, _) = drained(region);
        assert_eq!(image.recorded as usize, LARGE_CHUNKS * (LARGE_BYTES / SLOT_BYTES - 1));
    });
}

#[test]
fn many_threads_that_claim_one_chunk_do_not_fill_the_memory() {
    in_time(|| {
        let (region, _file) = Region::new().unwrap();
        let first = ChunkRef::large(0);
        fill(&region, first, &allocs(LARGE_BYTES / SLOT_BYTES - 1));
        for slot in 0..512 {
            thread(&region, slot, first);
        }
        let before = resident();
        let (image, _) = drained(region);
        let grown = resident().saturating_sub(before);
        assert!(grown < 512 << 20, "{grown} bytes for {} records", image.recorded);
    });
}
