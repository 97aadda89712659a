//! A thread's own block: the state that the hooks keep between two events.

use crate::seccomp::{CallClass, is_forbidden};
use crate::signal_cell::SignalCell;
use crate::state::{self, WIPED};
use crate::{arch, sys};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tprof_wire::region::{SLOTS_OFFSET, ThreadSlot};

/// This thread's block, zero at first. Only this thread and its signal handlers touch it,
/// hence [`SignalCell`]; it is never handed out as `&mut`.
#[repr(C, align(64))]
pub struct Thread {
    /// The complement of [`WIPED`]'s generation while this thread may record. The zero that a
    /// thread begins with is the complement of no generation, and not of generation 0 either. This
    /// is the first field, so that [`crate::gate::recording`] can read it before anything else.
    stamp: SignalCell<u64>,
    /// The same value as `stamp` while [`crate::fast_path`] may count this thread's blocks; else
    /// zero.
    fast_stamp: SignalCell<u64>,
    slot: SignalCell<*mut ThreadSlot>,
    off: SignalCell<*mut AtomicU32>,
    /// Bytes still to be allocated before the next sample.
    pub countdown: SignalCell<i64>,
    /// Address of the next 16-byte slot.
    pub cursor: SignalCell<usize>,
    /// Address from which on writing a record takes the slow path.
    pub limit: SignalCell<usize>,
    /// `clock >> EPOCH_SHIFT` of the last time record.
    pub epoch: SignalCell<u64>,
    /// [`tprof_wire::region::mem_mode`], as it was when this thread attached. [`Self::set_mem_mode`]
    /// changes it.
    mem_mode: SignalCell<u16>,
    /// Whether CUDA runtime and NCCL calls are recorded.
    pub calls: SignalCell<bool>,
    /// Set for our own threads, which signals never reach.
    pub masked: SignalCell<bool>,
    /// Length of the current chunk.
    pub chunk_bytes: SignalCell<u32>,
    /// Bytes of the last random draw that are not in `countdown` yet.
    pub draw_left: SignalCell<i64>,
    /// First address of the current chunk.
    pub chunk: SignalCell<usize>,
    /// State of the random generator for samples.
    pub random: SignalCell<u64>,
    /// Lower bound of the stack that was found readable.
    pub stack_low: SignalCell<usize>,
    /// Upper bound of the stack that was found readable.
    pub stack_high: SignalCell<usize>,
    /// This thread's name when it was last recorded.
    pub name: [SignalCell<u64>; 2],
    /// Set under strict seccomp: no clock, no system call.
    pub strict: SignalCell<bool>,
    /// Set while this thread attaches, so that nested calls pass through.
    pub entering: SignalCell<bool>,
    /// Set once the thread's end is recorded; destructors may still allocate after that.
    pub ended: SignalCell<bool>,
    /// Set while the memory for Python frames is in use.
    pub python_busy: SignalCell<bool>,
    /// Number of stacks taken, so that one in 64 is timed.
    pub stacks: SignalCell<u32>,
    /// How many more guesses of stacks may be wrong, see [`crate::unwind`].
    pub credit: SignalCell<i16>,
    /// The shape of the last stack, see [`crate::unwind`].
    pub shape: SignalCell<u16>,
    /// The kernel's thread id.
    pub tid: SignalCell<u32>,
    /// Thread id of the thread that created this one.
    pub creator: SignalCell<u32>,
    /// Number of open NVTX ranges in the default domain, and in each of the first domains that the
    /// program made.
    pub levels: [SignalCell<u16>; 16],
    /// Number of open spans of the program itself, see [`crate::spans`].
    pub spans: SignalCell<u16>,
    /// Time in CUDA calls since the last such call that got a stack, in units of 1,024 ticks, see
    /// [`crate::calls`].
    pub in_calls: SignalCell<u16>,
    /// Memory in which this thread collects Python frames, see [`crate::python`]; null until the
    /// first.
    pub python: SignalCell<*mut u8>,
    /// Memory of this thread's last walk, see [`crate::unwind`]; null until the first walk.
    pub last_walk: SignalCell<*mut u8>,
    /// Operators and ranges that are open, see [`crate::operators`]; null until the first.
    pub operators: SignalCell<*mut u8>,
    /// The collective that this thread calls.
    pub collective: OuterCall,
    /// The NCCL call by which this thread allocates or frees memory.
    pub nccl_memory: OuterCall,
    /// Bit set of the `spans` that were recorded, by depth.
    pub spans_recorded: SignalCell<u64>,
    /// Bit set of the `spans` that have ended while spans within them are open, by depth.
    pub spans_over: SignalCell<u64>,
    /// A thread's block means nothing to another thread.
    of_one_thread: PhantomData<*mut ()>,
}

/// A call within which a library makes other calls that are hooked. If `sp` is 0, there is none.
#[repr(C)]
pub struct OuterCall {
    /// Stack pointer of the call.
    pub sp: SignalCell<usize>,
    /// Clock at the call's beginning.
    pub start: SignalCell<u64>,
}

const _: () = assert!(size_of::<Thread>() <= arch::THREAD_BYTES);
const _: () = assert!(core::mem::offset_of!(Thread, stamp) == 0);

impl Thread {
    /// Offset of the stamp that the fast path reads.
    pub const FAST_STAMP: usize = core::mem::offset_of!(Thread, fast_stamp);

    /// This thread's block.
    ///
    /// # Safety
    /// The running task has libc's thread-local storage. The caller of any function that uses
    /// thread-local variables does; others must ask [`crate::tls_owner::own_block`].
    #[inline(always)]
    pub unsafe fn here() -> &'static Thread {
        // SAFETY: the caller guarantees thread-local storage; the block is part of this thread's
        // static TLS, and zero at first, which every field's type allows.
        unsafe { &*arch::thread_block().cast() }
    }

    /// Stores the address of this thread's counters in the region.
    pub fn set_slot(&self, slot: &'static ThreadSlot, off: &'static AtomicU32) {
        self.slot.set(core::ptr::from_ref(slot).cast_mut());
        self.off.set(core::ptr::from_ref(off).cast_mut());
    }

    /// Lets this thread record: from now on [`crate::gate::recording`] returns its block.
    pub fn admit(&self, generation: u64) {
        self.stamp.set(!generation);
    }

    /// How this thread's blocks of memory are recorded: a value of
    /// [`tprof_wire::region::mem_mode`].
    #[inline(always)]
    pub fn mem_mode(&self) -> u32 {
        u32::from(self.mem_mode.get())
    }

    /// Changes how this thread's blocks of memory are recorded.
    #[inline(always)]
    pub fn set_mem_mode(&self, mode: u32) {
        self.fast_stamp.set(0);
        self.mem_mode.set(mode as u16);
    }

    /// Lets [`crate::fast_path`] count the memory blocks of this thread. The thread may record,
    /// samples blocks, and reads their sizes from their headers.
    #[inline(always)]
    pub fn enable_fast_path(&self) {
        self.fast_stamp.set(self.stamp.get());
    }

    /// The index of this thread's slot.
    pub fn slot_index(&self, region: *const u8) -> usize {
        let first = region as usize + SLOTS_OFFSET;
        (self.slot.get() as usize - first) / size_of::<ThreadSlot>()
    }

    /// Whether this thread was admitted by the process as it is now, and not by its parent.
    pub fn may_record(&self) -> bool {
        self.stamp.get() == !WIPED.generation.load(Relaxed)
    }

    /// This thread's counters.
    #[inline(always)]
    pub fn slot(&self) -> &'static ThreadSlot {
        // SAFETY: the gate sets `slot` before it admits the thread, and only admitted threads call
        // this; the region is mapped for the process's life.
        unsafe { &*self.slot.get() }
    }

    /// Whether recording is on in this process at this moment.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.off() == 0
    }

    /// The reasons why recording is off in this process, as bits of [`tprof_wire::region::off`].
    #[inline(always)]
    pub fn off(&self) -> u32 {
        // SAFETY: the gate sets `off` before it admits the thread; the region is mapped for the
        // process's life.
        unsafe { (*self.off.get()).load(Relaxed) }
    }

    /// Whether this thread must not make system calls.
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        self.strict.get() || is_forbidden(CallClass::Threads)
    }

    /// The clock that this process records with.
    #[inline(always)]
    pub fn clock(&self) -> u64 {
        if state::HOT.clock_is_tsc.load(Relaxed) != 0 && !self.strict.get() {
            arch::ticks()
        } else {
            self.slow_clock()
        }
    }

    #[cold]
    fn slow_clock(&self) -> u64 {
        if self.strict.get() {
            // Neither the TSC nor the vDSO may be used: the time of the collector's last pass is
            // the best that is available.
            return state::session().map_or(0, |s| s.coarse_clock.load(Relaxed));
        }
        let real = state::CLOCK_GETTIME.load(Relaxed);
        if real == 0 {
            return sys::monotonic_ns();
        }
        let mut time = [0u64; 2];
        // SAFETY: `real` is the address of the function `clock_gettime`, which has this type.
        unsafe {
            let call: unsafe extern "C" fn(i32, *mut u64) -> i32 = core::mem::transmute(real);
            call(1, time.as_mut_ptr());
        }
        time[0] * 1_000_000_000 + time[1]
    }
}
