//! Waits until the collector has made room in the ring, as long as the collector makes progress.

use super::chunks;
use crate::block::Thread;
use crate::state::{self, off_reason};
use crate::{arch, collector_liveness, sys};
use tprof_wire::sync::Ordering::*;

/// Wakes the collector if it is asleep.
pub fn wake_collector() {
    if let Some(session) = state::session()
        && session.sleeping.load(Relaxed) != 0
    {
        sys::futex_wake(session.sleep.as_ptr(), 1);
    }
}

/// A bounded wait for the collector.
pub struct Wait {
    began: u64,
    rounds: u64,
}

impl Wait {
    /// Makes a wait that has not begun.
    #[inline(always)]
    pub fn new() -> Wait {
        Wait { began: 0, rounds: 0 }
    }

    /// Waits for a short time. Returns false once the maximum time has passed, and at once if the
    /// collector is stalled.
    #[cold]
    pub fn more(&mut self, thread: &Thread) -> bool {
        let (Some(header), Some(session)) = (state::header(), state::session()) else {
            return false;
        };
        if session.closed.load(Relaxed) != 0 {
            state::turn_off(off_reason::COLLECTOR_GONE);
            return false;
        }
        if header.wait_on_full.load(Relaxed) == 0 || collector_liveness::is_stalled(thread) {
            return false;
        }
        if thread.is_quiet() && !chunks::is_any_open() {
            // No large chunk was made accessible in time, and none can be now, so there won't be
            // room.
            return false;
        }
        if thread.strict.get() {
            // System calls and clocks are forbidden here, so this spins a limited number of times.
            self.rounds += 1;
            tprof_wire::sync::spin_loop();
            let goes_on = self.rounds < 1 << 24;
            if !goes_on {
                collector_liveness::wait_timed_out();
            }
            return goes_on;
        }
        let now = thread.clock();
        if self.rounds == 0 {
            self.began = now;
            header.waiting.fetch_add(1, Relaxed);
        }
        self.rounds += 1;
        if now.wrapping_sub(self.began) > header.wait_ticks.load(Relaxed) {
            return false;
        }
        if thread.is_quiet() {
            tprof_wire::sync::spin_loop();
            return true;
        }
        wake_collector();
        let drained = &thread.slot().drained_chunks;
        sys::futex_wait(drained.as_ptr(), drained.load(Relaxed), 500_000);
        true
    }

    /// Adds the time waited to this thread's counters.
    #[inline(always)]
    pub fn finish(&mut self, thread: &Thread) {
        if self.rounds != 0 {
            self.account(thread);
        }
    }

    #[cold]
    fn account(&mut self, thread: &Thread) {
        if thread.strict.get() {
            return;
        }
        let slot = thread.slot();
        arch::add_local(&slot.waits, 1);
        arch::add_local(&slot.wait_ticks, thread.clock().wrapping_sub(self.began));
        if let Some(header) = state::header() {
            header.waiting.fetch_sub(1, Relaxed);
        }
        self.rounds = 0;
    }
}
