//! Asks the collector for the tables of code that it has not published yet.

use super::loaded_rows;
use crate::block::Thread;
use crate::{arch, collector_liveness, state, sys};
use core::sync::atomic::{AtomicU64, Ordering::*};
use tprof_wire::region::RegionHeader;

/// Time when the collector may be asked again, and how patient to be after that.
static PATIENCE: AtomicU64 = AtomicU64::new(0);

/// The next question need not wait: code was unmapped, or the last answer helped.
pub fn forget_patience() {
    PATIENCE.store(0, Relaxed);
}

/// Asks the collector for a fresh module table and waits for it; false if no
/// answer came. A pc that stays unknown is asked for again only after the table
/// changed, or an exponentially growing pause; what another thread asked a
/// moment ago is waited for all the same.
pub fn ask(thread: &Thread) -> bool {
    let Some(header) = state::header() else { return false };
    if thread.is_quiet() {
        return false;
    }
    let now = sys::monotonic_ns();
    let packed = PATIENCE.load(Relaxed);
    // High 56 bits: earliest time of the next question, in microseconds; low 8: exponent.
    let (not_before, exponent) = (packed >> 8, packed & 0xff);
    if now / 1000 < not_before {
        return wait_for_answer(thread, now, header.modules_wanted.load(Acquire));
    }
    let next = now / 1000 + (1000 << exponent.min(12));
    PATIENCE.store(next << 8 | (exponent + 1).min(12), Relaxed);
    let question = ask_at_once(thread, header);
    wait_for_answer(thread, now, question)
}

/// Asks, and does not wait: the number of the question. Who waits for it wakes the collector, a
/// thread that may make no system call leaves it to the collector's next pass, any other wakes it
/// here, once a question.
pub fn ask_at_once(thread: &Thread, header: &RegionHeader) -> u32 {
    header.finds_rows.store(u32::from(loaded_rows::can_find()), Relaxed);
    let question = header.modules_wanted.fetch_add(1, AcqRel).wrapping_add(1);
    if header.wait_on_full.load(Relaxed) == 0
        && !thread.is_quiet()
        && let Some(session) = state::session()
    {
        sys::futex_wake(session.sleep.as_ptr(), 1);
    }
    question
}

/// Whether the answer to a question is there.
pub fn is_answered(header: &RegionHeader, question: u32) -> bool {
    header.modules_answered.load(Acquire).wrapping_sub(question) as i32 >= 0
}

/// Waits for the answer to a question as [`ask`] does, from now on.
pub fn wait_for(thread: &Thread, question: u32) -> bool {
    wait_for_answer(thread, sys::monotonic_ns(), question)
}

/// Asks for the tables that are marked, and does not wait: the collector sees it at its next pass.
pub fn post() {
    if let Some(header) = state::header() {
        header.modules_wanted.fetch_add(1, AcqRel);
    }
}

/// As [`ask`], but for mappings that the table lacks.
pub fn ask_for_mappings(thread: &Thread) -> bool {
    if let Some(header) = state::header() {
        header.maps_wanted.fetch_add(1, Release);
    }
    ask(thread)
}

/// How long an answer is waited for, ns, while they come. A collector that is
/// alive gives it in a millisecond; on a machine with far more to run than it
/// has cores it was measured to take more than a hundred.
const ANSWER_NS: u64 = 1_000_000_000;
/// Questions in a row that got no answer: each is waited for a quarter as long
/// as the one before it, so that a collector that goes on without an answer holds
/// a thread up for at most 1.4 s in all. One that stands still is not waited for.
static SILENCES: AtomicU64 = AtomicU64::new(0);

/// Waits a bounded time for the answer to a question, and under `--on-full drop` not
/// at all; false if it did not come.
fn wait_for_answer(thread: &Thread, began_ns: u64, question: u32) -> bool {
    let (Some(header), Some(session)) = (state::header(), state::session()) else { return false };
    if is_answered(header, question) || header.wait_on_full.load(Relaxed) == 0 {
        return is_answered(header, question);
    }
    let bound = ANSWER_NS >> (2 * SILENCES.load(Relaxed)).min(30);
    let began = thread.clock();
    let mut rounds = 0;
    let came = loop {
        let answered = header.modules_answered.load(Acquire);
        if is_answered(header, question) {
            break true;
        }
        if rounds > 0 && sys::monotonic_ns().wrapping_sub(began_ns) >= bound
            || session.closed.load(Relaxed) != 0
            || collector_liveness::is_stalled(thread)
        {
            break false;
        }
        sys::futex_wake(session.sleep.as_ptr(), 1);
        sys::futex_wait(header.modules_answered.as_ptr(), answered, bound.min(1_000_000));
        rounds += 1;
    };
    if rounds > 0 {
        let slot = thread.slot();
        arch::add_local(&slot.waits, 1);
        arch::add_local(&slot.wait_ticks, thread.clock().wrapping_sub(began));
    }
    SILENCES.store(if came { 0 } else { SILENCES.load(Relaxed) + 1 }, Relaxed);
    came
}
