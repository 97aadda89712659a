//! A process that is attached to a region of its own, for tests of what threads record. The state
//! of a process is in statics, so there is one such process at a time.

use crate::block::Thread;
use crate::state::{self, WIPED, phase};
use crate::sys::{self, flags};
use crate::{gate, ring};
use std::sync::{Mutex, MutexGuard};
use tprof_wire::record::{ExtKind, Kind, SLOT_BYTES};
use tprof_wire::region::*;
use tprof_wire::sync::{AtomicU64, Ordering::*};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Held by a test that uses the state of the process.
pub fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// This process, attached to an empty region whose collector never reads.
pub struct Attached {
    _alone: MutexGuard<'static, ()>,
}

impl Default for Attached {
    fn default() -> Attached {
        Attached::new()
    }
}

impl Attached {
    /// Attaches to a region in which all chunks are free. Threads drop records if it is full.
    pub fn new() -> Attached {
        let alone = alone();
        let region = sys::map_anonymous(REGION_BYTES).unwrap();
        let session = sys::map_anonymous(SESSION_BYTES).unwrap();
        state::SESSION.store(session.cast(), SeqCst);
        state::REGION.store(region, SeqCst);
        let attached = Attached { _alone: alone };
        attached.bits(SLOT_BITMAP_OFFSET, MAX_THREADS);
        attached.set_free(SMALL_CHUNKS, LARGE_CHUNKS);
        // SAFETY: the region was just mapped.
        unsafe { ring::prepare(region, false) };
        state::PID.store(sys::pid(), SeqCst);
        state::HOT.clock_is_tsc.store(0, SeqCst);
        state::STACK_MODE.store(stack_mode::OFF, SeqCst);
        state::MEM_MODE.store(mem_mode::SAMPLED, SeqCst);
        // The collector's last pass lies ahead, so it isn't stalled.
        state::session().unwrap().coarse_clock.store(sys::monotonic_ns() + (1 << 50), SeqCst);
        WIPED.generation.store(state::next_generation(), SeqCst);
        state::PHASE.store(phase::ON, SeqCst);
        attached
    }

    /// Makes the first small and large chunks free, and no others. None of the first is in use.
    pub fn set_free(&self, small: usize, large: usize) {
        self.bits(SMALL_BITMAP_OFFSET, SMALL_CHUNKS);
        self.bits(LARGE_BITMAP_OFFSET, LARGE_CHUNKS);
        for (offset, most, free) in
            [(SMALL_BITMAP_OFFSET, SMALL_CHUNKS, small), (LARGE_BITMAP_OFFSET, LARGE_CHUNKS, large)]
        {
            (free..most).for_each(|index| {
                self.word(offset + index / 64 * 8).fetch_and(!(1 << (index % 64)), SeqCst);
            });
        }
    }

    fn bits(&self, offset: usize, bits: usize) {
        (0..bits / 64).for_each(|word| self.word(offset + word * 8).store(u64::MAX, SeqCst));
    }

    fn word(&self, offset: usize) -> &'static AtomicU64 {
        assert!(offset < REGION_BYTES);
        // SAFETY: the region has so many bytes, and is never unmapped.
        unsafe { &*state::REGION.load(SeqCst).add(offset).cast() }
    }

    /// Number of bits that are set in the bitmap of large chunks.
    pub fn free_large(&self) -> u32 {
        let words = 0..LARGE_WORDS;
        words.map(|at| self.word(LARGE_BITMAP_OFFSET + at * 8).load(SeqCst).count_ones()).sum()
    }

    /// Number of bits that are set in the bitmap of slots.
    pub fn free_slots(&self) -> u32 {
        let words = 0..SLOT_WORDS;
        words.map(|at| self.word(SLOT_BITMAP_OFFSET + at * 8).load(SeqCst).count_ones()).sum()
    }

    /// The region's header.
    pub fn header(&self) -> &'static RegionHeader {
        state::header().unwrap()
    }

    /// The running thread, with what it has open.
    pub fn thread_as_it_is(&self) -> &'static Thread {
        gate::recording().expect("the process is attached")
    }

    /// The running thread, which records from now on, and has nothing open.
    pub fn thread(&self) -> &'static Thread {
        let thread = self.thread_as_it_is();
        thread.stacks.set(0);
        thread.spans.set(0);
        thread.spans_recorded.set(0);
        thread.spans_over.set(0);
        thread
    }

    /// All records of a thread.
    pub fn records(&self, thread: &Thread) -> Vec<Written> {
        let mut all = Vec::new();
        let mut chunk = ChunkRef(thread.slot().first_chunk.load(SeqCst));
        while let Some((offset, _)) = chunk.place() {
            let next = self.word(offset).load(SeqCst);
            let end = match next {
                0 => thread.cursor.get() - state::REGION.load(SeqCst) as usize - offset,
                next => (next >> 32) as usize,
            };
            let mut at = SLOT_BYTES;
            while at < end {
                let word = |n: usize| self.word(offset + at + n * 8).load(SeqCst);
                let kind = Kind::of(word(0)).expect("a record that is complete");
                let slots = match kind {
                    Kind::Ext | Kind::Pending | Kind::Pad => (word(0) >> 16 & 0xffff) as usize,
                    _ => 1,
                };
                all.push(Written {
                    kind,
                    ext: if kind == Kind::Ext { ExtKind::of(word(0)) } else { None },
                    words: (0..slots * 2).map(word).collect(),
                });
                at += slots * SLOT_BYTES;
            }
            chunk = ChunkRef(next as u32);
        }
        all
    }

    /// The records of this kind.
    pub fn of_kind(&self, thread: &Thread, kind: ExtKind) -> Vec<Written> {
        self.records(thread).into_iter().filter(|record| record.ext == Some(kind)).collect()
    }

    /// The heap records, without those of times.
    pub fn of_heap(&self, thread: &Thread) -> Vec<Written> {
        let is_heap = |record: &Written| !matches!(record.kind, Kind::Ext | Kind::Time);
        self.records(thread).into_iter().filter(is_heap).collect()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // The memory stays mapped, as a process's region does.
        WIPED.generation.store(0, SeqCst);
        state::PHASE.store(phase::NEW, SeqCst);
        state::REGION.store(core::ptr::null_mut(), SeqCst);
        state::SESSION.store(core::ptr::null_mut(), SeqCst);
        state::MEM_MODE.store(0, SeqCst);
        state::STACK_MODE.store(0, SeqCst);
    }
}

/// A record that a thread wrote into its ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The kind of the first slot.
    pub kind: Kind,
    /// The kind, if the record is an extended one.
    pub ext: Option<ExtKind>,
    /// All words of its slots, in order.
    pub words: Vec<u64>,
}

impl Written {
    /// The argument of an extended record.
    pub fn argument(&self) -> u32 {
        (self.words[0] >> 32) as u32
    }

    /// The payload of an extended record.
    pub fn payload(&self) -> &[u64] {
        &self.words[2..]
    }
}

/// Words at the end of a page, between pages that can't be read: a stack, for walks.
pub struct MadeStack {
    page: usize,
    len: usize,
}

impl MadeStack {
    /// A stack with these words, the innermost first.
    pub fn new(words: &[u64]) -> MadeStack {
        let pages = sys::map_anonymous(3 * 4096).unwrap();
        for page in [0, 2] {
            // SAFETY: the mapping is this stack's own.
            assert!(unsafe { sys::protect(pages.add(page * 4096), 4096, flags::PROT_NONE) });
        }
        let stack = MadeStack { page: pages as usize + 4096, len: words.len() };
        (0..words.len()).for_each(|at| stack.set(at, words[at]));
        stack
    }

    /// The address of a word.
    pub fn at(&self, word: usize) -> usize {
        self.page + 4096 - (self.len - word) * 8
    }

    /// Changes a word.
    pub fn set(&self, word: usize, value: u64) {
        assert!(word < self.len);
        // SAFETY: the word lies in the stack's own page.
        unsafe { (self.at(word) as *mut u64).write_volatile(value) };
    }

    /// Makes this the readable stack of a thread, and returns its first word's address.
    pub fn of(&self, thread: &Thread) -> usize {
        thread.stack_low.set(self.page);
        thread.stack_high.set(self.page + 4096);
        self.at(0)
    }
}

impl Drop for MadeStack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this stack's own.
        unsafe { sys::unmap((self.page - 4096) as *mut u8, 3 * 4096) };
    }
}
