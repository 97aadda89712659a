//! SlowStep: steps took much longer than usual, and `--on slow-step` looked at them while they ran.

use serde_json::Value;
use tprof_facts::units::{counted, duration};
use tprof_rank::base::intervals::Interval;
use tprof_trace::model::property;

use crate::finding::{Evidence, Finding, SourceLine, Track};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

const NO_TIME: &str = "whether the step could be shorter isn't known";

/// The rule that tells what was written about slow steps into the rank's file.
pub(super) struct SlowStep;

impl Rule for SlowStep {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "SlowStep",
            found_if: "a step took longer than the multiple of `--on slow-step` of the usual time, and \
                 what the rank did was read meanwhile",
            gain: "unknown: an evaluation or a checkpoint may have to take its time",
            needs: "`tprof run --on slow-step=3x`",
            remedy: "the finding names what the rank did in the step, and its line",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let file = scene.rank.file;
        let looked = file.properties().filter_map(|(key, value)| {
            let time_ns = key.strip_prefix(property::SLOW_STEP)?.parse().ok()?;
            Some((time_ns, serde_json::from_str(value).ok()?))
        });
        let mut looked: Vec<(u64, Value)> = looked.collect();
        // A dump is about one of them. Others were before.
        if let Some(why) = file.property(property::DUMPED_WHY) {
            looked.retain(|(_, slow)| slow["text"].as_str().is_some_and(|text| why.contains(text)));
        } else if file.property(property::DUMPED_FOR).is_some() {
            looked.sort_by_key(|(time_ns, _)| *time_ns);
            looked.drain(..looked.len().saturating_sub(1));
        }
        let longest = looked.iter().max_by_key(|(_, slow)| slow["age_ns"].as_u64());
        if let Some(longest) = longest {
            return Verdict::Found(vec![finding(scene, &looked, longest)]);
        }
        match file.property(property::ON_SLOW_STEP) {
            Some(times) => Verdict::no_problem(format!(
                "no step over {times} times the usual was looked at, or another rank has the finding"
            )),
            None => Verdict::unchecked("nobody watched the steps", "`tprof run --on slow-step=3x`"),
        }
    }
}

fn finding(scene: &Scene<'_>, looked: &[(u64, Value)], longest: &(u64, Value)) -> Finding {
    let (time_ns, slow) = longest;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let step = scene.later_steps.iter().find(|step| step.start <= *time_ns && *time_ns < step.end);
    let whole = step.map(|step| format!(" The step took {}.", duration(step.length())));
    let begun_ns = time_ns.saturating_sub(slow["age_ns"].as_u64().unwrap_or(0));
    let kept = scene.rank.file.kept_since_ns().filter(|since_ns| begun_ns < *since_ns);
    let cut = kept.map(|_| " It began before the part that was kept, so other reports lack it.");
    let stacks = slow["stacks"].as_str();
    let stacks = stacks.map(|name| format!(" The run's {name} has the stacks of all ranks."));
    let more = match looked.len() {
        1 => String::new(),
        all => {
            let others = all as u64 - 1;
            let others = counted(others, "shorter one was", "shorter ones were");
            format!(" {others} looked at too.")
        }
    };
    let seen = format!(
        "Seen while a step took long: {}.{}{}{}{more}",
        text(&slow["text"]),
        whole.unwrap_or_default(),
        cut.unwrap_or_default(),
        stacks.unwrap_or_default(),
    );
    let line = slow["function"].as_str().map(|function| SourceLine {
        function: function.to_owned(),
        file: text(&slow["file"]),
        line: slow["line"].as_u64().and_then(|line| line.try_into().ok()).unwrap_or(0),
    });
    let places = looked.iter().map(|(time_ns, slow)| Evidence {
        interval: Interval::new(
            time_ns.saturating_sub(slow["age_ns"].as_u64().unwrap_or(0)),
            *time_ns,
        ),
        place: Track::Idle,
        name: "a step took long".into(),
    });
    scene
        .finding("a step took much longer than usual")
        .local()
        .seen(seen)
        .advice(
            "Look at the named line first. `tprof report steps` has the times of all steps; at most \
             four slow ones are looked at in an hour.",
        )
        .on_line(line)
        .at(places)
        .unknown_gain(NO_TIME)
}
