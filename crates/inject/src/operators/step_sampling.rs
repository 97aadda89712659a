//! Records the operators of one step in so many, where those of all steps would take too much time.
//!
//! Under `--operators auto` the [budget](super::budget) decides how many. A step lasts from one
//! boundary to the next: the end of an optimizer's update, or the beginning of a range by
//! torch.profiler or a data loader. The most trusted kind that the program has counts, and of several
//! of one kind the first. From the budget's decision to the first boundary no operator is recorded, so
//! a recorded step is whole.

use crate::pytorch_registration;
use crate::schedule::Source;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// One step in so many is recorded.
static EVERY: AtomicU32 = AtomicU32::new(1);
/// Boundaries since the last recorded step began, or since turns are taken.
static PASSED: AtomicU32 = AtomicU32::new(0);
/// The source of the boundaries, and in the lower half which one of that kind; 0 before the first.
static BOUNDARY: AtomicU64 = AtomicU64::new(0);
/// Recorded steps so far.
static TURN: AtomicU32 = AtomicU32::new(0);

/// Whether operators of some steps are not recorded.
#[inline(always)]
pub fn is_active() -> bool {
    EVERY.load(Relaxed) > 1
}

/// The number of the recorded step.
#[inline(always)]
pub fn recorded_step() -> u32 {
    TURN.load(Relaxed)
}

/// Records the operators of one step in so many from here on; returns whether that is a change. A
/// few steps differ from each other: only a fourth of what is taken now leads to more.
pub fn set_every(every: u32) -> bool {
    let now = EVERY.load(Relaxed);
    if every <= now && every.saturating_mul(4) > now || every == now {
        return false;
    }
    EVERY.store(every, Relaxed);
    if now == 1 {
        PASSED.store(0, Relaxed);
        pytorch_registration::set_paused(true);
    } else if every == 1 {
        pytorch_registration::set_paused(false);
    }
    true
}

/// A step ends here, and the next one begins. `of` tells those of one kind apart.
pub fn boundary(source: Source, of: u32) {
    let this = (source as u64) << 32 | u64::from(of);
    let known = BOUNDARY.load(Relaxed);
    if known != this {
        if known != 0 && known >> 32 <= source as u64 {
            return;
        }
        BOUNDARY.store(this, Relaxed);
    }
    let every = EVERY.load(Relaxed);
    if every == 1 {
        return;
    }
    if PASSED.fetch_add(1, Relaxed) + 1 >= every {
        PASSED.store(0, Relaxed);
        TURN.fetch_add(1, Relaxed);
        pytorch_registration::set_paused(false);
    } else {
        pytorch_registration::set_paused(true);
    }
}
