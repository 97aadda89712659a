//! How a metric changed between two sides.

use super::change::Change;
use super::figures::find;
use super::side::Side;
use crate::base::reading::Reading;
use crate::base::stats::{Repeats, difference_error};

/// How a metric changed; `None` if there is no such metric.
pub(super) fn change_of(a: &Side, b: &Side, key: &str) -> Option<Change> {
    find(key)?;
    let run = |side: &Side| {
        let figure = side.totals.iter().find(|figure| figure.key == key)?;
        Some(figure.value.clone().map(|bytes| bytes as f64))
    };
    if let (Some(a), Some(b)) = (run(a), run(b)) {
        return Some(Change::of_runs(a, b));
    }
    let repeats = |side: &Side| Repeats::of(side.figures.get(key)?);
    let (a, b) = (repeats(a), repeats(b));
    let mean = |repeats: &Option<Repeats>| match repeats {
        Some(repeats) => Reading::Is(repeats.mean),
        None if key == "step_time" => Reading::missing("no host span and no device work"),
        None => Reading::missing("nothing ran on a device"),
    };
    let both = a.zip(b);
    Some(Change {
        a: mean(&a),
        b: mean(&b),
        error: both.and_then(|(a, b)| difference_error(&a, &b)),
        repeats: both,
    })
}
