//! Joins the findings of several ranks that have the same rule and subject.

use super::finding::Finding;
use super::outcome::{PlaceRow, RankFindings};
use super::severity::Severity;
use tprof_rank::base::sort_rows::SortRows;

/// A finding together with all ranks that have it.
#[derive(Clone, Debug)]
pub(super) struct JoinedFinding<'r> {
    pub rule: &'static str,
    /// The finding of the rank that may gain most.
    pub finding: &'r Finding,
    /// The rank that may gain most.
    pub worst: &'r RankFindings,
    /// The ranks that have the finding, each with its places; the worst rank first.
    pub ranks: Vec<(&'r RankFindings, &'r [PlaceRow])>,
}

impl JoinedFinding<'_> {
    /// The gain per step on the worst rank. Without steps, or if the time is spent once, it is the
    /// total gain.
    pub fn bound_ns(&self) -> u64 {
        bound_ns(self.finding, self.worst)
    }

    /// Whether the bound is for one step.
    pub fn is_per_step(&self) -> bool {
        self.worst.steps > 0 && !self.finding.is_once
    }

    /// The gain as a share of the worst rank's time, or the share that the finding itself sets.
    pub fn share(&self) -> f64 {
        share(self.finding, self.worst)
    }

    pub fn severity(&self) -> Severity {
        let of_share = Severity::of(self.share());
        self.finding.max_severity.map_or(of_share, |most| of_share.min(most))
    }
}

fn bound_ns(finding: &Finding, rank: &RankFindings) -> u64 {
    match finding.is_once {
        true => finding.bound_ns,
        false => finding.bound_ns / rank.steps.max(1) as u64,
    }
}

fn share(finding: &Finding, rank: &RankFindings) -> f64 {
    let of_time = finding.bound_ns as f64 / finding.of_ns.unwrap_or(rank.window_ns).max(1) as f64;
    finding.share.unwrap_or(of_time)
}

/// Joins the findings of all ranks and sorts them by severity, then by their share. In a dump, what
/// it was written for comes first.
///
/// Findings with a capped severity come after the other findings of the same severity, but before
/// those with a smaller gain in time. A capped finding whose time is spent once stays last, because
/// its share is a share of the whole job. A finding that is at least high and that one change can
/// fix comes before findings that need the job to be built differently.
pub(super) fn joined(ranks: &[RankFindings]) -> Vec<JoinedFinding<'_>> {
    let mut all: Vec<JoinedFinding<'_>> = Vec::new();
    for rank in ranks {
        for outcome in &rank.outcomes {
            for (finding, places) in &outcome.found {
                let same = |one: &&mut JoinedFinding<'_>| {
                    one.rule == outcome.rule && one.finding.subject == finding.subject
                };
                let one = match all.iter_mut().find(same) {
                    Some(one) => one,
                    None => {
                        let rule = outcome.rule;
                        all.push(JoinedFinding { rule, finding, worst: rank, ranks: Vec::new() });
                        let Some(last) = all.last_mut() else { continue };
                        last
                    }
                };
                // If two ranks have equal shares, the rank with the larger gain per step is the
                // worst. If the gains are equal too, the first rank is the worst.
                let by_share = share(finding, rank).total_cmp(&share(one.finding, one.worst));
                let by_length = bound_ns(finding, rank).cmp(&bound_ns(one.finding, one.worst));
                if by_share.then(by_length).is_gt() {
                    (one.finding, one.worst) = (finding, rank);
                    one.ranks.insert(0, (rank, places));
                } else {
                    one.ranks.push((rank, places));
                }
            }
        }
    }
    let order = |one: &JoinedFinding<'_>| (one.rule, one.finding.subject.clone());
    let rank = |one: &JoinedFinding<'_>| {
        let is_quick = one.finding.is_local && one.severity() >= Severity::High;
        (one.finding.is_cause, is_quick, one.severity())
    };
    let key = |one: &JoinedFinding<'_>| (rank(one), one.finding.max_severity.is_none());
    all.sort_rows_by(|a, b| {
        let by_share = || b.share().total_cmp(&a.share());
        key(b).cmp(&key(a)).then_with(by_share).then_with(|| order(a).cmp(&order(b)))
    });
    for mut at in 0..all.len() {
        let is_passed = |before: &JoinedFinding<'_>, one: &JoinedFinding<'_>| {
            let is_timed = before.finding.gain_unknown.is_none() && before.finding.bytes.is_none();
            is_timed && rank(before) == rank(one) && before.share() < one.share()
        };
        let is_capped = all[at].finding.max_severity.is_some() && !all[at].finding.is_once;
        while is_capped && at > 0 && is_passed(&all[at - 1], &all[at]) {
            all.swap(at - 1, at);
            at -= 1;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Outcome;
    use super::*;

    /// Returns the rules of some findings in the order of the report.
    fn order(findings: impl IntoIterator<Item = Finding>) -> Vec<String> {
        let outcome = |finding: Finding| Outcome {
            found: vec![(finding, Vec::new())],
            ..Outcome::of("rule")
        };
        let ranks = [RankFindings {
            label: "rank 0".to_owned(),
            steps: 1,
            step_ns: 1000,
            window_ns: 1000,
            outside_ns: 0,
            unknown_ns: 0,
            stolen_time: None,
            few_samples: None,
            rank_collectives: Default::default(),
            outcomes: findings.into_iter().map(outcome).collect(),
        }];
        joined(&ranks).iter().map(|one| one.finding.what.to_string()).collect()
    }

    /// A finding that may gain this share of the time, in percent.
    fn gains(what: &str, percent: u64) -> Finding {
        Finding::new(what).about(what).bound(percent * 10)
    }

    fn capped(finding: Finding) -> Finding {
        Finding { max_severity: Some(Severity::Medium), ..finding }
    }

    #[test]
    fn within_a_severity_larger_gains_come_first_unless_spent_once() {
        let found = [
            gains("small", 3),
            gains("larger", 4),
            capped(gains("wait", 95)),
            gains("leak", 5).bytes(1, 0.05),
            capped(gains("begin", 90).spent_once(1000)),
            gains("high", 11),
        ];
        assert_eq!(order(found), ["high", "leak", "wait", "larger", "small", "begin"]);
    }

    #[test]
    fn what_one_change_fixes_comes_before_what_must_be_built_differently() {
        let found = [
            gains("structure", 40),
            gains("line", 12).local(),
            gains("small line", 9).local(),
            gains("late rank", 30).local(),
        ];
        assert_eq!(order(found), ["late rank", "line", "structure", "small line"]);
    }
}
