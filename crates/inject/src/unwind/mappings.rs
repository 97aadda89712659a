//! Tracks whether the collector's module table is up to date. After a `dlclose`, the table may
//! contain code that no longer exists and was replaced by other code. Then no row and no name is
//! valid until the collector has read the mappings again.

use super::ask::{ask_at_once, forget_patience, is_answered, wait_for};
use crate::block::Thread;
use crate::state;
use tprof_wire::sync::{AtomicU64, Ordering::*};

/// A word with three parts: the state in the low bits; the question's number, if the state is
/// [`ASKED`]; and the number of times that code was unmapped. The last part is needed so that the
/// answer to an earlier question isn't taken for the answer to a later one.
static MAPPINGS: AtomicU64 = AtomicU64::new(KNOWN);
/// The table is up to date, except for new mappings, about which the collector will be asked.
const KNOWN: u64 = 0;
/// Code was unmapped, and no thread has asked the collector since.
const STALE: u64 = 1;
/// A thread has asked the collector, and the answer has not arrived yet.
const ASKED: u64 = 2;
const STATE_BITS: u32 = 2;
const EPOCH_AT: u32 = STATE_BITS + 32;
const EPOCH: u64 = !0 << EPOCH_AT;

fn state(word: u64) -> u64 {
    word & ((1 << STATE_BITS) - 1)
}

/// Marks the table as out of date. Called when code was unmapped.
pub fn unmapped() {
    let _ = MAPPINGS.fetch_update(AcqRel, Relaxed, |word| {
        Some((word & EPOCH).wrapping_add(1 << EPOCH_AT) | STALE)
    });
}

/// Called when a forked child gets its new region. Questions in the parent's region will never be
/// answered there.
pub fn begin() {
    let _ = MAPPINGS.fetch_update(AcqRel, Relaxed, |word| {
        (state(word) == ASKED).then_some(word & EPOCH | STALE)
    });
}

/// Whether the table is up to date. If it isn't, one thread asks the collector, and this waits for
/// the answer as long as the thread may wait. A quiet thread doesn't wait, nor does any thread
/// under `--on-full drop`.
#[inline(always)]
pub fn are_known(thread: &Thread) -> bool {
    state(MAPPINGS.load(Acquire)) == KNOWN || are_known_now(thread)
}

#[cold]
#[inline(never)]
fn are_known_now(thread: &Thread) -> bool {
    let Some(header) = state::header() else { return false };
    // Another thread may unmap code meanwhile, perhaps again and again, so the number of attempts
    // is limited.
    for _ in 0..4 {
        let word = MAPPINGS.load(Acquire);
        let came = match state(word) {
            KNOWN => return true,
            ASKED => {
                let question = (word >> STATE_BITS) as u32;
                if thread.is_quiet() {
                    is_answered(header, question)
                } else {
                    wait_for(thread, question)
                }
            }
            _ => {
                header.maps_wanted.fetch_add(1, Release);
                let question = ask_at_once(thread, header);
                let asked = word & EPOCH | u64::from(question) << STATE_BITS | ASKED;
                // If another thread has asked as well, the answer to its question is used.
                let _ = MAPPINGS.compare_exchange(word, asked, AcqRel, Relaxed);
                continue;
            }
        };
        if !came {
            return false;
        }
        forget_patience();
        let _ = MAPPINGS.compare_exchange(word, word & EPOCH | KNOWN, AcqRel, Relaxed);
    }
    state(MAPPINGS.load(Acquire)) == KNOWN
}

/// The table is up to date, for tests after others.
#[cfg(test)]
pub fn know() {
    MAPPINGS.store(KNOWN, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_an_earlier_question_does_not_count_for_a_later_one() {
        let _alone = crate::testing::alone();
        unmapped();
        let first = MAPPINGS.load(Relaxed);
        assert_eq!(state(first), STALE);
        MAPPINGS.store(first & EPOCH | 7 << STATE_BITS | ASKED, Relaxed);
        let asked = MAPPINGS.load(Relaxed);
        unmapped();
        let known = asked & EPOCH | KNOWN;
        assert!(MAPPINGS.compare_exchange(asked, known, AcqRel, Relaxed).is_err());
        assert_eq!(state(MAPPINGS.load(Relaxed)), STALE);
        // A child has a region of its own, in which nothing was asked yet.
        let question = MAPPINGS.load(Relaxed) & EPOCH | 9 << STATE_BITS | ASKED;
        MAPPINGS.store(question, Relaxed);
        begin();
        assert_eq!(MAPPINGS.load(Relaxed), question & EPOCH | STALE);
        MAPPINGS.store(KNOWN, Relaxed);
        begin();
        assert_eq!(MAPPINGS.load(Relaxed), KNOWN);
    }

    #[test]
    fn code_that_was_unmapped_is_known_again_once_the_collector_has_answered() {
        let process = crate::testing::Attached::new();
        let thread = process.thread();
        let header = process.header();
        assert!(are_known(thread));
        unmapped();
        assert!(!are_known(thread));
        assert_eq!((header.maps_wanted.load(Relaxed), header.modules_wanted.load(Relaxed)), (1, 1));
        assert!(!are_known(thread));
        assert_eq!(header.modules_wanted.load(Relaxed), 1, "it is asked once");
        header.modules_answered.store(1, Release);
        assert!(are_known(thread));
    }
}
