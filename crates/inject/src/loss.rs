//! Counts what could not be recorded: events and processes that the run then lists as lost.

use crate::seccomp::{CallClass, is_forbidden};
use crate::state::{self, phase};
use crate::{sys, tls_owner};
use core::sync::atomic::Ordering::*;

/// Counts an event that happens before this process is attached, because the collector did not
/// answer in time.
#[cold]
#[inline(never)]
pub fn count_missed() {
    if state::PHASE.load(Acquire) == phase::LATER {
        state::WIPED.missed.fetch_add(1, AcqRel);
    }
}

/// Counts an event of a task that can't record, if its process is attached.
#[cold]
pub fn lose_event() {
    if let Some(header) = state::header().filter(|_| state::is_attached()) {
        header.lost.fetch_add(1, Relaxed);
    }
}

/// Counts an event of a task without thread-local storage of its own.
/// [`crate::gate::recording_if_own`] returns `None` for such a task without counting the event.
pub fn lose_event_if_not_own() {
    if state::PHASE.load(Relaxed) != phase::OFF && tls_owner::own_block().is_none() {
        lose_event();
    }
}

/// Reports a forked child that can't attach, in its parent's region, which the child still maps.
/// Reasons are that the child became another user, has no descriptor left, or is in a chroot or
/// under a seccomp filter. `pid` is 0 if the child may not call `getpid`.
pub fn lose_child(pid: u32) {
    if let Some(header) = state::header() {
        let at = header.lost_children.fetch_add(1, AcqRel) as usize;
        if let Some(place) = header.lost_pids.get(at % header.lost_pids.len()) {
            place.store(pid, Release);
        }
    }
}

/// Like [`lose_event_if_not_own`], for a task that executes a program which will not attach.
pub fn lose_child_if_not_own() {
    if state::is_attached() && tls_owner::own_block().is_none() {
        lose_child(own_pid());
    }
}

/// This process's id; 0 if a seccomp filter forbids the system call.
pub fn own_pid() -> u32 {
    if is_forbidden(CallClass::Threads) { 0 } else { sys::pid() }
}
