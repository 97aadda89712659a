//! The steps as they were measured.

use std::ops::Range;

use super::JobGraph;
use super::graph::GraphRow;

/// A step of a rank, from its last meeting of the step before to its last of the step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MeasuredStep {
    /// The rank's rows of the step.
    pub rows: Range<usize>,
    /// Time on the rank's clock, ns.
    pub length_ns: i64,
}

/// Returns the steps of a rank that follow another.
pub(super) fn measured_steps(rows: &[GraphRow]) -> Vec<MeasuredStep> {
    let mut steps = Vec::new();
    // Ends of the rank's steps on its own clock, since the beginning of the block.
    let (mut entry_ns, mut end_ns, mut first) = (0_i64, 0_i64, 0);
    let mut ended: Option<(u64, i64)> = None;
    for (at, row) in rows.iter().enumerate() {
        if row.is_first {
            (entry_ns, end_ns, ended) = (0, 0, None);
        } else {
            entry_ns += row.of.since_entry_ns as i64;
        }
        end_ns = end_ns.max(entry_ns + row.of.duration_ns as i64);
        if rows.get(at + 1).is_some_and(|next| next.of.step == row.of.step) {
            continue;
        }
        if let Some((step, before_ns)) = ended
            && step + 1 == row.of.step
        {
            steps.push(MeasuredStep { rows: first..at + 1, length_ns: end_ns - before_ns });
        }
        ended = Some((row.of.step, end_ns));
        first = at + 1;
    }
    steps
}

/// Returns the mean time of the steps that follow another, over all ranks and steps, ns.
pub(super) fn measured_ns(graph: &JobGraph<'_>) -> Option<f64> {
    let (mut sum_ns, mut count) = (0_i64, 0_u64);
    for step in graph.rows.iter().flat_map(|rows| measured_steps(rows)) {
        sum_ns += step.length_ns;
        count += 1;
    }
    (count > 0).then(|| sum_ns as f64 / count as f64)
}
