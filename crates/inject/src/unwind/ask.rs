//! Asks the collector for the unwind tables of code for which it has not published any yet.

use super::loaded_rows;
use crate::block::Thread;
use crate::{arch, collector_liveness, state, sys};
use tprof_wire::region::{RegionHeader, stack_mode};
use tprof_wire::sync::{AtomicBool, AtomicU64, Ordering::*};

/// The earliest time at which the collector may be asked again, and the exponent of the next pause.
static PATIENCE: AtomicU64 = AtomicU64::new(0);

/// Ends the pause before the next question. Called when code was unmapped, or when an answer
/// helped.
pub fn forget_patience() {
    PATIENCE.store(0, Relaxed);
}

/// Asks the collector for a fresh module table and waits for the answer, at most [`ANSWER_NS`].
/// Returns false if no answer came. If a pc stays unknown, the collector is asked again only after
/// the table has changed or after a pause, which grows exponentially. During the pause, this waits
/// for the answer to the last question of any thread instead.
pub fn ask(thread: &Thread) -> bool {
    ask_for(thread, ANSWER_NS, &SILENCES)
}

fn ask_for(thread: &Thread, most_ns: u64, silences: &AtomicU64) -> bool {
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
        let question = header.modules_wanted.load(Acquire);
        return wait_for_answer(thread, now, question, most_ns, silences);
    }
    let next = now / 1000 + (1000 << exponent.min(12));
    PATIENCE.store(next << 8 | (exponent + 1).min(12), Relaxed);
    let question = ask_at_once(thread, header);
    wait_for_answer(thread, now, question, most_ns, silences)
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
    wait_for_answer(thread, sys::monotonic_ns(), question, ANSWER_NS, &SILENCES)
}

/// Asks, without waiting, for the tables that are marked as wanted. The collector sees the question
/// at its next pass.
pub fn post() {
    if let Some(header) = state::header() {
        header.modules_wanted.fetch_add(1, AcqRel);
    }
}

/// Whether the collector samples this process only from the moment on at which it attached: the
/// collector wasn't started before the job. A process that ends before that has no samples.
static IS_WATCHED_LATE: AtomicBool = AtomicBool::new(false);

/// Sets whether the collector samples this process only from now on.
pub fn set_watched_late(is_so: bool) {
    IS_WATCHED_LATE.store(is_so, Relaxed);
}

/// Whether a call that is made all the time, and of which any later one will do, may take a stack
/// now. It may once the collector has read this process's mappings, and so knows its interpreter,
/// too. If it hasn't, it is asked to, and this doesn't wait. The stack may wait in a process that the
/// collector must find before it ends.
#[inline]
pub fn is_code_known(thread: &Thread) -> bool {
    let Some(header) = state::header() else { return false };
    if header.modules_answered.load(Relaxed) != 0 || IS_WATCHED_LATE.load(Relaxed) {
        return true;
    }
    if header.modules_wanted.load(Relaxed) == 0
        && state::STACK_MODE.load(Relaxed) != stack_mode::OFF
    {
        ask_at_once(thread, header);
    }
    false
}

/// Like [`ask`], for mappings that are not in the module table. A forked child that can walk its stack
/// without the answer waits for [`NAMES_NS`] at most. Its code is its parent's, so only names need the
/// answer, and they still do when the child ends ([`wait_for_owed_names`]).
pub fn ask_for_mappings(thread: &Thread, can_walk: bool) -> Answer {
    let Some(header) = state::header() else { return Answer::None };
    header.maps_wanted.fetch_add(1, Release);
    let is_owed = can_walk
        && IS_FORKED.load(Relaxed)
        && !IS_WATCHED_LATE.load(Relaxed)
        && header.wait_on_full.load(Relaxed) != 0;
    if !is_owed {
        return if ask(thread) { Answer::Came } else { Answer::None };
    }
    if ask_for(thread, NAMES_NS, &NAME_SILENCES) {
        return Answer::Came;
    }
    NAMES_OWED.store(true, Relaxed);
    Answer::Owed
}

/// Tells whether a question about mappings was answered, and whether the walk needs the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The table has what the collector read.
    Came,
    /// No answer came in time, and the walk may go on without.
    Owed,
    /// No answer came in time, and the walk ends here.
    None,
}

/// Whether this process is a forked child, whose mappings were its parent's.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Called when a forked child gets its region.
pub fn begin_in_child() {
    IS_FORKED.store(true, Relaxed);
}

/// Whether a stack was recorded before the collector had read the mappings of its code.
static NAMES_OWED: AtomicBool = AtomicBool::new(false);

/// Whether [`wait_for_owed_names`] has anything to wait for.
pub fn are_names_owed() -> bool {
    NAMES_OWED.load(Relaxed)
}

/// Waits until the collector knows the code of all recorded stacks. Called before code goes away: at
/// the end of the process, before it executes another program, and before a library is unloaded.
pub fn wait_for_owed_names(thread: &Thread) {
    if NAMES_OWED.swap(false, Relaxed)
        && !thread.is_quiet()
        && let Some(header) = state::header()
    {
        let question = header.modules_wanted.load(Acquire);
        wait_bounded(thread, sys::monotonic_ns(), question, ANSWER_NS);
    }
}

/// Maximum wait for an answer, in ns, as long as answers arrive. A live collector answers within a
/// millisecond. On a machine with far more runnable threads than cores, more than a hundred
/// milliseconds were measured.
const ANSWER_NS: u64 = 1_000_000_000;
/// Maximum wait, in ns, of a forked child for an answer that only names need.
const NAMES_NS: u64 = 5_000_000;
/// Number of consecutive questions without an answer. For each, the maximum wait is a quarter of
/// the wait before. So a collector that runs but doesn't answer delays a thread by at most 1.4 s in
/// all. Threads don't wait at all for a stalled collector.
static SILENCES: AtomicU64 = AtomicU64::new(0);
/// The same, of questions for which a thread waits for [`NAMES_NS`] at most.
static NAME_SILENCES: AtomicU64 = AtomicU64::new(0);

/// Waits a limited time for the answer to a question, the shorter the more questions before got no
/// answer. Returns false if no answer came.
fn wait_for_answer(
    thread: &Thread,
    began_ns: u64,
    question: u32,
    most_ns: u64,
    silences: &AtomicU64,
) -> bool {
    let before = silences.load(Relaxed);
    let came = wait_bounded(thread, began_ns, question, most_ns >> (2 * before).min(30));
    silences.store(if came { 0 } else { before + 1 }, Relaxed);
    came
}

/// Waits for the answer to a question until `bound` ns after `began_ns`, or not at all under `--on-full
/// drop`. Returns false if no answer came.
fn wait_bounded(thread: &Thread, began_ns: u64, question: u32, bound: u64) -> bool {
    let (Some(header), Some(session)) = (state::header(), state::session()) else { return false };
    if is_answered(header, question) || header.wait_on_full.load(Relaxed) == 0 {
        return is_answered(header, question);
    }
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
    came
}
