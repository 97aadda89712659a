//! Hang: the job stood still, as `--on-hang` noticed while it ran.

use serde_json::Value;
use tprof_facts::units::{counted, duration};
use tprof_rank::base::intervals::Interval;
use tprof_rank::collectives::operations;
use tprof_trace::model::property;

use crate::finding::{Evidence, Finding, SourceLine, Track};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

const NO_TIME: &str = "a hang costs the job";

/// The rule that tells what was written about hangs into the rank's file.
pub(super) struct Hang;

impl Rule for Hang {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "Hang",
            found_if: "no rank made a step, an operation between ranks or did other work for the time \
                 of `--on-hang`",
            gain: "none in time; critical",
            needs: "`tprof run --on-hang TIME`",
            remedy: "the finding names the rank that held up the others, and its line",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let file = scene.rank.file;
        let hangs = file.properties().filter_map(|(key, value)| {
            let time_ns = key.strip_prefix(property::HANG)?.parse().ok()?;
            Some((time_ns, serde_json::from_str(value).ok()?))
        });
        let hangs: Vec<(u64, Value)> = hangs.collect();
        if let Some((_, last)) = hangs.last() {
            return Verdict::Found(vec![finding(scene, &hangs, last)]);
        }
        match file.property(property::ON_HANG).and_then(|after_ns| after_ns.parse().ok()) {
            // The collector takes a job that has made neither for one that is still starting.
            Some(_) if scene.steps == 0 && operations(scene.rank).0.is_empty() => {
                Verdict::unchecked(
                    "`--on-hang` watches from the first step or operation between ranks on, and \
                     this rank made none",
                    "steps: an optimizer of PyTorch, torch.profiler or `tprof_abi`",
                )
            }
            Some(after_ns) => Verdict::no_problem(format!(
                "the rank never stood still for {}, or another rank has the finding",
                duration(after_ns)
            )),
            None => Verdict::unchecked("nobody watched for hangs", "`tprof run --on-hang 5m`"),
        }
    }
}

fn finding(scene: &Scene<'_>, hangs: &[(u64, Value)], last: &Value) -> Finding {
    let verdict = &last["verdict"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let times = match hangs.len() {
        1 => String::new(),
        times => format!(" {}, at last", counted(times as u64, "time", "times")),
    };
    let all = match last["file"].as_str() {
        Some(name) => format!(" The run's {name} has the stacks of all ranks."),
        None => String::new(),
    };
    let seen = format!(
        "Nothing went on for {}{times}: {} ({}).{all}",
        duration(last["after_ns"].as_u64().unwrap_or(0)),
        text(&verdict["text"]),
        text(&verdict["kind"]).replace('_', " "),
    );
    let line = verdict["function"].as_str().map(|function| SourceLine {
        function: function.to_owned(),
        file: text(&verdict["file"]),
        line: verdict["line"].as_u64().and_then(|line| line.try_into().ok()).unwrap_or(0),
    });
    let places = hangs.iter().map(|(time_ns, _)| Evidence {
        interval: Interval::new(*time_ns, *time_ns),
        place: Track::Idle,
        name: "the job hung".into(),
    });
    let mut finding = scene
        .finding("the job hung")
        .local()
        .seen(seen)
        .advice("Look at the named rank and line first: the others wait for it.")
        .on_line(line)
        .at(places)
        .unknown_gain(NO_TIME);
    finding.share = Some(1.0);
    finding
}
