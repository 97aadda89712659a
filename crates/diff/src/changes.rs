//! Computes the changes of metrics between two sides.

use tprof_rank::base::reading::Reading;
use tprof_rank::base::stats::{Repeats, difference_error};

use super::figures::{WITHOUT_LOST_CORES, find};
use super::side::Side;
use super::verdict::Change;

/// Returns the change of a metric; `None` if no metric has this key.
pub(super) fn change_of(a: &Side, b: &Side, key: &str) -> Option<Change> {
    find(key)?;
    let lost = match key {
        "step_time" => lost_of_step(a).zip(lost_of_step(b)),
        "wall_time" => a.host.lost_of_rank().zip(b.host.lost_of_rank()),
        _ => None,
    };
    let lost = lost.map(|(a, b)| b - a);
    let run = |side: &Side| {
        let figure = side.totals.iter().find(|figure| figure.key == key)?;
        Some(figure.value.clone().map(|bytes| bytes as f64))
    };
    if let (Some(a), Some(b)) = (run(a), run(b)) {
        return Some(Change { lost, ..Change::of_runs(a, b) });
    }
    let (a, b) = (repeats(a, key), repeats(b, key));
    let mean = |repeats: &Option<Repeats>| match repeats {
        Some(repeats) => Reading::Is(repeats.mean),
        None if key == "step_time" => Reading::missing("no host span and no device work"),
        None if key == WITHOUT_LOST_CORES => {
            Reading::missing("no thread with steps was sampled on each rank")
        }
        None => Reading::missing("nothing ran on a device"),
    };
    let both = a.zip(b);
    Some(Change {
        a: mean(&a),
        b: mean(&b),
        error: both.and_then(|(a, b)| difference_error(&a, &b)),
        repeats: both,
        lost,
    })
}

fn repeats(side: &Side, key: &str) -> Option<Repeats> {
    Repeats::of(side.figures.get(key)?)
}

/// Returns the mean time of a step in which the driving threads of the ranks had no core, ns;
/// `None` if it is unknown for any rank or step.
pub(super) fn lost_of_step(side: &Side) -> Option<f64> {
    let mean = |key| Some(repeats(side, key)?.mean);
    Some(mean("step_time")? - mean(WITHOUT_LOST_CORES)?)
}
