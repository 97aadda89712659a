//! Computes how fast blocks are allocated, and how long they live.

use tprof_rank::base::object::object;
use tprof_rank::base::reading::Reading;

use super::replay::Replay;
use super::weight::{Mean, Z};

/// A mean over fewer sampled blocks is not reported.
const LEAST_SAMPLES: u64 = 30;

/// Rates and lifetimes of blocks.
#[derive(Clone, Debug)]
pub struct Churn {
    /// Allocations per second of the rank's life in which recording was on.
    pub allocations_per_s: Reading<f64>,
    /// Requested bytes per second of the rank's life in which recording was on.
    pub bytes_per_s: Reading<f64>,
    /// Share of the freed blocks that lived for 1 ms or less.
    pub short_lived_fraction: Reading<f64>,
    /// Mean lifetime of the freed blocks.
    pub mean_lifetime_ns: Reading<f64>,
}
object! { Churn {
    reading allocations_per_s, reading bytes_per_s, reading short_lived_fraction,
    reading mean_lifetime_ns,
} }

/// Computes the rates from the rank's totals, and the lifetimes from its events.
pub(crate) fn churn(
    replay: &Replay,
    allocations: &Reading<u64>,
    bytes: &Reading<u64>,
    recorded_ns: u64,
    sampled: bool,
) -> Churn {
    let rate = |total: &Reading<u64>| match recorded_ns {
        0 => {
            Reading::missing("the time in which the rank was recorded is too short to be measured")
        }
        _ => total.clone().map(|total| total as f64 * 1e9 / recorded_ns as f64),
    };
    // If there are few samples, all may fall on one side of the limit, so that their variance is 0.
    // This is the possible error of the share in that case. It is added only to estimates.
    let few = |mean: &Mean| Z * Z / (mean.samples as f64 + Z * Z);
    let mean = |mean: &Mean, floor: f64| match mean.result() {
        None => Reading::missing("no recorded block was freed"),
        Some((value, _)) if !sampled => Reading::Is(value),
        Some(_) if mean.samples < LEAST_SAMPLES => {
            Reading::missing(format!("fewer than {LEAST_SAMPLES} sampled blocks were freed"))
        }
        Some((value, error)) => Reading::Estimate { value, error: error + floor },
    };
    Churn {
        allocations_per_s: rate(allocations),
        bytes_per_s: rate(bytes),
        short_lived_fraction: mean(&replay.short, few(&replay.short)),
        mean_lifetime_ns: mean(&replay.lifetime, 0.0),
    }
}
