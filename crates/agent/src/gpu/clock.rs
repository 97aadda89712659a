//! Reads CUPTI's clock together with tprof's, so that the collector can convert CUPTI's times.

use super::cupti::Cupti;
use super::journal::{self, JournalEvent};
use tprof_cupti_sys::CUPTI_SUCCESS;
use tprof_inject::block::Thread;
use tprof_inject::ring;
use tprof_wire::gpu::ClockJoin;
use tprof_wire::record::ExtKind;
use tprof_wire::sync::{AtomicU64, Ordering::Relaxed};

/// Records a reading of CUPTI's clock between two readings of tprof's. It makes several attempts
/// and records the one with the closest two readings.
pub fn join_clocks(thread: &Thread, cupti: &Cupti) {
    // A thread that is preempted between the readings gets a poor attempt, so more attempts follow.
    const TRIES: u32 = 12;
    static CLOSEST: AtomicU64 = AtomicU64::new(u64::MAX);
    let mut best = (0, u64::MAX, 0);
    for tried in 0..TRIES {
        let good = CLOSEST.load(Relaxed).saturating_mul(2);
        if tried >= 3 && best.1 <= good {
            break;
        }
        let mut foreign = 0;
        let at_ns = journal::now_ns();
        let before = thread.clock();
        // SAFETY: `cuptiGetTimestamp` writes one number to the local that it gets.
        let result = unsafe { (cupti.timestamp)(&raw mut foreign) };
        let width = thread.clock().wrapping_sub(before);
        let width_ns = journal::now_ns().wrapping_sub(at_ns);
        journal::keep_at(JournalEvent::Clocks, at_ns, [foreign, width_ns, u64::from(result)]);
        if result == CUPTI_SUCCESS && width < best.1 {
            best = (before + width / 2, width, foreign);
        }
    }
    let (clock, width_ticks, foreign_ns) = best;
    CLOSEST.fetch_min(width_ticks, Relaxed);
    if width_ticks != u64::MAX {
        let join = ClockJoin { foreign_ns, width_ticks };
        ring::ext(thread, ExtKind::ClockJoin, 0, clock, &join.pack());
    }
}
