//! The gate decides at the start of each hook whether the running thread may record. For a thread
//! that has not recorded yet, it takes the slow path that attaches.
//!
//! For a thread that has recorded before, one comparison decides. It fails for a thread that has
//! not recorded yet, in a forked child, and once recording is off for good. Then the slow path
//! attaches the process and assigns the thread a slot and a first chunk, or decides that the thread
//! doesn't record.

use crate::block::Thread;
use crate::loss::{lose_child, lose_event, own_pid};
use crate::seccomp::{CallClass, is_forbidden};
use crate::state::{self, WIPED, phase};
use crate::{arch, attach, ring, sys, thread_notes, tls_owner};
use tprof_wire::region::{self, RegionHeader, ThreadSlot, slot_state};
use tprof_wire::sync::{AtomicU64, Ordering::*};

/// This thread's block if it may record now. Attaches the process and the thread first if
/// necessary. Only hooks of functions that use thread-local variables themselves may call this;
/// other hooks call [`recording_if_own`].
#[inline(always)]
pub fn recording() -> Option<&'static Thread> {
    admitted().or_else(enter)
}

/// This thread's block, if the thread has been admitted to record.
#[inline(always)]
pub fn admitted() -> Option<&'static Thread> {
    let (block, word) = arch::thread_block_and_word::<0>();
    // SAFETY: the word matches the generation only in a thread's own block. All access to the block
    // is through `SignalCell`s, so that signal handlers on this thread may share it.
    (word == !WIPED.generation.load(Relaxed)).then(|| unsafe { &*block.cast() })
}

/// Like [`recording`], for any task: returns `None`, without touching the block, if the task
/// doesn't have thread-local storage of its own. See [`tls_owner`].
pub fn recording_if_own() -> Option<&'static Thread> {
    if state::PHASE.load(Relaxed) == phase::OFF {
        return None;
    }
    let thread = tls_owner::own_block()?;
    if thread.may_record() { Some(thread) } else { enter() }
}

/// The slow path: attaches the process, a forked child, or a new thread.
#[cold]
#[inline(never)]
fn enter() -> Option<&'static Thread> {
    if state::PHASE.load(Acquire) == phase::OFF {
        return None;
    }
    let is_attached = state::is_attached();
    if is_forbidden(CallClass::Threads) || !is_attached && is_forbidden(CallClass::Processes) {
        stay_out(is_attached);
        return None;
    }
    if state::PHASE.load(Acquire) == phase::LATER && !attach::is_time_again() {
        return None;
    }
    let Some(thread) = tls_owner::own_block() else {
        lose_event();
        return None;
    };
    if thread.entering.get() || thread.strict.get() {
        return None;
    }
    if is_attached && sys::pid() != state::PID.load(Relaxed) {
        // This is a child that shares its parent's memory but has its own thread-local storage.
        lose_event();
        return None;
    }
    let mask = sys::block_signals();
    thread.entering.set(true);
    let ok = enter_process(thread) && enter_thread(thread);
    thread.entering.set(false);
    sys::restore_signals(mask);
    ok.then_some(thread)
}

/// Counts the loss when a seccomp filter forbids the system calls with which the process or thread
/// would attach.
#[cold]
fn stay_out(is_attached: bool) {
    if is_attached {
        // The thread started after the filter was installed.
        lose_event();
    } else if !state::REGION.load(Relaxed).is_null()
        && state::PHASE.swap(phase::OFF, AcqRel) != phase::OFF
    {
        // The process is a forked child that has not attached yet.
        lose_child(own_pid());
    }
}

/// `pid << 32 | tid` of the thread that attaches.
static ATTACHING: AtomicU64 = AtomicU64::new(0);

/// Sets `pid << 32 | tid` of the thread that attaches, for models.
#[cfg(all(test, loom))]
pub fn set_attaching(thread: u64) {
    ATTACHING.store(thread, SeqCst);
}

/// Attaches the process if necessary. Returns whether it is attached.
fn enter_process(thread: &Thread) -> bool {
    let mut is_first = true;
    loop {
        // Read before the phase: if the phase is busy, whoever made it so was named before.
        let holder = ATTACHING.load(Acquire);
        let now = state::PHASE.load(Acquire);
        match now {
            // A forked child inherits the phase, but no generation.
            phase::ON if WIPED.generation.load(Acquire) != 0 => return true,
            phase::OFF => return false,
            // Another thread has just asked in vain.
            phase::LATER if !is_first && state::WIPED.asked.load(Relaxed) != 0 => return false,
            // Another thread is attaching. If the pid differs, a fork interrupted that thread, and
            // no thread would ever finish.
            phase::BUSY if holder >> 32 == u64::from(sys::pid()) => {
                is_first = false;
                sys::sleep_ns(50_000);
            }
            _ => {
                // Threads come here at the same time. In a new process, only one makes the phase
                // busy. In a child whose parent was attaching, the phase is busy already, and only
                // one takes the parent's place.
                let me = u64::from(sys::pid()) << 32 | u64::from(sys::tid());
                if ATTACHING.compare_exchange(holder, me, AcqRel, Relaxed).is_err()
                    || state::PHASE.compare_exchange(now, phase::BUSY, AcqRel, Acquire).is_err()
                {
                    continue;
                }
                // Another thread of a forked child may have attached since the phase was read: then
                // the phase is what it was.
                if now == phase::ON && WIPED.generation.load(Acquire) != 0 {
                    state::PHASE.store(phase::ON, Release);
                    return true;
                }
                let forked = !state::REGION.load(Relaxed).is_null();
                let outcome = attach::attach(thread, forked, now == phase::LATER);
                if forked && outcome == attach::Outcome::Never {
                    lose_child(sys::pid());
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

/// Assigns this thread a slot and its first chunk. Returns false if the thread can't record.
fn enter_thread(thread: &Thread) -> bool {
    let generation = WIPED.generation.load(Acquire);
    if generation == 0 {
        return false;
    }
    let Some(header) = state::header() else { return false };
    let region = state::REGION.load(Relaxed);
    // SAFETY: `region` is this process's region, which stays mapped for the process's life.
    let taken = unsafe { ring::take(region, region::SLOT_BITMAP_OFFSET, region::SLOT_WORDS) };
    let Some(index) = taken else {
        header.lost.fetch_add(1, Relaxed);
        return false;
    };
    // SAFETY: `take` returns an index below MAX_THREADS, and the region contains that many slots.
    let slot = unsafe { &*region.add(region::SLOTS_OFFSET).cast::<ThreadSlot>().add(index) };
    begin(thread, slot, header);
    let Some(chunk) = ring::first_chunk(thread) else {
        // SAFETY: `take` returned `index` above.
        unsafe { ring::give_back(region, region::SLOT_BITMAP_OFFSET, index) };
        header.lost.fetch_add(1, Relaxed);
        return false;
    };
    slot.tid.store(thread.tid.get(), Relaxed);
    slot.open_call.store(0, Relaxed);
    slot.start_clock.store(thread.clock(), Relaxed);
    slot.first_chunk.store(chunk.0, Relaxed);
    slot.state.store(slot_state::LIVE, Release);
    header.threads_seen.fetch_add(1, Relaxed);
    header.threads_changed.fetch_add(1, Release);
    thread.admit(generation);
    tls_owner::register_thread();
    thread_notes::started(thread);
    true
}

/// Sets up a thread's block for its first record.
fn begin(thread: &Thread, slot: &'static ThreadSlot, header: &'static RegionHeader) {
    thread.tid.set(sys::tid());
    thread.set_slot(slot, &header.off);
    thread.set_mem_mode(state::MEM_MODE.load(Relaxed));
    thread.calls.set(state::CALLS.load(Relaxed) != 0);
    thread.epoch.set(0);
    thread.countdown.set(0);
    thread.draw_left.set(0);
    thread.random.set(0);
    if thread.stack_high.get() == 0 {
        let (low, high) = first_stack_bounds();
        thread.stack_low.set(low);
        thread.stack_high.set(high);
    }
}

/// Bounds of this thread's stack, found without a system call. In glibc and musl the thread pointer
/// points into the top of the stack, except in the main thread.
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

#[cfg(test)]
mod tests {
    use super::*;

    use crate::testing::{Attached, alone};

    #[test]
    fn a_process_whose_recording_is_off_for_good_has_no_recording_thread() {
        let _alone = alone();
        state::PHASE.store(phase::OFF, SeqCst);
        let none = recording().is_none() && recording_if_own().is_none();
        state::PHASE.store(phase::NEW, SeqCst);
        assert!(none);
    }

    #[test]
    fn a_thread_gets_its_slot_once_and_its_chunk_with_it() {
        let process = Attached::new();
        let before = process.free_slots();
        let thread = process.thread();
        assert!(core::ptr::eq(thread, recording().unwrap()));
        assert!(core::ptr::eq(thread, recording_if_own().unwrap()));
        assert_eq!(process.free_slots(), before - 1);
        assert_eq!(process.header().threads_seen.load(SeqCst), 1);
        assert_eq!(thread.slot().tid.load(SeqCst), sys::tid());
        assert_eq!(thread.slot().state.load(SeqCst), slot_state::LIVE);
    }

    #[test]
    fn threads_have_slots_of_their_own() {
        let process = Attached::new();
        let own = process.thread().slot() as *const ThreadSlot as usize;
        let other =
            std::thread::spawn(|| recording().unwrap().slot() as *const ThreadSlot as usize);
        assert_ne!(other.join().unwrap(), own);
        assert_eq!(process.header().threads_seen.load(SeqCst), 2);
    }

    #[test]
    fn a_thread_without_a_slot_or_a_chunk_loses_its_events_and_gives_the_slot_back() {
        let process = Attached::new();
        let slots = process.free_slots();
        process.set_free(0, 0);
        assert!(recording().is_none());
        assert_eq!((process.free_slots(), process.header().lost.load(SeqCst)), (slots, 1));
        process.set_free(1, 0);
        assert!(recording().is_some(), "it may record once there is room");
    }

    #[test]
    fn a_new_generation_has_each_thread_take_a_slot_again() {
        let process = Attached::new();
        let first = process.thread().slot() as *const ThreadSlot;
        WIPED.generation.store(state::next_generation(), SeqCst);
        assert_ne!(recording().unwrap().slot() as *const ThreadSlot, first);
    }

    #[test]
    fn a_thread_that_is_attaching_or_strict_passes_through() {
        let process = Attached::new();
        let thread = tls_owner::own_block().unwrap();
        for flag in [&thread.entering, &thread.strict] {
            flag.set(true);
            assert!(recording().is_none());
            flag.set(false);
        }
        assert_eq!(process.header().threads_seen.load(SeqCst), 0);
        assert!(recording().is_some());
    }

    #[test]
    fn a_thread_that_begins_under_a_filter_is_lost_and_counted() {
        let process = Attached::new();
        let count = &crate::seccomp::counts()[CallClass::Threads as usize];
        count.store(1, SeqCst);
        let none = recording().is_none();
        count.store(0, SeqCst);
        assert!(none);
        assert_eq!(process.header().lost.load(SeqCst), 1);
    }

    #[test]
    fn a_child_that_may_not_attach_is_lost_once() {
        let process = Attached::new();
        WIPED.generation.store(0, SeqCst);
        state::PHASE.store(phase::NEW, SeqCst);
        let count = &crate::seccomp::counts()[CallClass::Processes as usize];
        count.store(1, SeqCst);
        let none = recording().is_none() && recording().is_none();
        count.store(0, SeqCst);
        assert!(none);
        assert_eq!(process.header().lost_children.load(SeqCst), 1);
        assert_eq!(process.header().lost_pids[0].load(SeqCst), sys::pid());
        assert_eq!(state::PHASE.load(SeqCst), phase::OFF);
    }

    #[test]
    fn a_child_that_shares_memory_loses_its_events_in_its_parents_region() {
        let process = Attached::new();
        state::PID.store(sys::pid() + 1, SeqCst);
        assert!(recording().is_none());
        assert_eq!(process.header().lost.load(SeqCst), 1);
    }

    #[test]
    fn the_first_bounds_of_a_stack_hold_the_running_function() {
        let here = 0u8;
        let (low, high) = first_stack_bounds();
        let at = (&raw const here).addr();
        assert!(low <= at && at < high);
        assert!((low..high).step_by(4096).all(sys::is_readable));
    }
}
