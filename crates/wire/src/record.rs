//! The layout of the records that a target writes into its chunks: sequences of 16-byte slots. One
//! thread writes each record, and the collector reads it.
//!
//! A slot has two words. The writer stores `word0` last, with release order, and `word0` is never
//! zero. Chunks are zeroed before a thread gets them, so a slot whose `word0` is zero has not been
//! written yet. So the writer needs not publish its position, and the collector can read everything
//! that a thread wrote before a SIGKILL.
//!
//! Heap record:
//!
//! ```text
//! word0   0..4 kind | 4..48 address >> 3 | 48..64 size, low 16 bits
//! word1   0..27 clock, low 27 bits | 27..40 size, high 13 bits | 40..64 stack id
//! ```
//!
//! An event whose address is 2^47 or more or unaligned, or whose size is 2^29 or more, is written
//! as a wide record ([`ExtKind::Wide`]).
//!
//! The collector decodes the low bits of the clock as the tick nearest to the ring's previous
//! record. So a writer must write a [`Kind::Time`] whenever bits 26 and up of the clock have
//! changed since its last [`Kind::Time`].
//!
//! An extended record has several slots:
//!
//! ```text
//! word0   0..4 kind = Ext | 4..16 ext kind | 16..32 slots in all | 32..64 argument
//! word1   0..64 full clock
//! then    payload words
//! ```

/// Bytes in a slot.
pub const SLOT_BYTES: usize = 16;
/// Clock bits in a heap record.
pub const CLOCK_BITS: u32 = 27;
/// A writer writes a new [`Kind::Time`] when `clock >> EPOCH_SHIFT` changes.
pub const EPOCH_SHIFT: u32 = CLOCK_BITS - 1;
/// Sizes below this fit a narrow record.
pub const NARROW_SIZE_LIMIT: u64 = 1 << 29;
/// Addresses that are below this and a multiple of 8 fit a narrow record.
pub const NARROW_ADDRESS_LIMIT: u64 = 1 << 47;
/// Stack ids are below this, so they fit 24 bits; 0 means no stack.
pub const STACK_ID_LIMIT: u32 = 1 << 24;
/// Maximum number of frames in an [`ExtKind::Stack`] record.
pub const MAX_FRAMES: usize = 192;

/// The content of a slot.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A block was allocated. The clock is read after the real call.
    Alloc = 1,
    /// A block is about to be freed. The clock is read before the real call.
    Free = 2,
    /// `realloc` of this block is about to be called. The record is written before the call, since
    /// another thread may get the address before `realloc` returns.
    ReallocFree = 3,
    /// A `realloc` succeeded. The address is the new block's, or 0 if `realloc` only freed the old
    /// block.
    ReallocAlloc = 4,
    /// A `realloc` failed. The address is the old block's, which stays live.
    ReallocFailed = 5,
    /// Full clock in `word1`.
    Time = 6,
    /// Space that the writer skipped. `word0 >> 16 & 0xffff` is the number of slots, this one
    /// included.
    Pad = 7,
    /// A placeholder for an extended record whose payload is still being written, with the same
    /// number of slots. The writer replaces it by the record. It stays only if the thread dies, or
    /// if a signal handler that interrupts the writer never returns.
    Pending = 8,
    /// An extended record; see [`ExtKind`].
    Ext = 15,
}

impl Kind {
    /// The kind in the low bits of a `word0`; `None` for an unknown kind.
    pub fn of(word0: u64) -> Option<Kind> {
        Some(match word0 & 15 {
            1 => Kind::Alloc,
            2 => Kind::Free,
            3 => Kind::ReallocFree,
            4 => Kind::ReallocAlloc,
            5 => Kind::ReallocFailed,
            6 => Kind::Time,
            7 => Kind::Pad,
            8 => Kind::Pending,
            15 => Kind::Ext,
            _ => return None,
        })
    }

    /// Whether it is an event of the heap, which a narrow or a wide record holds.
    pub fn is_heap_event(self) -> bool {
        (Kind::Alloc as u8..=Kind::ReallocFailed as u8).contains(&(self as u8))
    }
}

/// The content of an extended record. Payload words are listed in order.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtKind {
    /// A heap event that does not fit a slot. Argument: the heap kind. Payload: address, size,
    /// stack id, 0.
    Wide = 1,
    /// Stack definition. The argument has the stack's id in its low 24 bits and [`StackEnd`] in its
    /// high 8. The payload is: number of return addresses | number of Python frames << 16 |
    /// [`crate::python::WalkEnd`] << 32; then the return addresses; then the keys of Python frames
    /// (see [`ExtKind::PythonFrame`]). Both lists begin with the innermost frame. Bit 0 of a key is
    /// set in the outermost frame that a call of the interpreter's loop runs.
    Stack = 2,
    /// `mmap` succeeded: address, length, prot | flags << 32, fd | stack id << 32.
    Map = 3,
    /// `munmap` succeeded; the clock is read before the call: address, length. Argument: 0.
    Unmap = 4,
    /// `mremap` succeeded: old address, old length, new address, new length.
    Remap = 5,
    /// A thread began: its tid, its creator's tid (0 if unknown).
    ThreadStart = 6,
    /// The thread's start routine returned, or it called `pthread_exit`: tid, 0.
    ThreadExit = 7,
    /// Thread name: 16 bytes, NUL padded.
    ThreadName = 8,
    /// The process is about to end by `exit`, `_exit` or `quick_exit`: status, how.
    ProcessExit = 9,
    /// `fork` or `vfork` returned in the parent: child's pid, 0.
    Fork = 10,
    /// The process is about to call an exec function or to spawn: pid, [`ExecVerdict`] | vfork << 8
    /// | parent's pid << 32; then the path's bytes, NUL padded to whole slots.
    Exec = 11,
    /// The exec of this pid failed: pid, errno.
    ExecFailed = 12,
    /// The process reaped a child: pid, wait status.
    Reaped = 13,
    /// `posix_spawn` returned: pid (0 if it failed), error.
    Spawned = 14,
    /// The definition of a Python frame. Payload:
    ///
    /// - Its key: a hash of all other words, with bit 0 clear.
    /// - Line | [`crate::python::Chars`] of the name << 32 | [`crate::python::Chars`] of the file
    ///   << 40.
    /// - Stored bytes of the name | stored bytes of the file << 32.
    /// - All bytes of the name | all bytes of the file << 32, before the cut.
    /// - The name's stored bytes, then the file's, each padded to words with NULs.
    PythonFrame = 15,
    /// A reading of CUPTI's clock: [`crate::gpu::ClockJoin`].
    ClockJoin = 16,
    /// A text: its id in the argument; length in bytes, then the bytes, NUL padded.
    Text = 17,
    /// A kernel ran: [`crate::gpu::Kernel`].
    Kernel = 18,
    /// A copy or fill ran: [`crate::gpu::Copy`].
    Copy = 19,
    /// A call returned: [`crate::gpu::Call`].
    Call = 20,
    /// The host or a stream waited: [`crate::gpu::Wait`].
    Wait = 21,
    /// Device memory changed: [`crate::gpu::Memory`].
    Memory = 22,
    /// CUPTI or the driver spent time on its own work: [`crate::gpu::Overhead`].
    Overhead = 23,
    /// Properties of a device: [`crate::gpu::Device`].
    Device = 24,
    /// Properties of a stream: [`crate::gpu::Stream`].
    Stream = 25,
    /// Properties of a context: [`crate::gpu::Context`].
    Context = 26,
    /// Something that the run must report. Argument: one of [`crate::gpu::trouble`]. Payload: a
    /// count, a text id.
    AgentNote = 27,
    /// An external id: [`crate::gpu::External`].
    External = 28,
    /// Samples of the instructions that kernels ran: [`crate::gpu::PcSamples`].
    PcSamples = 29,
    /// [`crate::gpu::PcTotals`]: what CUPTI says of the samples that it returned.
    PcTotals = 30,
    /// [`crate::gpu::Cubin`]: the code of a module was saved to a file, or could not be.
    Cubin = 31,
    /// [`crate::gpu::Range`]: a range begins on this thread.
    RangePush = 32,
    /// [`crate::gpu::Range`]: the innermost range of this thread and domain ends.
    RangePop = 33,
    /// [`crate::gpu::Range`]: a range begins. Any thread may end it.
    RangeStart = 34,
    /// [`crate::gpu::Range`]: a range from [`ExtKind::RangeStart`] ends.
    RangeEnd = 35,
    /// [`crate::gpu::Range`]: a mark.
    RangeMark = 36,
    /// [`crate::gpu::Range`]: a thread's name, with the thread's id in `id`.
    RangeThread = 37,
    /// [`crate::nccl::Context`]: NCCL's profiler plugin serves a communicator.
    NcclContext = 40,
    /// [`crate::nccl::Call`]: the program called NCCL for an operation.
    NcclCall = 41,
    /// [`crate::nccl::Task`]: NCCL enqueued an operation.
    NcclTask = 42,
    /// [`crate::nccl::Transfer`]: an operation's work on one channel ended.
    NcclTransfer = 43,
    /// An intercepted call returned: [`crate::calls::HOST_CALL_WORDS`].
    HostCall = 48,
    /// An intercepted call allocated or frees memory: [`crate::calls::HOST_MEMORY_WORDS`].
    HostMemory = 49,
    /// An intercepted call exchanged data with other ranks: [`crate::calls::COLLECTIVE_WORDS`].
    Collective = 50,
    /// An intercepted call made or ended a communicator: [`crate::calls::COMMUNICATOR_WORDS`].
    Communicator = 51,
    /// An intercepted call multiplied matrices: [`crate::gemm::GEMM_WORDS`].
    Gemm = 52,
    /// The name of a kernel, at the kernel's first launch: its stub or handle, as in
    /// [`ExtKind::HostCall`], and the name, packed by [`crate::gpu::pack_text`].
    KernelName = 53,
    /// A name that other records refer to by its id, which is in the argument: [`crate::interned`].
    Name = 54,
    /// A list of sizes that other records refer to by its id, which is in the argument:
    /// [`crate::interned`].
    Sizes = 55,
    /// [`crate::operators::Operator`]: an operator of PyTorch ended.
    Operator = 56,
    /// [`crate::operators::RangeEdge`]: a range of PyTorch begins. Its name is in the argument.
    RangeOpen = 57,
    /// [`crate::operators::RangeEdge`]: a range of PyTorch ends.
    RangeClosed = 58,
    /// The recording of operators changes from now on. Argument: one of [`crate::operators::note`].
    /// Payload: two words.
    OperatorNote = 59,
    /// [`crate::spans::OnStack`]: a span begins on this thread. Its name is in the argument.
    SpanPush = 60,
    /// [`crate::spans::OnStack`]: a span of this thread ends. If the argument is 0, it is the
    /// innermost one. If the argument is 1, it isn't, and the spans within it stay open.
    SpanPop = 61,
    /// [`crate::spans::Place`]: a span begins that any thread may end. Its name is in the argument.
    SpanStart = 62,
    /// [`crate::spans::Place`]: a span that any thread may end ends.
    SpanEnd = 63,
    /// An instant that the program marked, with its name in the argument. The two words are not
    /// used.
    SpanMark = 64,
    /// A training step begins: its number, and 1 if the program gave the number.
    Step = 65,
    /// A value of one of the program's counters, with the counter's name in the argument: the bits
    /// of an `f64`; 1 if it is added to the sum of the earlier values, otherwise 0.
    CounterValue = 66,
    /// Floating-point operations of the innermost span of this thread: the count, and the span's
    /// depth. The argument is one of [`crate::spans::dtype`].
    Flops = 67,
    /// The process's recording was switched on or off: the new [`crate::region::off`] | the old one
    /// << 32; live bytes, or all ones if they are not counted. The argument is the number of the
    /// schedule's cycle, from 1; 0 if it belongs to no cycle.
    Switched = 68,
    /// [`crate::spans::Arguments`]: arguments of a span that an earlier record began. The name in
    /// the argument contains their keys.
    SpanArguments = 69,
    /// A span that has ended, with its name in the argument: how many ns ago it began, and how many
    /// ns ago it ended.
    SpanComplete = 70,
    /// A memory pool of the program handed out a block: address, bytes. The pool's name is in the
    /// argument.
    PoolTook = 71,
    /// A memory pool of the program takes a block back: its address, 0.
    PoolGave = 72,
    /// `shmat` attached a System V segment, its id in the argument: address, bytes, stack id, 0.
    Attach = 73,
    /// `shmdt` detached a System V segment: address, 0.
    Detach = 74,
    /// A step of the schedule's source begins: its number, 0.
    StepBegun = 75,
    /// CUPTI's number of a stream: [`crate::calls::HOST_STREAM_WORDS`].
    HostStream = 76,
    /// PyTorch's allocator reported a change: [`crate::calls::REPORTED_WORDS`].
    Reported = 77,
    /// A file, pipe or socket got its number, which is in the argument: [`crate::io::Named`], then
    /// the bytes of its name, NUL padded.
    FileNamed = 78,
    /// A call on a file, pipe or socket returned: [`crate::io::Call`]. The argument is a
    /// [`crate::io::Operation`].
    FileCall = 79,
}

/// The kinds that the CUPTI agent writes. The same library is also NCCL's profiler plugin.
pub const AGENT_KINDS: core::ops::Range<u16> = 16..48;

impl ExtKind {
    /// The extended kind of a `word0`; `None` for an unknown kind.
    pub fn of(word0: u64) -> Option<ExtKind> {
        use ExtKind::*;
        const CALLS: &[ExtKind] = &[
            HostCall,
            HostMemory,
            Collective,
            Communicator,
            Gemm,
            KernelName,
            Name,
            Sizes,
            Operator,
            RangeOpen,
            RangeClosed,
            OperatorNote,
            SpanPush,
            SpanPop,
            SpanStart,
            SpanEnd,
            SpanMark,
            Step,
            CounterValue,
            Flops,
            Switched,
            SpanArguments,
            SpanComplete,
            PoolTook,
            PoolGave,
            Attach,
            Detach,
            StepBegun,
            HostStream,
            Reported,
            FileNamed,
            FileCall,
        ];
        const ALL: &[ExtKind] = &[
            Wide,
            Stack,
            Map,
            Unmap,
            Remap,
            ThreadStart,
            ThreadExit,
            ThreadName,
            ProcessExit,
            Fork,
            Exec,
            ExecFailed,
            Reaped,
            Spawned,
            PythonFrame,
        ];
        const AGENT: &[ExtKind] = &[
            ClockJoin, Text, Kernel, Copy, Call, Wait, Memory, Overhead, Device, Stream, Context,
            AgentNote, External, PcSamples, PcTotals, Cubin,
        ];
        const RANGES: &[ExtKind] =
            &[RangePush, RangePop, RangeStart, RangeEnd, RangeMark, RangeThread];
        const NCCL: &[ExtKind] = &[NcclContext, NcclCall, NcclTask, NcclTransfer];
        let index = (word0 >> 4 & 0xfff) as usize;
        let (list, first) = match index {
            48.. => (CALLS, 48),
            40.. => (NCCL, 40),
            32.. => (RANGES, 32),
            16.. => (AGENT, 16),
            _ => (ALL, 1),
        };
        list.get(index.wrapping_sub(first)).copied()
    }
}

/// The reason why a stack ends.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackEnd {
    /// The outermost frame was reached.
    Whole = 0,
    /// The stack has more than [`MAX_FRAMES`] frames.
    TooDeep = 1,
    /// The next frame's code has no unwind information (JIT, hand-written assembly).
    NoUnwindInfo = 2,
    /// The next frame would be outside the stack.
    OutsideStack = 3,
    /// The unwind tables were not ready in time.
    NotReady = 4,
}

impl StackEnd {
    /// Decodes a value that a target wrote. An unknown value counts as missing unwind information.
    pub fn of(value: u8) -> StackEnd {
        match value {
            0 => StackEnd::Whole,
            1 => StackEnd::TooDeep,
            3 => StackEnd::OutsideStack,
            4 => StackEnd::NotReady,
            _ => StackEnd::NoUnwindInfo,
        }
    }
}

/// Whether tprof will follow the program that is about to be executed. The verdict is a prediction
/// from the program's file and the environment.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecVerdict {
    /// The loader will load the library into the program.
    Followed = 0,
    /// The environment has no session.
    NoEnvironment = 1,
    /// The program is statically linked.
    Static = 2,
    /// The program is of another ELF class or machine.
    OtherClass = 3,
    /// The program is set-user-id or set-group-id.
    Setuid = 4,
    /// The program is a sanitizer build. The sanitizer's library must be loaded first, so tprof
    /// leaves the program alone.
    Sanitizer = 5,
    /// A seccomp filter is in force that may kill the process if it attaches.
    Filtered = 6,
}

/// Packs a heap event into the two words of a narrow record.
#[inline(always)]
pub const fn heap(kind: Kind, address: u64, size: u64, stack: u32, clock: u64) -> (u64, u64) {
    (
        kind as u64 | (address >> 3) << 4 | size << 48,
        clock & ((1 << CLOCK_BITS) - 1) | (size >> 16) << CLOCK_BITS | (stack as u64) << 40,
    )
}

/// Whether a heap event fits a narrow record.
#[inline(always)]
pub const fn is_narrow(address: u64, size: u64) -> bool {
    (address & 7) | (address >> 47) | (size >> 29) == 0
}

/// First word of an extended record.
#[inline(always)]
pub const fn ext(kind: ExtKind, slots: usize, argument: u32) -> u64 {
    Kind::Ext as u64 | (kind as u64) << 4 | (slots as u64 & 0xffff) << 16 | (argument as u64) << 32
}

/// Address in a narrow heap record.
#[inline(always)]
pub const fn address(word0: u64) -> u64 {
    (word0 >> 4 & ((1 << 44) - 1)) << 3
}

/// Size in a narrow heap record, in bytes.
#[inline(always)]
pub const fn size(word0: u64, word1: u64) -> u64 {
    word0 >> 48 | (word1 >> CLOCK_BITS & 0x1fff) << 16
}

/// Stack id in a narrow heap record.
#[inline(always)]
pub const fn stack(word1: u64) -> u32 {
    (word1 >> 40) as u32
}

/// Full clock of a narrow record, given the previous clock of the same ring.
#[inline(always)]
pub const fn clock(word1: u64, previous: u64) -> u64 {
    let shift = 64 - CLOCK_BITS;
    let delta = ((word1 << shift).wrapping_sub(previous << shift) as i64) >> shift;
    previous.wrapping_add(delta as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_record_round_trips() {
        for (address_in, size_in, stack_in) in [
            (8, 0, 0),
            (0x7fff_ffff_fff8, NARROW_SIZE_LIMIT - 1, STACK_ID_LIMIT - 1),
            (0x5555_1230, 65_537, 77),
        ] {
            assert!(is_narrow(address_in, size_in));
            let (a, b) = heap(Kind::Alloc, address_in, size_in, stack_in, 123_456_789);
            assert_eq!(Kind::of(a), Some(Kind::Alloc));
            assert_eq!((address(a), size(a, b), stack(b)), (address_in, size_in, stack_in));
            assert_eq!(clock(b, 123_456_000), 123_456_789);
        }
        assert!(!is_narrow(NARROW_ADDRESS_LIMIT, 1));
        assert!(!is_narrow(4, 1));
        assert!(!is_narrow(8, NARROW_SIZE_LIMIT));
    }

    #[test]
    fn clocks_before_and_after_the_previous_one_decode_within_half_a_window() {
        let window = 1u64 << CLOCK_BITS;
        for base in [0u64, 5, window - 1, 7 * window + 3, u64::MAX / 2] {
            for delta in [0, 1, window / 2 - 1] {
                let (_, b) = heap(Kind::Free, 8, 0, 0, base + delta);
                assert_eq!(clock(b, base), base + delta);
                let (_, b) = heap(Kind::Free, 8, 0, 0, base);
                assert_eq!(clock(b, base + delta), base);
            }
        }
    }

    #[test]
    fn ext_kind_round_trips() {
        for value in (1..=31u64).chain(32..=37).chain(40..=43).chain(48..=77) {
            let kind = ExtKind::of(value << 4 | 15).unwrap();
            assert_eq!(kind as u64, value);
            assert_eq!(ExtKind::of(ext(kind, 3, 9)), Some(kind));
        }
        assert_eq!(ExtKind::of(15), None);
        assert_eq!(ExtKind::of(38 << 4 | 15), None);
    }
}
