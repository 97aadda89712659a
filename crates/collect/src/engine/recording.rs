//! Switches the session's recording on and off, and knows how much of the run was not recorded.

use super::main_loop::Engine;
use crate::config::Config;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use tprof_os::sys;
use tprof_trace::model::MarkKind;
use tprof_trace::run::{BlindSpot, EVERYTHING};
use tprof_wire::schedule::Schedule;

/// Whether and when recording is on.
#[derive(Default)]
pub(super) struct Recording {
    /// Whether recording has been on since the run began, so that totals have no gap.
    pub always_on: bool,
    pub start_at_ns: Option<u64>,
    pub stop_at_ns: Option<u64>,
    /// Whether `--max-size` is reached.
    pub full: bool,
    /// Whether recording was switched off for good, by `--max-size` or `--duration`.
    pub over: bool,
    /// Whether recording was on when the run ended.
    pub ends_on: bool,
    /// Time when recording was last switched off, ns; 0 if it never was.
    pub off_since_ns: u64,
    /// How long recording was off until it was last switched on, ns.
    pub off_ns: u64,
    /// What has switched recording off so far: options and commands.
    pub off_by: Vec<String>,
    /// The schedule that `tprof ctl start --steps` has set, if any. Processes switch their
    /// recording at its steps.
    pub steps: Option<Schedule>,
    /// Identifies the request that set it, so that others don't replace it.
    pub asker: String,
    /// Time when `tprof ctl start --steps` last asked processes to count steps, ns; `None` if they
    /// count only what costs nothing.
    pub counted_ns: Option<u64>,
    /// Number of cycles that `tprof ctl start --steps` has requested.
    pub asked: u32,
    /// Whether the job was asked to end because the captured range has ended
    /// (`CaptureEnd::StopJob`).
    pub job_ends: bool,
}

impl Recording {
    /// Returns what the session left out in the run's `run_ns`, up to `end_ns`; `None` if that is
    /// nothing. A schedule and a limit of size are reported elsewhere.
    fn left_out(&self, is_off: bool, run_ns: u64, end_ns: u64) -> Option<BlindSpot> {
        let now_off = if is_off { end_ns.saturating_sub(self.off_since_ns) } else { 0 };
        let off_ns = self.off_ns + now_off;
        let by = self.off_by.join(", ");
        let (what, why) = match self.asked {
            _ if off_ns == 0 => return None,
            0 if off_ns >= run_ns => {
                (EVERYTHING.to_owned(), format!("recording was never on: {by}"))
            }
            0 => {
                let seconds = |ns: u64| format!("{:.2} s", ns as f64 / 1e9);
                (format!("everything in {} of {}", seconds(off_ns), seconds(run_ns)), by)
            }
            _ => (
                "everything outside of the requested steps".to_owned(),
                super::scheduled::START_STEPS.to_owned(),
            ),
        };
        Some(BlindSpot { as_asked: true, ..BlindSpot::new("the job", what, why) })
    }
}

/// Returns the option by which a run begins with recording off.
pub(super) fn begins_off_by(config: &Config) -> &'static str {
    match (config.paused, config.delay) {
        (true, _) => "--paused",
        (_, Some(_)) => "--delay",
        _ => "--schedule",
    }
}

impl Engine {
    /// Switches recording on or off, unless it is so already. Marks that in every file, and notes
    /// that totals have a gap.
    pub(super) fn switch(&mut self, on: bool, why: &str) {
        self.set_off(if on { 0 } else { self.parts.config.session_off() }, why);
    }

    /// Does the same for these reasons to be off, bits of [`tprof_wire::region::off`]; with 0
    /// recording is on.
    pub(super) fn set_off(&mut self, off: u32, why: &str) {
        let page = self.parts.session.page();
        if (page.off.load(Relaxed) == 0) == (off == 0) {
            return;
        }
        // The sampler is told first, so that it misses as little as possible of the first step.
        let sampler = self.parts.sampler.as_ref();
        if let Some(sampler) = sampler.filter(|_| off == 0) {
            sampler.pause(false);
        }
        if off != 0 {
            self.note_off(sys::monotonic_ns(), why);
        }
        let page = self.parts.session.page();
        page.off.store(off, SeqCst);
        if let Some(sampler) = self.parts.sampler.as_ref().filter(|_| off != 0) {
            sampler.pause(true);
        }
        let now = sys::monotonic_ns();
        for target in self.targets.values_mut() {
            target.switch(off);
            target.observe_heap(&mut self.out, now);
        }
        self.recording.always_on = false;
        if off == 0 {
            self.recording.off_ns += now.saturating_sub(self.recording.off_since_ns);
            self.out.files.off_since = None;
        }
        let kind = if off == 0 { MarkKind::RecordingOn } else { MarkKind::RecordingOff };
        self.mark(why, kind);
    }

    /// Notes that recording is off since `now`, for the account of the run and for files that are
    /// created later.
    pub(super) fn note_off(&mut self, now: u64, why: &str) {
        self.recording.off_since_ns = now;
        if !self.recording.off_by.iter().any(|by| by == why) {
            self.recording.off_by.push(why.to_owned());
        }
        self.out.files.off_since = Some((now, why.to_owned()));
    }

    /// Reports what was not recorded because recording was off in the whole session.
    pub(super) fn write_pauses(&mut self, now: u64) {
        let end_ns = self.out.processes.last_end_ns.unwrap_or(now);
        if let Some(blind) = self.not_kept(end_ns) {
            self.out.processes.losses.add_blind(blind);
        }
        if let Some(blind) = self.paused(!self.recording.ends_on, end_ns) {
            self.out.processes.losses.add_blind(blind);
        }
        for blind in self.over_budget().collect::<Vec<_>>() {
            self.out.processes.losses.add_blind(blind);
        }
    }

    /// Returns what was not recorded up to `end_ns` because recording was off in the whole session.
    /// `is_off` says whether it is off now.
    fn paused(&self, is_off: bool, end_ns: u64) -> Option<BlindSpot> {
        if self.recording.full || self.parts.config.seconds().is_some() {
            return None;
        }
        let run_ns = end_ns.saturating_sub(self.parts.info.start_ns);
        self.recording.left_out(is_off, run_ns, end_ns)
    }

    /// Returns what the user has left out so far, besides what was not kept.
    pub(super) fn left_out_so_far(&self, now: u64) -> impl Iterator<Item = BlindSpot> {
        let config = &self.parts.config;
        let outside = config.schedule.as_ref().map(|of| of.outside());
        let outside = outside.or(config.capture.as_ref().map(|of| of.outside()));
        let outside = outside.map(|(what, why)| BlindSpot {
            as_asked: true,
            ..BlindSpot::new("the job", what, why)
        });
        let is_off = self.parts.session.page().off.load(Relaxed) != 0;
        self.paused(is_off, now).into_iter().chain(outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_the_time_in_which_recording_was_off() {
        let seconds = 1_000_000_000;
        let paused = || Recording {
            off_since_ns: 10 * seconds,
            off_by: vec!["--paused".into()],
            ..Recording::default()
        };
        let of = |recording: &Recording, is_off| {
            let blind = recording.left_out(is_off, 5 * seconds, 15 * seconds)?;
            assert!(blind.as_asked);
            Some((blind.what, blind.why))
        };
        assert_eq!(of(&Recording::default(), false), None);
        let never = ("everything".into(), "recording was never on: --paused".into());
        assert_eq!(of(&paused(), true), Some(never));
        let part = ("everything in 2.00 s of 5.00 s".into(), "--paused".into());
        assert_eq!(of(&Recording { off_ns: 2 * seconds, ..paused() }, false), Some(part));
        let what = of(&Recording { asked: 1, off_ns: 1, ..paused() }, true).unwrap().0;
        assert_eq!(what, "everything outside of the requested steps");
    }
}
