//! Collects one process's heap events in columns until they are written as a block. This code runs
//! for each event, so it must be fast.
//!
//! An event takes one word for its time step and operation, and one word for its content: an
//! allocation's size and stack, or a free's distance. A value that doesn't fit (a step of half a
//! second, 4 GiB) is stored separately, and merged when the block is encoded. That happens only
//! once per 65,536 events.

use crate::columns::{BlockWriter, fold, unfold};
use crate::file::BlockHeader;
use crate::model::{ProcessIndex, StackId, ThreadIndex};
use crate::tables::table;

/// Number of events in a full block. It is large enough to make the entropy coder's tables cheap,
/// and small enough for the columns to stay in a second-level cache.
const FULL: usize = 1 << 16;
/// Number of bits for a folded time step. Larger steps are stored separately.
const STEP_BITS: u32 = 32 - OPERATION_BITS;
const FREE: u32 = 1;
const REALLOC: u32 = 2;
const OPERATION_BITS: u32 = 2;

/// Ids of the heap table's columns.
pub(crate) mod column {
    pub const TIME: u16 = 1;
    pub const IS_FREE: u16 = 2;
    pub const IS_REALLOC: u16 = 3;
    pub const THREAD_CHANGES: u16 = 4;
    pub const THREAD: u16 = 5;
    pub const SIZE: u16 = 6;
    pub const STACK: u16 = 7;
    pub const DISTANCE: u16 = 8;
}

/// Heap events of one process, in time order, waiting to be written.
///
/// Pass the block to [`crate::TraceWriter::heap`] when it [is full](Self::is_full), or at any time
/// before. An idle block uses hardly any memory.
#[derive(Debug)]
pub struct HeapBlock {
    process: ProcessIndex,
    /// The folded time step since the event before (for the first event, since the block before),
    /// then the operation.
    steps: Vec<u32>,
    /// The low half of the size, then the stack.
    allocs: Vec<u64>,
    /// The low half of the distance.
    frees: Vec<u32>,
    /// For each run of consecutive events of one thread: the index of its first event, and the
    /// thread. The entries from `runs` on are scratch; see [`Self::next_by`].
    changes: Vec<(u32, ThreadIndex)>,
    runs: usize,
    wide_steps: Vec<(u32, u64)>,
    wide_sizes: Vec<(u32, u64)>,
    wide_distances: Vec<(u32, u64)>,
    /// The thread and time that the first event is relative to.
    base_thread: ThreadIndex,
    base_ns: u64,
    thread: ThreadIndex,
    last_ns: u64,
    first_ordinal: u64,
}

impl HeapBlock {
    /// Creates an empty block. Its next allocation is the process's first.
    pub fn new(process: ProcessIndex) -> HeapBlock {
        HeapBlock {
            process,
            steps: Vec::new(),
            allocs: Vec::new(),
            frees: Vec::new(),
            changes: Vec::new(),
            runs: 0,
            wide_steps: Vec::new(),
            wide_sizes: Vec::new(),
            wide_distances: Vec::new(),
            base_thread: 0,
            base_ns: 0,
            thread: 0,
            last_ns: 0,
            first_ordinal: 0,
        }
    }

    /// Adds an allocation; its ordinal is [`Self::next_ordinal`].
    #[inline]
    pub fn alloc(
        &mut self,
        time_ns: u64,
        thread: ThreadIndex,
        size: u64,
        stack: StackId,
        realloc: bool,
    ) {
        self.event(time_ns, thread, u32::from(realloc) * REALLOC, size);
        self.allocs.push(size & 0xffff_ffff | u64::from(stack) << 32);
    }

    /// Adds a free. `distance` is [`Self::next_ordinal`] minus the freed allocation's ordinal, or 0
    /// if that allocation wasn't recorded.
    #[inline]
    pub fn free(&mut self, time_ns: u64, thread: ThreadIndex, distance: u64, realloc: bool) {
        self.event(time_ns, thread, (u32::from(realloc) * REALLOC) | FREE, distance);
        self.frees.push(distance as u32);
    }

    /// Adds an allocation and its free at these times. The free must come right after the
    /// allocation, on the same thread.
    #[inline(always)]
    pub fn temporary(
        &mut self,
        times_ns: [u64; 2],
        thread: ThreadIndex,
        size: u64,
        stack: StackId,
    ) {
        let [begin, end] = times_ns;
        let steps = [fold(begin.wrapping_sub(self.last_ns)), fold(end.wrapping_sub(begin))];
        if (steps[0] | steps[1]) >> STEP_BITS | size >> 32 != 0 || thread != self.thread {
            self.alloc(begin, thread, size, stack, false);
            return self.free(end, thread, 1, false);
        }
        self.last_ns = end;
        let steps = steps.map(|step| (step as u32) << OPERATION_BITS);
        self.steps.extend_from_slice(&[steps[0], steps[1] | FREE]);
        self.allocs.push(size | u64::from(stack) << 32);
        self.frees.push(1);
    }

    #[inline(always)]
    fn event(&mut self, time_ns: u64, thread: ThreadIndex, operation: u32, value: u64) {
        let step = fold(time_ns.wrapping_sub(self.last_ns));
        self.last_ns = time_ns;
        if step >> STEP_BITS | value >> 32 != 0 {
            self.wide(step, operation, value);
        }
        if thread != self.thread {
            self.change(thread);
        }
        self.steps.push((step as u32) << OPERATION_BITS | operation);
    }

    /// Begins a run of consecutive events of this thread.
    #[cold]
    #[inline(never)]
    fn change(&mut self, thread: ThreadIndex) {
        self.next_by(thread);
    }

    /// Sets the thread of the next event, which must follow at once. The code doesn't branch on
    /// whether the thread changed, because such a branch would be mispredicted if threads
    /// alternate.
    #[inline(always)]
    pub fn next_by(&mut self, thread: ThreadIndex) {
        if self.runs == self.changes.len() {
            self.more_changes();
        }
        self.changes[self.runs] = (self.steps.len() as u32, thread);
        self.runs += usize::from(thread != self.thread);
        self.thread = thread;
    }

    #[cold]
    #[inline(never)]
    fn more_changes(&mut self) {
        self.changes.resize((self.runs * 2).max(4), (0, 0));
    }

    /// Stores separately a value that doesn't fit its column's word.
    #[cold]
    #[inline(never)]
    fn wide(&mut self, step: u64, operation: u32, value: u64) {
        if step >> STEP_BITS != 0 {
            self.wide_steps.push((self.steps.len() as u32, step));
        }
        if value >> 32 != 0 {
            match operation & FREE {
                0 => self.wide_sizes.push((self.allocs.len() as u32, value)),
                _ => self.wide_distances.push((self.frees.len() as u32, value)),
            }
        }
    }

    /// Returns the number of events in the block.
    #[inline]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether the block contains no event.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether the block should be written now.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.steps.len() >= FULL
    }

    /// Returns the ordinal that the next allocation gets.
    #[inline]
    pub fn next_ordinal(&self) -> u64 {
        self.first_ordinal + self.allocs.len() as u64
    }

    /// Returns the process of these events.
    pub fn process(&self) -> ProcessIndex {
        self.process
    }

    /// Returns the time of the first event, if there is one. It shows how long the block has
    /// waited.
    pub fn first_ns(&self) -> Option<u64> {
        let (at, wide) = self.wide_steps.first().copied().unwrap_or((u32::MAX, 0));
        let narrow = u64::from(self.steps.first()? >> OPERATION_BITS);
        Some(self.base_ns.wrapping_add(unfold(if at == 0 { wide } else { narrow })))
    }

    /// Returns the allocated memory of the block, used or not, bytes.
    pub fn memory_bytes(&self) -> usize {
        4 * (self.steps.capacity() + self.frees.capacity())
            + 8 * (self.allocs.capacity() + self.changes.capacity())
            + 16 * (self.wide_steps.capacity()
                + self.wide_sizes.capacity()
                + self.wide_distances.capacity())
    }

    /// Removes the events, but continues the count of ordinals. Each buffer is shrunk if less than
    /// a quarter of it was used.
    pub(crate) fn clear(&mut self) {
        fn empty<T>(column: &mut Vec<T>) {
            let used = column.len();
            column.clear();
            if used < column.capacity() / 4 {
                column.shrink_to(used * 2);
            }
        }
        self.first_ordinal = self.next_ordinal();
        empty(&mut self.steps);
        empty(&mut self.allocs);
        empty(&mut self.frees);
        self.changes.truncate(self.runs);
        empty(&mut self.changes);
        self.runs = 0;
        empty(&mut self.wide_steps);
        empty(&mut self.wide_sizes);
        empty(&mut self.wide_distances);
        (self.base_ns, self.base_thread) = (self.last_ns, self.thread);
    }

    /// Returns the earliest and the latest time.
    fn span(&self) -> (u64, u64) {
        let (mut first, mut last, mut now) = (u64::MAX, 0, self.base_ns);
        let mut wide = self.wide_steps.iter().peekable();
        for (step, index) in self.steps.iter().zip(0..) {
            let step = match wide.next_if(|(at, _)| *at == index) {
                Some((_, step)) => *step,
                None => u64::from(step >> OPERATION_BITS),
            };
            now = now.wrapping_add(unfold(step));
            first = first.min(now);
            last = last.max(now);
        }
        (first, last)
    }

    /// Returns the block's header, without the lengths and the checksum, which the writer adds.
    pub(crate) fn header(&self) -> BlockHeader {
        let (first_ns, last_ns) = match self.steps_back() {
            true => self.span(),
            false => (self.first_ns().unwrap_or(0), self.last_ns),
        };
        BlockHeader {
            table: table::HEAP_EVENTS,
            rows: self.len() as u32,
            process: self.process,
            first_ns,
            last_ns,
            base: self.first_ordinal,
            ..BlockHeader::default()
        }
    }

    /// Whether time goes backwards anywhere in the block. A folded step is odd if it goes
    /// backwards.
    fn steps_back(&self) -> bool {
        let any = self.steps.iter().skip(1).fold(0, |any, step| any | step);
        let wide =
            self.wide_steps.iter().filter(|(at, _)| *at != 0).fold(0, |any, (_, step)| any | step);
        any >> OPERATION_BITS & 1 != 0 || wide & 1 != 0
    }

    /// Writes the columns.
    pub(crate) fn write(&self, block: &mut BlockWriter<'_>, scratch: &mut Scratch) {
        let Scratch { narrow, wide, bits } = scratch;
        let first_ns = self.first_ns().unwrap_or(0);
        let folded = self.steps_back();
        let shift = u32::from(!folded);
        narrow.clear();
        narrow.extend(self.steps.iter().skip(1).map(|step| step >> (OPERATION_BITS + shift)));
        let mut aside = self.wide_steps.iter().filter(|(at, _)| *at != 0).peekable();
        if aside.peek().is_none() {
            block.differences(column::TIME, first_ns, narrow, folded);
        } else {
            merge(wide, narrow, aside.map(|(at, step)| (at - 1, step >> shift)));
            block.differences(column::TIME, first_ns, wide, folded);
        }

        for (id, flag) in [(column::IS_FREE, FREE), (column::IS_REALLOC, REALLOC)] {
            if self.steps.iter().fold(0, |any, step| any | step) & flag == 0 {
                bits.clear();
                bits.resize(self.len().div_ceil(8), 0);
            } else {
                pack(bits, &self.steps, flag);
            }
            block.packed(id, bits, self.len());
        }

        bits.fill(0);
        let changes = &self.changes[..self.runs];
        for (at, _) in changes {
            bits[*at as usize / 8] |= 1 << (at % 8);
        }
        block.packed(column::THREAD_CHANGES, bits, self.len());
        narrow.clear();
        narrow.push(self.base_thread);
        narrow.extend(changes.iter().map(|(_, thread)| *thread));
        block.integers(column::THREAD, narrow);

        narrow.clear();
        narrow.extend(self.allocs.iter().map(|alloc| *alloc as u32));
        if self.wide_sizes.is_empty() {
            block.integers(column::SIZE, narrow);
        } else {
            merge(wide, narrow, self.wide_sizes.iter().copied());
            block.integers(column::SIZE, wide);
        }
        narrow.clear();
        narrow.extend(self.allocs.iter().map(|alloc| (*alloc >> 32) as u32));
        block.integers(column::STACK, narrow);

        if self.wide_distances.is_empty() {
            block.integers(column::DISTANCE, &self.frees);
        } else {
            merge(wide, &self.frees, self.wide_distances.iter().copied());
            block.integers(column::DISTANCE, wide);
        }
    }
}

/// Buffers that are reused for encoding blocks.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    narrow: Vec<u32>,
    wide: Vec<u64>,
    bits: Vec<u8>,
}

/// Widens `narrow` into `wide`, and inserts the values that were stored separately.
fn merge(wide: &mut Vec<u64>, narrow: &[u32], aside: impl Iterator<Item = (u32, u64)>) {
    wide.clear();
    wide.extend(narrow.iter().map(|value| u64::from(*value)));
    for (at, value) in aside {
        wide[at as usize] = value;
    }
}

/// Packs one flag of every event into `bits`, eight to a byte.
fn pack(bits: &mut Vec<u8>, steps: &[u32], flag: u32) {
    let shift = flag.trailing_zeros();
    let gather = |chunk: &[u32]| {
        let byte =
            chunk.iter().zip(0u32..).fold(0, |byte, (step, bit)| byte | (step >> shift & 1) << bit);
        byte as u8
    };
    bits.clear();
    let (eights, rest) = steps.as_chunks::<8>();
    bits.extend(eights.iter().map(|eight| gather(eight)));
    if !rest.is_empty() {
        bits.push(gather(rest));
    }
}
