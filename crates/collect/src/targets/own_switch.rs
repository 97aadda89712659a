//! Switches the recording of single processes. A process that makes steps switches itself, by a
//! schedule. A process without steps is switched together with one of its file that makes steps.

use super::boundaries::Boundaries;
use super::target::Target;
use crate::output::destination::Output;
use crate::shared::Region;
use std::sync::atomic::Ordering::*;
use tprof_wire::region::off;
use tprof_wire::schedule::{Schedule, Source};

/// A process that makes steps, or that runs the range to be captured. Processes of its file without
/// steps follow it.
#[derive(Clone, Copy, Debug)]
pub struct StepSource {
    /// The trace file of its rank.
    pub file: usize,
    /// Number of steps and captures that it has made so far.
    pub count: u64,
    /// Whether it has captured a range that is over.
    pub captured: bool,
    off: u32,
    cycle: u32,
}

/// The command that set a schedule, and the number of cycles that the run had recorded before.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleOrigin {
    /// The command in words, such as `tprof ctl start --steps`.
    pub command: &'static str,
    /// Number of cycles that the run had recorded before.
    pub cycles_before: u32,
}

impl Target {
    /// Returns the state that other processes of the file follow; `None` if this process makes no
    /// steps.
    pub fn leader(&self) -> Option<StepSource> {
        let header = self.hooks.region.header();
        let captures = header.captures.load(Relaxed);
        let count = header.steps.load(Relaxed) + captures;
        (count > 0 && self.end.is_none()).then(|| StepSource {
            file: self.file,
            count,
            captured: captures > 0 && header.captured.load(Relaxed) == 0,
            off: header.off.load(Relaxed) & off::SCHEDULE,
            cycle: self.spans.cycle.saturating_sub(self.spans.cycles_before),
        })
    }

    /// Switches this process's recording as `by` has switched its own, unless this process makes
    /// steps itself.
    pub fn follow(&mut self, by: &StepSource, out: &mut Output, now: u64) {
        if self.leader().is_some() || self.end.is_some() {
            return;
        }
        self.set_off(by.off, by.cycle, out, now);
    }

    /// Sets or clears the schedule among the reasons why the process's recording is off.
    fn set_off(&mut self, off: u32, cycle: u32, out: &mut Output, now: u64) {
        let header = self.hooks.region.header();
        let before = match off {
            0 => header.off.fetch_and(!off::SCHEDULE, AcqRel),
            _ => header.off.fetch_or(off::SCHEDULE, AcqRel),
        };
        let after = before & !off::SCHEDULE | off;
        if after != before
            && let Some(open) = out.files.open.get_mut(self.file)
        {
            self.spans.switched(after, before, cycle, now, &mut open.writer);
        }
    }

    /// Reads the process's schedule again if the process may have changed it: depending on how long
    /// its steps take, a process may lengthen the parts of its schedule.
    pub(super) fn follow_lengths(&mut self) {
        if self.spans.schedule.is_some_and(|of| of.boundaries) {
            let words = &self.hooks.region.header().schedule;
            self.spans.schedule = Schedule::unpack(words.each_ref().map(|word| word.load(Acquire)));
        }
    }

    /// Returns the number of steps that the process has counted.
    pub fn steps(&self) -> u64 {
        self.hooks.region.header().steps.load(Relaxed)
    }

    /// Whether the process counts its steps even while recording is off in the session.
    pub fn always_counts(&self) -> bool {
        let header = self.hooks.region.header();
        header.steps.load(Relaxed) > 0 && Source::always_counts(header.step_source.load(Relaxed))
    }

    /// Whether the process may make steps that it counts only if asked to: those of PyTorch.
    pub fn counts_only_if_asked(&self) -> bool {
        self.end.is_none() && self.operators.are_recorded()
    }

    /// Makes the process notice all of its steps although recording is off in the session.
    pub fn notice_steps(&self, all: bool) {
        self.hooks.region.header().notice_steps(all);
    }

    /// Returns the steps that the process has counted on request.
    pub fn counted_steps(&self) -> &Boundaries {
        &self.spans.boundaries
    }

    /// Forgets the steps that the process has counted on request, since it stopped counting.
    pub fn forget_steps(&mut self) {
        self.spans.boundaries = Boundaries::default();
    }

    /// Adds this to the number of each step from now on, wrapping around, since the process now
    /// counts like the others.
    pub fn shift_steps(&mut self, by: u64) {
        self.hooks.region.header().steps.fetch_add(by, AcqRel);
        self.spans.boundaries.shift(by);
        self.spans.boundaries.is_aligned = true;
    }

    /// Sets the schedule that the process's steps follow from now on.
    pub fn schedule(&mut self, schedule: Schedule, by: ScheduleOrigin, out: &mut Output, now: u64) {
        (self.spans.schedule, self.spans.by) = (Some(schedule), by.command);
        self.spans.cycles_before = by.cycles_before;
        let off = if schedule.active == 0 { 0 } else { off::SCHEDULE };
        // Recording must never be on by mistake: it is switched off before the process can read a
        // new schedule, and switched on only after the schedule is removed.
        if off != 0 {
            self.set_off(off, 0, out, now);
        }
        store(&self.hooks.region, &schedule);
        if off == 0 {
            self.set_off(off, 0, out, now);
        }
    }
}

/// Stores a schedule in a process's region. The last word makes the schedule valid, so it is stored
/// last.
pub fn store(region: &Region, schedule: &Schedule) {
    for (word, value) in region.header().schedule.iter().zip(schedule.pack()) {
        word.store(value, Release);
    }
}
