//! One thread's own block, and the slow way into recording.

use crate::arch;
use crate::calls_made::{Class, closed};
use crate::state::{self, WIPED, phase};
use crate::{attach, life, pointers, python, ring, stall, sys};
use core::sync::atomic::{AtomicU64, Ordering::*};
use tprof_wire::region::{self, SessionPage, ThreadSlot, slot_state};

/// This thread's block, zero at first. Touched by this thread alone (and by
/// its own signal handlers, hence single-instruction updates).
#[repr(C, align(64))]
pub struct Thread {
    /// The complement of [`WIPED`]'s generation while this thread may record. (The zero
    /// that a thread begins with is the complement of no generation, nor of none.)
    /// First: [`recording`] reads it by itself.
    stamp: u64,
    /// Address of the next 16-byte slot.
    pub cursor: usize,
    /// Past this, the slow way.
    pub limit: usize,
    /// `clock >> EPOCH_SHIFT` of the last time record.
    pub epoch: u64,
    /// This thread's slot in the region.
    pub slot: *const ThreadSlot,
    /// The session page, to see whether recording is on.
    pub session: *const SessionPage,
    /// [`tprof_wire::region::mem_mode`], as it was when this thread attached.
    pub mem_mode: u32,
    /// Calls of CUDA's runtime and of NCCL are recorded.
    pub calls: bool,
    /// Bytes still to be allocated before the next sample.
    pub countdown: i64,
    /// Bytes of the last draw that are not in `countdown` yet.
    pub draw_left: i64,
    /// First address of the current chunk, and its length.
    pub chunk: usize,
    /// Length of the current chunk.
    pub chunk_bytes: usize,
    /// State of the random generator for samples.
    pub random: u64,
    /// Readable stack, as far as checked.
    pub stack_low: usize,
    /// See `stack_low`.
    pub stack_high: usize,
    /// Set under strict seccomp: no clock, no system call.
    pub strict: bool,
    /// This thread's name when it was last recorded.
    pub name: [u8; 16],
    /// Set while this thread attaches, so that nested calls pass through.
    pub entering: bool,
    /// The thread said goodbye; destructors may go on allocating.
    pub ended: bool,
    /// Stacks taken, to time one in 64.
    pub stacks: u32,
    /// Thread id.
    pub tid: u32,
    /// Who created it.
    pub creator: u32,
    /// One of our own threads: signals never reach it.
    pub masked: bool,
    /// Open NVTX ranges: of the default domain, and of the first that the program made.
    pub levels: [u16; 16],
    /// What this thread takes Python frames with; null until it first does.
    pub python: *mut python::Scratch,
    /// It is in use.
    pub python_busy: bool,
}
const _: () = assert!(size_of::<Thread>() <= arch::THREAD_BYTES);
const _: () = assert!(core::mem::offset_of!(Thread, stamp) == 0);

impl Thread {
    /// This thread's block.
    #[inline(always)]
    pub fn here() -> *mut Thread {
        arch::thread_block().cast()
    }

    /// Whether it is attached as this process is now.
    pub fn may_record(&self) -> bool {
        self.stamp == !WIPED.generation.load(Relaxed)
    }

    /// This thread's counters.
    #[inline(always)]
    pub fn slot(&self) -> &'static ThreadSlot {
        // SAFETY: set before `generation` matches, and mapped for the process's life.
        unsafe { &*self.slot }
    }

    /// Whether recording is on in this session at this moment.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        // SAFETY: set before `generation` matches, and mapped for the process's life.
        unsafe { (*self.session).recording.load(Relaxed) != 0 }
    }

    /// Whether system calls are out of the question here.
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        self.strict || closed(Class::Threads)
    }

    /// The clock of this process.
    #[inline(always)]
    pub fn clock(&self) -> u64 {
        if state::CLOCK_IS_TSC.load(Relaxed) != 0 && !self.strict {
            arch::ticks()
        } else {
            self.slow_clock()
        }
    }

    #[cold]
    fn slow_clock(&self) -> u64 {
        if self.strict {
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

/// Whether this process is attached; does not attach it. A forked child that
/// has not recorded anything is not.
pub fn process_is_attached() -> bool {
    WIPED.generation.load(Relaxed) != 0
}

/// This thread's block if it may record now; attaches it first if it must. For
/// hooks of functions that use thread-local variables themselves; others ask
/// [`recording_if_own`].
#[inline(always)]
pub fn recording() -> Option<&'static mut Thread> {
    let (block, word) = arch::thread_block_and_word();
    if word == !WIPED.generation.load(Relaxed) {
        // SAFETY: a stamp is found in a thread's own block alone; nested handlers
        // use it only through single-instruction updates or with signals blocked.
        return Some(unsafe { &mut *block.cast() });
    }
    enter()
}

/// As [`recording`], for any task: `None`, and no memory touched, where this one
/// has no thread-local storage of ours. See [`pointers`].
pub fn recording_if_own() -> Option<&'static mut Thread> {
    if state::PHASE.load(Relaxed) == phase::OFF {
        return None;
    }
    let block = pointers::own_block()?;
    // SAFETY: the block belongs to this thread; as above.
    let thread = unsafe { &mut *block };
    if thread.may_record() { Some(thread) } else { enter() }
}

/// Counts an event of a task for which [`recording_if_own`] touched nothing.
pub fn lose_if_not_own() {
    if state::PHASE.load(Relaxed) != phase::OFF && pointers::own_block().is_none() {
        lose_one(process_is_attached());
    }
}

/// As [`lose_if_not_own`], for a program that is executed and will not attach.
pub fn say_lost_if_not_own() {
    if process_is_attached() && pointers::own_block().is_none() {
        say_lost(own_pid());
    }
}

/// The slow way: attaches the process, a forked child, or a new thread.
#[cold]
#[inline(never)]
fn enter() -> Option<&'static mut Thread> {
    if state::PHASE.load(Acquire) == phase::OFF {
        return None;
    }
    let is_attached = process_is_attached();
    if closed(Class::Threads) || !is_attached && closed(Class::Processes) {
        stay_out(is_attached);
        return None;
    }
    if state::PHASE.load(Acquire) == phase::LATER && !attach::is_time_again() {
        return None;
    }
    let Some(block) = pointers::own_block() else {
        lose_one(is_attached);
        return None;
    };
    // SAFETY: as in `recording`.
    let thread = unsafe { &mut *block };
    if thread.entering || thread.strict {
        return None;
    }
    if is_attached && sys::pid() != state::PID.load(Relaxed) {
        // A child that shares this memory and has thread-local storage of its own.
        lose_one(is_attached);
        return None;
    }
    let mask = sys::block_signals();
    thread.entering = true;
    let ok = enter_process() && enter_thread(thread);
    thread.entering = false;
    sys::restore_signals(mask);
    ok.then_some(thread)
}

/// Under a filter that does not permit what attaching takes.
#[cold]
fn stay_out(is_attached: bool) {
    if is_attached {
        // A thread that began under it.
        lose_one(is_attached);
    } else if !state::REGION.load(Relaxed).is_null()
        && state::PHASE.swap(phase::OFF, AcqRel) != phase::OFF
    {
        // A forked child.
        say_lost(own_pid());
    }
}

/// 0 where it may not be asked for.
fn own_pid() -> u32 {
    if closed(Class::Threads) { 0 } else { sys::pid() }
}

/// An event of a task that cannot record.
#[cold]
fn lose_one(is_attached: bool) {
    if let Some(header) = state::header().filter(|_| is_attached) {
        header.lost.fetch_add(1, Relaxed);
    }
}

/// True once this process is attached.
fn enter_process() -> bool {
    let mut is_first = true;
    loop {
        if state::PHASE.load(Acquire) == phase::ON && WIPED.generation.load(Acquire) != 0 {
            return true;
        }
        let now = state::PHASE.load(Acquire);
        match now {
            phase::OFF => return false,
            // Another thread asked a moment ago.
            phase::LATER if !is_first && state::WIPED.asked.load(Relaxed) != 0 => return false,
            // Another thread attaches. After a fork that interrupted it, nobody
            // would ever finish: the pid tells.
            phase::BUSY if ATTACHING.load(Acquire) >> 32 == u64::from(sys::pid()) => {
                is_first = false;
                sys::sleep_ns(50_000);
            }
            _ => {
                let me = u64::from(sys::pid()) << 32 | u64::from(sys::tid());
                if state::PHASE.compare_exchange(now, phase::BUSY, AcqRel, Acquire).is_ok() {
                    ATTACHING.store(me, Release);
                    let forked = !state::REGION.load(Relaxed).is_null();
                    let outcome = attach::attach(forked, now == phase::LATER);
                    if forked && outcome == attach::Outcome::Never {
                        say_lost(sys::pid());
                    }
                    let next = match outcome {
                        attach::Outcome::Attached => phase::ON,
                        attach::Outcome::Never => phase::OFF,
                        attach::Outcome::Later => phase::LATER,
                    };
                    state::PHASE.store(next, Release);
                    return next == phase::ON;
                }
            }
        }
    }
}

/// Counts an event of a process that the collector did not answer in time.
#[cold]
#[inline(never)]
pub fn missed() {
    if state::PHASE.load(Acquire) == phase::LATER {
        state::WIPED.missed.fetch_add(1, AcqRel);
    }
}

/// Whether the collector stood still when a forked child began, by the page that it has of
/// its parent.
pub fn collector_stands_still() -> bool {
    // SAFETY: this thread's own block, as its parent left it.
    stall::stands_still(unsafe { &*Thread::here() })
}

/// A forked child that cannot attach (another user by now, no descriptor left, a
/// chroot, a seccomp filter) says so in its parent's region, which it still shares.
/// A pid of 0: it cannot ask for its own.
pub fn say_lost(pid: u32) {
    if let Some(header) = state::header() {
        let at = header.lost_children.fetch_add(1, AcqRel) as usize;
        if let Some(place) = header.lost_pids.get(at % header.lost_pids.len()) {
            place.store(pid, Release);
        }
    }
}

/// `pid << 32 | tid` of the thread that attaches.
static ATTACHING: AtomicU64 = AtomicU64::new(0);

/// Gives this thread a slot and its first chunk.
fn enter_thread(thread: &mut Thread) -> bool {
    let generation = WIPED.generation.load(Acquire);
    if generation == 0 {
        return false;
    }
    let Some(header) = state::header() else { return false };
    let region = state::REGION.load(Relaxed);
    // SAFETY: the region of this process.
    let taken = unsafe { ring::take(region, region::SLOT_BITMAP_OFFSET, region::SLOT_WORDS) };
    let Some(index) = taken else {
        header.lost.fetch_add(1, Relaxed);
        return false;
    };
    // SAFETY: `take` returns an index below MAX_THREADS; slots lie in the region.
    let slot = unsafe { &*region.add(region::SLOTS_OFFSET).cast::<ThreadSlot>().add(index) };
    thread.tid = sys::tid();
    thread.slot = slot;
    thread.session = state::SESSION.load(Relaxed);
    thread.mem_mode = state::MEM_MODE.load(Relaxed);
    thread.calls = state::CALLS.load(Relaxed) != 0;
    thread.epoch = 0;
    thread.countdown = 0;
    thread.draw_left = 0;
    thread.random = 0;
    if thread.stack_high == 0 {
        let (low, high) = first_stack_bounds();
        thread.stack_low = low;
        thread.stack_high = high;
    }
    let Some(chunk) = ring::first_chunk(thread, slot, index as u32) else {
        // SAFETY: `index` was taken above.
        unsafe { ring::give_back(region, region::SLOT_BITMAP_OFFSET, index) };
        header.lost.fetch_add(1, Relaxed);
        return false;
    };
    slot.tid.store(thread.tid, Relaxed);
    slot.start_clock.store(thread.clock(), Relaxed);
    slot.first_chunk.store(chunk.0, Relaxed);
    slot.state.store(slot_state::LIVE, Release);
    header.threads_seen.fetch_add(1, Relaxed);
    header.threads_changed.fetch_add(1, Release);
    thread.stamp = !generation;
    pointers::remember();
    life::thread_started(thread);
    true
}

/// The stack of this thread, known without a system call: for every thread but
/// the first, glibc and musl keep the thread pointer at the top of it.
fn first_stack_bounds() -> (usize, usize) {
    let mut marker = 0u8;
    let low = &raw mut marker as usize;
    let top = state::STACK_TOP.load(Relaxed);
    const MOST: usize = 1 << 30;
    if sys::tid() == sys::pid() && top > low && top - low < MOST {
        return (low & !4095, top);
    }
    let pointer = arch::thread_pointer();
    if pointer > low && pointer - low < MOST {
        return (low & !4095, pointer);
    }
    (low & !4095, (low & !4095) + 4096)
}
