//! Finds memory that grows from mark to mark, as distinct from memory that is merely live at exit.
//!
//! A cache that is filled once is live at exit, but is not a leak. A site whose live bytes rise
//! from step to step is a leak, even if all of them are freed at the end.

use tprof_facts::Clock;
use tprof_rank::base::frames::Frames;
use tprof_rank::base::object::object;
use tprof_rank::base::reading::Reading;

use super::points::{LEAST, MomentKind};
use super::replay::Replay;
use super::sites::{GrowingSite, MergedSites, Sampled};

/// Live bytes compared at marks, steps or quarters.
#[derive(Clone, Debug)]
pub struct Growth {
    /// `step`, `mark` or `quarter`.
    pub by: &'static str,
    /// Number of recorded points: steps, marks or quarters.
    pub points: usize,
    /// Number of points at the beginning that are left out as warm-up.
    pub warm_up: usize,
    /// Time of the first compared point, nanoseconds since the run began.
    pub first_ns: u64,
    /// Time of the last compared point, nanoseconds since the run began.
    pub last_ns: u64,
    /// Live bytes at the first compared point.
    pub first_bytes: Reading<u64>,
    /// Live bytes at the last compared point.
    pub last_bytes: Reading<u64>,
    /// Live bytes at the last compared point minus those at the first.
    pub growth_bytes: Reading<i64>,
    /// Slope of the least-squares line through all compared points.
    pub bytes_per_interval: f64,
    /// Live bytes at each compared point.
    pub levels: Vec<u64>,
    /// Whether the figures are estimates from sampled allocations.
    pub estimate: bool,
    /// Sites that grew, largest first.
    pub sites: Vec<GrowingSite>,
    /// The reason why events are missing, if any are. The growth may then be less or more.
    pub uncertain: Option<String>,
}
object! { Growth {
    plain by, plain points, plain warm_up, plain first_ns, plain last_ns, reading first_bytes,
    reading last_bytes, reading growth_bytes, plain bytes_per_interval, plain estimate, plain sites,
} }

/// Growth over marks or steps, and over quarters if there are no marks or steps.
pub(crate) struct GrowthPair {
    pub marks: Reading<Growth>,
    pub quarters: Option<Growth>,
}

/// Computes the growth between points.
pub(crate) fn growth(
    replay: &Replay,
    merged: &MergedSites,
    frames: &Frames,
    sampled: Option<&Sampled>,
    clock: Clock,
    uncertain: Option<String>,
) -> GrowthPair {
    let points = &replay.points;
    let Some((first_ns, last_ns)) = points.span() else {
        return GrowthPair { marks: Reading::missing(no_marks()), quarters: None };
    };
    let grown = merged.grown(&replay.trend, sampled, points);
    let growth = Growth {
        by: points.kind.word(),
        points: points.times.len(),
        warm_up: points.warm_up,
        first_ns: clock.since_start(first_ns),
        last_ns: clock.since_start(last_ns),
        first_bytes: grown.first_bytes,
        last_bytes: grown.last_bytes,
        growth_bytes: grown.growth_bytes,
        bytes_per_interval: grown.bytes_per_interval,
        levels: replay.levels.iter().skip(points.warm_up).copied().collect(),
        estimate: sampled.is_some(),
        sites: merged.growing(frames, sampled, points),
        uncertain,
    };
    match points.kind {
        MomentKind::Quarter => {
            GrowthPair { marks: Reading::missing(no_marks()), quarters: Some(growth) }
        }
        MomentKind::Step | MomentKind::Mark => {
            GrowthPair { marks: Reading::Is(growth), quarters: None }
        }
    }
}

fn no_marks() -> String {
    format!("fewer than {LEAST} steps or marks were recorded; `tprof ctl mark NAME RUN` sets one")
}
