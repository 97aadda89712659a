//! The region that one process image shares with the collector, and the page
//! that all processes of a session share.
//!
//! A region is a memfd, sealed against shrinking, sparse: only what is touched
//! costs memory. The target maps it once, right after the handshake, and keeps
//! no descriptor. Threads take slots and chunks by clearing bits in bitmaps;
//! the collector gives them back by setting bits.
//!
//! ```text
//! 0          RegionHeader                       4 KiB
//! MODULES    ModuleRange[MAX_MODULES]          64 KiB
//! BITMAPS    free slots, small, large chunks    8 KiB
//! SLOTS      ThreadSlot[MAX_THREADS]            2 MiB
//! SMALL      chunks of 4 KiB                   64 MiB
//! LARGE      chunks of 64 KiB                  32 MiB
//! ```

use crate::python::INTERPRETER_WORDS;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

/// First word of a region.
pub const REGION_MAGIC: u64 = 0x3167_6572_666f_7270; // "profreg1"
/// Number of small chunks that a process under a limit of address space (`ulimit -v`) maps instead,
/// without large ones.
pub const SPARING_CHUNKS: usize = 1_024;
/// Bytes of the region that such a process maps.
pub const SPARING_REGION_BYTES: usize = SMALL_OFFSET + SPARING_CHUNKS * SMALL_BYTES;
/// Bytes of the unwind tables that such a process maps.
pub const SPARING_TABLES_BYTES: usize = 32 << 20;
/// Threads that can be recorded at one time in one process.
pub const MAX_THREADS: usize = 16_384;
/// Executable mappings that a target can distinguish.
pub const MAX_MODULES: usize = 2_048;
/// Bytes in a small chunk: what a thread starts with.
pub const SMALL_BYTES: usize = 4 << 10;
/// Number of small chunks.
pub const SMALL_CHUNKS: usize = MAX_THREADS;
/// Bytes in a large chunk.
pub const LARGE_BYTES: usize = 64 << 10;
/// Number of large chunks: the session budget per process, 32 MiB.
pub const LARGE_CHUNKS: usize = 512;
/// Large chunks that one thread may have filled and not yet drained: 1 MiB.
pub const CHUNKS_PER_THREAD: u32 = 16;

/// Offset of the module table.
pub const MODULES_OFFSET: usize = 4 << 10;
/// Offset of the bitmaps.
pub const BITMAPS_OFFSET: usize = MODULES_OFFSET + MAX_MODULES * size_of::<ModuleRange>();
/// Offset of the thread slots.
pub const SLOTS_OFFSET: usize = BITMAPS_OFFSET + (8 << 10);
/// Offset of the small chunks.
pub const SMALL_OFFSET: usize = SLOTS_OFFSET + MAX_THREADS * size_of::<ThreadSlot>();
/// Offset of the large chunks.
pub const LARGE_OFFSET: usize = SMALL_OFFSET + SMALL_CHUNKS * SMALL_BYTES;
/// Bytes of a region.
pub const REGION_BYTES: usize = LARGE_OFFSET + LARGE_CHUNKS * LARGE_BYTES;

/// Words of the slot bitmap, then of the small one, then of the large one.
pub const SLOT_WORDS: usize = MAX_THREADS / 64;
/// Words of the small-chunk bitmap.
pub const SMALL_WORDS: usize = SMALL_CHUNKS / 64;
/// Words of the large-chunk bitmap.
pub const LARGE_WORDS: usize = LARGE_CHUNKS / 64;
/// Offset of the bitmap of thread slots.
pub const SLOT_BITMAP_OFFSET: usize = BITMAPS_OFFSET;
/// Offset of the bitmap of small chunks.
pub const SMALL_BITMAP_OFFSET: usize = SLOT_BITMAP_OFFSET + SLOT_WORDS * 8;
/// Offset of the bitmap of large chunks.
pub const LARGE_BITMAP_OFFSET: usize = SMALL_BITMAP_OFFSET + SMALL_WORDS * 8;

const _: () = assert!(LARGE_BITMAP_OFFSET + LARGE_WORDS * 8 <= SLOTS_OFFSET);
const _: () = assert!(size_of::<RegionHeader>() <= MODULES_OFFSET);

/// Why nothing is recorded at a moment: bits of [`RegionHeader::off`].
pub mod off {
    /// Recording is off in the session, as the session's page has it.
    pub const SESSION: u32 = 1;
    /// The program has switched it off for its process.
    pub const PROGRAM: u32 = 2;
    /// The schedule records no step at this moment.
    pub const SCHEDULE: u32 = 4;
}

/// How allocations are recorded: values of [`RegionHeader::mem_mode`].
pub mod mem_mode {
    /// Allocations are not recorded.
    pub const OFF: u32 = 0;
    /// Exact counts, sampled stacks.
    pub const SAMPLED: u32 = 1;
    /// Every event is recorded.
    pub const EXACT: u32 = 2;
}

/// How stacks are taken: values of [`RegionHeader::stack_mode`].
pub mod stack_mode {
    /// No stacks are taken.
    pub const OFF: u32 = 0;
    /// Unwind rows; a frame pointer only where a row permits it.
    pub const AUTO: u32 = 1;
    /// Frame pointers, blindly.
    pub const FP: u32 = 2;
    /// Same as `AUTO`; it has its own number so that the run can state the option.
    pub const DWARF: u32 = 3;
    /// Like `AUTO`, with the frames of Python's functions.
    pub const PYTHON: u32 = 4;
}

/// Head of a region. The collector fills the first part before the handshake
/// ends; the target writes the rest.
#[repr(C, align(64))]
pub struct RegionHeader {
    /// The constant [`REGION_MAGIC`].
    pub magic: AtomicU64,
    /// The collector's [`crate::WIRE_VERSION`].
    pub version: AtomicU32,
    /// One of [`mem_mode`].
    pub mem_mode: AtomicU32,
    /// One of [`stack_mode`].
    pub stack_mode: AtomicU32,
    /// 1: wait for the collector when full; 0: drop at once.
    pub wait_on_full: AtomicU32,
    /// 1: CUDA runtime and NCCL calls are recorded.
    pub calls: AtomicU32,
    /// Why nothing is recorded at this moment, [`off`]; 0 while it is.
    pub off: AtomicU32,
    /// Mean bytes between samples under `SAMPLED`.
    pub sample_interval: AtomicU64,
    /// Bounded wait on a full ring, in clock ticks.
    pub wait_ticks: AtomicU64,
    /// 1: the clock is the TSC; 0: CLOCK_MONOTONIC nanoseconds.
    pub clock_is_tsc: AtomicU32,
    /// Odd while the collector rewrites the module table, raised by 2 each time.
    pub modules_seq: AtomicU32,
    /// Entries in the module table.
    pub modules_len: AtomicU32,
    /// Raised by the target to ask for a fresh module table.
    pub modules_wanted: AtomicU32,
    /// Follows `modules_wanted`: the request that the table answers. A futex.
    pub modules_answered: AtomicU32,
    /// Live usable bytes under `SAMPLED`, summed over threads at each flush.
    pub live_bytes: AtomicI64,
    /// Highest `live_bytes` read at a flush.
    pub peak_bytes: AtomicI64,
    /// Clock at that peak.
    pub peak_clock: AtomicU64,
    /// Stack ids given out so far.
    pub stacks: AtomicU32,
    /// Why the target turned itself off; 0 while it records.
    pub off_reason: AtomicU32,
    /// Events that could not be attributed to a thread slot and were dropped.
    pub lost: AtomicU64,
    /// Stacks not kept because a table was full.
    pub stacks_lost: AtomicU64,
    /// Stacks not kept because the ring was full.
    pub stacks_dropped: AtomicU64,
    /// Sampled blocks with frees that cannot be recorded (table of live samples full).
    pub samples_untracked: AtomicU64,
    /// Pid inside the target.
    pub pid: AtomicU32,
    /// Raised by the target whenever a thread changed state (start, exit).
    pub threads_changed: AtomicU32,
    /// Threads that ever ran here, without a slot included.
    pub threads_seen: AtomicU32,
    /// Set while threads of the target wait for a chunk.
    pub waiting: AtomicU32,
    /// Forked children that could not attach; they report it here, in their parent's region.
    pub lost_children: AtomicU32,
    /// Pids of the last of them.
    pub lost_pids: [AtomicU32; 16],
    /// Interpreters that the target found unloaded. The collector reads it before it searches
    /// one, so that the target recognises one that is gone.
    pub python_unloads: AtomicU32,
    /// Written by the collector after `python`: `python_unloads` as it was, and one more.
    pub python_epoch: AtomicU32,
    /// The process's interpreter: [`crate::python::Interpreter::words`].
    pub python: [AtomicU64; INTERPRETER_WORDS],
    /// Recorded allocations and calls with Python frames that could not be read, or not all.
    pub python_unread: AtomicU64,
    /// Events before the process attached, if the collector did not answer it at first.
    pub missed: AtomicU64,
    /// Records of names, threads and processes that were dropped, since the ring was full.
    pub notes_lost: AtomicU64,
    /// Time that the target took to attach, ns.
    pub attach_ns: AtomicU64,
    /// One of [`crate::operators::mode`].
    pub operators: AtomicU32,
    /// Raised by the target before `modules_wanted` where it asks for the list of mappings, not
    /// only for a table.
    pub maps_wanted: AtomicU32,
    /// 1: the target finds rows of code without a table by itself; written before `modules_wanted`
    /// is raised.
    pub finds_rows: AtomicU32,
    /// Which hook notices the steps that the process counts: `Source` of the injected library; 0 if
    /// none does yet.
    pub step_source: AtomicU32,
    /// Steps that were noticed.
    pub steps: AtomicU64,
    /// [`crate::schedule::Schedule::pack`]; zeroes where there is none.
    pub schedule: [AtomicU64; crate::schedule::WORDS],
    /// [`crate::capture::pack`]; zeroes where there is none.
    pub capture: [AtomicU64; crate::capture::WORDS],
    /// The range that is captured now, as its kind numbers them; 0: none.
    pub captured: AtomicU64,
    /// Ranges that were captured.
    pub captures: AtomicU64,
    /// Stacks that were not taken, since what lies at their addresses was not known after code had
    /// been unmapped.
    pub stacks_unplaced: AtomicU64,
}

/// Values of [`ThreadSlot::state`].
pub mod slot_state {
    /// The slot is not in use.
    pub const FREE: u32 = 0;
    /// A thread writes here.
    pub const LIVE: u32 = 1;
    /// The thread reported that it is ending; destructors may still write.
    pub const ENDING: u32 = 2;
}

/// The counters of one thread of the target, and the chunk it began with. Only that thread writes
/// them, so that they survive a kill.
#[repr(C, align(128))]
pub struct ThreadSlot {
    /// One of [`slot_state`].
    pub state: AtomicU32,
    /// Thread id in the target's pid namespace.
    pub tid: AtomicU32,
    /// First chunk, see [`ChunkRef`].
    pub first_chunk: AtomicU32,
    /// Chunks filled by this thread and given back by the collector.
    pub drained_chunks: AtomicU32,
    /// Chunks this thread has moved on from.
    pub filled_chunks: AtomicU32,
    /// Raised by the collector when it recycles the slot.
    pub generation: AtomicU32,
    /// Clock at the thread's first record.
    pub start_clock: AtomicU64,
    /// Allocations (successful `realloc` counts one and one free).
    pub allocations: AtomicU64,
    /// Blocks given back.
    pub frees: AtomicU64,
    /// Bytes asked for.
    pub allocated_bytes: AtomicU64,
    /// Usable bytes not yet added to [`RegionHeader::live_bytes`].
    pub live_delta: AtomicI64,
    /// Ticks spent waiting on a full ring.
    pub wait_ticks: AtomicU64,
    /// Number of such waits.
    pub waits: AtomicU64,
    /// Number of records that were dropped.
    pub lost: AtomicU64,
    /// Ticks spent taking stacks, measured on one in 64 and scaled.
    pub stack_ticks: AtomicU64,
    /// Number of stacks that were taken.
    pub stacks_taken: AtomicU64,
    /// Ticks spent in callbacks of operators, measured on some of them and scaled.
    pub operator_ticks: AtomicU64,
    /// Not used yet.
    pub spare: AtomicU64,
}
const _: () = assert!(size_of::<ThreadSlot>() == 128);

/// An executable mapping of the target, published by the collector.
#[repr(C)]
pub struct ModuleRange {
    /// First address of the module.
    pub start: AtomicU64,
    /// One past the last address.
    pub end: AtomicU64,
    /// What must be added to a row's pc to get an address.
    pub bias: AtomicU64,
    /// Byte offset of the [`crate::unwind::TableHeader`] in the tables file;
    /// 0 if the mapping has no unwind information; else one of [`module_table`].
    pub table: AtomicU64,
}

/// Values of [`ModuleRange::table`] of a mapping without a table so far.
pub mod module_table {
    /// The table is being compiled, and comes without being asked for.
    pub const COMING: u64 = u64::MAX;
    /// The table is large, and is compiled once a stack needs it.
    pub const DEFERRED: u64 = u64::MAX - 1;
    /// The same, and a stack needs it: written by the target, before it asks.
    pub const ASKED: u64 = u64::MAX - 2;
}
const _: () = assert!(size_of::<ModuleRange>() == 32);

/// First slot of every chunk.
#[repr(C)]
pub struct ChunkHeader {
    /// Where the reader goes on: `end << 32 | next`. `next` is a [`ChunkRef`], and `end` the byte
    /// offset in this chunk up to which slots were handed out. It is 0 until the writer moves on.
    pub next: AtomicU64,
    /// Slot index of the owner.
    pub owner: AtomicU32,
    /// The slot's generation when the chunk was taken.
    pub generation: AtomicU32,
}
const _: () = assert!(size_of::<ChunkHeader>() == crate::record::SLOT_BYTES);

/// Names a chunk: 0 is none, 1..=SMALL_CHUNKS small, then large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRef(pub u32);

impl ChunkRef {
    /// Reference to a small chunk.
    pub const fn small(index: usize) -> ChunkRef {
        ChunkRef(index as u32 + 1)
    }
    /// Reference to a large chunk.
    pub const fn large(index: usize) -> ChunkRef {
        ChunkRef((index + SMALL_CHUNKS) as u32 + 1)
    }
    /// Offset in the region and length in bytes; `None` for a reference that names no chunk.
    pub const fn place(self) -> Option<(usize, usize)> {
        let n = self.0 as usize;
        if n == 0 {
            None
        } else if n <= SMALL_CHUNKS {
            Some((SMALL_OFFSET + (n - 1) * SMALL_BYTES, SMALL_BYTES))
        } else if n <= SMALL_CHUNKS + LARGE_CHUNKS {
            Some((LARGE_OFFSET + (n - 1 - SMALL_CHUNKS) * LARGE_BYTES, LARGE_BYTES))
        } else {
            None
        }
    }
}

/// The page that every process of a session maps read-only.
#[repr(C, align(64))]
pub struct SessionPage {
    /// The constant [`REGION_MAGIC`].
    pub magic: AtomicU64,
    /// Futex on which the collector sleeps; raised by the collector itself.
    pub sleep: AtomicU32,
    /// 1 while the collector sleeps: a target that fills a chunk wakes it.
    pub sleeping: AtomicU32,
    /// 1 while recording; `--paused` and `ctl stop` make it 0.
    pub recording: AtomicU32,
    /// 1 once the collector has gone in good order.
    pub closed: AtomicU32,
    /// The collector's clock at its last pass: how long ago that was shows whether it gets
    /// on, and threads that may not read a clock take it for theirs.
    pub coarse_clock: AtomicU64,
}

/// Bytes of the session page.
pub const SESSION_BYTES: usize = 4 << 10;
/// Virtual bytes of the unwind-tables file, mapped read-only by targets.
pub const TABLES_BYTES: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_references_cover_the_region_without_overlap() {
        assert_eq!(ChunkRef(0).place(), None);
        assert_eq!(ChunkRef::small(0).place(), Some((SMALL_OFFSET, SMALL_BYTES)));
        assert_eq!(
            ChunkRef::small(SMALL_CHUNKS - 1).place(),
            Some((LARGE_OFFSET - SMALL_BYTES, SMALL_BYTES))
        );
        assert_eq!(ChunkRef::large(0).place(), Some((LARGE_OFFSET, LARGE_BYTES)));
        assert_eq!(
            ChunkRef::large(LARGE_CHUNKS - 1).place(),
            Some((REGION_BYTES - LARGE_BYTES, LARGE_BYTES))
        );
        assert_eq!(ChunkRef((SMALL_CHUNKS + LARGE_CHUNKS) as u32 + 1).place(), None);
        assert_eq!(SLOTS_OFFSET % 128, 0);
        assert_eq!(SMALL_OFFSET % 4096, 0);
    }
}
