//! Steps of a job that follows a schedule: each process counts its own, and switches its
//! recording at once.
//!
//! Who notices a step calls [`step_begins`] or [`step_ends`] with its source. Of several sources
//! only the most trusted one counts: a program that marks its steps also runs an optimizer.

use crate::block::Thread;
use crate::{pytorch_registration, ring, sampling, state, unwind};
use core::sync::atomic::{AtomicU32, Ordering::*};
use tprof_wire::record::ExtKind;
use tprof_wire::region::{RegionHeader, off};
use tprof_wire::schedule::{Action, Schedule, counts_epochs};

/// Who notices steps, the most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Source {
    /// The program, by `tprof_abi`.
    Program = 1,
    /// The program, by NVTX ranges `step N`.
    Nvtx = 2,
    /// torch.profiler, by `ProfilerStep#N`.
    Profiler = 3,
    /// An optimizer, by `Optimizer.step#CLASS.step`.
    Optimizer = 4,
    /// A data loader, by `enumerate(DataLoader)#…`.
    Loader = 5,
    /// The program, by ranges `epoch N`: where the parts of the schedule count epochs.
    Epoch = 16,
}

/// Bits of [`RegionHeader::step_source`] that are the source's.
const RANK: u32 = 0xff;

/// The first optimizer that updated, until it does so again: which others are of its group is not
/// known before.
static GROUP: AtomicU32 = AtomicU32::new(0);

/// Whether steps matter in this process, for who would have to work to notice one.
#[inline(always)]
pub fn is_followed() -> bool {
    state::header().is_some_and(|header| header.schedule[2].load(Relaxed) != 0)
}

/// Whether epochs matter in this process, by spans of `tprof_abi`.
#[inline(always)]
pub fn follows_epochs() -> bool {
    is_followed()
        && state::header().is_some_and(|header| counts_epochs(header.schedule[2].load(Relaxed)))
}

/// A step begins. Of several of one source, the first one's `of` is followed (any number): two
/// loaders give a batch each in a step of the program.
pub fn step_begins(thread: &Thread, source: Source, of: u32) {
    boundary(thread, source, of, 1);
}

/// A step ends, and the next one begins. Of several of one source the last one's `of` is followed
/// of those that end before the first one does again.
pub fn step_ends(thread: &Thread, source: Source, of: u32) {
    boundary(thread, source, of, 0);
}

/// `begun` of the first boundary's steps had not begun before it.
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
    let this = source as u32 | of & !RANK;
    if followed != 0 && followed & RANK < source as u32 {
        return;
    }
    if followed & RANK != source as u32 {
        header.step_source.store(this, Relaxed);
        header.steps.store(0, Relaxed);
        GROUP.store(this, Relaxed);
    } else if followed != this {
        // The last of the optimizers that update before the first one does again ends each step.
        match (this == GROUP.load(Relaxed), begun, header.steps.load(Relaxed)) {
            (true, ..) => GROUP.store(0, Relaxed),
            (false, 0, 1) if GROUP.load(Relaxed) != 0 => header.step_source.store(this, Relaxed),
            _ => {}
        }
        return;
    }
    let step = (header.steps.fetch_add(1, AcqRel) + 1).saturating_sub(begun);
    if schedule.active > 0 {
        let is_warm_up = |step| schedule.action(step) == Action::WarmUp;
        if is_warm_up(step) && !step.checked_sub(1).is_some_and(is_warm_up) {
            // What the first recorded stack would wait for.
            unwind::prefetch_tables(thread);
        }
        let cycle = schedule.cycle(step);
        let begins =
            cycle.and_then(|of| schedule.steps_of(of)).is_some_and(|of| *of.start() == step);
        if !switch(thread, header, schedule.records(step), cycle) && begins {
            // The cycle before it has just ended: only the number changes.
            let now = header.off.load(Relaxed);
            write_switch(thread, now, now, cycle);
        }
    }
}

/// Switches recording of this process, as the schedule or the captured range has it, which is of
/// this number. Whether it was not so before.
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

/// Writes how recording is switched now, and was before; with what is live then: records of a part
/// do not tell what came before it.
pub fn write_switch(thread: &Thread, now: u32, before: u32, cycle: Option<u64>) {
    let cycle = cycle.map_or(0, |cycle| cycle.saturating_add(1));
    let clock = thread.clock();
    let live = sampling::live_bytes(thread).unwrap_or(u64::MAX);
    let payload = [u64::from(now) | u64::from(before) << 32, live];
    ring::ext(thread, ExtKind::Switched, cycle as u32, clock, &payload);
    pytorch_registration::sync_callback();
}
