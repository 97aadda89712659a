//! Answers with all runs of one command, their figures, and the runs at which a figure changed.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::about::VERSION;
use super::rows::row;
use crate::app::App;
use crate::failure::Failure;
use crate::runs::RegisteredRun;

/// A figure to follow: key, unit, and whether less is better.
pub type Metric = (&'static str, &'static str, bool);

/// Figures to follow.
const METRICS: [Metric; 6] = [
    ("step_ns", "ns", true),
    ("wall_ns", "ns", true),
    ("gpu_busy", "share", false),
    ("peak_bytes", "bytes", true),
    ("peak_rss_bytes", "bytes", true),
    ("findings", "count", true),
];
/// Number of previous runs from which the usual spread of a value is computed.
const BEFORE: usize = 8;
/// Smallest number of previous runs for computing the spread.
const LEAST_BEFORE: usize = 3;
/// Smallest change to mark, as a share of the median of the previous values.
const LEAST_CHANGE: f64 = 0.05;
/// Smallest change to mark, as a multiple of the usual deviation. A change is marked only if it
/// reaches this limit and [`LEAST_CHANGE`].
const DEVIATIONS: f64 = 3.0;
/// Factor from the median deviation of a normal distribution to its standard deviation.
const NORMAL: f64 = 1.4826;

/// Query parameters: any run of the command.
#[derive(Deserialize)]
pub struct HistoryQuery {
    pub run: u32,
}

/// Answers `GET /api/v1/history`.
pub async fn history(
    State(app): State<Arc<App>>,
    Query(asked): Query<HistoryQuery>,
) -> Result<Json<Value>, Failure> {
    let run = app.run(asked.run)?;
    let (all, _) = app.registry.list();
    let mut same: Vec<RegisteredRun> =
        all.into_iter().filter(|one| one.entry.command == run.entry.command).collect();
    same.reverse();
    let pending = app.summaries.request_missing(&same);
    let rows: Vec<Value> = same.iter().map(|run| row(&app, run)).collect();
    Ok(Json(json!({
        "version": VERSION,
        "command": run.entry.command,
        "pending": pending,
        "metrics": metrics(&rows, &METRICS),
        "runs": rows,
    })))
}

/// Returns the figures of rows of the list, in the order of the rows, and the changes in them.
pub fn metrics(rows: &[Value], followed: &[Metric]) -> Value {
    let one = |(key, unit, is_less_better): &Metric| {
        let points: Vec<(u64, Option<f64>)> = rows
            .iter()
            .map(|row| (row["id"].as_u64().unwrap_or_default(), row[*key].as_f64()))
            .collect();
        json!({
            "key": key,
            "unit": unit,
            "better": if *is_less_better { "less" } else { "more" },
            "points": points.iter().map(|(id, value)| json!({ "id": id, "value": value })).collect::<Vec<_>>(),
            "changes": changes(&points, *is_less_better),
        })
    };
    followed.iter().map(one).collect()
}

/// Finds the values at which the level changed: such a value differs from all values since the
/// previous change by more than those differ from each other.
fn changes(points: &[(u64, Option<f64>)], is_less_better: bool) -> Vec<Value> {
    let mut found = Vec::new();
    let mut level: Vec<f64> = Vec::new();
    for (id, value) in points.iter().filter_map(|(id, value)| Some((id, (*value)?))) {
        let usual = median(&level);
        let deviations: Vec<f64> = level.iter().map(|one| (one - usual).abs()).collect();
        let spread = NORMAL * median(&deviations);
        let change = (value - usual) / usual.abs();
        let is_marked = level.len() >= LEAST_BEFORE
            && usual != 0.0
            && change.abs() >= LEAST_CHANGE
            && (value - usual).abs() > DEVIATIONS * spread;
        if is_marked {
            let is_better = (change < 0.0) == is_less_better;
            found.push(json!({
                "at": id, "from": usual, "to": value, "change": change, "better": is_better,
            }));
            level.clear();
        }
        level.push(value);
        let old = level.len().saturating_sub(BEFORE);
        level.drain(..old);
    }
    found
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(values: &[f64]) -> Vec<(u64, bool)> {
        let points: Vec<_> = (1..).zip(values.iter().map(|value| Some(*value))).collect();
        let found = changes(&points, true);
        found.iter().map(|one| (one["at"].as_u64().unwrap(), one["better"] == true)).collect()
    }

    #[test]
    fn a_step_is_marked_once_and_noise_never() {
        assert_eq!(
            marked(&[100.0, 101.0, 99.0, 130.0, 131.0, 129.0, 100.0, 101.0]),
            [(4, false), (7, true)]
        );
        assert_eq!(marked(&[100.0, 110.0, 92.0, 108.0, 95.0, 111.0, 93.0]), []);
        assert_eq!(marked(&[100.0, 100.1, 200.0]), [], "two runs are no level");
        assert_eq!(marked(&[0.0, 0.0, 0.0, 5.0]), [], "no share of nothing");
    }
}
