//! Switches recording on and off as a schedule or a captured range demands, if the run has one.

use super::inbox::Reply;
use super::main_loop::Engine;
use super::recording::Recording;
use crate::config::CaptureEnd;
use crate::targets::own_switch::{ScheduleOrigin, StepSource};
use crate::targets::target::Target;
use std::collections::HashMap;
use std::sync::atomic::{Ordering::SeqCst, fence};
use tprof_os::sys;
use tprof_trace::run::BlindSpot;
use tprof_wire::schedule::Schedule;

/// The command that makes processes switch recording at their steps in a run without such an
/// option.
pub const START_STEPS: &str = "tprof ctl start --steps";
/// Number of steps that `tprof ctl start --steps` leaves between the last step that any process has
/// begun and the first step that it records. Within them the request must reach all processes. If
/// steps are too short for that, `tprof ctl` asks again for later steps.
pub const STEPS_AHEAD: u64 = 2;

impl Recording {
    /// Returns the command that set the schedule, and the number of cycles before it.
    pub(super) fn by(&self) -> ScheduleOrigin {
        ScheduleOrigin { command: START_STEPS, cycles_before: self.asked.saturating_sub(1) }
    }
}

impl Engine {
    /// Switches the session's recording, if the run's schedule counts seconds.
    pub(super) fn follow_seconds(&mut self, now: u64) {
        if let Some(timetable) = self.parts.config.seconds()
            && !self.recording.over
        {
            let second = now.saturating_sub(self.parts.info.start_ns) / 1_000_000_000;
            let (schedule, on) = (timetable.schedule(), timetable.schedule().records(second));
            let cycle = schedule.cycle(second).map_or(0, |cycle| cycle + 1);
            match on {
                true => self.switch(true, &format!("cycle {cycle}: second {second} (--schedule)")),
                false => self.switch(false, "--schedule"),
            }
        }
    }

    /// Lets processes without steps switch recording together with a leader: the process of the
    /// same file that has made most steps.
    pub(super) fn follow_steps(&mut self, now: u64) {
        if !self.parts.config.switches_by_process() && self.recording.steps.is_none() {
            return;
        }
        let mut leaders: HashMap<usize, StepSource> = HashMap::new();
        for leader in self.targets.values().filter_map(|target| target.leader()) {
            let first = leaders.entry(leader.file).or_insert(leader);
            if leader.count > first.count {
                *first = leader;
            }
        }
        for target in self.targets.values_mut() {
            if let Some(leader) = leaders.get(&target.file) {
                target.follow(leader, &mut self.out, now);
            }
        }
        self.stop_job(leaders.values().any(|leader| leader.captured));
    }

    /// Asks the job to end, once, if a captured range has ended and the job should end with it.
    fn stop_job(&mut self, captured: bool) {
        let ends = self.parts.config.capture.as_ref().map(|capture| capture.end);
        if captured
            && ends == Some(CaptureEnd::StopJob)
            && !std::mem::replace(&mut self.recording.job_ends, true)
            && let Some(root) = self.out.processes.root.filter(|_| !self.out.processes.root_ended)
        {
            // If the signal can't be sent, the job has ended already.
            let _ = sys::send_signal(root, sys::Signal::SIGTERM);
        }
    }

    /// Reports the part of the schedule or capture that is missing because the job was too short.
    /// Also reports that everything outside it was not recorded on purpose.
    pub(super) fn write_schedule(&mut self, now: u64) {
        let config = &self.parts.config;
        let process = "the job".to_owned();
        let end_ns = self.out.processes.last_end_ns.unwrap_or(now);
        let found = match (&config.schedule, &config.capture) {
            (Some(timetable), _) => {
                let steps = match config.seconds() {
                    Some(_) => end_ns.saturating_sub(self.parts.info.start_ns) / 1_000_000_000,
                    None => self.out.processes.steps,
                };
                Some((timetable.outside(), timetable.missing(steps)))
            }
            (None, Some(capture)) => {
                Some((capture.outside(), capture.missing(self.out.processes.captures)))
            }
            (None, None) => None,
        };
        let Some((outside, missing)) = found else { return };
        // A paired schedule records the first steps. If the job ended within them, nothing was left
        // out.
        let all = config.schedule.filter(|of| of.paired);
        if all.is_some_and(|of| missing.is_none() && self.out.processes.steps <= of.active.into()) {
            return;
        }
        let losses = &mut self.out.processes.losses;
        if let Some((what, why)) = missing {
            losses.add_blind(BlindSpot::new(process.clone(), what, why));
        }
        let outside = BlindSpot::new(process, outside.0, outside.1);
        losses.add_blind(BlindSpot { as_asked: true, ..outside });
    }

    /// Handles `tprof ctl start --steps`. All processes count steps from their own beginning, so
    /// the same step numbers are recorded of each.
    pub(super) fn start_steps(
        &mut self,
        count: u32,
        first: Option<u64>,
        asker: String,
        on: bool,
    ) -> Reply {
        let reply = Reply::new;
        let made = self.steps_begun();
        let first = first.unwrap_or(made + STEPS_AHEAD);
        let Ok(skip_first) = u32::try_from(first) else {
            return reply(false, format!("step {first} is out of range"));
        };
        if self.parts.config.is_in_part() {
            let by = self.parts.config.in_part_by();
            return reply(false, format!("{by} decides in this run when recording is on"));
        }
        if on && self.recording.steps.is_none() {
            return reply(false, "recording is on already; `tprof ctl stop` stops it".to_owned());
        }
        if !self.parts.config.paused {
            let why = "steps are counted in runs that began with --paused";
            return reply(false, format!("{why}; `tprof ctl start` records all"));
        }
        if let Some(reply) = self.count_steps() {
            return reply;
        }
        if made == 0 {
            let why = "no process of the run has made a step yet; `tprof ctl start` records all";
            return reply(false, format!("{why}; {}", crate::schedule::SOURCES));
        }
        let late = || Reply {
            late: true,
            ..reply(false, format!("step {first} had begun before it was asked for"))
        };
        if made >= first {
            return late();
        }
        if self.recording.asker != asker
            && let Some(steps) = self.recording.steps.filter(|steps| !self.are_made(steps))
        {
            let (first, last) = (
                u64::from(steps.skip_first),
                u64::from(steps.skip_first) + u64::from(steps.active) - 1,
            );
            let what = format!("steps {first} to {last} are recorded for another request");
            return reply(
                false,
                format!("{what}; ask again after them, or after `tprof ctl stop`"),
            );
        }
        self.recording.asker = asker;
        let schedule = Schedule { active: count, skip_first, ..self.counting() };
        let now = sys::monotonic_ns();
        // If no process has reached the first step of the previous request, this request replaces
        // it and counts as the same cycle.
        let replaces =
            self.recording.steps.is_some_and(|before| made <= u64::from(before.skip_first));
        let cycle = self.recording.asked + u32::from(!replaces);
        self.recording.asked = cycle;
        self.recording.steps = Some(schedule);
        let by = self.recording.by();
        for target in self.targets.values_mut() {
            target.schedule(schedule, by, &mut self.out, now);
        }
        // A process first increments its count and then reads the schedule. Therefore a process
        // whose count is below the first step will read this schedule, and one whose count isn't
        // may have missed it.
        fence(SeqCst);
        if self.steps_begun() >= first {
            // Recording was never on, so the next request may have this cycle's number.
            self.end_steps();
            self.recording.asked = cycle - 1;
            return late();
        }
        self.switch(true, START_STEPS);
        // A process that began its first step before recording was switched on missed the beginning.
        if self.steps_begun() >= first {
            self.stop_steps(START_STEPS);
            return late();
        }
        let last = first + u64::from(count) - 1;
        reply(true, format!("steps {first} to {last} are recorded as cycle {cycle}"))
    }

    /// Whether all processes have made the steps of a request: those that have begun the first, or,
    /// if none has, all.
    fn are_made(&self, steps: &Schedule) -> bool {
        let first = u64::from(steps.skip_first);
        let end = first + u64::from(steps.active);
        let begun = self.targets.values().map(Target::steps).filter(|begun| *begun > first);
        begun.min().is_some_and(|begun| begun > end)
    }

    /// Returns the largest number of steps that any process has begun.
    fn steps_begun(&self) -> u64 {
        self.targets.values().map(Target::steps).max().unwrap_or(0)
    }

    /// Switches recording off and removes the schedule. Without the schedule, a process records as
    /// long as recording is on, so it is switched off first.
    pub(super) fn stop_steps(&mut self, why: &str) {
        self.switch(false, why);
        self.end_steps();
    }

    /// Removes the schedule, so that steps no longer switch recording.
    pub(super) fn end_steps(&mut self) {
        if self.recording.steps.take().is_some() {
            self.apply_counting(sys::monotonic_ns());
        }
    }
}
