//! `--schedule`: which steps or seconds of a job are recorded.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use tprof_wire::schedule::Schedule;

/// A schedule, with the unit of its parts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case", default)]
pub struct Timetable {
    /// Number at the beginning of each cycle that are not recorded.
    pub wait: u32,
    /// Number after those of `wait` that are not recorded.
    pub warmup: u32,
    /// Recorded, after these.
    pub active: u32,
    /// Cycles; 0 for as many as the job has steps for.
    pub repeat: u32,
    /// Number before the first cycle that are not recorded.
    pub skip_first: u32,
    /// The first cycle has no wait.
    pub skip_first_wait: bool,
    /// The unit of these numbers.
    pub unit: ScheduleUnit,
}

/// The unit that a schedule counts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleUnit {
    /// Training steps, each process its own.
    #[default]
    Step,
    /// Epochs, by ranges `epoch N` of the program.
    Epoch,
    /// Seconds since the run began.
    Second,
}

impl ScheduleUnit {
    fn singular(self) -> &'static str {
        match self {
            ScheduleUnit::Step => "step",
            ScheduleUnit::Epoch => "epoch",
            ScheduleUnit::Second => "second",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            ScheduleUnit::Step => "steps",
            ScheduleUnit::Epoch => "epochs",
            ScheduleUnit::Second => "seconds",
        }
    }
}

/// Explains where steps come from.
pub(crate) const SOURCES: &str = "steps are those of tprof_abi, NVTX ranges `step N`, \
     torch.profiler's, updates of PyTorch's optimizers and batches of its data loaders";

/// Cycles that a plan lists by their steps.
const LISTED: u64 = 3;

impl Timetable {
    /// Returns the schedule as a function of a step's number.
    pub fn schedule(&self) -> Schedule {
        let Timetable { wait, warmup, active, repeat, skip_first, skip_first_wait, unit } = *self;
        let epochs = unit == ScheduleUnit::Epoch;
        Schedule { wait, warmup, active, repeat, skip_first, skip_first_wait, epochs }
    }

    /// Describes what is recorded: `steps 4 to 6`, the first being 0.
    fn recorded(&self) -> String {
        let steps = |cycle| self.schedule().steps_of(cycle);
        let listed: Vec<_> = (0..LISTED).map_while(steps).collect();
        let words = self.words(&listed);
        match self.repeat {
            0 => format!("{words}, and so on"),
            times if u64::from(times) > LISTED => format!("{words}, and so on, {times} times"),
            _ => words,
        }
    }

    /// Steps in words: `steps 4 to 6 and 11 to 13`.
    fn words(&self, steps: &[RangeInclusive<u64>]) -> String {
        let is_one = matches!(steps, [steps] if steps.start() == steps.end());
        let what = if is_one { self.unit.singular() } else { self.unit.plural() };
        let listed: Vec<String> = (steps.iter())
            .map(|steps| match steps.start() == steps.end() {
                true => steps.start().to_string(),
                false => format!("{} to {}", steps.start(), steps.end()),
            })
            .collect();
        let all = match (self.repeat, listed.as_slice()) {
            (1.., [head @ .., last])
                if !head.is_empty() && steps.len() as u64 >= u64::from(self.repeat) =>
            {
                format!("{} and {last}", head.join(", "))
            }
            _ => listed.join(", "),
        };
        format!("{what} {all}")
    }

    /// Steps that the job must have for all cycles; of endless ones, for the first.
    fn needed(&self) -> u64 {
        let last = u64::from(self.repeat.max(1)) - 1;
        self.schedule().steps_of(last).map_or(0, |steps| steps.end() + 1)
    }

    /// The plan: `records steps 4 to 6; needs at least 7`.
    pub fn plan(&self) -> String {
        format!("records {}; needs at least {}", self.recorded(), self.needed())
    }

    /// Returns what the schedule leaves out, and why.
    pub(crate) fn outside(&self) -> (String, String) {
        let why = "not recorded by schedule (--schedule)".to_owned();
        (format!("everything outside of {}", self.recorded()), why)
    }

    /// Returns what was not recorded in a job of so many steps (or seconds), and why.
    pub(crate) fn missing(&self, steps: u64) -> Option<(String, String)> {
        if steps >= self.needed() {
            return None;
        }
        let why = match (steps, self.unit) {
            (0, ScheduleUnit::Step) => {
                format!("no step was noticed: {SOURCES}")
            }
            (0, ScheduleUnit::Epoch) => {
                "no epoch was noticed: epochs are ranges `epoch N` of NVTX, record_function or \
                 tprof_abi"
                    .to_owned()
            }
            (_, ScheduleUnit::Step | ScheduleUnit::Epoch) => {
                let what = self.unit.plural();
                format!("the job made {steps} {what}, the schedule needs {}", self.needed())
            }
            (_, ScheduleUnit::Second) => {
                format!("the job ran {steps} s, the schedule needs {}", self.needed())
            }
        };
        let cycles = 0..LISTED.min(u64::from(self.repeat.max(1)));
        let left = cycles.filter_map(|cycle| {
            let planned = self.schedule().steps_of(cycle)?;
            let first = steps.max(*planned.start());
            (first <= *planned.end()).then(|| first..=*planned.end())
        });
        let left: Vec<_> = left.collect();
        let words = if left.is_empty() { self.recorded() } else { self.words(&left) };
        Some((words, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_names_its_steps_and_what_it_needs() {
        let one = Timetable { wait: 3, warmup: 1, active: 3, repeat: 1, ..Timetable::default() };
        assert_eq!(one.plan(), "records steps 4 to 6; needs at least 7");
        let two = Timetable { repeat: 2, ..one };
        assert_eq!(two.plan(), "records steps 4 to 6 and 11 to 13; needs at least 14");
        let ever = Timetable { active: 1, ..Timetable::default() };
        assert_eq!(ever.plan(), "records steps 0, 1, 2, and so on; needs at least 1");
        let seconds = Timetable { unit: ScheduleUnit::Second, ..one };
        assert_eq!(seconds.plan(), "records seconds 4 to 6; needs at least 7");
        assert_eq!(one.missing(7), None);
        let (what, why) = one.missing(5).unwrap();
        assert_eq!(what, "steps 5 to 6");
        assert_eq!(why, "the job made 5 steps, the schedule needs 7");
        assert_eq!(two.missing(12).unwrap().0, "steps 12 to 13");
        assert_eq!(two.missing(0).unwrap().0, "steps 4 to 6 and 11 to 13");
        assert_eq!(ever.missing(1), None);
        let second = Timetable { wait: 1, warmup: 0, active: 1, ..seconds };
        assert_eq!(second.plan(), "records second 1; needs at least 2");
        assert!(one.missing(0).unwrap().1.starts_with("no step was noticed"));
    }
}
