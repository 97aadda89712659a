//! A thread's own block: the state that the hooks keep for the thread from one event to the next.

use crate::seccomp::{CallClass, is_forbidden};
use crate::signal_cell::SignalCell;
use crate::state::{self, WIPED};
use crate::{arch, sys};
use core::marker::PhantomData;
use tprof_wire::region::{SLOTS_OFFSET, ThreadSlot};
use tprof_wire::sync::{AtomicU32, Ordering::Relaxed};

/// A thread's block, which is zero when the thread starts. Only the thread itself and its signal
/// handlers access it, so its fields are [`SignalCell`]s and no `&mut` to it ever exists.
#[repr(C, align(64))]
pub struct Thread {
    /// The complement of [`WIPED`]'s generation while this thread may record. A thread starts with
    /// 0 here, which is not the complement of any generation, not even of generation 0. This is the
    /// first field, so that [`crate::gate::recording`] reads it from the block's own address.
    stamp: SignalCell<u64>,
    /// The same value as `stamp` while [`crate::heap_fast_path`] may count this thread's allocations;
    /// otherwise 0.
    fast_stamp: SignalCell<u64>,
    slot: SignalCell<*mut ThreadSlot>,
    off: SignalCell<*mut AtomicU32>,
    /// Bytes that the thread can allocate until the next sample is due.
    pub countdown: SignalCell<i64>,
    /// Address at which the next record will be written, in slots of 16 bytes.
    pub cursor: SignalCell<usize>,
    /// Address from which on a record doesn't fit into the chunk, so that writing it takes the slow
    /// path.
    pub limit: SignalCell<usize>,
    /// The part of the clock that 16-byte records leave out (`clock >> EPOCH_SHIFT`), as the last
    /// time record stored it.
    pub epoch: SignalCell<u64>,
    /// The [`tprof_wire::region::mem_mode`] at the time when this thread attached, or as
    /// [`Self::set_mem_mode`] changed it since.
    mem_mode: SignalCell<u16>,
    /// Whether CUDA runtime and NCCL calls are recorded.
    pub calls: SignalCell<bool>,
    /// Set for tprof's own threads, which block all signals.
    pub masked: SignalCell<bool>,
    /// Length of the current chunk.
    pub chunk_bytes: SignalCell<u32>,
    /// Bytes of the last random draw that were not added to `countdown` yet.
    pub draw_left: SignalCell<i64>,
    /// First address of the current chunk.
    pub chunk: SignalCell<usize>,
    /// State of the random generator that decides which allocations are sampled.
    pub random: SignalCell<u64>,
    /// Lower bound of the part of the stack that is known to be readable.
    pub stack_low: SignalCell<usize>,
    /// Upper bound of the part of the stack that is known to be readable.
    pub stack_high: SignalCell<usize>,
    /// A hash of this thread's name as it was last recorded.
    pub name: SignalCell<u32>,
    /// The part of the time in which this thread last took the stack of a call on a file, and of
    /// which kinds of calls, see [`crate::io`].
    pub io_part: SignalCell<u32>,
    /// Set under strict seccomp, where the thread may neither read a clock nor make a system call.
    pub strict: SignalCell<bool>,
    /// Set while this thread attaches, so that hooks which this work calls only call the real
    /// function.
    pub entering: SignalCell<bool>,
    /// Set once the thread's end was recorded. Destructors may still allocate after that.
    pub ended: SignalCell<bool>,
    /// Set while a walk of this thread uses the memory at `python`.
    pub python_busy: SignalCell<bool>,
    /// Number of stacks that the thread took. One in 64 is timed.
    pub stacks: SignalCell<u32>,
    /// How many more of the thread's guesses of stacks may be wrong, see [`crate::unwind`].
    pub credit: SignalCell<i16>,
    /// The shape of the last stack, see [`crate::unwind`].
    pub shape: SignalCell<u16>,
    /// The kernel's thread id.
    pub tid: SignalCell<u32>,
    /// Thread id of the thread that created this one.
    pub creator: SignalCell<u32>,
    /// Number of open NVTX ranges in the default domain, and in each of the first domains that the
    /// program created.
    pub levels: [SignalCell<u16>; 16],
    /// Number of open spans that the program itself declared, see [`crate::spans`].
    pub spans: SignalCell<u16>,
    /// Time in CUDA calls since the last CUDA call whose stack was taken, in units of 1,024 ticks,
    /// see [`crate::calls`].
    pub in_calls: SignalCell<u16>,
    /// Memory in which this thread collects Python frames, see [`crate::python`]; null until it
    /// collects some.
    pub python: SignalCell<*mut u8>,
    /// Memory of this thread's last walk, see [`crate::unwind`]; null until the first walk.
    pub last_walk: SignalCell<*mut u8>,
    /// The thread's open operators and ranges, see [`crate::operators`]; null until the first.
    pub operators: SignalCell<*mut u8>,
    /// The collective that this thread is calling.
    pub collective: OuterCall,
    /// The NCCL call in which this thread is allocating or freeing memory.
    pub nccl_memory: OuterCall,
    /// Which of the `spans` were recorded: bit N is for depth N.
    pub spans_recorded: SignalCell<u64>,
    /// Which of the `spans` have ended although spans inside them are still open: bit N is for
    /// depth N.
    pub spans_over: SignalCell<u64>,
    /// Bytes that were free on a device when this thread last measured them, plus one; 0 if it never
    /// did.
    pub device_free: SignalCell<u64>,
    /// Makes the type neither `Send` nor `Sync`, since only the thread itself may use its block.
    of_one_thread: PhantomData<*mut ()>,
}

/// A call of a library that makes other hooked calls before it returns. `sp` is 0 if no such call
/// is running.
#[repr(C)]
pub struct OuterCall {
    /// Stack pointer at the call.
    pub sp: SignalCell<usize>,
    /// Clock at the call's beginning.
    pub start: SignalCell<u64>,
}

const _: () = assert!(size_of::<Thread>() <= arch::THREAD_BYTES);
const _: () = assert!(core::mem::offset_of!(Thread, stamp) == 0);

impl Thread {
    /// Offset of the `fast_stamp`, which the fast path reads with one instruction.
    pub const FAST_STAMP: usize = core::mem::offset_of!(Thread, fast_stamp);
    /// Offset of the address of the thread's slot.
    pub const SLOT: usize = core::mem::offset_of!(Thread, slot);

    /// This thread's block.
    ///
    /// # Safety
    /// The running task has libc's thread-local storage. The caller of any function that uses
    /// thread-local variables guarantees this. Other callers must use
    /// [`crate::tls_owner::own_block`].
    #[inline(always)]
    pub unsafe fn here() -> &'static Thread {
        // SAFETY: the caller guarantees thread-local storage. The block is part of this thread's
        // static TLS, and zero at first, which is a valid value of every field.
        unsafe { &*arch::thread_block().cast() }
    }

    /// Stores the addresses of this thread's counters and of the process's `off` word, both in the
    /// region.
    pub fn set_slot(&self, slot: &'static ThreadSlot, off: &'static AtomicU32) {
        self.slot.set(core::ptr::from_ref(slot).cast_mut());
        self.off.set(core::ptr::from_ref(off).cast_mut());
    }

    /// Lets this thread record: from now on [`crate::gate::recording`] returns its block.
    pub fn admit(&self, generation: u64) {
        self.stamp.set(!generation);
    }

    /// How this thread's allocations are recorded: a value of [`tprof_wire::region::mem_mode`].
    #[inline(always)]
    pub fn mem_mode(&self) -> u32 {
        u32::from(self.mem_mode.get())
    }

    /// Changes how this thread's allocations are recorded.
    #[inline(always)]
    pub fn set_mem_mode(&self, mode: u32) {
        self.fast_stamp.set(0);
        self.mem_mode.set(mode as u16);
    }

    /// Lets [`crate::heap_fast_path`] count this thread's allocations. The caller has checked that the
    /// thread may record, that it samples, and that block sizes are read from headers.
    #[inline(always)]
    pub fn enable_fast_path(&self) {
        self.fast_stamp.set(self.stamp.get());
    }

    /// The index of this thread's slot in the region.
    pub fn slot_index(&self, region: *const u8) -> usize {
        let first = region as usize + SLOTS_OFFSET;
        (self.slot.get() as usize - first) / size_of::<ThreadSlot>()
    }

    /// Whether the gate admitted this thread since the last fork, and not only in the parent.
    pub fn may_record(&self) -> bool {
        self.stamp.get() == !WIPED.generation.load(Relaxed)
    }

    /// This thread's counters.
    #[inline(always)]
    pub fn slot(&self) -> &'static ThreadSlot {
        // SAFETY: the gate calls `set_slot` before it admits the thread, and only code that the
        // gate admitted calls this. The region stays mapped for the process's life.
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
        // SAFETY: the gate calls `set_slot` before it admits the thread. The region stays mapped
        // for the process's life.
        unsafe { (*self.off.get()).load(Relaxed) }
    }

    /// Whether this thread must not make system calls.
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        self.strict.get() || is_forbidden(CallClass::Threads)
    }

    /// The current time on the clock that this process records with.
    #[inline(always)]
    pub fn clock(&self) -> u64 {
        self.quick_clock().unwrap_or_else(|| self.slow_clock())
    }

    /// The same, if it is the processor's time-stamp counter, which takes no call.
    #[inline(always)]
    pub fn quick_clock(&self) -> Option<u64> {
        (state::HOT.clock_is_tsc.load(Relaxed) != 0 && !self.strict.get()).then(arch::ticks)
    }

    #[cold]
    fn slow_clock(&self) -> u64 {
        if self.strict.get() {
            // Strict seccomp forbids the TSC and the vDSO. The time of the collector's last pass is
            // the best time that is available.
            return state::session().map_or(0, |s| s.coarse_clock.load(Relaxed));
        }
        let real = state::CLOCK_GETTIME.load(Relaxed);
        if real == 0 {
            return sys::monotonic_ns();
        }
        let mut time = [0u64; 2];
        // SAFETY: `real` is the address of libc's `clock_gettime`, which has this type.
        unsafe {
            let call: unsafe extern "C" fn(i32, *mut u64) -> i32 = core::mem::transmute(real);
            call(1, time.as_mut_ptr());
        }
        time[0] * 1_000_000_000 + time[1]
    }
}
