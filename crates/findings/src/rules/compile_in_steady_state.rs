//! CompileInSteadyState: functions are compiled in steps after warm-up.

use tprof_facts::units::counted;
use tprof_metrics::program::steps::warm_up;
use tprof_rank::base::intervals::Cover;

use super::compiled::{clear, cover, frames, interval, line_of, no_log, places};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::time;

/// The rule that judges compilations in steps that should be steady.
pub(super) struct CompileInSteadyState;

impl Rule for CompileInSteadyState {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "CompileInSteadyState",
            found_if: "functions are compiled in steps after the first and after warm-up, by that log",
            gain: "time of the compilations within these steps",
            needs: "a log; a second step; times on the run's clock",
            remedy: "run every shape and mode once before the first timed step",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = no_log(scene) {
            return verdict;
        }
        // `later_steps` leaves out the first step, because that step always compiles.
        let times: Vec<u64> = scene.later_steps.iter().map(|step| step.length()).collect();
        let first = warm_up(&times).unwrap_or(0);
        let steady = Cover::of(scene.later_steps.iter().skip(first).copied());
        if steady.is_empty() {
            return Verdict::unchecked(
                "no step after the first: steady steps and warm-up are not apart",
                "two steps or more (--operators names, marks of steps, or torch.profiler's schedule)",
            );
        }
        if frames(scene).any(|(read, frame)| interval(read, frame).is_none()) {
            return Verdict::unchecked(
                "not all of the log's times are joined to the run's clock",
                "a log with times since 1970, and a run with wall time",
            );
        }
        let measure = steady.measure();
        let within = || {
            frames(scene).filter(|(read, frame)| {
                interval(read, frame).is_some_and(|interval| measure.within(interval) > 0)
            })
        };
        let compiling = cover(within()).intersection(&steady);
        if compiling.is_empty() {
            return clear(scene, "no function is compiled in steps after warm-up");
        }
        let longest = within().max_by_key(|(_, frame)| frame.total_us);
        let line = longest.and_then(|(_, frame)| line_of(frame));
        let seen = format!(
            "{} in steps after warm-up, {}.",
            counted(within().count() as u64, "function is compiled", "functions are compiled"),
            time(scene, compiling.length()),
        );
        Verdict::Found(vec![
            scene
                .finding("functions are compiled in steps after warm-up")
                .seen(seen)
                .advice(
                    "Run every shape and mode once before the first timed step (also evaluation and \
                     the last, smaller batch: drop_last=True); mark sizes that change as dynamic. \
                     `report steps --steady` leaves these steps out.",
                )
                .on_line(line)
                .bound(compiling.length())
                .at(places(within())),
        ])
    }
}
