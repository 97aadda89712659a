//! Counts what cannot be recorded: events and processes that the run then names as lost.

use crate::seccomp::{CallClass, is_forbidden};
use crate::state::{self, phase};
use crate::{sys, tls_owner};
use core::sync::atomic::Ordering::*;

/// Counts an event of a process that the collector did not answer in time.
#[cold]
#[inline(never)]
pub fn count_missed() {
    if state::PHASE.load(Acquire) == phase::LATER {
        state::WIPED.missed.fetch_add(1, AcqRel);
    }
}

/// An event of a task that cannot record, in a process that is attached.
#[cold]
pub fn lose_event() {
    if let Some(header) = state::header().filter(|_| state::is_attached()) {
        header.lost.fetch_add(1, Relaxed);
    }
}

/// Counts an event of a task for which [`crate::gate::recording_if_own`] touched nothing.
pub fn lose_event_if_not_own() {
    if state::PHASE.load(Relaxed) != phase::OFF && tls_owner::own_block().is_none() {
        lose_event();
    }
}

/// A forked child that cannot attach (another user by now, no descriptor left, a
/// chroot, a seccomp filter) is noted in its parent's region, which it still shares.
/// A pid of 0: it cannot ask for its own.
pub fn lose_child(pid: u32) {
    if let Some(header) = state::header() {
        let at = header.lost_children.fetch_add(1, AcqRel) as usize;
        if let Some(place) = header.lost_pids.get(at % header.lost_pids.len()) {
            place.store(pid, Release);
        }
    }
}

/// As [`lose_event_if_not_own`], for a program that is executed and will not attach.
pub fn lose_child_if_not_own() {
    if state::is_attached() && tls_owner::own_block().is_none() {
        lose_child(own_pid());
    }
}

/// 0 where it may not be asked for.
pub fn own_pid() -> u32 {
    if is_forbidden(CallClass::Threads) { 0 } else { sys::pid() }
}
