//! Runs the rules on a rank.

use tprof_document::RankContext;
use tprof_facts::units::{duration, percent};
use tprof_rank::base::parallel;

use super::finding::{Evidence, Finding, Track};
use super::outcome::{Outcome, PlaceRow, RankFindings};
use super::rank_collectives::rank_collectives;
use super::rule::Rule;
use super::rules::host_part::few_samples;
use super::rules::no_free_core::lost;
use super::scene::Scene;
use super::severity::LEAST_SHARE;
use super::verdict::Verdict;
use super::words::time;

impl RankFindings {
    /// Runs all rules on a rank.
    pub(super) fn of(scene: &Scene<'_>, at: &RankContext, rules: &[&dyn Rule]) -> RankFindings {
        let cores = scene.rank.cores;
        let outcomes = || parallel::each_on(cores, rules, |rule| outcome(scene, *rule));
        let (outcomes, rank_collectives) =
            parallel::both(cores, outcomes, || rank_collectives(scene));
        RankFindings {
            label: at.label.clone(),
            steps: scene.steps,
            step_ns: scene.step_ns(),
            window_ns: scene.window_ns(),
            outside_ns: scene.outside_ns(),
            unknown_ns: scene.unknown_ns,
            lost: lost(scene),
            few_samples: few_samples(scene),
            rank_collectives,
            outcomes,
        }
    }
}

fn outcome(scene: &Scene<'_>, rule: &dyn Rule) -> Outcome {
    let rule_name = rule.about().name;
    let mut outcome = Outcome::of(rule_name);
    match rule.judge(scene) {
        Verdict::Clear(why) => outcome.clear = Some(why),
        Verdict::None(why) => (outcome.clear, outcome.denies) = (Some(why), true),
        Verdict::Unchecked(why) => outcome.unchecked = Some(why),
        Verdict::Found(findings) => {
            let most = findings.iter().max_by_key(|finding| finding.bound_ns);
            let most = most.map(|finding| at_most(scene, finding));
            for mut finding in findings {
                let of_ns = finding.of_ns.unwrap_or(scene.window_ns());
                finding.bound_ns = finding.bound_ns.min(of_ns);
                let share = finding.bound_ns as f64 / of_ns.max(1) as f64;
                if finding.keep || share >= LEAST_SHARE {
                    let places = finding.evidence.iter().map(|one| row(scene, one)).collect();
                    outcome.found.push((finding, places));
                }
            }
            if outcome.found.is_empty() {
                outcome.clear = most;
            }
        }
    }
    outcome
}

/// Formats the upper bound of a finding that is too small to report.
fn at_most(scene: &Scene<'_>, finding: &Finding) -> String {
    match finding.of_ns {
        Some(of_ns) => {
            let share = finding.bound_ns.min(of_ns) as f64 / of_ns.max(1) as f64;
            format!("at most {} in all ({})", duration(finding.bound_ns), percent(share))
        }
        None => format!("at most {}", time(scene, finding.bound_ns)),
    }
}

fn row(scene: &Scene<'_>, one: &Evidence<'_>) -> PlaceRow {
    let file = scene.rank.file;
    let pid = |process: u32| file.process(process).map(|row| row.pid);
    let mut row = PlaceRow {
        process: None,
        thread: None,
        device: None,
        stream: None,
        names_device: scene.rank.devices().len() > 1,
        start_ns: scene.clock.since_start(one.interval.start),
        end_ns: scene.clock.since_start(one.interval.end),
        name: one.name.clone().into_owned(),
    };
    match one.place {
        Track::Idle => {}
        Track::Thread(thread) => {
            let found = file.thread(thread);
            row.thread = found.map(|found| found.tid);
            row.process = found.and_then(|found| pid(found.process));
        }
        Track::Stream(key) => {
            row.process = pid(key.process);
            row.device = Some(key.device);
            row.stream = Some(key.stream);
        }
    }
    row
}
