//! Watches for a job that hangs, for `--on-hang`: no step and no operation between ranks for some
//! time, in ranks that had some and that do nothing else. What `tprof where` says is then written
//! into the run, once for each hang.

use super::asker::Asker;
use super::control;
use super::idle_times::IdleTimes;
use super::numbered;
use crate::config::OnHang;
use crate::engine::inbox::{DumpCause, Event, HangReport, Request};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tprof_hang::{Answer, HostState, Progress};
use tprof_os::sys;

/// Shortest and longest time between two readings.
const BETWEEN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];
/// Number of readings within the time after which a job hangs.
const READINGS: u32 = 8;

/// Watches the ranks of one collector.
pub struct HangWatch {
    /// When the job counts as hanging, and what happens then.
    pub option: OnHang,
    /// Directory of the run.
    pub run: PathBuf,
    /// Directory of this session.
    pub session: PathBuf,
    /// The way to ask the engine.
    pub asker: Asker,
    /// Which ranks do something, for requests too.
    pub idle_times: Arc<Mutex<IdleTimes>>,
    /// Where to ask for a dump of what is kept, if only the last part is.
    pub dumps: Option<Sender<DumpCause>>,
    /// Set when the run is over.
    pub stop: Arc<AtomicBool>,
}

impl HangWatch {
    /// Watches until the run is over.
    pub fn run(self) {
        let [least, most] = BETWEEN;
        let between = (self.option.after / READINGS).clamp(least, most);
        let limit_ns = u64::try_from(self.option.after.as_nanos()).unwrap_or(u64::MAX);
        // The progress of the ranks at the last hang.
        let mut hung: Option<Vec<Progress>> = None;
        let mut missing = MissingHosts::default();
        while !self.stop.load(Acquire) {
            std::thread::sleep(between);
            let Some(state) = self.state() else { continue };
            let progress: Vec<Progress> = state.ranks.iter().map(|rank| rank.progress()).collect();
            if hung.as_ref() == Some(&progress) || !state.hangs(limit_ns) {
                missing = MissingHosts::default();
                continue;
            }
            // One collector reports for all. It asks the others, whose ranks may still do something
            // for which these wait.
            if !control::speaks_for_run(&self.run, &self.session) {
                continue;
            }
            let Ok(answer) = control::standstill(&self.run) else { continue };
            let are_missing = !answer.not_answered.is_empty();
            let is_known = missing.are_given_up(are_missing, Instant::now(), self.option.after);
            if is_known && answer.hangs(limit_ns) && !self.stop.load(Acquire) {
                self.report(&answer);
                hung = Some(progress);
            }
        }
    }

    /// Returns the state of the ranks, and how long each has done nothing.
    fn state(&self) -> Option<HostState> {
        let status = self.asker.ask(&Request::Where)?.status?;
        let mut state: HostState = serde_json::from_value(status).ok()?;
        let now_ns = sys::monotonic_ns();
        let mut idle_times = self.idle_times.lock().ok()?;
        idle_times.read(&state, now_ns);
        idle_times.tell(&mut state, now_ns);
        Some(state)
    }

    fn report(&self, answer: &Answer) {
        let ends = if self.option.stop { ", so tprof ends it" } else { "" };
        let (kind, text) = (answer.verdict.kind.words(), &answer.verdict.text);
        let file = numbered::write(&self.run, "hang", &answer.whole(self.option.after));
        let place = file.as_ref().map(|file| format!(" ({})", self.run.join(file).display()));
        let place = place.unwrap_or_default();
        let line = format!("tprof: the job hangs{ends}: {kind}: {text}{place}\n");
        // If standard error is gone, the run still has it.
        let _ = std::io::stderr().write_all(line.as_bytes());
        let limit = self.option.after;
        let cause = DumpCause {
            why: format!("the job hangs: {kind}: {text}"),
            rule: Some("Hang"),
            file: file.clone(),
        };
        self.asker.tell(Event::Hung(HangReport { verdict: answer.verdict.clone(), file, limit }));
        if let Some(dumps) = &self.dumps {
            let _ = dumps.send(cause);
        }
        if self.option.stop {
            control::end_job(&self.run, &self.session);
        }
    }
}

/// Hosts that don't answer. One that is slow to answer may be computing, so that the ranks of the
/// others wait for it and the job doesn't hang.
#[derive(Default)]
struct MissingHosts {
    since: Option<Instant>,
}

impl MissingHosts {
    /// Whether the others are judged alone: no host is missing now, or some have been missing each
    /// time for this long.
    fn are_given_up(&mut self, are_missing: bool, now: Instant, after: Duration) -> bool {
        if !are_missing {
            self.since = None;
            return true;
        }
        now.saturating_duration_since(*self.since.get_or_insert(now)) >= after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_must_be_missing_for_the_whole_time_before_the_others_are_judged_alone() {
        let (mut missing, began) = (MissingHosts::default(), Instant::now());
        let after = Duration::from_secs(60);
        let mut at = |are_missing, seconds| {
            missing.are_given_up(are_missing, began + Duration::from_secs(seconds), after)
        };
        assert!(at(false, 0));
        assert!(!at(true, 1) && !at(true, 60));
        assert!(at(false, 61), "it answered");
        assert!(!at(true, 62) && !at(true, 121) && at(true, 122));
    }
}
