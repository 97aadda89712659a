//! Records the operators of only one step in N, if recording all steps would cost too much time.
//!
//! Under `--operators auto`, the [budget](super::budget) decides N. A step lasts from one boundary
//! to the next. A boundary is the end of an optimizer's update, or the beginning of a range of
//! torch.profiler or of a data loader. If the program has several kinds of boundary, only the most
//! trusted kind counts, and only the first source of that kind. From the budget's decision to the
//! first boundary no operator is recorded, so that every recorded step is whole.

use crate::pytorch_registration;
use crate::schedule::Source;
use tprof_wire::sync::{AtomicU32, AtomicU64, Ordering::*};

/// One step in this many is recorded.
static EVERY: AtomicU32 = AtomicU32::new(1);
/// Number of boundaries since the last recorded step began, or since sampling began.
static PASSED: AtomicU32 = AtomicU32::new(0);
/// The kind of boundary that counts in the high half, and which source of that kind in the low
/// half; 0 before the first boundary.
static BOUNDARY: AtomicU64 = AtomicU64::new(0);
/// Number of recorded steps so far.
static TURN: AtomicU32 = AtomicU32::new(0);

/// Whether the operators of some steps are not recorded.
#[inline(always)]
pub fn is_active() -> bool {
    EVERY.load(Relaxed) > 1
}

/// The number of the current or last recorded step.
#[inline(always)]
pub fn recorded_step() -> u32 {
    TURN.load(Relaxed)
}

/// Records the operators of one step in `every` from now on. Returns whether that changes anything.
/// Steps differ a little from each other, so a smaller `every` only counts if it is at most a
/// fourth of the current value.
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

/// Called when a step ends and the next one begins. `of` distinguishes the sources of one kind.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::alone;

    /// Begins anew, and returns how many of these boundaries began a recorded step.
    fn recorded(every: u32, boundaries: &[(Source, u32)]) -> u32 {
        [&PASSED, &TURN].iter().for_each(|word| word.store(0, SeqCst));
        BOUNDARY.store(0, SeqCst);
        EVERY.store(1, SeqCst);
        set_every(every);
        boundaries.iter().for_each(|(source, of)| boundary(*source, *of));
        let turns = recorded_step();
        EVERY.store(1, SeqCst);
        pytorch_registration::set_paused(false);
        turns
    }

    #[test]
    fn one_step_in_so_many_is_recorded() {
        let _alone = alone();
        assert_eq!(recorded(5, &[(Source::Profiler, 0); 4]), 0);
        assert_eq!(recorded(5, &[(Source::Profiler, 0); 5]), 1);
        assert_eq!(recorded(5, &[(Source::Profiler, 0); 14]), 2);
        assert_eq!(
            recorded(1, &[(Source::Profiler, 0); 14]),
            0,
            "all are recorded, none is chosen"
        );
    }

    #[test]
    fn only_the_first_source_of_the_most_trusted_kind_counts() {
        let _alone = alone();
        let (one, other) = ((Source::Optimizer, 1), (Source::Optimizer, 2));
        assert_eq!(recorded(2, &[one, other, one, other]), 1);
        let (profiler, loader) = ((Source::Profiler, 0), (Source::Loader, 0));
        assert_eq!(recorded(2, &[loader, profiler, loader, loader, profiler]), 1);
    }

    #[test]
    fn steps_become_fewer_at_once_and_more_only_if_it_matters() {
        let _alone = alone();
        EVERY.store(1, SeqCst);
        assert!(set_every(20) && is_active());
        assert!(!set_every(20) && !set_every(10), "steps differ a little");
        assert!(set_every(40));
        assert!(set_every(10), "a fourth");
        assert!(set_every(1) && !is_active());
    }
}
