//! Detects whether the collector makes progress or is stalled: stopped by a signal, on a suspended
//! machine, in a frozen cgroup, or dead.
//!
//! Only the time since the collector's last pass decides. While the collector is stalled, threads
//! drop records instead of waiting for it; after its next pass they wait again. Recording is turned
//! off for good only if the collector's process is gone.

use crate::block::Thread;
use crate::seccomp::{CallClass, is_forbidden};
use crate::state::{self, off_reason};
use crate::sys;
use tprof_wire::sync::{AtomicU32, AtomicU64, Ordering::*};

/// Process id of the collector in this process's pid namespace; 0 if it is in another one.
pub static COLLECTOR: AtomicU32 = AtomicU32::new(0);
/// Clock at which to check the collector's process next.
static NEXT_CHECK_AT: AtomicU64 = AtomicU64::new(0);
/// The collector's clock at the time when a thread that may not read a clock last waited in vain.
static TIMED_OUT_AT: AtomicU64 = AtomicU64::new(0);

/// Whether the collector's last pass is longer ago than the maximum time that threads wait for it.
#[cold]
pub fn is_stalled(thread: &Thread) -> bool {
    let (Some(header), Some(session)) = (state::header(), state::session()) else { return true };
    let last = session.coarse_clock.load(Relaxed);
    if thread.strict.get() {
        return TIMED_OUT_AT.load(Relaxed) == last;
    }
    let now = thread.clock();
    // If the clock was set back, `since` is negative and proves nothing.
    let since = now.wrapping_sub(last) as i64;
    if since <= header.wait_ticks.load(Relaxed) as i64 {
        return false;
    }
    check_process(now, since as u64);
    true
}

/// Called when a thread that may not read a clock has waited the maximum time for the collector.
pub fn wait_timed_out() {
    if let Some(session) = state::session() {
        TIMED_OUT_AT.store(session.coarse_clock.load(Relaxed), Relaxed);
    }
}

/// Turns recording off for good if the collector's process is gone. The check is a system call, so
/// it repeats only when the stall is twice as long as at the last check.
fn check_process(now: u64, since: u64) {
    let due = NEXT_CHECK_AT.load(Relaxed);
    // A time further ahead than that was set during an earlier stall, or on another clock.
    let is_early = due.wrapping_sub(now).wrapping_sub(1) < since;
    if is_early || is_forbidden(CallClass::Processes) {
        return;
    }
    if NEXT_CHECK_AT.compare_exchange(due, now.wrapping_add(since), Relaxed, Relaxed).is_err() {
        return;
    }
    let pid = COLLECTOR.load(Relaxed);
    if pid != 0 && sys::is_gone(pid) {
        state::turn_off(off_reason::COLLECTOR_GONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Attached;

    #[test]
    fn a_dead_process_is_gone_and_a_running_one_is_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!sys::is_gone(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(sys::is_gone(child.id()));
        assert!(!sys::is_gone(1), "process 1 exists even if we may not signal it");
    }

    #[test]
    fn a_collector_is_stalled_once_its_last_pass_is_too_long_ago() {
        let process = Attached::new();
        let thread = process.thread();
        process.header().wait_ticks.store(1 << 40, SeqCst);
        let session = state::session().unwrap();
        let now = thread.clock();
        session.coarse_clock.store(now, SeqCst);
        assert!(!is_stalled(thread));
        session.coarse_clock.store(now.wrapping_sub(2 << 40), SeqCst);
        assert!(is_stalled(thread));
        session.coarse_clock.store(now + (1 << 50), SeqCst);
        assert!(!is_stalled(thread), "a clock that was set back proves nothing");
    }

    #[test]
    fn a_thread_without_a_clock_takes_a_collector_for_stalled_until_its_next_pass() {
        let process = Attached::new();
        let thread = process.thread();
        let session = state::session().unwrap();
        session.coarse_clock.store(5, SeqCst);
        thread.strict.set(true);
        let before = is_stalled(thread);
        wait_timed_out();
        let after = is_stalled(thread);
        session.coarse_clock.store(6, SeqCst);
        let next = is_stalled(thread);
        thread.strict.set(false);
        assert_eq!((before, after, next), (false, true, false));
    }

    #[test]
    fn a_stall_of_a_collector_that_is_gone_turns_recording_off() {
        let process = Attached::new();
        let thread = process.thread();
        process.header().wait_ticks.store(1, SeqCst);
        NEXT_CHECK_AT.store(0, SeqCst);
        state::session().unwrap().coarse_clock.store(thread.clock().wrapping_sub(1 << 40), SeqCst);
        COLLECTOR.store(sys::pid(), SeqCst);
        assert!(is_stalled(thread));
        assert_eq!(state::PHASE.load(SeqCst), state::phase::ON, "it runs");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        COLLECTOR.store(child.id(), SeqCst);
        assert!(is_stalled(thread));
        assert_eq!(state::PHASE.load(SeqCst), state::phase::ON, "the next check isn't due yet");
        NEXT_CHECK_AT.store(0, SeqCst);
        assert!(is_stalled(thread));
        assert_eq!(state::PHASE.load(SeqCst), state::phase::OFF);
        COLLECTOR.store(0, SeqCst);
    }
}
