//! A journal of the calls between CUPTI and the agent, in the order in which they happened. It is
//! written to the file of raw buffers (`TPROF_CUPTI_RECORD`, blocks of kind 3). With it, developers
//! can read what a real CUPTI did, and replay it on machines without a GPU.
//!
//! CUPTI's callbacks run on the job's threads, which must not wait. They add entries to a ring of
//! fixed size, and the flush thread writes these to the file. If the variable isn't set, each call
//! here costs one load.

use super::raw::Raw;
use tprof_inject::sys;
use tprof_wire::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

/// The kind of an entry. The numbers are part of the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum JournalEvent {
    /// The driver calls `InitializeInjection`.
    Began = 1,
    /// The call of `InitializeInjection` returns.
    SetUp = 2,
    /// The result of `cuptiActivityRegisterCallbacks`.
    Registered = 3,
    /// The agent called `cuptiActivityRegisterCallbacks`: result.
    Enabled = 4,
    /// `cuptiActivityEnableRuntimeApi` or `…DriverApi`: kind, call, result.
    Chosen = 5,
    /// The agent served a call of another client: its number in the list of intercepted functions
    /// of CUPTI, its first argument, result.
    Client = 6,
    /// CUPTI requests a buffer: its address or 0, bytes lent.
    Requested = 7,
    /// CUPTI returns a buffer: address, bytes of records, stream.
    Completed = 8,
    /// `cuptiActivityFlushAll`, with the time of its beginning: flags, result, nanoseconds that it
    /// took.
    Flushed = 9,
    /// `cuptiGetTimestamp`, with the time of tprof's reading before it: CUPTI's time, nanoseconds
    /// until tprof's reading after it, result.
    Clocks = 10,
    /// `cuptiActivityGetNumDroppedRecords`: number of records, result. Written only if the number
    /// is not 0.
    Dropped = 11,
    /// The flush thread read a buffer, which follows as the next block of kind 1: address, number
    /// of records, result of the last `cuptiActivityGetNextRecord`.
    Read = 12,
    /// Entries were lost because the ring was full: their number.
    Lost = 13,
}

/// Bytes of an entry: its kind (4), thread id (4), CLOCK_MONOTONIC in ns (8), three numbers.
pub const ENTRY: usize = 40;
const WORDS: usize = ENTRY / 8;
/// Maximum number of entries that can wait to be written. This is enough for a few flushes of a
/// busy job.
const ROOM: u64 = 4096;
/// Number of entries in one block.
const BLOCK: usize = 64;

struct Slot {
    /// Number of the complete entry in this slot, counted from 1; 0 before the first.
    whole: AtomicU64,
    words: [AtomicU64; WORDS],
}

static RING: [Slot; ROOM as usize] =
    [const { Slot { whole: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] } };
        ROOM as usize];
static NEXT: AtomicU64 = AtomicU64::new(0);
static WRITTEN: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
static IS_ON: AtomicBool = AtomicBool::new(false);
static PID: AtomicU32 = AtomicU32::new(0);

/// Begins the journal if the environment names a file for raw buffers.
pub fn begin() {
    PID.store(sys::pid(), Relaxed);
    IS_ON.store(Raw::wanted(0).is_some(), Release);
}

/// CLOCK_MONOTONIC in nanoseconds for [`keep_at`]; 0 if there is no journal.
#[inline]
pub fn now_ns() -> u64 {
    if IS_ON.load(Relaxed) { sys::monotonic_ns() } else { 0 }
}

/// Adds an entry for something that happens now.
#[inline]
pub fn keep(what: JournalEvent, numbers: [u64; 3]) {
    if IS_ON.load(Relaxed) {
        put(what, sys::monotonic_ns(), numbers);
    }
}

/// Adds an entry for something that happened at a time that [`now_ns`] returned.
#[inline]
pub fn keep_at(what: JournalEvent, at_ns: u64, numbers: [u64; 3]) {
    if IS_ON.load(Relaxed) {
        put(what, at_ns, numbers);
    }
}

#[cold]
fn put(what: JournalEvent, at_ns: u64, numbers: [u64; 3]) {
    let mut number = NEXT.load(Relaxed);
    loop {
        if number.wrapping_sub(WRITTEN.load(Acquire)) >= ROOM {
            LOST.fetch_add(1, Relaxed);
            return;
        }
        match NEXT.compare_exchange_weak(number, number + 1, AcqRel, Relaxed) {
            Ok(_) => break,
            Err(found) => number = found,
        }
    }
    let Some(slot) = RING.get((number % ROOM) as usize) else { return };
    let head = u64::from(what as u32) | u64::from(sys::tid()) << 32;
    let [one, two, three] = numbers;
    for (to, word) in slot.words.iter().zip([head, at_ns, one, two, three]) {
        to.store(word, Relaxed);
    }
    slot.whole.store(number + 1, Release);
}

/// Writes the complete entries to the file. The flush thread calls this. An entry that another
/// thread is still writing is left for the next time, and so are all entries after it.
pub fn write(raw: &Raw) {
    if PID.load(Relaxed) != sys::pid() {
        return;
    }
    let lost = LOST.swap(0, Relaxed);
    drain(raw);
    // Now the ring has room for the entry about the lost ones.
    if lost > 0 {
        put(JournalEvent::Lost, sys::monotonic_ns(), [lost, 0, 0]);
        drain(raw);
    }
}

/// Writes the entries that are complete.
fn drain(raw: &Raw) {
    loop {
        let mut bytes = [0u8; BLOCK * ENTRY];
        let mut entries = 0;
        for place in bytes.chunks_exact_mut(ENTRY) {
            let number = WRITTEN.load(Relaxed);
            let Some(slot) = RING.get((number % ROOM) as usize) else { break };
            if slot.whole.load(Acquire) != number + 1 {
                break;
            }
            for (to, word) in place.chunks_exact_mut(8).zip(&slot.words) {
                to.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
            }
            WRITTEN.store(number + 1, Release);
            entries += 1;
        }
        raw.journal(bytes.get(..entries * ENTRY).unwrap_or_default());
        if entries < BLOCK {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_in_order_and_those_without_room_are_counted() {
        let before = (NEXT.load(Relaxed), LOST.load(Relaxed));
        for number in 0..ROOM + 3 {
            put(JournalEvent::Flushed, 5, [number, 0, 7]);
        }
        assert_eq!(NEXT.load(Relaxed) - before.0, ROOM);
        assert_eq!(LOST.load(Relaxed) - before.1, 3);
        let slot = &RING[((before.0 + 9) % ROOM) as usize];
        let words: Vec<u64> = slot.words.iter().map(|word| word.load(Relaxed)).collect();
        let head = u64::from(JournalEvent::Flushed as u32) | u64::from(sys::tid()) << 32;
        assert_eq!(words, [head, 5, 9, 0, 7]);
        assert_eq!(slot.whole.load(Relaxed), before.0 + 10);
    }
}
