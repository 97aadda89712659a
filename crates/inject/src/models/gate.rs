//! The gate: threads whose first hooks run at the same time attach the process once, and a process
//! that is off stays off.

use super::{attach_by, explore, spawn, times_attached};
use crate::attach::Outcome;
use crate::gate::{recording, recording_if_own};
use crate::state::{self, WIPED, off_reason, phase};
use crate::sys;
use crate::testing::Attached;
use std::cell::Cell;
use tprof_wire::region::ThreadSlot;
use tprof_wire::sync::{Ordering::*, spin_loop};

thread_local! {
    static REGION: Cell<usize> = const { Cell::new(0) };
    static SESSION: Cell<usize> = const { Cell::new(0) };
    /// Whether a thread of the scenario is attaching.
    static IS_ATTACHING: Cell<bool> = const { Cell::new(false) };
}

/// The process as it is before it attaches. It gets its region by [`attach`].
fn unattached() -> Attached {
    let process = Attached::new();
    REGION.set(state::REGION.load(SeqCst) as usize);
    SESSION.set(state::SESSION.load(SeqCst) as usize);
    state::REGION.store(core::ptr::null_mut(), SeqCst);
    state::SESSION.store(core::ptr::null_mut(), SeqCst);
    WIPED.generation.store(0, SeqCst);
    WIPED.asked.store(0, SeqCst);
    state::PHASE.store(phase::NEW, SeqCst);
    process
}

/// Attaches as `attach::map_all` does. A hook runs meanwhile on the same thread, as when the system
/// calls' handlers allocate.
fn attach(_forked: bool) -> Outcome {
    assert!(!IS_ATTACHING.replace(true), "one thread attaches at a time");
    assert!(recording().is_none() && recording_if_own().is_none());
    spin_loop();
    state::SESSION.store(SESSION.get() as *mut _, Release);
    state::REGION.store(REGION.get() as *mut u8, Release);
    WIPED.generation.store(state::next_generation(), Release);
    IS_ATTACHING.set(false);
    Outcome::Attached
}

/// Runs a hook on this thread; returns the address of its slot, or 0 if it doesn't record.
fn hook() -> usize {
    recording().map_or(0, |thread| core::ptr::from_ref::<ThreadSlot>(thread.slot()).addr())
}

/// Runs the first hooks of two threads. The process attaches once, and each thread has a slot.
fn attach_by_two_threads() {
    attach_by(attach);
    let other = spawn(hook);
    let own = hook();
    let other = other.join().unwrap();
    assert!(own != 0 && other != 0 && own != other);
    assert_eq!((times_attached(), state::PHASE.load(Relaxed)), (1, phase::ON));
    assert_eq!(state::header().unwrap().threads_seen.load(Relaxed), 2);
}

#[test]
fn threads_whose_first_hooks_meet_attach_once_and_have_slots_of_their_own() {
    let _process = unattached();
    explore(attach_by_two_threads);
}

#[test]
fn a_child_that_was_forked_while_its_parent_attached_attaches_once() {
    let _process = unattached();
    state::PHASE.store(phase::BUSY, SeqCst);
    crate::gate::set_attaching(u64::from(sys::pid() + 1) << 32 | 1);
    explore(attach_by_two_threads);
    crate::gate::set_attaching(0);
}

#[test]
fn a_child_that_inherited_the_phase_of_its_parent_attaches_once() {
    let _process = unattached();
    state::PHASE.store(phase::ON, SeqCst);
    explore(attach_by_two_threads);
}

#[test]
fn a_process_without_an_answer_asks_once_for_all_threads_that_wait() {
    let _process = unattached();
    explore(|| {
        attach_by(|_| {
            assert!(!IS_ATTACHING.replace(true), "one thread attaches at a time");
            WIPED.asked.store(1, Relaxed);
            IS_ATTACHING.set(false);
            Outcome::Later
        });
        let other = spawn(hook);
        assert_eq!((hook(), other.join().unwrap()), (0, 0));
        assert_eq!(state::PHASE.load(Relaxed), phase::LATER);
    });
}

#[test]
fn a_process_that_may_not_attach_is_off_for_all_threads() {
    let _process = unattached();
    explore(|| {
        attach_by(|_| Outcome::Never);
        let other = spawn(hook);
        assert_eq!((hook(), other.join().unwrap(), hook()), (0, 0, 0));
        assert_eq!((times_attached(), state::PHASE.load(Relaxed)), (1, phase::OFF));
    });
}

#[test]
fn a_thread_that_learns_that_recording_is_off_never_records_again() {
    let process = Attached::new();
    explore(|| {
        assert_ne!(hook(), 0);
        let other = spawn(|| {
            // This thread attaches while the other one turns recording off.
            let first = hook();
            let second = hook();
            assert!(first != 0 || second == 0, "off for good");
        });
        state::turn_off(off_reason::COLLECTOR_GONE);
        assert_eq!(hook(), 0);
        other.join().unwrap();
        assert_eq!((hook(), state::PHASE.load(Relaxed)), (0, phase::OFF));
    });
    drop(process);
}
