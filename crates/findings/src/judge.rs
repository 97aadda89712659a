//! Runs the rules on a rank, and drops findings whose fix would gain too little.

use tprof_document::RankContext;
use tprof_facts::units::{duration, percent};
use tprof_rank::base::parallel;
use tprof_trace::model::property;

use super::finding::{Evidence, Finding, Track};
use super::outcome::{Outcome, PlaceRow, RankFindings};
use super::rank_collectives::rank_collectives;
use super::rule::Rule;
use super::rules::host_part::few_samples;
use super::rules::no_free_core::stolen_time;
use super::scene::Scene;
use super::severity::LEAST_SHARE;
use super::verdict::Verdict;
use super::words::time;

impl RankFindings {
    /// Runs all rules on a rank.
    pub(super) fn of(
        scene: &Scene<'_>,
        context: &RankContext,
        rules: &[&dyn Rule],
    ) -> RankFindings {
        let cores = scene.rank.cores;
        let outcomes = || parallel::each_on(cores, rules, |rule| outcome_of(scene, *rule));
        let (outcomes, rank_collectives) =
            parallel::both(cores, outcomes, || rank_collectives(scene));
        RankFindings {
            label: context.label.clone(),
            steps: scene.steps,
            step_ns: scene.step_ns(),
            window_ns: scene.window_ns(),
            outside_ns: scene.outside_ns(),
            unknown_ns: scene.unknown_ns,
            stolen_time: stolen_time(scene),
            few_samples: few_samples(scene),
            rank_collectives,
            outcomes,
        }
    }
}

/// Runs a rule, and stores its verdict.
fn outcome_of(scene: &Scene<'_>, rule: &dyn Rule) -> Outcome {
    let mut outcome = Outcome::of(rule.about().name);
    let is_dumped_for = scene.rank.file.property(property::DUMPED_FOR) == Some(rule.about().name);
    match rule.judge(scene) {
        Verdict::NoProblem(why) => outcome.no_problem = Some(why),
        Verdict::NothingToJudge(why) => (outcome.no_problem, outcome.denies) = (Some(why), true),
        Verdict::Unchecked(why) => outcome.unchecked = Some(why),
        Verdict::Found(findings) => {
            let largest = findings.iter().max_by_key(|finding| finding.bound_ns);
            let largest_bound = largest.map(|finding| bound_text(scene, finding));
            for mut finding in findings {
                let of_ns = finding.of_ns.unwrap_or(scene.window_ns());
                finding.bound_ns = finding.bound_ns.min(of_ns);
                let share = finding.bound_ns as f64 / of_ns.max(1) as f64;
                if finding.keep || share >= LEAST_SHARE {
                    finding.is_cause = is_dumped_for;
                    let places = finding.evidence.iter().map(|one| place_row(scene, one)).collect();
                    outcome.found.push((finding, places));
                }
            }
            if outcome.found.is_empty() {
                outcome.no_problem = largest_bound;
            }
        }
    }
    outcome
}

/// Formats the upper bound of a finding, for findings that are too small to report.
fn bound_text(scene: &Scene<'_>, finding: &Finding) -> String {
    match finding.of_ns {
        Some(of_ns) => {
            let share = finding.bound_ns.min(of_ns) as f64 / of_ns.max(1) as f64;
            format!("at most {} in all ({})", duration(finding.bound_ns), percent(share))
        }
        None => format!("at most {}", time(scene, finding.bound_ns)),
    }
}

/// Converts a place to the numbers and names that the report prints.
fn place_row(scene: &Scene<'_>, evidence: &Evidence<'_>) -> PlaceRow {
    let file = scene.rank.file;
    let pid = |process: u32| file.process(process).map(|row| row.pid);
    let mut row = PlaceRow {
        process: None,
        thread: None,
        device: None,
        stream: None,
        names_device: scene.rank.devices().len() > 1,
        start_ns: scene.clock.since_start(evidence.interval.start),
        end_ns: scene.clock.since_start(evidence.interval.end),
        name: evidence.name.clone().into_owned(),
    };
    match evidence.place {
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
