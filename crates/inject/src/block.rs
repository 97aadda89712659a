//! One thread's own block: what the hooks keep between two events.

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
    /// The complement of [`WIPED`]'s generation while this thread may record. (The zero
    /// that a thread begins with is the complement of no generation, nor of none.)
    /// First: [`crate::gate::recording`] reads it by itself.
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
    /// Past this, the slow way.
    pub limit: SignalCell<usize>,
    /// `clock >> EPOCH_SHIFT` of the last time record.
    pub epoch: SignalCell<u64>,
    /// [`tprof_wire::region::mem_mode`], as it was when this thread attached. [`Self::set_mem_mode`]
    /// changes it.
    mem_mode: SignalCell<u16>,
    /// CUDA runtime and NCCL calls are recorded.
    pub calls: SignalCell<bool>,
    /// One of our own threads: signals never reach it.
    pub masked: SignalCell<bool>,
    /// Length of the current chunk.
    pub chunk_bytes: SignalCell<u32>,
    /// Bytes of the last draw that are not in `countdown` yet.
    pub draw_left: SignalCell<i64>,
    /// First address of the current chunk.
    pub chunk: SignalCell<usize>,
    /// State of the random generator for samples.
    pub random: SignalCell<u64>,
    /// Readable stack, as far as checked.
    pub stack_low: SignalCell<usize>,
    /// The upper bound of that range, see `stack_low`.
    pub stack_high: SignalCell<usize>,
    /// This thread's name when it was last recorded.
    pub name: [SignalCell<u64>; 2],
    /// Set under strict seccomp: no clock, no system call.
    pub strict: SignalCell<bool>,
    /// Set while this thread attaches, so that nested calls pass through.
    pub entering: SignalCell<bool>,
    /// The thread's end is recorded; destructors may go on allocating.
    pub ended: SignalCell<bool>,
    /// The memory for Python frames is in use.
    pub python_busy: SignalCell<bool>,
    /// Stacks taken, to time one in 64.
    pub stacks: SignalCell<u32>,
    /// How often guesses of stacks may be wrong, see [`crate::unwind`].
    pub credit: SignalCell<i16>,
    /// The shape of the last stack, see [`crate::unwind`].
    pub shape: SignalCell<u16>,
    /// The kernel's thread id.
    pub tid: SignalCell<u32>,
    /// Who created it.
    pub creator: SignalCell<u32>,
    /// Open NVTX ranges: of the default domain, and of the first that the program made.
    pub levels: [SignalCell<u16>; 16],
    /// Open spans of the program's own, see [`crate::spans`].
    pub spans: SignalCell<u16>,
    /// Time in calls of CUDA's since the last of them that got a stack, in 1,024 ticks, see
    /// [`crate::calls`].
    pub in_calls: SignalCell<u16>,
    /// Memory in which this thread takes Python frames, see [`crate::python`]; null until it first
    /// does.
    pub python: SignalCell<*mut u8>,
    /// Memory of this thread's last walk, see [`crate::unwind`]; null until it took some.
    pub last_walk: SignalCell<*mut u8>,
    /// Operators and ranges that are open, see [`crate::operators`]; null until the first.
    pub operators: SignalCell<*mut u8>,
    /// The collective that this thread calls.
    pub collective: OuterCall,
    /// The call by which this thread takes or gives back memory of NCCL's.
    pub nccl_memory: OuterCall,
    /// Bit set of the `spans` that were recorded, by depth.
    pub spans_recorded: SignalCell<u64>,
    /// Bit set of the `spans` that are over though spans within them are not, by depth.
    pub spans_over: SignalCell<u64>,
    /// A thread's block means nothing to another thread.
    of_one_thread: PhantomData<*mut ()>,
}

/// A call within which a library makes others that are hooked: its stack pointer, 0 for none, and
/// its clock.
#[repr(C)]
pub struct OuterCall {
    /// Stack pointer of the call.
    pub sp: SignalCell<usize>,
    /// Clock at its beginning.
    pub start: SignalCell<u64>,
}

const _: () = assert!(size_of::<Thread>() <= arch::THREAD_BYTES);
const _: () = assert!(core::mem::offset_of!(Thread, stamp) == 0);

impl Thread {
    /// Offset of the stamp for the fast path.
    pub const FAST_STAMP: usize = core::mem::offset_of!(Thread, fast_stamp);

    /// This thread's block.
    ///
    /// # Safety
    /// The task that runs has thread-local storage of libc's, as a caller of a function
    /// that uses thread-local variables has; others ask [`crate::tls_owner::own_block`].
    #[inline(always)]
    pub unsafe fn here() -> &'static Thread {
        // SAFETY: the caller's premise; the block is part of this thread's static
        // thread-local storage, zero at first, which every field's type allows.
        unsafe { &*arch::thread_block().cast() }
    }

    /// Gives this thread its counters in the region.
    pub fn set_slot(&self, slot: &'static ThreadSlot, off: &'static AtomicU32) {
        self.slot.set(core::ptr::from_ref(slot).cast_mut());
        self.off.set(core::ptr::from_ref(off).cast_mut());
    }

    /// Lets this thread record: from here on [`crate::gate::recording`] finds it.
    pub fn admit(&self, generation: u64) {
        self.stamp.set(!generation);
    }

    /// How its blocks are recorded: [`tprof_wire::region::mem_mode`].
    #[inline(always)]
    pub fn mem_mode(&self) -> u32 {
        u32::from(self.mem_mode.get())
    }

    /// Changes how its blocks are recorded.
    #[inline(always)]
    pub fn set_mem_mode(&self, mode: u32) {
        self.fast_stamp.set(0);
        self.mem_mode.set(mode as u16);
    }

    /// Lets [`crate::fast_path`] count the blocks of this thread, which may record, samples blocks, and
    /// reads their sizes from their headers.
    #[inline(always)]
    pub fn enable_fast_path(&self) {
        self.fast_stamp.set(self.stamp.get());
    }

    /// The index of this thread's slot.
    pub fn slot_index(&self, region: *const u8) -> usize {
        let first = region as usize + SLOTS_OFFSET;
        (self.slot.get() as usize - first) / size_of::<ThreadSlot>()
    }

    /// Whether it is attached as this process is now.
    pub fn may_record(&self) -> bool {
        self.stamp.get() == !WIPED.generation.load(Relaxed)
    }

    /// This thread's counters.
    #[inline(always)]
    pub fn slot(&self) -> &'static ThreadSlot {
        // SAFETY: the gate sets it before it admits the thread, and only then is anything
        // written or counted; mapped for the process's life.
        unsafe { &*self.slot.get() }
    }

    /// Whether recording is on in this process at this moment.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.off() == 0
    }

    /// Why recording is off in this process: [`tprof_wire::region::off`].
    #[inline(always)]
    pub fn off(&self) -> u32 {
        // SAFETY: as `slot`: set before the thread is admitted, and mapped for the process's life.
        unsafe { (*self.off.get()).load(Relaxed) }
    }

    /// Whether system calls are out of the question here.
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        self.strict.get() || is_forbidden(CallClass::Threads)
    }

    /// The clock of this process.
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
            // Neither the TSC nor the vDSO may be used: the collector's last
            // pass is the best that can be had.
            return state::session().map_or(0, |s| s.coarse_clock.load(Relaxed));
        }
        let real = state::CLOCK_GETTIME.load(Relaxed);
        if real == 0 {
            return sys::monotonic_ns();
        }
        let mut time = [0u64; 2];
        // SAFETY: the address was found under the name `clock_gettime`.
        unsafe {
            let call: unsafe extern "C" fn(i32, *mut u64) -> i32 = core::mem::transmute(real);
            call(1, time.as_mut_ptr());
        }
        time[0] * 1_000_000_000 + time[1]
    }
}
