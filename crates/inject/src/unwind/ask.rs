//! Asks the collector for the unwind tables of code for which it has not published any yet.

use super::loaded_rows;
use crate::block::Thread;
use crate::{arch, collector_liveness, state, sys};
use tprof_wire::region::RegionHeader;
use tprof_wire::sync::{AtomicU64, Ordering::*};

/// The earliest time at which the collector may be asked again, and the exponent of the next pause.
static PATIENCE: AtomicU64 = AtomicU64::new(0);

/// Ends the pause before the next question. Called when code was unmapped, or when an answer
/// helped.
pub fn forget_patience() {
    PATIENCE.store(0, Relaxed);
}

/// Asks the collector for a fresh module table and waits for the answer, at most [`ANSWER_NS`].
/// Returns false if no answer came. If a pc stays unknown, the collector is asked again only after the table has changed or
/// after a pause, which grows exponentially. During the pause, this waits for the answer to the
/// last question of any thread instead.
pub fn ask(thread: &Thread) -> bool {
    ask_for(thread, ANSWER_NS)
}

fn ask_for(thread: &Thread, most_ns: u64) -> bool {
    let Some(header) = state::header() else { return false };
    if thread.is_quiet() {
        return false;
    }
    let now = sys::monotonic_ns();
    let packed = PATIENCE.load(Relaxed);
    // The high 56 bits are the earliest time of the next question, in microseconds. The low 8 bits
    // are the exponent.
    let (not_before, exponent) = (packed >> 8, packed & 0xff);
    if now / 1000 < not_before {
        return wait_for_answer(thread, now, header.modules_wanted.load(Acquire), most_ns);
    }
    let next = now / 1000 + (1000 << exponent.min(12));
    PATIENCE.store(next << 8 | (exponent + 1).min(12), Relaxed);
    let question = ask_at_once(thread, header);
    wait_for_answer(thread, now, question, most_ns)
}

/// Asks without waiting, and returns the question's number. A thread that waits for the answer will
/// wake the collector itself. A thread that may not make system calls leaves the question to the
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

/// Waits for the answer to a question. The maximum waiting time begins now.
pub fn wait_for(thread: &Thread, question: u32) -> bool {
    wait_for_answer(thread, sys::monotonic_ns(), question, ANSWER_NS)
}

/// Asks, without waiting, for the tables that are marked as wanted. The collector sees the question
/// at its next pass.
pub fn post() {
    if let Some(header) = state::header() {
        header.modules_wanted.fetch_add(1, AcqRel);
    }
}

/// Like [`ask`], for mappings that are not in the module table. If the thread can walk its stack
/// without the answer, it waits for [`NAMES_NS`] at most.
pub fn ask_for_mappings(thread: &Thread, can_walk: bool) -> bool {
    if let Some(header) = state::header() {
        header.maps_wanted.fetch_add(1, Release);
    }
    ask_for(thread, if can_walk { NAMES_NS } else { ANSWER_NS })
}

/// Maximum wait for an answer, in ns, as long as answers arrive. A live collector answers within a
/// millisecond. On a machine with far more runnable threads than cores, more than a hundred
/// milliseconds were measured.
const ANSWER_NS: u64 = 1_000_000_000;
/// Maximum wait, in ns, for an answer that only names need, and only those of code that is unloaded
/// before the collector has read the mappings.
const NAMES_NS: u64 = 5_000_000;
/// Number of consecutive questions without an answer. For each, the maximum wait is a quarter of
/// the wait before. So a collector that runs but doesn't answer delays a thread by at most 1.4 s in
/// all. Threads don't wait at all for a stalled collector.
static SILENCES: AtomicU64 = AtomicU64::new(0);

/// Waits a limited time for the answer to a question, or not at all under `--on-full drop`. Returns
/// false if no answer came.
fn wait_for_answer(thread: &Thread, began_ns: u64, question: u32, most_ns: u64) -> bool {
    let (Some(header), Some(session)) = (state::header(), state::session()) else { return false };
    if is_answered(header, question) || header.wait_on_full.load(Relaxed) == 0 {
        return is_answered(header, question);
    }
    let bound = most_ns >> (2 * SILENCES.load(Relaxed)).min(30);
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
