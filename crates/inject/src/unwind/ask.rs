//! Asks the collector for tables of code that it has not published yet.

use super::loaded_rows;
use crate::block::Thread;
use crate::{arch, collector_liveness, state, sys};
use core::sync::atomic::{AtomicU64, Ordering::*};
use tprof_wire::region::RegionHeader;

/// Time when the collector may be asked again, and the exponent of the next pause.
static PATIENCE: AtomicU64 = AtomicU64::new(0);

/// Ends the pause before the next question: code was unmapped, or the last answer helped.
pub fn forget_patience() {
    PATIENCE.store(0, Relaxed);
}

/// Asks the collector for a fresh module table and waits for it. Returns false if no answer came.
/// If a pc stays unknown, the collector is asked again only after the table has changed or an
/// exponentially growing pause is over. During the pause, this waits for the answer to the last
/// question of any thread.
pub fn ask(thread: &Thread) -> bool {
    let Some(header) = state::header() else { return false };
    if thread.is_quiet() {
        return false;
    }
    let now = sys::monotonic_ns();
    let packed = PATIENCE.load(Relaxed);
    // The high 56 bits are the earliest time of the next question, in microseconds; the low 8 the
    // exponent.
    let (not_before, exponent) = (packed >> 8, packed & 0xff);
    if now / 1000 < not_before {
        return wait_for_answer(thread, now, header.modules_wanted.load(Acquire));
    }
    let next = now / 1000 + (1000 << exponent.min(12));
    PATIENCE.store(next << 8 | (exponent + 1).min(12), Relaxed);
    let question = ask_at_once(thread, header);
    wait_for_answer(thread, now, question)
}

/// Asks without waiting, and returns the number of the question. A thread that waits for the answer
/// wakes the collector then. A thread that may not make system calls leaves the question to the
/// collector's next pass. Any other thread wakes the collector here, once per question.
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

/// Whether a question has been answered.
pub fn is_answered(header: &RegionHeader, question: u32) -> bool {
    header.modules_answered.load(Acquire).wrapping_sub(question) as i32 >= 0
}

/// Waits for the answer to a question, from now on, as [`ask`] does.
pub fn wait_for(thread: &Thread, question: u32) -> bool {
    wait_for_answer(thread, sys::monotonic_ns(), question)
}

/// Asks for the tables that are marked, without waiting: the collector sees the question at its
/// next pass.
pub fn post() {
    if let Some(header) = state::header() {
        header.modules_wanted.fetch_add(1, AcqRel);
    }
}

/// Like [`ask`], for mappings that the module table lacks.
pub fn ask_for_mappings(thread: &Thread) -> bool {
    if let Some(header) = state::header() {
        header.maps_wanted.fetch_add(1, Release);
    }
    ask(thread)
}

/// Maximum wait for an answer, in ns, while answers arrive. A live collector answers within a
/// millisecond; on a machine with far more runnable threads than cores, it was measured to take
/// more than a hundred.
const ANSWER_NS: u64 = 1_000_000_000;
/// Number of consecutive questions without an answer. For each, the maximum wait is a quarter of
/// the one before, so that a collector that runs without answering delays a thread by at most 1.4 s
/// in all. Threads do not wait for a stalled collector.
static SILENCES: AtomicU64 = AtomicU64::new(0);

/// Waits a bounded time for the answer to a question, or not at all under `--on-full drop`. Returns
/// false if no answer came.
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
