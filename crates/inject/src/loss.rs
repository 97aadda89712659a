//! Counts what could not be recorded: events and processes that the run then lists as lost.

use crate::seccomp::{CallClass, is_forbidden};
use crate::state::{self, phase};
use crate::{sys, tls_owner};
use tprof_wire::sync::Ordering::*;

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

#[cfg(test)]
mod tests {
    use super::*;

    use crate::testing::Attached;

    #[test]
    fn an_event_that_is_lost_counts_only_while_the_process_is_attached() {
        let process = Attached::new();
        lose_event();
        assert_eq!(process.header().lost.load(Relaxed), 1);
        state::WIPED.generation.store(0, Relaxed);
        lose_event();
        assert_eq!(process.header().lost.load(Relaxed), 1);
    }

    #[test]
    fn the_last_sixteen_children_are_named_and_all_are_counted() {
        let process = Attached::new();
        (1..=20).for_each(lose_child);
        let header = process.header();
        assert_eq!(header.lost_children.load(Relaxed), 20);
        let pids = header.lost_pids.each_ref().map(|pid| pid.load(Relaxed));
        assert_eq!(pids[..5], [17, 18, 19, 20, 5]);
    }

    #[test]
    fn an_event_is_missed_only_while_the_collector_has_not_answered() {
        let _process = Attached::new();
        let missed = &state::WIPED.missed;
        missed.store(0, Relaxed);
        count_missed();
        assert_eq!(missed.load(Relaxed), 0);
        state::PHASE.store(phase::LATER, Relaxed);
        count_missed();
        assert_eq!(missed.swap(0, Relaxed), 1);
    }

    #[test]
    fn a_thread_of_libcs_loses_nothing_by_having_no_storage() {
        let process = Attached::new();
        process.thread();
        lose_event_if_not_own();
        lose_child_if_not_own();
        let header = process.header();
        assert_eq!((header.lost.load(Relaxed), header.lost_children.load(Relaxed)), (0, 0));
    }

    #[test]
    fn a_child_that_may_not_ask_for_its_pid_is_counted_without_one() {
        let process = Attached::new();
        let count = &crate::seccomp::counts()[CallClass::Threads as usize];
        count.store(1, SeqCst);
        let pid = own_pid();
        count.store(0, SeqCst);
        lose_child(pid);
        assert_eq!((pid, own_pid()), (0, sys::pid()));
        assert_eq!(process.header().lost_children.load(SeqCst), 1);
    }

    #[test]
    fn a_process_that_is_off_for_good_loses_nothing() {
        let process = Attached::new();
        state::turn_off(state::off_reason::COLLECTOR_GONE);
        lose_event();
        lose_event_if_not_own();
        lose_child_if_not_own();
        let header = process.header();
        assert_eq!((header.lost.load(SeqCst), header.lost_children.load(SeqCst)), (0, 0));
    }
}
