//! Stragglers, where collectives themselves are not recorded (gloo, MPI): the rank that waits
//! least in them is the one that the others wait for.

use tprof_facts::units::{duration, percent};

use crate::findings::company::InCollectives;
use crate::findings::finding::{Finding, SourceLine};
use crate::findings::outcome::{Outcome, RankFindings};
use crate::findings::severity::LEAST_SHARE;

/// A line explains a rank's delay from this share of it on.
const EXPLAINS: f64 = 0.3;

/// A rank, by its place, and its time in collectives.
type Waiting<'r> = (usize, &'r InCollectives);

/// Compares the ranks by their time in collectives; `None` if not all were sampled there.
pub(super) fn compare(name: &'static str, ranks: &[RankFindings]) -> Option<Vec<Outcome>> {
    let all: Option<Vec<Waiting<'_>>> = (ranks.iter().enumerate())
        .map(|(at, rank)| Some((at, rank.company.in_collectives.as_ref()?)))
        .collect();
    let mut all = all.filter(|all| all.len() > 1)?;
    if all.iter().all(|(_, one)| one.ns == 0) {
        return None;
    }
    all.sort_by_key(|(at, one)| (one.ns, *at));
    let (late, next, last) = (all[0], all[1], all[all.len() - 1]);
    // With that rank on time, collectives begin when the next one comes.
    let bound_ns = next.1.ns.saturating_sub(late.1.ns).min(late.1.wall_ns);
    let share = bound_ns as f64 / late.1.wall_ns.max(1) as f64;
    let mut outcomes = vec![Outcome::of(name); ranks.len()];
    if share < LEAST_SHARE {
        let why = format!(
            "by their waits ranks come together: they are in collectives for {} to {}",
            duration(late.1.ns),
            duration(last.1.ns)
        );
        outcomes.iter_mut().for_each(|outcome| outcome.clear = Some(why.clone()));
        return Some(outcomes);
    }
    let finding = finding(ranks, [late, next, last], bound_ns);
    outcomes[late.0].found.push((finding, Vec::new()));
    Some(outcomes)
}

fn finding(ranks: &[RankFindings], [late, next, last]: [Waiting<'_>; 3], bound_ns: u64) -> Finding {
    let label = &ranks[late.0].label;
    let of_wall = late.1.ns as f64 / late.1.wall_ns.max(1) as f64;
    let others = match next.0 == last.0 {
        true => format!("{} for {}", ranks[next.0].label, duration(next.1.ns)),
        false => format!("the others for {} to {}", duration(next.1.ns), duration(last.1.ns)),
    };
    let excess = excess(late.1, last.1).filter(|(_, ns)| *ns as f64 >= EXPLAINS * bound_ns as f64);
    let does = match &excess {
        Some((line, ns)) => format!(
            " Meanwhile {label} is at {} ({}) for {} longer than {}.",
            line.function,
            line.shown(),
            duration(*ns),
            ranks[last.0].label
        ),
        None => String::new(),
    };
    let advice = match &excess {
        Some((line, _)) => format!(
            "Shorten what {label} does at {}, or balance it among ranks: its share of data, \
             sequence lengths, input/output, checkpoints, a slower or busier machine.",
            line.shown()
        ),
        None => "Compare the rank's work before collectives with another rank's (`tprof report \
                 host`): its share of data, input/output, checkpoints, a slower or busier machine."
            .to_owned(),
    };
    Finding::new(format!("{label} comes late, and the others wait"))
        .seen(format!(
            "By their waits: {label} is in collectives for {} ({}), {others}.{does}",
            duration(late.1.ns),
            percent(of_wall)
        ))
        .advice(advice)
        .bound(bound_ns)
        .of(late.1.wall_ns)
        .on_line(excess.map(|(line, _)| line))
}

/// The line at which a rank is longest, compared with another, collectives left out.
fn excess(late: &InCollectives, other: &InCollectives) -> Option<(SourceLine, u64)> {
    let of_other = |line: &SourceLine| {
        other.lines.iter().find(|(known, _)| known == line).map_or(0, |(_, ns)| *ns)
    };
    let more = |(line, ns): &(SourceLine, u64)| (line.clone(), ns.saturating_sub(of_other(line)));
    late.lines.iter().map(more).max_by_key(|(_, ns)| *ns)
}
