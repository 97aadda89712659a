//! Finds stragglers if the collectives themselves are not recorded (gloo, MPI). The rank that
//! spends the least time in collectives is the rank for which the others wait.

use tprof_facts::units::{duration, percent};
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::sort_rows::SortRows;

use crate::finding::{Finding, SourceLine};
use crate::outcome::{Outcome, RankFindings};
use crate::rank_collectives::DriverCollectiveTime;
use crate::severity::LEAST_SHARE;

/// A line explains a rank's delay if the line takes at least this share of the delay.
const EXPLAINS: f64 = 0.3;

/// Ranks are compared only if their judged times overlap for at least this share of the shortest
/// one.
const SHARED: f64 = 0.2;

/// The time of one rank in collectives.
struct RankWait {
    /// The rank's index among the ranks.
    at: usize,
    /// Time in collectives in the part of the judged time that all ranks share, ns.
    ns: u64,
}

/// Compares the ranks by their time in collectives, in the part of the judged time that all ranks
/// share. Returns `None` if a rank was not sampled, if that part is too short, or if no rank is
/// ever in a collective.
pub(super) fn compare(name: &'static str, ranks: &[RankFindings]) -> Option<Vec<Outcome>> {
    let all: Option<Vec<&DriverCollectiveTime>> =
        ranks.iter().map(|rank| rank.rank_collectives.in_collectives.as_ref()).collect();
    let all = all.filter(|all| all.len() > 1)?;
    let shared = shared(&all)?;
    let mut all: Vec<RankWait> = (all.into_iter().enumerate())
        .map(|(at, of)| RankWait { at, ns: of.within(shared) })
        .collect();
    if all.iter().all(|one| one.ns == 0) {
        return None;
    }
    all.sort_rows_by_key(|one| (one.ns, one.at));
    let (late, next, last) = (&all[0], &all[1], &all[all.len() - 1]);
    // If the late rank were on time, collectives would begin when the next-to-last rank arrives.
    let bound_ns = next.ns.saturating_sub(late.ns);
    let share = bound_ns as f64 / shared.length().max(1) as f64;
    let mut outcomes = vec![Outcome::of(name); ranks.len()];
    if share < LEAST_SHARE {
        let why = format!(
            "by their waits ranks come together: they are in collectives for {} to {}",
            duration(late.ns),
            duration(last.ns)
        );
        outcomes.iter_mut().for_each(|outcome| outcome.no_problem = Some(why.clone()));
        return Some(outcomes);
    }
    let finding = finding(ranks, [late, next, last], bound_ns, shared.length());
    outcomes[late.at].found.push((finding, Vec::new()));
    Some(outcomes)
}

/// Returns the part of the judged time that all ranks share; `None` if it is too short.
fn shared(all: &[&DriverCollectiveTime]) -> Option<Interval> {
    let start = all.iter().map(|one| one.window.start).max()?;
    let end = all.iter().map(|one| one.window.end).min()?;
    let shortest_ns = all.iter().map(|one| one.window.length()).min()?;
    let length_ns = end.saturating_sub(start);
    (length_ns > 0 && length_ns as f64 >= SHARED * shortest_ns as f64)
        .then(|| Interval::new(start, end))
}

fn finding(
    ranks: &[RankFindings],
    [late, next, last]: [&RankWait; 3],
    bound_ns: u64,
    shared_ns: u64,
) -> Finding {
    let label = &ranks[late.at].label;
    let of_shared = late.ns as f64 / shared_ns.max(1) as f64;
    let others = match next.at == last.at {
        true => format!("{} for {}", ranks[next.at].label, duration(next.ns)),
        false => format!("the others for {} to {}", duration(next.ns), duration(last.ns)),
    };
    let seen = format!(
        "By their waits: {label} is in collectives for {} ({}), {others}.",
        duration(late.ns),
        percent(of_shared)
    );
    let finding = Finding::new(format!("{label} comes late, and the others wait"));
    let finding = finding.bound(bound_ns).of(shared_ns);
    explained(finding, seen, [&ranks[late.at], &ranks[last.at]], bound_ns)
}

/// Adds the line that delays a late rank to its finding. The line is found by comparing the rank
/// with the rank that waits longest. If a driving thread was not sampled, or if no line explains
/// the delay, the finding has general advice instead.
pub(super) fn explained(
    finding: Finding,
    mut seen: String,
    [late, last]: [&RankFindings; 2],
    bound_ns: u64,
) -> Finding {
    let label = &late.label;
    let sampled = late
        .rank_collectives
        .in_collectives
        .as_ref()
        .zip(last.rank_collectives.in_collectives.as_ref());
    let excess = sampled.and_then(|(late, last)| excess(late, last));
    let excess = excess.filter(|(_, ns)| *ns as f64 >= EXPLAINS * bound_ns as f64);
    let Some((line, ns)) = excess else {
        return finding.seen(seen).advice(
            "Compare the rank's work before collectives with another rank's (`tprof report \
             host`): its share of data, input/output, checkpoints, a slower or busier machine.",
        );
    };
    seen.push_str(&format!(
        " Meanwhile {label} is at {} for {} longer than {}.",
        line.named(),
        duration(ns),
        last.label
    ));
    let advice = format!(
        "Shorten what {label} does at {}, or balance it among ranks: its share of data, sequence \
         lengths, input/output, checkpoints, a slower or busier machine.",
        line.shown()
    );
    finding.seen(seen).advice(advice).on_line(Some(line)).local()
}

/// Returns the line at which one rank spends more time than another rank, outside of collectives.
/// If there are several, returns the line with the largest difference.
fn excess(late: &DriverCollectiveTime, other: &DriverCollectiveTime) -> Option<(SourceLine, u64)> {
    let of_other = |line: &SourceLine| {
        other.lines.iter().find(|(known, _)| known == line).map_or(0, |(_, ns)| *ns)
    };
    let more = |(line, ns): &(SourceLine, u64)| (line.clone(), ns.saturating_sub(of_other(line)));
    late.lines.iter().map(more).max_by_key(|(_, ns)| *ns)
}
