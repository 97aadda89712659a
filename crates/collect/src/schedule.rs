//! Describes `--schedule`: which steps or seconds of a job are recorded.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use tprof_wire::schedule::Schedule;

/// A schedule, and the unit in which its numbers count.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case", default)]
pub struct Timetable {
    /// Number of units at the beginning of each cycle that are not recorded.
    pub wait: u32,
    /// Number of units after the `wait` ones that are not recorded either.
    pub warmup: u32,
    /// Number of units after the `warmup` ones that are recorded.
    pub active: u32,
    /// Number of cycles; 0 if the cycles repeat until the job ends.
    pub repeat: u32,
    /// Number of units before the first cycle. They are not recorded.
    pub skip_first: u32,
    /// Whether the first cycle begins without `wait`.
    pub skip_first_wait: bool,
    /// The unit of these numbers.
    pub unit: ScheduleUnit,
    /// Whether this is a paired recording: some steps are left out, to compare them with the
    /// recorded ones.
    pub paired: bool,
}

/// The unit that a schedule counts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleUnit {
    /// Training steps. Each process counts its own.
    #[default]
    Step,
    /// Epochs, which are ranges `epoch N` of the program.
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

/// Describes which events count as steps.
pub(crate) const SOURCES: &str = "steps are those of tprof_abi, NVTX ranges `step N`, \
     torch.profiler's, updates of PyTorch's optimizers and batches of its data loaders";

/// Number of cycles whose steps a plan lists.
const LISTED: u64 = 3;

impl Timetable {
    /// `--overhead paired`: of every 20 steps, the last five are not recorded. Steps are chosen by
    /// number, so that all ranks leave out the same ones. Otherwise a rank would wait for a
    /// recorded rank and take just as long. Five steps are needed, because the first steps after a
    /// switch aren't compared.
    pub const PAIRED: Timetable = Timetable {
        wait: 5,
        warmup: 0,
        active: 15,
        repeat: 0,
        skip_first: 0,
        skip_first_wait: true,
        unit: ScheduleUnit::Step,
        paired: true,
    };

    /// Returns the schedule in the form that processes use, which tells for each step whether it is
    /// recorded.
    pub fn schedule(&self) -> Schedule {
        let Timetable { wait, warmup, active, repeat, skip_first, skip_first_wait, unit, paired } =
            *self;
        let (epochs, boundaries) = (unit == ScheduleUnit::Epoch, paired);
        Schedule { wait, warmup, active, repeat, skip_first, skip_first_wait, epochs, boundaries }
    }

    /// Names the recorded steps, for example `steps 4 to 6`. The first step of a job is 0.
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

    /// Formats lists of steps, for example `steps 4 to 6 and 11 to 13`.
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

    /// Returns the number of steps that a job must make for all cycles to be recorded. If cycles
    /// repeat without end, the number for the first cycle.
    fn needed(&self) -> u64 {
        let last = u64::from(self.repeat.max(1)) - 1;
        self.schedule().steps_of(last).map_or(0, |steps| steps.end() + 1)
    }

    /// Describes the plan, for example `records steps 4 to 6; needs at least 7`.
    pub fn plan(&self) -> String {
        if self.paired {
            return format!("records all steps but {}", self.left_out());
        }
        format!("records {}; needs at least {}", self.recorded(), self.needed())
    }

    /// Names the steps that a paired recording leaves out.
    fn left_out(&self) -> String {
        format!("the last {} of each {}", self.wait, self.wait + self.active)
    }

    /// Returns what isn't recorded because of the schedule, and why.
    pub(crate) fn outside(&self) -> (String, String) {
        if self.paired {
            let why = "to measure what recording costs (--overhead paired)";
            return (format!("{} steps", self.left_out()), why.to_owned());
        }
        let why = "--schedule".to_owned();
        (format!("everything outside of {}", self.recorded()), why)
    }

    /// Returns what is missing because the job made only this many steps (or seconds), and why.
    pub(crate) fn missing(&self, steps: u64) -> Option<(String, String)> {
        // In a shorter job, a paired recording leaves out fewer steps, so nothing is missing.
        if steps >= self.needed() || self.paired {
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
        assert_eq!(Timetable::PAIRED.plan(), "records all steps but the last 5 of each 20");
        assert_eq!(Timetable::PAIRED.outside().0, "the last 5 of each 20 steps");
        assert_eq!((Timetable::PAIRED.missing(0), Timetable::PAIRED.missing(30)), (None, None));
        let of = Timetable::PAIRED.schedule();
        let left_out: Vec<u64> = (0..41).filter(|step| !of.records(*step)).collect();
        assert_eq!(left_out, [15, 16, 17, 18, 19, 35, 36, 37, 38, 39]);
    }
}
