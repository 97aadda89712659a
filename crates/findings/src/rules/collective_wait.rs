//! CollectiveWait: the driving thread spends its time in collective operations, where ranks wait
//! for each other.

use tprof_facts::units::duration;
use tprof_rank::samples::Part;

use super::host_part::{
    finding, host, is_found, too_little, unseen_native, waited, widest, with_lines,
};
use crate::outcome::RankFindings;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::severity::LEAST_SHARE;
use crate::verdict::Verdict;

/// Name of the rule, as reports print it.
const NAME: &str = "CollectiveWait";

/// The rule that judges time in gloo, MPI, NCCL and c10d. It identifies them by the functions on
/// the stack, whether the thread waits or polls.
pub(super) struct CollectiveWait;

impl Rule for CollectiveWait {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: NAME,
            found_if: "as DataWait, of `collective`",
            gain: "as DataWait, less what Stragglers found by waits",
            needs: "as HotFunction; compiled functions sampled on a core",
            remedy: "shorten what the late rank does before; send less, less often, or \
                     asynchronously",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let ns = host.ledger.ns(Part::Collective);
        if !is_found(host, ns) {
            // A collective that polls is visible only in samples that name compiled functions, so
            // check for these first.
            return unseen_native(scene)
                .unwrap_or_else(|| too_little(host, ns, "time in collectives"));
        }
        let places = host.ledger.places(Some(Part::Collective));
        Verdict::Found(vec![
            finding(scene, host, "the job is in collective operations", Part::Collective, ns)
                .seen(with_lines(
                    &format!("The driving thread is in them for {}", waited(host, &places)),
                    &places,
                ))
                .advice(
                    "If one rank comes late (see Stragglers), shorten what it does before; else \
                     send less or less often (larger buckets, gradient accumulation), and overlap \
                     it with other work (asynchronous operations).",
                )
                .on_line(widest(&places))
                .not_local(),
        ])
    }
}

/// Subtracts from a rank's finding the wait for a late rank, because Stragglers already reports
/// that wait.
pub(super) fn without(rank: &mut RankFindings, late_ns: u64) {
    let window_ns = rank.window_ns;
    let Some(outcome) = rank.outcomes.iter_mut().find(|one| one.rule == NAME) else { return };
    let mut left_ns = 0;
    outcome.found.retain_mut(|(finding, _)| {
        finding.bound_ns = finding.bound_ns.saturating_sub(late_ns);
        left_ns = finding.bound_ns;
        let of_ns = finding.of_ns.unwrap_or(window_ns).max(1);
        if late_ns > 0 {
            let of_late = duration(late_ns);
            finding.seen.push_str(&format!(
                " Up to {of_late} of this is the wait for a late rank, which Stragglers judges."
            ));
        }
        finding.bound_ns as f64 >= LEAST_SHARE * of_ns as f64
    });
    if outcome.found.is_empty() && outcome.no_problem.is_none() && outcome.unchecked.is_none() {
        let left = duration(left_ns);
        outcome.no_problem = Some(format!("{left} beside the wait for a late rank (Stragglers)"));
    }
}
