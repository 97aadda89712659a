//! Predicts how long a step takes if one rank needs as long as the others.

use tprof_rank::base::stats::Repeats;

use super::measured::measured_ns;
use super::replayed::Replayed;
use super::{JobGraph, StepMeeting};

/// What a step takes, and what it would take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WhatIf {
    /// Mean time of a step, ns: from the end of the step before, as measured.
    pub step_ns: f64,
    /// Mean time of a step if the rank's stretches took as long as the median of the other ranks'
    /// in the same step, ns.
    pub without_ns: f64,
    /// Half the width of the 95 % interval of `without_ns`, ns: by the spread over steps, how far the
    /// replay of the steps as they were is from the measurement, and how long the rank had no core
    /// in a step where that is known.
    pub error_ns: f64,
}

/// Predicts the time of a step without what sets a rank apart. `None` if the ranks' meetings have no
/// common order, or if fewer than two steps follow another.
pub fn what_if(graph: &JobGraph<'_>, rank: usize) -> Option<WhatIf> {
    let as_it_was = graph.replay_as_measured()?;
    let no_core_share = graph.ranks[rank].no_core_share.unwrap_or(0.0);
    let rank = rank as u32;
    let changed = graph.replay(|at, row, of| {
        if at != rank {
            return (of.before_ns, of.hidden_ns);
        }
        let typical = |time: fn(&StepMeeting) -> u64| {
            graph.typical((rank, row), time).map_or(time(of), |typical| typical.ns)
        };
        (typical(|of| of.before_ns), typical(|of| of.hidden_ns))
    })?;
    let lengths = |replayed: &Replayed| -> Vec<f64> {
        replayed.lengths().map(|(.., ns)| ns as f64).collect()
    };
    let (before, after) = (lengths(&as_it_was), lengths(&changed));
    let gains: Vec<f64> = before.iter().zip(&after).map(|(before, after)| before - after).collect();
    let gain = Repeats::of(&gains)?;
    let step_ns = measured_ns(graph)?;
    let replayed_ns = Repeats::of(&before)?.mean;
    let error_ns = gain.mean_error()? + (replayed_ns - step_ns).abs() + no_core_share * step_ns;
    Some(WhatIf { step_ns, without_ns: step_ns - gain.mean, error_ns })
}
