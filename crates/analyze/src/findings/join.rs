//! What rules said of each rank, and of all of them together.

use super::rule::{Evidence, Finding, Place, Rule, Severity, Undecided, Verdict};
use super::scene::Scene;
use super::words::time;
use crate::base::parallel;
use crate::document::RankAt;
use crate::findings::rules::stragglers::{self, Company};

/// Least share of a step that makes a finding.
pub(super) const LEAST_SHARE: f64 = 0.01;

/// What the rules said of a rank.
#[derive(Clone, Debug)]
pub struct RankFindings {
    /// `rank 3`.
    pub(super) label: String,
    /// Steps that were seen.
    pub(super) steps: usize,
    /// Length of a mean step, or of all that was judged.
    pub(super) step_ns: u64,
    /// Time that was judged.
    pub(super) window_ns: u64,
    /// Time in which devices worked, and that is not judged.
    pub(super) outside_ns: u64,
    /// Idle time that is not judged, see [`Scene::untold_ns`].
    pub(super) untold_ns: u64,
    /// Its collectives, for comparison with others.
    pub(super) company: Company,
    /// What each rule said, in their order.
    pub(super) outcomes: Vec<Outcome>,
}

/// What a rule said of a rank.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// The rule.
    pub rule: &'static str,
    /// What it found, and where.
    pub found: Vec<(Finding, Vec<PlaceRow>)>,
    /// Why it found nothing, or no more.
    pub clear: Option<String>,
    /// Whether `clear` denies something: it may be untrue of another rank.
    pub denies: bool,
    /// Why it cannot tell.
    pub undecided: Option<Undecided>,
}

impl Outcome {
    /// A rule that has said nothing yet.
    pub(super) fn of(rule: &'static str) -> Outcome {
        Outcome { rule, found: Vec::new(), clear: None, denies: false, undecided: None }
    }
}

/// A place, as the run's reader knows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlaceRow {
    pub process: Option<u32>,
    pub thread: Option<u32>,
    pub device: Option<u32>,
    pub stream: Option<u64>,
    /// Whether the rank used several devices.
    pub names_device: bool,
    /// Since the run began.
    pub start_ns: u64,
    pub end_ns: u64,
    pub name: String,
}

impl RankFindings {
    /// Puts all rules to a rank.
    pub(super) fn of(scene: &Scene<'_>, at: &RankAt, rules: &[&dyn Rule]) -> RankFindings {
        let cores = scene.rank.cores;
        let outcomes = || parallel::each_on(cores, rules, |rule| outcome(scene, *rule));
        let (outcomes, company) = parallel::both(cores, outcomes, || stragglers::company(scene));
        RankFindings {
            label: at.label.clone(),
            steps: scene.steps,
            step_ns: scene.step_ns(),
            window_ns: scene.window_ns(),
            outside_ns: scene.outside_ns(),
            untold_ns: scene.untold_ns,
            company,
            outcomes,
        }
    }
}

fn outcome(scene: &Scene<'_>, rule: &dyn Rule) -> Outcome {
    let rule_name = rule.name();
    let mut outcome = Outcome::of(rule_name);
    match rule.judge(scene) {
        Verdict::Clear(why) => outcome.clear = Some(why),
        Verdict::None(why) => (outcome.clear, outcome.denies) = (Some(why), true),
        Verdict::Undecided(why) => outcome.undecided = Some(why),
        Verdict::Found(findings) => {
            let most = findings.iter().map(|finding| finding.bound_ns).max().unwrap_or(0);
            for mut finding in findings {
                finding.bound_ns = finding.bound_ns.min(scene.window_ns());
                if finding.keep || scene.share(finding.bound_ns) >= LEAST_SHARE {
                    let places = finding.evidence.iter().map(|one| row(scene, one)).collect();
                    outcome.found.push((finding, places));
                }
            }
            if outcome.found.is_empty() {
                outcome.clear = Some(format!("at most {}", time(scene, most)));
            }
        }
    }
    outcome
}

fn row(scene: &Scene<'_>, one: &Evidence<'_>) -> PlaceRow {
    let file = scene.rank.file;
    let pid = |process: u32| {
        file.processes().iter().find(|row| row.process == process).map(|row| row.pid)
    };
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
        Place::Idle => {}
        Place::Thread(thread) => {
            let found = file.threads().iter().find(|row| row.thread == thread);
            row.thread = found.map(|found| found.tid);
            row.process = found.and_then(|found| pid(found.process));
        }
        Place::Stream(key) => {
            row.process = pid(key.process);
            row.device = Some(key.device);
            row.stream = Some(key.stream);
        }
    }
    row
}

/// A finding over all ranks that have it.
#[derive(Clone, Debug)]
pub(super) struct Joined<'r> {
    pub rule: &'static str,
    /// As the rank says it that may gain most.
    pub finding: &'r Finding,
    /// That rank.
    pub worst: &'r RankFindings,
    /// Ranks that have it, the worst first, with their places.
    pub ranks: Vec<(&'r RankFindings, &'r [PlaceRow])>,
}

impl Joined<'_> {
    /// What the worst rank may gain in a step, or in all.
    pub fn bound_ns(&self) -> u64 {
        self.finding.bound_ns / self.worst.steps.max(1) as u64
    }

    /// The same as a part of the time.
    pub fn share(&self) -> f64 {
        self.finding.bound_ns as f64 / self.worst.window_ns.max(1) as f64
    }

    pub fn severity(&self) -> Severity {
        Severity::of(self.share())
    }
}

/// All findings, those with the largest share of their rank's time first.
pub(super) fn joined(ranks: &[RankFindings]) -> Vec<Joined<'_>> {
    let mut all: Vec<Joined<'_>> = Vec::new();
    for rank in ranks {
        for outcome in &rank.outcomes {
            for (finding, places) in &outcome.found {
                let same = |one: &&mut Joined<'_>| {
                    one.rule == outcome.rule && one.finding.subject == finding.subject
                };
                let one = match all.iter_mut().find(same) {
                    Some(one) => one,
                    None => {
                        let rule = outcome.rule;
                        all.push(Joined { rule, finding, worst: rank, ranks: Vec::new() });
                        let Some(last) = all.last_mut() else { continue };
                        last
                    }
                };
                let share = |finding: &Finding, rank: &RankFindings| {
                    finding.bound_ns as f64 / rank.window_ns.max(1) as f64
                };
                // Of equal ranks the first in order is the worst.
                if share(finding, rank) > share(one.finding, one.worst) {
                    (one.finding, one.worst) = (finding, rank);
                    one.ranks.insert(0, (rank, places));
                } else {
                    one.ranks.push((rank, places));
                }
            }
        }
    }
    let order = |one: &Joined<'_>| (one.rule, one.finding.subject.clone());
    all.sort_by(|a, b| b.share().total_cmp(&a.share()).then_with(|| order(a).cmp(&order(b))));
    all
}
