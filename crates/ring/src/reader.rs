//! Finds the records of one thread's ring.

use tprof_wire::record::{AGENT_KINDS, ExtKind, Kind, SLOT_BYTES};
use tprof_wire::region::ChunkRef;
use tprof_wire::sync::{AtomicU64, Ordering::*};

/// Time after which a hole is skipped, ns. A hole is a reserved slot that stays empty while later
/// slots are written, because its writer died or left the hook by `longjmp`. The time is longer
/// than the scheduler lets a thread wait on a busy machine.
const HOLE_NS: u64 = 200_000_000;
/// Number of slots behind an empty one that are searched for a written slot. Nested signal handlers
/// reserve no more at one time.
const SLOTS_BEHIND: usize = 8;

/// The words of a region, which its process may change at any time.
pub trait Words {
    /// Returns the word at this byte offset of the region. The offset is a multiple of 8, and in a
    /// chunk.
    fn word(&self, offset: usize) -> &AtomicU64;
}

/// How far a ring is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Up to the chunk that its thread is still filling.
    Live,
    /// Up to the last record that its thread has finished.
    Partial,
    /// Everything. The process or thread has ended, so unfinished records are skipped.
    Last,
}

/// How far one pass reads, and its time.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Which records are read.
    pub pass: Pass,
    /// The time of the pass, ns. It tells how long a record has been unfinished.
    pub now_ns: u64,
    /// The CUPTI agent's records from after this reading of the clock are left in the ring.
    pub agent_until: u64,
}

/// What a reader finds next in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// One or more heap records, in the slots from [`RingReader::heap_slots`]. The caller decodes
    /// them, and passes their number to [`RingReader::advance`].
    Heap,
    /// An extended record, which the reader has moved past.
    Ext(ExtRecord),
    /// The end of a chunk, whose first `used` bytes were read. The reader is at the beginning of
    /// the next chunk, and the caller frees this one.
    ChunkEnd {
        /// The chunk, which its thread has left.
        chunk: ChunkRef,
        /// Bytes of it that were written.
        used: usize,
    },
    /// A record that isn't finished, or that this pass leaves in the ring. A later pass finds it.
    Unfinished,
    /// Nothing: everything that this pass reads was found.
    End,
}

/// An extended record in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtRecord {
    /// The kind of the record.
    pub kind: ExtKind,
    /// The record's argument.
    pub argument: u32,
    /// The record's clock, in ticks.
    pub clock: u64,
    /// Offset of the payload in the region, bytes.
    pub payload: usize,
    /// Number of words in the payload. Unused words of the last slot are included.
    pub words: usize,
}

/// A position in one thread's ring.
///
/// Whatever the process writes into its region, these hold:
///
/// - Each access is to a word of the chunk that is read.
/// - Each call moves past at least one slot or chunk, or ends the pass. A chain of chunks may be a
///   circle, so the caller limits the number of chunks in a pass.
/// - What is malformed is skipped and counted in [`RingReader::refused`].
///
/// If the process writes only by `tprof-inject`, these hold as well:
///
/// - A record is found whole or not at all, and once.
/// - Records are found in the order in which the thread reserved their slots.
/// - A chunk ends for the reader only after its writer has left it, so that it may be freed.
#[derive(Debug)]
pub struct RingReader {
    chunk: ChunkRef,
    /// Where the chunk begins in the region, bytes.
    base: usize,
    /// Length of the chunk, bytes; 0 if there is no chunk.
    bytes: usize,
    /// Offset of the next record in the chunk, bytes.
    at: usize,
    /// The first word of the chunk, as this pass has read it; `None` before that.
    next: Option<u64>,
    /// Offset in the chunk up to which this pass reads, bytes.
    end: usize,
    /// The clock of the last record, in ticks.
    clock: u64,
    /// Time since which a later record has followed an unfinished one, ns; 0 if none does.
    hole_since: u64,
    /// Time of the last pass that read a chunk which the thread was still filling, ns.
    partial_at: u64,
    /// Number of malformed or unfinished records that were skipped, and of wrong chunks.
    pub refused: u64,
}

impl RingReader {
    /// Returns a reader of the ring that begins with `chunk`. Its first record is relative to this
    /// reading of the clock.
    pub fn new(chunk: ChunkRef, clock: u64) -> RingReader {
        let mut reader = RingReader {
            chunk,
            base: 0,
            bytes: 0,
            at: 0,
            next: None,
            end: 0,
            clock,
            hole_since: 0,
            partial_at: 0,
            refused: 0,
        };
        reader.enter(chunk);
        reader
    }

    /// Returns the chunk that is being read, and its length in bytes, 0 if there is no chunk.
    pub fn chunk(&self) -> (ChunkRef, usize) {
        (self.chunk, self.bytes)
    }

    /// Returns where the next record is: its chunk, and its offset in the chunk.
    pub fn position(&self) -> (ChunkRef, usize) {
        (self.chunk, self.at)
    }

    /// Returns the clock of the last record, in ticks.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Returns the time of the last pass that read a chunk which the thread was still filling, ns.
    pub fn partial_at(&self) -> u64 {
        self.partial_at
    }

    /// Returns the byte offsets in the region between which the heap records are that were just
    /// found, and perhaps others after them.
    pub fn heap_slots(&self) -> (usize, usize) {
        (self.base + self.at, self.base + self.end)
    }

    /// Moves past so many heap records, the last of which has this clock.
    pub fn advance(&mut self, slots: usize, clock: u64) {
        self.at += slots * SLOT_BYTES;
        self.clock = clock;
    }

    /// Finds what comes next in the ring. A pass ends with [`Found::Unfinished`] or [`Found::End`],
    /// or where the caller stops.
    #[inline]
    pub fn find(&mut self, words: &impl Words, limits: &ReadLimits) -> Found {
        let found = self.find_in_pass(words, limits);
        if matches!(found, Found::Unfinished | Found::End) {
            self.next = None;
        }
        found
    }

    #[inline]
    fn find_in_pass(&mut self, words: &impl Words, limits: &ReadLimits) -> Found {
        if self.next.is_none() && !self.begin_chunk(words, limits) {
            return Found::End;
        }
        while self.at < self.end {
            let word0 = words.word(self.base + self.at).load(Acquire);
            if word0 == 0 {
                if let Some(found) = self.pass_empty(words, limits) {
                    return found;
                }
                continue;
            }
            match Kind::of(word0) {
                Some(kind) if kind.is_heap_event() => {
                    self.hole_since = 0;
                    return Found::Heap;
                }
                Some(Kind::Ext) => match self.take_ext(words, word0, limits.agent_until) {
                    Some(found) => return found,
                    None => continue,
                },
                Some(Kind::Time) => {
                    self.clock = words.word(self.base + self.at + 8).load(Relaxed);
                    self.at += SLOT_BYTES;
                }
                Some(Kind::Pad) => {
                    self.at = (self.at + slots_of(word0).max(1) * SLOT_BYTES).min(self.end);
                }
                Some(Kind::Pending) => {
                    let bytes = slots_of(word0).max(1) * SLOT_BYTES;
                    // The scheduler or a signal handler interrupted the writer. A handler may never
                    // return to it, but the handler's own records then follow this one.
                    let is_over = limits.pass == Pass::Last;
                    if !is_over && !self.is_abandoned(words, bytes, limits.now_ns) {
                        return Found::Unfinished;
                    }
                    self.at += bytes;
                    self.refused += 1;
                    continue;
                }
                _ => {
                    self.at += SLOT_BYTES;
                    self.refused += 1;
                }
            }
            self.hole_since = 0;
        }
        self.leave_chunk()
    }

    /// Reads the header of the chunk. Returns false if this pass doesn't read the chunk.
    fn begin_chunk(&mut self, words: &impl Words, limits: &ReadLimits) -> bool {
        if self.bytes == 0 {
            return false; // the reference to it was wrong
        }
        let next = words.word(self.base).load(Acquire);
        if next == 0 {
            if limits.pass == Pass::Live {
                return false;
            }
            self.partial_at = limits.now_ns;
        }
        self.end_at(next);
        true
    }

    /// Notes where the records of the chunk end. That is a whole number of slots within the chunk,
    /// even if the chunk's header is wrong.
    fn end_at(&mut self, next: u64) {
        let stated = if next == 0 { self.bytes } else { (next >> 32) as usize };
        self.end = stated.min(self.bytes) & !(SLOT_BYTES - 1);
        self.refused += u64::from(self.end != stated);
        self.next = Some(next);
    }

    /// Continues with the next chunk if the thread has moved on to one.
    fn leave_chunk(&mut self) -> Found {
        let next = self.next.unwrap_or_default();
        if next == 0 {
            return Found::End;
        }
        let (chunk, used) = (self.chunk, self.at);
        self.enter(ChunkRef(next as u32));
        self.refused += u64::from(self.bytes == 0);
        Found::ChunkEnd { chunk, used }
    }

    /// Continues at the first record of `chunk`.
    fn enter(&mut self, chunk: ChunkRef) {
        self.chunk = chunk;
        (self.base, self.bytes) = chunk.place().unwrap_or((0, 0));
        self.at = SLOT_BYTES;
        self.next = None;
    }

    /// Moves past an extended record. Returns `None` if it is malformed.
    #[inline]
    fn take_ext(&mut self, words: &impl Words, word0: u64, agent_until: u64) -> Option<Found> {
        let place = self.base + self.at;
        let clock = words.word(place + 8).load(Relaxed);
        let kind = ExtKind::of(word0);
        let is_agents = kind.is_some_and(|kind| AGENT_KINDS.contains(&(kind as u16)));
        if is_agents && clock > agent_until {
            return Some(Found::Unfinished);
        }
        self.hole_since = 0;
        let slots = slots_of(word0);
        if slots == 0 || self.at + slots * SLOT_BYTES > self.end {
            self.at += SLOT_BYTES;
            self.refused += 1;
            return None;
        }
        self.at += slots * SLOT_BYTES;
        let Some(kind) = kind else {
            self.refused += 1;
            return None;
        };
        self.clock = clock;
        Some(Found::Ext(ExtRecord {
            kind,
            argument: (word0 >> 32) as u32,
            clock,
            payload: place + SLOT_BYTES,
            words: (slots - 1) * SLOT_BYTES / 8,
        }))
    }

    /// Handles an empty slot. Returns `None` if the reader has moved past it, or has found more of
    /// the chunk.
    #[cold]
    fn pass_empty(&mut self, words: &impl Words, limits: &ReadLimits) -> Option<Found> {
        if self.next == Some(0) {
            let next = words.word(self.base).load(Acquire);
            if next != 0 {
                // The writer has moved on to the next chunk meanwhile.
                self.end_at(next);
                return None;
            }
            if !self.is_later_slot_written(words) {
                return Some(Found::End);
            }
            // Both slots may have been written since this one was found empty.
            if self.is_written(words, 0) {
                return None;
            }
        }
        if limits.pass != Pass::Last {
            if self.hole_since == 0 {
                self.hole_since = limits.now_ns.max(1);
                return Some(Found::Unfinished);
            }
            if limits.now_ns.saturating_sub(self.hole_since) < HOLE_NS {
                return Some(Found::Unfinished);
            }
        }
        self.hole_since = 0;
        self.at += SLOT_BYTES;
        self.refused += 1;
        None
    }

    /// Whether one of the next few slots has been written, which makes the empty slot a hole.
    fn is_later_slot_written(&self, words: &impl Words) -> bool {
        (1..SLOTS_BEHIND).any(|slots| self.is_written(words, slots * SLOT_BYTES))
    }

    /// Whether the slot so many bytes behind the reader is in the chunk and written.
    fn is_written(&self, words: &impl Words, behind: usize) -> bool {
        let at = self.at + behind;
        at < self.bytes && words.word(self.base + at).load(Acquire) != 0
    }

    /// Whether a record of `bytes` that is marked as unfinished will never be finished. That is
    /// assumed once a later record has followed it for [`HOLE_NS`].
    fn is_abandoned(&mut self, words: &impl Words, bytes: usize, now_ns: u64) -> bool {
        let is_followed = self.is_written(words, bytes);
        if !is_followed || self.hole_since == 0 {
            self.hole_since = if is_followed { now_ns.max(1) } else { 0 };
            return false;
        }
        let is_abandoned = now_ns.saturating_sub(self.hole_since) >= HOLE_NS;
        if is_abandoned {
            self.hole_since = 0;
        }
        is_abandoned
    }
}

/// Returns the number of slots that an extended record or a pad says it has.
fn slots_of(word0: u64) -> usize {
    (word0 >> 16 & 0xffff) as usize
}
