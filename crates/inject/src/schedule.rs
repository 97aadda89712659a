//! Counts the steps of a job that follows a schedule, and switches recording accordingly. Each
//! process counts its own steps and switches its own recording, so that there is no delay.
//!
//! The code that notices a step calls [`step_begins`] or [`step_ends`] with the step's source. If
//! there are several sources, only the most trusted one counts. For example, a program that marks
//! its steps also runs an optimizer.

use crate::block::Thread;
use crate::{heap_sampling, pytorch_registration, ring, state, unwind};
use tprof_wire::record::ExtKind;
use tprof_wire::region::{RegionHeader, off};
use tprof_wire::schedule::{Action, Schedule, counts_epochs};
use tprof_wire::sync::{AtomicU32, AtomicU64, Ordering::*};

pub use tprof_wire::schedule::Source;

/// The optimizer that updated first, until it updates again; otherwise 0. Until then it isn't known
/// which other optimizers update in the same step.
static GROUP: AtomicU32 = AtomicU32::new(0);

/// Whether this process must count steps, so that noticing them is worth some work.
#[inline(always)]
pub fn is_followed() -> bool {
    state::header().is_some_and(|header| header.schedule[2].load(Relaxed) != 0)
}

/// Whether only the steps that the schedule chooses are recorded. This is false if some steps are
/// left out only to compare them with the others.
#[inline(always)]
pub fn chooses_steps() -> bool {
    is_followed() && state::header().is_some_and(|h| h.short_pauses.load(Relaxed) == 0)
}

/// Whether this process must count epochs, so that spans of `tprof_abi` must be checked for them.
#[inline(always)]
pub fn follows_epochs() -> bool {
    is_followed()
        && state::header().is_some_and(|header| counts_epochs(header.schedule[2].load(Relaxed)))
}

/// Called when a step begins. `of` is any number that distinguishes several makers of steps in one
/// source. Only the one that came first counts, since, for example, two data loaders each return a
/// batch in one step of the program.
pub fn step_begins(thread: &Thread, source: Source, of: u32) {
    boundary(thread, source, of, 1);
}

/// Called when a step ends and the next one begins. If one source has several makers of steps, only
/// the last one that ends before the first one ends again counts.
pub fn step_ends(thread: &Thread, source: Source, of: u32) {
    boundary(thread, source, of, 0);
}

/// Counts a boundary between steps. `begun` is 1 if the first boundary begins the first step, and 0
/// if a step had begun before it.
fn boundary(thread: &Thread, source: Source, of: u32, begun: u64) {
    let Some(header) = state::header() else { return };
    let Some(schedule) = Schedule::unpack(header.schedule.each_ref().map(|w| w.load(Relaxed)))
    else {
        return;
    };
    if schedule.epochs != (source == Source::Epoch) {
        return;
    }
    let followed = header.step_source.load(Relaxed);
    let this = source as u32 | of & !Source::KIND;
    if followed != 0 && followed & Source::KIND < source as u32 {
        return;
    }
    if followed & Source::KIND != source as u32 {
        header.step_source.store(this, Relaxed);
        header.steps.store(0, Relaxed);
        GROUP.store(this, Relaxed);
    } else if followed != this {
        // Of the optimizers that update before the first one updates again, the last one marks the
        // end of each step.
        match (this == GROUP.load(Relaxed), begun, header.steps.load(Relaxed)) {
            (true, ..) => GROUP.store(0, Relaxed),
            (false, 0, 1) if GROUP.load(Relaxed) != 0 => header.step_source.store(this, Relaxed),
            _ => {}
        }
        return;
    }
    let step = (header.steps.fetch_add(1, AcqRel) + 1).saturating_sub(begun);
    let schedule = match schedule.boundaries {
        true => {
            let clock = thread.clock();
            ring::ext(thread, ExtKind::StepBegun, 0, clock, &[step, 0]);
            lengthened(header, schedule, step, clock)
        }
        false => schedule,
    };
    if schedule.active > 0 {
        let is_warm_up = |step| schedule.action(step) == Action::WarmUp;
        if is_warm_up(step) && !step.checked_sub(1).is_some_and(is_warm_up) {
            // Without this, the first recorded stack would have to wait for its unwind tables.
            unwind::prefetch_tables(thread);
        }
        let cycle = schedule.cycle(step);
        let begins =
            cycle.and_then(|of| schedule.steps_of(of)).is_some_and(|of| *of.start() == step);
        if !switch(thread, header, schedule.records(step), cycle) && begins {
            // The cycle before has just ended and the next one begins, so only the cycle's number
            // changes.
            let now = header.off.load(Relaxed);
            write_switch(thread, now, now, cycle);
        }
    }
}

/// Number of the first step that is timed. The steps before it take longer than others.
const TIMED_FROM: u64 = 5;
/// Clock at the beginning of step [`TIMED_FROM`]; 0 if it isn't being timed.
static TIMED_SINCE: AtomicU64 = AtomicU64::new(0);

/// Returns the schedule of a comparison that applies from now on. The schedule may become longer
/// before the first step is left out. All its parts are doubled until the steps that are left out
/// last long enough: an eighth of the maximum time that a thread waits on a full ring, which is a
/// quarter of a second. The agent needs that time, since it notices late that recording is off.
/// Ranks that take a step together compute the same schedule.
fn lengthened(header: &RegionHeader, schedule: Schedule, step: u64, clock: u64) -> Schedule {
    let Some(steps) = u64::from(schedule.active).checked_sub(TIMED_FROM + 1) else {
        return schedule;
    };
    if step == TIMED_FROM {
        TIMED_SINCE.store(clock, Relaxed);
    }
    if step != TIMED_FROM + steps || steps == 0 {
        return schedule;
    }
    let since = TIMED_SINCE.swap(0, Relaxed);
    let ticks = if since == 0 { 0 } else { clock.saturating_sub(since) / steps };
    if ticks == 0 {
        return schedule;
    }
    let longer = schedule.lasting(header.wait_ticks.load(Relaxed) / 8, ticks);
    for (word, value) in header.schedule.iter().zip(longer.pack()) {
        word.store(value, Release);
    }
    longer
}

/// Switches this process's recording on or off, as the schedule or the captured range demands.
/// `cycle` is the number of the cycle. Returns whether this changed anything.
pub fn switch(thread: &Thread, header: &RegionHeader, on: bool, cycle: Option<u64>) -> bool {
    let before = match on {
        true => header.off.fetch_and(!off::SCHEDULE, AcqRel),
        false => header.off.fetch_or(off::SCHEDULE, AcqRel),
    };
    let now = if on { before & !off::SCHEDULE } else { before | off::SCHEDULE };
    if now != before {
        write_switch(thread, now, before, cycle);
    }
    now != before
}

/// Records that recording was switched from `before` to `now`, and how many bytes are live. The
/// live bytes are needed, since the records of one cycle don't show what was allocated before it.
pub fn write_switch(thread: &Thread, now: u32, before: u32, cycle: Option<u64>) {
    let cycle = cycle.map_or(0, |cycle| cycle.saturating_add(1));
    let clock = thread.clock();
    let live = heap_sampling::live_bytes(thread).unwrap_or(u64::MAX);
    let payload = [u64::from(now) | u64::from(before) << 32, live];
    ring::ext(thread, ExtKind::Switched, cycle as u32, clock, &payload);
    pytorch_registration::sync_callbacks();
}

#[cfg(test)]
mod tests;
