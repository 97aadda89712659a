//! A process that makes no steps is switched with the process of its file that makes them.

use super::target::Target;
use crate::out::output::Output;
use crate::shared::Region;
use std::sync::atomic::Ordering::*;
use tprof_wire::region::off;
use tprof_wire::schedule::Schedule;

/// A process that makes steps or has the range that is captured.
#[derive(Clone, Copy, Debug)]
pub struct StepSource {
    /// The trace file of its rank.
    pub file: usize,
    /// Number of steps and captures so far.
    pub count: u64,
    /// A range was captured, and is over.
    pub captured: bool,
    off: u32,
    cycle: u32,
}

/// The command that sets a schedule, in words, and the cycles that the run had before.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleOrigin {
    /// `tprof ctl start --steps`.
    pub command: &'static str,
    /// Number of cycles that the run had before.
    pub cycles_before: u32,
}

impl Target {
    /// Returns what decides for the other processes of its file, if this one makes steps.
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

    /// Switches it like another process of its file, unless it makes steps itself.
    pub fn follow(&mut self, by: &StepSource, out: &mut Output, now: u64) {
        if self.leader().is_some() || self.end.is_some() {
            return;
        }
        self.set_off(by.off, by.cycle, out, now);
    }

    /// Sets the schedule's part of why its recording is off.
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

    /// Steps that it has counted.
    pub fn steps(&self) -> u64 {
        self.hooks.region.header().steps.load(Relaxed)
    }

    /// Makes its steps follow this schedule from now on.
    pub fn schedule(&mut self, schedule: Schedule, by: ScheduleOrigin, out: &mut Output, now: u64) {
        (self.spans.schedule, self.spans.by) = (Some(schedule), by.command);
        self.spans.cycles_before = by.cycles_before;
        let off = if schedule.active == 0 { 0 } else { off::SCHEDULE };
        // It is off before the process reads the schedule, and on after it reads none.
        if off != 0 {
            self.set_off(off, 0, out, now);
        }
        store(&self.hooks.region, &schedule);
        if off == 0 {
            self.set_off(off, 0, out, now);
        }
    }
}

/// Stores a schedule for the process: the last word makes it valid.
pub fn store(region: &Region, schedule: &Schedule) {
    for (word, value) in region.header().schedule.iter().zip(schedule.pack()) {
        word.store(value, Release);
    }
}
