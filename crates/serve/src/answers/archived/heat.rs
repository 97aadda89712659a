//! The heat map of an archived run: a metric by rank and step.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::Value;

use super::super::heat::{HeatCells, HeatQuery, STEP_METRICS, folded};
use super::kinds::{BY_RANK, RANK};
use crate::archive::Archive;
use crate::failure::Failure;

/// Source of each of [`STEP_METRICS`]: key, table of the archive, column, and the noun for the
/// sentence "the run has no …".
const BY_STEP: [(&str, &str, &str, &str); 5] = [
    ("step_ns", "rank_steps", "duration_ns", "steps"),
    ("compute_ns", "rank_step_devices", "compute_ns", "device time of steps"),
    (
        "exposed_communication_ns",
        "rank_step_devices",
        "exposed_communication_ns",
        "device time of steps",
    ),
    ("idle_ns", "rank_step_devices", "idle_ns", "device time of steps"),
    ("late_ns", "rank_late_steps", "late_ns", "collectives of several ranks in steps"),
];

#[derive(Deserialize)]
struct StepValue {
    rank: String,
    step: u64,
    value: Option<f64>,
}

/// Answers `GET /api/v1/runs/ID/heat`.
pub async fn heat(
    State(archive): State<Arc<Archive>>,
    Path(id): Path<u32>,
    Query(asked): Query<HeatQuery>,
) -> Result<Json<Value>, Failure> {
    let run = archive.run(id)?;
    if asked.over.as_deref().unwrap_or("step") != "step" {
        return Err(Failure::absent(
            "an archive has no figures over time",
            "it has sums of each step, not the events",
        )
        .hint("over=step"));
    }
    let Some((key, table, column, of)) = BY_STEP.iter().find(|one| one.0 == asked.metric) else {
        let what = format!("there is no metric `{}` by step", asked.metric);
        return Err(Failure::absent(what, "no table has it").hint(STEP_METRICS.join(", ")));
    };
    let (from, to) = (asked.from.unwrap_or(0), asked.to.unwrap_or(i64::MAX as u64));
    let statement = format!(
        "SELECT {RANK}, step, value FROM (SELECT rank AS number, instance, host, step, {column} AS value \
         FROM {table} WHERE step BETWEEN {from} AND {to}) {BY_RANK}, step"
    );
    let rows = archive.ask(&[&run], &[statement]).await?;
    let missing = run.missing(table, of);
    let read = move || -> Result<Value, Failure> {
        let rows: Vec<StepValue> = rows.read(0)?;
        let mut cells = HeatCells::default();
        rows.iter().for_each(|row| cells.add(&row.rank, row.step, row.value));
        Ok(folded(key, &cells, missing.as_deref()))
    };
    tokio::task::spawn_blocking(read)
        .await
        .map_err(|error| Failure::new("cannot make the heat map", error))?
        .map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_metrics_by_step_have_a_table() {
        assert_eq!(BY_STEP.map(|one| one.0), STEP_METRICS);
    }
}
