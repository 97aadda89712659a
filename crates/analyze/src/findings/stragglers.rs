//! Stragglers: ranks that come late to collectives, so that the others wait.
//!
//! The one rule that needs all ranks at once.

use super::join::{Outcome, RankFindings};
use super::rule::{Finding, Undecided};
use super::scene::Scene;
use crate::collectives::operations;
use crate::stragglers::{Arrival, Meetings, arrivals};
use crate::units::{count, duration, percent};

/// Name, as reports write it.
const NAME: &str = "Stragglers";
/// From this share of all delay on, one rank is to blame rather than all in turn.
const BLAME: f64 = 0.5;

/// What a rank's collectives tell, for the comparison; and the size of the largest
/// group of ranks.
pub(super) fn meetings(scene: &Scene<'_>) -> (Meetings, Option<u32>) {
    let steps = scene.rank.steps();
    let (operations, _) = operations(scene.rank);
    let steps_of_work = scene.rank.steps_of_work(&steps);
    let size = operations.iter().filter_map(|operation| operation.group_size).max();
    (Meetings::of(scene.rank, &operations, &steps, &steps_of_work), size)
}

/// Compares the ranks, and adds what was found to each.
pub(super) fn judge(ranks: &mut [RankFindings]) {
    let seen = ranks.iter().any(|rank| rank.meetings.seen > 0);
    let found = arrivals(&ranks.iter().map(|rank| &rank.meetings).collect::<Vec<_>>());
    let met = found.iter().any(|arrival| arrival.met > 0);
    let nothing = Outcome { rule: NAME, found: Vec::new(), clear: None, undecided: None };
    let all_say = |outcome: Outcome, ranks: &mut [RankFindings]| {
        ranks.iter_mut().for_each(|rank| rank.outcomes.push(outcome.clone()));
    };
    match (seen, met) {
        (false, _) => {
            let clear = Some("no collective makes ranks wait for each other".to_owned());
            all_say(Outcome { clear, ..nothing }, ranks);
        }
        (true, false) => {
            let undecided = Some(Undecided {
                why: "ranks meet in collectives, but no collective was seen on two ranks".into(),
                needs: "the files of the other ranks, recorded in the same steps".into(),
            });
            all_say(Outcome { undecided, ..nothing }, ranks);
        }
        (true, true) => compare(ranks, &found, &nothing),
    }
}

fn compare(ranks: &mut [RankFindings], found: &[Arrival], nothing: &Outcome) {
    let delay = |at: usize| delay_ns(&ranks[at], &found[at]);
    let Some(worst) = (0..ranks.len()).max_by_key(|&at| (delay(at), std::cmp::Reverse(at))) else {
        return;
    };
    let total: u64 = (0..ranks.len()).map(delay).sum();
    let blamed = delay(worst) as f64 >= BLAME * total as f64;
    let bound = if blamed { delay(worst) } else { total }.min(ranks[worst].window_ns);
    let share = bound as f64 / ranks[worst].window_ns.max(1) as f64;
    let waits = (0..ranks.len()).max_by_key(|&at| found[at].waited_ns).unwrap_or(worst);
    let finding = finding(ranks, found, [worst, waits], blamed, bound);
    for (at, rank) in ranks.iter_mut().enumerate() {
        let outcome = match share >= super::join::LEAST_SHARE {
            true if at == worst => {
                Outcome { found: vec![(finding.clone(), Vec::new())], ..nothing.clone() }
            }
            true => nothing.clone(),
            false => Outcome {
                clear: Some(format!("ranks come together: at most {} is lost", percent(share))),
                ..nothing.clone()
            },
        };
        rank.outcomes.push(outcome);
    }
}

/// What a rank's delays cost in the window; scaled up where a sample was kept.
fn delay_ns(rank: &RankFindings, arrival: &Arrival) -> u64 {
    arrival.delay_ns.saturating_mul(rank.meetings.stride.max(1))
}

fn finding(
    ranks: &[RankFindings],
    found: &[Arrival],
    [worst, waits]: [usize; 2],
    blamed: bool,
    bound: u64,
) -> Finding {
    let (late, rank) = (&found[worst], &ranks[worst]);
    let per_step = |ns: u64| duration(ns / rank.steps.max(1) as u64);
    let what = match blamed {
        true => format!("{} comes late, and the others wait", rank.label),
        false => "ranks hold each other up in turn".to_owned(),
    };
    let estimate = match rank.meetings.stride > 1 {
        true => format!(" Estimated from one in {} collectives.", rank.meetings.stride),
        false => String::new(),
    };
    let compared = match ranks.iter().filter_map(|rank| rank.group_size).max() {
        Some(size) if size as usize > ranks.len() => {
            format!(" Only {} of {} ranks were compared.", ranks.len(), count(size.into()))
        }
        _ => String::new(),
    };
    let seen = format!(
        "{} came last to {} of {} collectives, {} a step after the last but one; {} waited \
         longest, {} a step.{compared}{estimate}",
        rank.label,
        count(late.last),
        count(late.met),
        per_step(delay_ns(rank, late)),
        ranks[waits].label,
        per_step(found[waits].waited_ns),
    );
    Finding::new(what)
        .seen(seen)
        .advice(
            "See `tprof report stragglers`: compare the rank's work before the collective \
             with another's (`tprof diff`). Balance its share of data, sequence lengths, \
             embedding tables or pipeline stages; look for a slower device or a busy host.",
        )
        .bound(bound)
}
