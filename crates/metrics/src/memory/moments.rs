//! Computes growth between times that a caller chooses.

use tprof_facts::Clock;
use tprof_rank::base::reading::Reading;
use tprof_trace::TraceFile;

use super::growth::Growth;
use super::pass::Pass;
use super::points::{MomentKind, Points};

/// Times at which live bytes are compared, none of which is warm-up.
pub struct Moments(Points);

impl Moments {
    /// The starts of steps, in order.
    pub fn steps(times: Vec<u64>) -> Moments {
        Moments(Points { kind: MomentKind::Step, times, warm_up: 0 })
    }

    /// Evenly spaced times, in order.
    pub fn even(times: Vec<u64>) -> Moments {
        Moments(Points { kind: MomentKind::Mark, times, warm_up: 0 })
    }
}

/// Computes the growth between these times.
///
/// # Errors
///
/// Returns the reason why the growth is not known.
pub fn growth_at(file: &TraceFile, clock: Clock, moments: Moments) -> Result<Growth, String> {
    match Pass::at(file, clock, Some(moments.0)).growth().marks {
        Reading::Is(growth) => Ok(growth),
        Reading::Missing(why) => Err(why),
        Reading::Estimate { value, .. } => Ok(value),
    }
}
