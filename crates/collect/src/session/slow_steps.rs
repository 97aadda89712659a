//! Watches for steps that take much longer than usual, for `--on slow-step`, and looks at what the
//! ranks do while such a step runs. The stacks of all ranks are written into the run.

use super::answerer::Answerer;
use super::hourly::Hourly;
use super::numbered;
use crate::engine::inbox::{DumpCause, Event, SlowStepReport, WatchedStep};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tprof_hang::{HostState, SlowStep, slow_step};

/// Shortest and longest time between two looks at the steps.
const BETWEEN: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// Largest number of slow steps that are written into the run within an hour.
const MOST: usize = 4;
/// Longest time to wait for the end of a slow step before what is kept is written. Of one that takes
/// longer, the beginning may be lost.
const STEP_WITHIN: Duration = Duration::from_secs(60);
/// Largest number of looks within an hour. Some find that the step is over.
const MOST_LOOKS: usize = 20;

/// Watches the steps of one collector's ranks.
pub struct SlowStepWatch {
    /// Multiple of its usual time beyond which a step is slow.
    pub times: f64,
    /// Directory of the run.
    pub run: PathBuf,
    /// The way to ask the engine, and to read what ranks do.
    pub answerer: Arc<Answerer>,
    /// Where to ask for a dump of what is kept, if only the last part is.
    pub dumps: Option<Sender<DumpCause>>,
    /// Set when the run is over.
    pub stop: Arc<AtomicBool>,
}

impl SlowStepWatch {
    /// Watches until the run is over.
    pub fn run(self) {
        let mut looked = Looked::default();
        let (mut reports, mut looks) = (Hourly::of(MOST), Hourly::of(MOST_LOOKS));
        while !self.stop.load(Acquire) {
            let Some(steps) = self.answerer.asker.steps() else {
                std::thread::sleep(BETWEEN[1]);
                continue;
            };
            if looked.are_new(self.slow(&steps)) && self.is_confirmed(&steps) {
                looked.add(self.slow(&steps));
                let now = Instant::now();
                if reports.has_room(now) && looks.has_room(now) {
                    looks.add(now);
                    if self.look() {
                        reports.add(now);
                    }
                }
            }
            std::thread::sleep(next_look(&steps, self.times));
        }
    }

    fn slow<'s>(&self, steps: &'s [WatchedStep]) -> impl Iterator<Item = &'s WatchedStep> {
        steps.iter().filter(|step| step.is_beyond(self.times))
    }

    /// Whether one of these slow steps still runs once the engine has read all records: it may have
    /// been late to read them.
    fn is_confirmed(&self, before: &[WatchedStep]) -> bool {
        let now = self.answerer.asker.steps().unwrap_or_default();
        let is_same = |one: &WatchedStep, of: &WatchedStep| one.key() == of.key();
        self.slow(before).any(|old| now.iter().any(|new| is_same(old, new)))
    }

    /// Looks at all ranks, and writes what they do into the run. Returns whether the step still ran
    /// when they had been read.
    fn look(&self) -> bool {
        let Some(state) = self.answerer.states_now() else { return false };
        let hosts = [state];
        let Some(slow) = slow_step(&hosts, self.times) else { return false };
        let after = self.answerer.asker.steps().unwrap_or_default();
        if !is_in_step(&after, &hosts, &slow) || self.stop.load(Acquire) {
            return false;
        }
        let file = numbered::write(&self.run, "slow-step", &slow.whole(&hosts));
        let cause = DumpCause {
            why: format!("a step took long: {}", slow.text),
            rule: Some("SlowStep"),
            file: file.clone(),
        };
        let is_over = || {
            let steps = self.answerer.asker.steps().unwrap_or_default();
            self.stop.load(Acquire) || !is_in_step(&steps, &hosts, &slow)
        };
        let report = SlowStepReport { slow: slow.clone(), file };
        self.answerer.asker.tell(Event::SlowStep(report));
        if let Some(dumps) = &self.dumps {
            wait_until(is_over, STEP_WITHIN);
            let _ = dumps.send(cause);
        }
        true
    }
}

fn wait_until(is_over: impl Fn() -> bool, within: Duration) {
    let until = Instant::now() + within;
    while Instant::now() < until && !is_over() {
        std::thread::sleep(BETWEEN[0]);
    }
}

/// Whether the rank that was looked at is still in the same step.
fn is_in_step(steps: &[WatchedStep], hosts: &[HostState], slow: &SlowStep) -> bool {
    let mut ranks = hosts.iter().flat_map(|host| &host.ranks);
    let pid = ranks.find(|rank| rank.rank == slow.rank).map(|rank| rank.pid);
    steps.iter().any(|step| Some(step.pid) == pid && step.number == slow.step)
}

/// Returns the time until a step may next be slow.
fn next_look(steps: &[WatchedStep], times: f64) -> Duration {
    let [least, most] = BETWEEN;
    let until = |step: &WatchedStep| {
        let slow_ns = (times * step.usual_ns as f64) as u64;
        // One that is slow already was looked at. The next one takes at least as long.
        let left_ns = slow_ns.saturating_sub(step.age_ns);
        Duration::from_nanos(if left_ns == 0 { slow_ns } else { left_ns })
    };
    steps.iter().map(until).min().unwrap_or(most).clamp(least, most)
}

impl WatchedStep {
    fn is_beyond(&self, times: f64) -> bool {
        self.age_ns as f64 > times * self.usual_ns as f64
    }

    fn key(&self) -> (u32, u64) {
        (self.pid, self.number)
    }
}

/// The slow steps that were looked at: the last of each process.
#[derive(Default)]
struct Looked {
    steps: HashMap<u32, u64>,
}

impl Looked {
    /// Whether none of these steps, of which there is one, was looked at. A slow step of one rank makes
    /// the steps of the others slow.
    fn are_new<'s>(&self, slow: impl Iterator<Item = &'s WatchedStep>) -> bool {
        let mut slow = slow.peekable();
        slow.peek().is_some() && slow.all(|of| self.steps.get(&of.pid) != Some(&of.number))
    }

    fn add<'s>(&mut self, slow: impl Iterator<Item = &'s WatchedStep>) {
        self.steps.extend(slow.map(WatchedStep::key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn step(pid: u32, number: u64, age_ms: u64) -> WatchedStep {
        WatchedStep { pid, number, age_ns: age_ms * MS, usual_ns: 100 * MS }
    }

    #[test]
    fn a_step_is_looked_at_when_it_may_become_slow() {
        let next = |steps: &[WatchedStep]| next_look(steps, 3.0).as_millis();
        assert_eq!(next(&[step(1, 1, 50), step(2, 1, 90)]), 210);
        assert_eq!(next(&[step(1, 1, 900)]), 300);
        assert_eq!(next(&[step(1, 1, 295)]), 20);
        assert_eq!(next(&[]), 1000);
    }

    #[test]
    fn a_slow_step_is_looked_at_once_for_all_ranks() {
        let mut looked = Looked::default();
        assert!(!looked.are_new([].iter()));
        let both = [step(1, 7, 400), step(2, 7, 350)];
        assert!(looked.are_new(both[..1].iter()));
        looked.add(both[..1].iter());
        assert!(!looked.are_new(both.iter()), "rank 2 is slow because of rank 1");
        assert!(looked.are_new([step(1, 8, 400)].iter()));
    }
}
