//! The layout of the shared memory between processes and the collector: the region of one program
//! image, and the page that all processes of a session share.
//!
//! A region is a memfd that is sealed against shrinking. It is sparse: only pages that were touched
//! use memory. The target maps the region once, right after the handshake, and closes its
//! descriptor. Threads take slots and chunks by clearing bits in bitmaps. The collector returns
//! them by setting the bits.
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
use crate::sync::{AtomicI64, AtomicU32, AtomicU64, Ordering::*};

/// First word of a region.
pub const REGION_MAGIC: u64 = 0x3167_6572_666f_7270; // "profreg1"
/// Number of small chunks in a process whose address space is limited (`ulimit -v`). Such a process
/// maps no large chunks.
pub const SPARING_CHUNKS: usize = 1_024;
/// Bytes of the region that a process with limited address space maps.
pub const SPARING_REGION_BYTES: usize = SMALL_OFFSET + SPARING_CHUNKS * SMALL_BYTES;
/// Bytes of the unwind tables that a process with limited address space maps.
pub const SPARING_TABLES_BYTES: usize = 32 << 20;
/// Maximum number of threads that can be recorded at one time in one process.
pub const MAX_THREADS: usize = 16_384;
/// Maximum number of executable mappings of a target that unwinding can look up.
pub const MAX_MODULES: usize = 2_048;
/// Bytes in a small chunk. Each thread's first chunk is small.
pub const SMALL_BYTES: usize = 4 << 10;
/// Number of small chunks.
pub const SMALL_CHUNKS: usize = MAX_THREADS;
/// Bytes in a large chunk.
pub const LARGE_BYTES: usize = 64 << 10;
/// Number of large chunks, 32 MiB in all: the session's budget per process.
pub const LARGE_CHUNKS: usize = 512;
/// Maximum number of large chunks of one thread that the thread has filled and the collector has
/// not drained: 1 MiB.
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

/// Number of words of the thread-slot bitmap.
pub const SLOT_WORDS: usize = MAX_THREADS / 64;
/// Number of words of the small-chunk bitmap.
pub const SMALL_WORDS: usize = SMALL_CHUNKS / 64;
/// Number of words of the large-chunk bitmap.
pub const LARGE_WORDS: usize = LARGE_CHUNKS / 64;
/// Offset of the bitmap of thread slots.
pub const SLOT_BITMAP_OFFSET: usize = BITMAPS_OFFSET;
/// Offset of the bitmap of small chunks.
pub const SMALL_BITMAP_OFFSET: usize = SLOT_BITMAP_OFFSET + SLOT_WORDS * 8;
/// Offset of the bitmap of large chunks.
pub const LARGE_BITMAP_OFFSET: usize = SMALL_BITMAP_OFFSET + SMALL_WORDS * 8;

const _: () = assert!(LARGE_BITMAP_OFFSET + LARGE_WORDS * 8 <= SLOTS_OFFSET);
const _: () = assert!(size_of::<RegionHeader>() <= MODULES_OFFSET);

/// The reasons why recording is off at a moment: bits of [`RegionHeader::off`].
pub mod off {
    /// Recording is off in the whole session; the session page says so.
    pub const SESSION: u32 = 1;
    /// The program has switched recording off for its process.
    pub const PROGRAM: u32 = 2;
    /// The schedule does not record the current step.
    pub const SCHEDULE: u32 = 4;
    /// Set along with [`SESSION`] if the allocator's hooks don't even count live bytes, so that they
    /// cost next to nothing. It is the largest reason, so that one comparison finds it.
    pub const UNCOUNTED: u32 = 8;
    /// No reason: set along with [`UNCOUNTED`] while the process must notice all of its steps
    /// nevertheless.
    pub const STEPS: u32 = 16;
}

/// What is recorded less than the options say, because it costs more than `--budget` allows: bits of
/// [`RegionHeader::thinned`].
pub mod thinned {
    /// Operators are recorded as under [`crate::operators::mode::AUTO`], whatever the mode.
    pub const OPERATORS_OF_ALL_STEPS: u32 = 1;
    /// No operators are recorded.
    pub const OPERATORS: u32 = 2;
    /// No stacks of allocations and mappings are taken.
    pub const STACKS: u32 = 4;
}

/// How allocations are recorded: values of [`RegionHeader::mem_mode`].
pub mod mem_mode {
    /// Allocations are not recorded.
    pub const OFF: u32 = 0;
    /// Counts are exact, and a sample of the allocations is recorded with stacks.
    pub const SAMPLED: u32 = 1;
    /// Every event is recorded.
    pub const EXACT: u32 = 2;
}

/// How stacks are taken: values of [`RegionHeader::stack_mode`].
pub mod stack_mode {
    /// No stacks are taken.
    pub const OFF: u32 = 0;
    /// By unwind rows. A frame pointer is used only where a row says so.
    pub const AUTO: u32 = 1;
    /// By frame pointers only, without checking that they are valid.
    pub const FP: u32 = 2;
    /// The same as `AUTO`. It has its own number so that the run can report which option was set.
    pub const DWARF: u32 = 3;
    /// Like `AUTO`, with the frames of Python functions.
    pub const PYTHON: u32 = 4;
}

/// Header of a region. The collector fills the configuration before the handshake ends. The target
/// writes the rest, unless a field's comment says otherwise.
#[repr(C, align(64))]
pub struct RegionHeader {
    /// The constant [`REGION_MAGIC`].
    pub magic: AtomicU64,
    /// The collector's [`crate::WIRE_VERSION`].
    pub version: AtomicU32,
    /// How allocations are recorded: one of [`mem_mode`].
    pub mem_mode: AtomicU32,
    /// How stacks are taken: one of [`stack_mode`].
    pub stack_mode: AtomicU32,
    /// 1 if a thread waits for the collector when its ring is full, 0 if it drops the record at
    /// once.
    pub wait_on_full: AtomicU32,
    /// 1 if intercepted calls (CUDA, NCCL, cuBLAS, MPI) are recorded.
    pub calls: AtomicU32,
    /// The reasons why nothing is recorded at this moment, as bits of [`off`]; 0 while recording is
    /// on.
    pub off: AtomicU32,
    /// Mean bytes between samples under `mem_mode::SAMPLED`.
    pub sample_interval: AtomicU64,
    /// Maximum time that a thread waits on a full ring, in clock ticks.
    pub wait_ticks: AtomicU64,
    /// 1 if the clock is the TSC, 0 if it is CLOCK_MONOTONIC in nanoseconds.
    pub clock_is_tsc: AtomicU32,
    /// Odd while the collector rewrites the module table; grows by 2 with each rewrite.
    pub modules_seq: AtomicU32,
    /// Number of entries in the module table.
    pub modules_len: AtomicU32,
    /// Number of times that the target asked for a fresh module table. The target increments it.
    pub modules_wanted: AtomicU32,
    /// Value of `modules_wanted` that the current table answers. The collector writes it and wakes
    /// the threads that wait on it as a futex.
    pub modules_answered: AtomicU32,
    /// Live usable bytes under `mem_mode::SAMPLED`. Each thread adds its own change whenever it
    /// flushes.
    pub live_bytes: AtomicI64,
    /// The highest `live_bytes` after any flush.
    pub peak_bytes: AtomicI64,
    /// Clock at the time of `peak_bytes`.
    pub peak_clock: AtomicU64,
    /// Number of stack ids that were assigned so far.
    pub stacks: AtomicU32,
    /// The reason why the target turned recording off for good (`state::off` of the injected
    /// library); 0 while it records.
    pub off_reason: AtomicU32,
    /// Number of events that were dropped because their thread had no slot.
    pub lost: AtomicU64,
    /// Number of stacks that were lost because a table was full.
    pub stacks_lost: AtomicU64,
    /// Number of stacks that were lost because the ring was full.
    pub stacks_dropped: AtomicU64,
    /// Number of sampled blocks whose frees can't be recorded, since the table of sampled blocks
    /// was full.
    pub samples_untracked: AtomicU64,
    /// The target's pid in its own namespace.
    pub pid: AtomicU32,
    /// Number of times that a thread started or exited. The target increments it.
    pub threads_changed: AtomicU32,
    /// Number of threads that ever ran here, including those without a slot.
    pub threads_seen: AtomicU32,
    /// Number of the target's threads that wait for a chunk.
    pub waiting: AtomicU32,
    /// Number of forked children that could not attach. Each reports this in its parent's region.
    pub lost_children: AtomicU32,
    /// Pids of the last 16 of these children.
    pub lost_pids: [AtomicU32; 16],
    /// Number of times that the target found its Python interpreter unloaded. The collector reads
    /// it before it searches for an interpreter, so that the target can tell if the result is one
    /// that is gone.
    pub python_unloads: AtomicU32,
    /// The value of `python_unloads` before the collector's search, plus one. The collector writes
    /// it after `python`.
    pub python_epoch: AtomicU32,
    /// The process's interpreter: [`crate::python::Interpreter::words`].
    pub python: [AtomicU64; INTERPRETER_WORDS],
    /// Number of recorded allocations and calls whose Python frames could not all be read.
    pub python_unread: AtomicU64,
    /// Number of events before the process attached, if the collector did not answer its first
    /// request.
    pub missed: AtomicU64,
    /// Number of dropped records about names, threads and processes. They were dropped because the
    /// ring was full.
    pub notes_lost: AtomicU64,
    /// Time that the target took to attach, in ns.
    pub attach_ns: AtomicU64,
    /// How operators are recorded: one of [`crate::operators::mode`].
    pub operators: AtomicU32,
    /// Number of times that the target asked for the list of mappings, and not only for a table.
    /// The target increments it before `modules_wanted`.
    pub maps_wanted: AtomicU32,
    /// 1 if the target itself finds the unwind rows of code that doesn't have a table yet. Written
    /// before `modules_wanted` is incremented.
    pub finds_rows: AtomicU32,
    /// The [`crate::schedule::Source`] from which the process counts steps; 0 if there is none yet.
    pub step_source: AtomicU32,
    /// Number of steps that were counted so far.
    pub steps: AtomicU64,
    /// The schedule, from [`crate::schedule::Schedule::pack`]; zeroes if there is none.
    pub schedule: [AtomicU64; crate::schedule::WORDS],
    /// The captured range, from [`crate::capture::pack`]; zeroes if there is none.
    pub capture: [AtomicU64; crate::capture::WORDS],
    /// The number of the range that is being captured; 0 if none is. It is the same number that the
    /// source of the range uses.
    pub captured: AtomicU64,
    /// Number of ranges that were captured so far.
    pub captures: AtomicU64,
    /// Number of stacks that were not taken because code had been unmapped. At that time the
    /// library did not know yet which code is at the stacks' addresses.
    pub stacks_unplaced: AtomicU64,
    /// 1 if CUPTI's recording must stop soon after recording is off, and not after a second. The
    /// collector sets this if steps that are not recorded are compared with recorded ones
    /// (`--overhead paired`).
    pub short_pauses: AtomicU32,
    /// 1 once [`off::UNCOUNTED`] was set: from then on live bytes are unknown.
    pub balance_lost: AtomicU32,
    /// What is not recorded any more, as bits of [`thinned`]. The collector only ever sets bits.
    pub thinned: AtomicU32,
    /// 1 if calls on files and sockets are recorded.
    pub io: AtomicU32,
}

impl RegionHeader {
    /// Switches recording off in the session for these reasons: [`off::SESSION`], with
    /// [`off::UNCOUNTED`] or without.
    pub fn stop_session(&self, reasons: u32) {
        // The loss is stored first: a thread that finds live bytes counted reads a whole balance.
        if reasons & off::UNCOUNTED != 0 {
            self.balance_lost.store(1, SeqCst);
        }
        self.off.fetch_or(reasons, SeqCst);
    }

    /// Switches recording on in the session.
    pub fn start_session(&self) {
        self.off.fetch_and(!(off::SESSION | off::UNCOUNTED | off::STEPS), SeqCst);
    }

    /// Makes the process notice all of its steps, or only those that cost nothing, while recording
    /// is off in the session. Only the collector calls this, which also switches the session.
    pub fn notice_steps(&self, all: bool) {
        if !all {
            self.off.fetch_and(!off::STEPS, SeqCst);
        } else if self.off.load(SeqCst) & off::UNCOUNTED != 0 {
            self.off.fetch_or(off::STEPS, SeqCst);
        }
    }

    /// Whether a part of the recording is thinned: one of the bits of [`thinned`].
    #[inline(always)]
    pub fn is_thinned(&self, part: u32) -> bool {
        self.thinned.load(Relaxed) & part != 0
    }

    /// Whether the hooks have counted every allocation and free since the process attached.
    pub fn is_balanced(&self) -> bool {
        self.balance_lost.load(SeqCst) == 0
    }
}

/// Values of [`ThreadSlot::state`].
pub mod slot_state {
    /// The slot is not in use.
    pub const FREE: u32 = 0;
    /// A thread uses the slot.
    pub const LIVE: u32 = 1;
    /// The thread reported that it is ending. Its destructors may still write records.
    pub const ENDING: u32 = 2;
}

/// The counters of one thread of the target, and the first chunk of its ring. The thread updates
/// the counters in this shared memory, so that they survive a SIGKILL.
#[repr(C, align(128))]
pub struct ThreadSlot {
    /// One of [`slot_state`].
    pub state: AtomicU32,
    /// Thread id in the target's pid namespace.
    pub tid: AtomicU32,
    /// The thread's first chunk, see [`ChunkRef`].
    pub first_chunk: AtomicU32,
    /// Number of chunks that this thread filled and the collector returned.
    pub drained_chunks: AtomicU32,
    /// Number of chunks that this thread has filled and replaced.
    pub filled_chunks: AtomicU32,
    /// Incremented by the collector when it recycles the slot.
    pub generation: AtomicU32,
    /// Clock at the thread's first record.
    pub start_clock: AtomicU64,
    /// Number of allocations. A successful `realloc` counts as one, and as one free.
    pub allocations: AtomicU64,
    /// Number of blocks that were freed.
    pub frees: AtomicU64,
    /// Number of bytes that the program requested.
    pub allocated_bytes: AtomicU64,
    /// Usable bytes that the thread may allocate before it looks whether its change of live bytes
    /// must be added to [`RegionHeader::live_bytes`]. See [`ThreadSlot::live_delta`].
    pub room_to_allocate: AtomicI64,
    /// Usable bytes that the thread may free before it does the same.
    pub room_to_free: AtomicI64,
    /// Ticks that the thread spent waiting on a full ring.
    pub wait_ticks: AtomicU64,
    /// Number of waits on a full ring.
    pub waits: AtomicU64,
    /// Number of records that were dropped.
    pub lost: AtomicU64,
    /// Ticks that the thread spent taking stacks: one in 64 is measured, and the sum is scaled up.
    pub stack_ticks: AtomicU64,
    /// Ticks that the thread spent in callbacks of operators: some are measured, and the sum is
    /// scaled up.
    pub operator_ticks: AtomicU64,
    /// State of the rule that decides which blocks of PyTorch's allocator get a stack. The low half
    /// has the bytes that the thread was given since its last stack, the high half a part of the
    /// clock. Only the thread reads it.
    pub reported: AtomicU64,
    /// The intercepted call that the thread is in, as an [`crate::calls::OpenCall`]; 0 if it is in
    /// none that may wait.
    pub open_call: AtomicU64,
}
const _: () = assert!(size_of::<ThreadSlot>() == 128);

impl ThreadSlot {
    /// Change of usable live bytes that the thread has not added to [`RegionHeader::live_bytes`]
    /// yet. An allocation takes from one room and a free from the other, and both grow by the same
    /// number otherwise, so their difference is the change.
    pub fn live_delta(&self) -> i64 {
        self.room_to_free.load(Relaxed).wrapping_sub(self.room_to_allocate.load(Relaxed))
    }
}

/// An executable mapping of the target, published by the collector.
#[repr(C)]
pub struct ModuleRange {
    /// First address of the module.
    pub start: AtomicU64,
    /// One past the last address of the module.
    pub end: AtomicU64,
    /// The number to add to a row's pc to get an address.
    pub bias: AtomicU64,
    /// Byte offset of the [`crate::unwind::TableHeader`] in the tables file, or one of
    /// [`module_table`]; 0 if the mapping has no unwind information.
    pub table: AtomicU64,
}

/// Values of [`ModuleRange::table`] for a mapping that has no table yet.
pub mod module_table {
    /// The collector is compiling the table, so the target needs not ask for it.
    pub const COMING: u64 = u64::MAX;
    /// The table is large. The collector compiles it when a stack needs it.
    pub const DEFERRED: u64 = u64::MAX - 1;
    /// The table is large, and a stack needs it. The target writes this value before it asks.
    pub const ASKED: u64 = u64::MAX - 2;
}
const _: () = assert!(size_of::<ModuleRange>() == 32);

/// First slot of every chunk.
#[repr(C)]
pub struct ChunkHeader {
    /// Where the reader continues: `end << 32 | next`. `next` is a [`ChunkRef`], and `end` the byte
    /// offset in this chunk up to which slots were reserved. It is 0 until the writer moves on.
    pub next: AtomicU64,
    /// Index of the slot of the thread that owns the chunk.
    pub owner: AtomicU32,
    /// The slot's generation when the chunk was taken.
    pub generation: AtomicU32,
}
const _: () = assert!(size_of::<ChunkHeader>() == crate::record::SLOT_BYTES);

/// Identifies a chunk: 0 is none, 1..=SMALL_CHUNKS are the small chunks, and higher numbers the
/// large ones.
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
    /// Offset in the region and length in bytes; `None` for a reference to no chunk.
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
    /// Futex on which the collector sleeps. Only the collector changes it.
    pub sleep: AtomicU32,
    /// 1 while the collector sleeps. A target that fills a chunk then wakes it.
    pub sleeping: AtomicU32,
    /// The reasons why recording is off in the session, as bits of [`off`]; 0 while it is on.
    pub off: AtomicU32,
    /// 1 once the collector has exited normally.
    pub closed: AtomicU32,
    /// The collector's clock at its last pass. Its age shows whether the collector makes progress.
    /// Threads that may not read a clock use this time instead.
    pub coarse_clock: AtomicU64,
}

/// Bytes of the session page.
pub const SESSION_BYTES: usize = 4 << 10;
/// Bytes of address space of the unwind-tables file, which targets map read-only.
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
