//! Predicts how long a step takes if one rank needs as long as the others.

use tprof_rank::base::stats::Repeats;

use super::JobGraph;

/// What a step takes, and what it would take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WhatIf {
    /// Mean time of a step, ns: from the end of the step before, as measured.
    pub step_ns: f64,
    /// Mean time of a step if the rank's stretches took as long as the median of the other ranks'
    /// in the same step, ns.
    pub without_ns: f64,
    /// Half the width of the 95 % interval of `without_ns`, by the spread over steps, and how far
    /// the replay of the steps as they were is from the measurement, ns.
    pub error_ns: f64,
}

/// Predicts the time of a step without what sets a rank apart. `None` if the ranks' meetings have no
/// common order, or if fewer than two steps follow another.
pub fn what_if(graph: &JobGraph<'_>, rank: usize) -> Option<WhatIf> {
    let as_it_was = graph.replay(|_, _, of| (of.before_ns, of.hidden_ns))?;
    let rank = rank as u32;
    let changed = graph.replay(|at, row, of| {
        if at != rank {
            return (of.before_ns, of.hidden_ns);
        }
        let median = |of_others: fn(&super::StepMeeting) -> u64, own: u64| {
            graph.median_of_others((rank, row), of_others).unwrap_or(own)
        };
        (median(|of| of.before_ns, of.before_ns), median(|of| of.hidden_ns, of.hidden_ns))
    })?;
    let lengths = |replayed: &super::graph::Replayed| -> Vec<f64> {
        replayed.lengths().map(|(.., ns)| ns as f64).collect()
    };
    let (before, after) = (lengths(&as_it_was), lengths(&changed));
    let gains: Vec<f64> = before.iter().zip(&after).map(|(before, after)| before - after).collect();
    let gain = Repeats::of(&gains)?;
    let step_ns = measured_ns(graph)?;
    let replayed_ns = Repeats::of(&before)?.mean;
    let error_ns = gain.mean_error()? + (replayed_ns - step_ns).abs();
    Some(WhatIf { step_ns, without_ns: step_ns - gain.mean, error_ns })
}

/// Returns the mean time of the steps that follow another, over all ranks and steps, ns.
fn measured_ns(graph: &JobGraph<'_>) -> Option<f64> {
    let (mut sum_ns, mut count) = (0_i64, 0_u64);
    for rows in &graph.rows {
        // Ends of the rank's steps on its own clock, since the beginning of the block.
        let (mut entry_ns, mut end_ns) = (0_i64, 0_i64);
        let mut ended: Option<(u64, i64)> = None;
        for (at, row) in rows.iter().enumerate() {
            if row.is_first {
                (entry_ns, end_ns, ended) = (0, 0, None);
            } else {
                entry_ns += row.of.since_entry_ns as i64;
            }
            end_ns = end_ns.max(entry_ns + row.of.duration_ns as i64);
            let goes_on = rows.get(at + 1).is_some_and(|next| next.of.step == row.of.step);
            if goes_on {
                continue;
            }
            if let Some((step, before_ns)) = ended
                && step + 1 == row.of.step
            {
                sum_ns += end_ns - before_ns;
                count += 1;
            }
            ended = Some((row.of.step, end_ns));
        }
    }
    (count > 0).then(|| sum_ns as f64 / count as f64)
}
