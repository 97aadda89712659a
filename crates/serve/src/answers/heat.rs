//! Answers requests for a heat map: a metric by rank and by step or time. Neighbouring values are
//! merged into as many cells as a screen can show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::report::document;
use crate::app::App;
use crate::failure::Failure;
use crate::runs::RegisteredRun;
use crate::work::Output;

/// Largest number of rows of an answer.
const ROWS: usize = 256;
/// Largest number of columns of an answer.
const COLUMNS: usize = 200;
/// Largest report to read, bytes. A report of 1,024 ranks with 100 steps has 60 MB.
const MAX_BYTES: u64 = 512 << 20;

/// Query parameters of a heat map.
#[derive(Deserialize)]
pub struct HeatQuery {
    /// Key of the metric.
    pub metric: String,
    /// Kind of the columns: `step` (the default) or `time`.
    pub over: Option<String>,
    /// First step to show.
    pub from: Option<u64>,
    /// Last step to show.
    pub to: Option<u64>,
}

/// Where a metric by step is found: a report, a table in it and a column of that table.
struct ByStep {
    /// Key of the metric.
    key: &'static str,
    /// Kind of the report.
    kind: &'static str,
    /// Returns the rows of the table. If they are missing, also returns the reason.
    table: fn(Tables) -> (Vec<Row>, Option<String>),
    /// Returns the value in a row, ns.
    column: fn(&Row) -> Option<f64>,
}

const BY_STEP: [ByStep; 5] = [
    ByStep {
        key: "step_ns",
        kind: "steps",
        table: |all| (all.steps, all.steps_missing),
        column: |row| row.duration_ns,
    },
    ByStep {
        key: "compute_ns",
        kind: "steps",
        table: |all| (all.device_time_by_step, all.device_time_by_step_missing),
        column: |row| row.compute_ns,
    },
    ByStep {
        key: "exposed_communication_ns",
        kind: "steps",
        table: |all| (all.device_time_by_step, all.device_time_by_step_missing),
        column: |row| row.exposed_communication_ns,
    },
    ByStep {
        key: "idle_ns",
        kind: "steps",
        table: |all| (all.device_time_by_step, all.device_time_by_step_missing),
        column: |row| row.idle_ns,
    },
    ByStep {
        key: "late_ns",
        kind: "stragglers",
        table: |all| (all.late_by_step, all.late_by_step_missing),
        column: |row| row.late_ns,
    },
];

/// Keys of the metrics that are known by step.
pub const STEP_METRICS: [&str; 5] =
    [BY_STEP[0].key, BY_STEP[1].key, BY_STEP[2].key, BY_STEP[3].key, BY_STEP[4].key];

/// The parts of a report that are parsed. The rest can be large, so it is skipped.
#[derive(Deserialize)]
struct Document {
    tables: Tables,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Tables {
    steps: Vec<Row>,
    steps_missing: Option<String>,
    device_time_by_step: Vec<Row>,
    device_time_by_step_missing: Option<String>,
    late_by_step: Vec<Row>,
    late_by_step_missing: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Row {
    rank: Option<String>,
    step: Option<u64>,
    duration_ns: Option<f64>,
    compute_ns: Option<f64>,
    exposed_communication_ns: Option<f64>,
    idle_ns: Option<f64>,
    late_ns: Option<f64>,
}

/// Answers `GET /api/v1/runs/ID/heat`.
pub async fn heat(
    State(app): State<Arc<App>>,
    Path(id): Path<u32>,
    Query(asked): Query<HeatQuery>,
) -> Result<Json<Value>, Failure> {
    let run = app.run(id)?;
    if asked.over.as_deref().unwrap_or("step") == "time" {
        return app.lives.heat(&run, &asked.metric).await.map(Json);
    }
    let Some(by_step) = BY_STEP.iter().find(|one| one.key == asked.metric) else {
        let known = STEP_METRICS.join(", ");
        let what = format!("there is no metric `{}` by step", asked.metric);
        return Err(Failure::absent(what, "no report has it").hint(known));
    };
    let output = report(&app, &run, by_step.kind).await?;
    let range = asked.from.unwrap_or(0)..=asked.to.unwrap_or(u64::MAX);
    let read = move || read(&output, by_step, range);
    tokio::task::spawn_blocking(read)
        .await
        .map_err(|error| Failure::new("cannot make the heat map", error))?
        .map(Json)
}

async fn report(app: &Arc<App>, run: &RegisteredRun, kind: &str) -> Result<Arc<Output>, Failure> {
    document(app, run, kind, &BTreeMap::new()).await
}

/// Reads the cells of a table whose rows have a rank, a step and a value, and folds them.
fn read(
    output: &Output,
    of: &ByStep,
    range: std::ops::RangeInclusive<u64>,
) -> Result<Value, Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::new("cannot make the heat map", why);
    if output.len() > MAX_BYTES {
        return Err(failed(&"the report is too large"));
    }
    let document: Document =
        serde_json::from_reader(output.reader()).map_err(|error| failed(&error))?;
    let (rows, missing) = (of.table)(document.tables);
    let cell = |row: Row| {
        let value = (of.column)(&row);
        let step = row.step.filter(|step| range.contains(step))?;
        Some((row.rank?, step, value))
    };
    let cells: Vec<(String, u64, Option<f64>)> = rows.into_iter().filter_map(cell).collect();
    Ok(folded(of.key, &cells, missing.as_deref()))
}

/// Folds values by rank and step into rows of ranks and columns of steps. A cell that stands for
/// several values has the largest one.
pub fn folded(metric: &str, cells: &[(String, u64, Option<f64>)], missing: Option<&str>) -> Value {
    // Index of each rank, in the order of the report, which is by rank number.
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut labels: Vec<&str> = Vec::new();
    for (rank, ..) in cells {
        places.entry(rank).or_insert_with(|| {
            labels.push(rank);
            labels.len() - 1
        });
    }
    let steps: Vec<u64> =
        cells.iter().map(|cell| cell.1).collect::<BTreeSet<_>>().into_iter().collect();
    let ranks_each = labels.len().div_ceil(ROWS).max(1);
    let steps_each = steps.len().div_ceil(COLUMNS).max(1);
    let width = steps.len().div_ceil(steps_each);
    let mut values: Vec<Vec<Option<f64>>> =
        vec![vec![None; width]; labels.len().div_ceil(ranks_each)];
    for (rank, step, value) in cells {
        let (Some(place), Ok(at), Some(value)) =
            (places.get(rank.as_str()), steps.binary_search(step), value)
        else {
            continue;
        };
        let cell = &mut values[place / ranks_each][at / steps_each];
        *cell = Some(cell.map_or(*value, |known| known.max(*value)));
    }
    let rows = labels.chunks(ranks_each).enumerate().map(|(at, group)| {
        let first = at * ranks_each;
        let label = match group {
            [one] => (*one).to_owned(),
            [one, .., last] => format!("{one} to {last}"),
            [] => String::new(),
        };
        json!({ "label": label, "ranks": [first, first + group.len() - 1] })
    });
    let columns =
        steps.chunks(steps_each).map(|group| json!({ "from": group.first(), "to": group.last() }));
    let measured = || values.iter().flatten().flatten().copied();
    let is_folded = ranks_each > 1 || steps_each > 1;
    json!({
        "metric": metric,
        "unit": "ns",
        "over": "step",
        "rows": rows.collect::<Vec<_>>(),
        "columns": columns.collect::<Vec<_>>(),
        "least": measured().min_by(f64::total_cmp),
        "most": measured().max_by(f64::total_cmp),
        "folded": is_folded.then(|| format!("largest of {ranks_each} ranks x {steps_each} steps")),
        "missing": cells.is_empty().then(|| missing.unwrap_or("nothing of the kind was recorded")),
        "values": values,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folded_cell_has_the_largest_of_its_values() {
        let ranks = 3 * ROWS;
        let cells: Vec<_> = (0..ranks)
            .flat_map(|rank| (0..2 * COLUMNS as u64).map(move |step| (rank, step)))
            .map(|(rank, step)| (format!("rank {rank}"), step, (rank != 4).then_some(rank as f64)))
            .collect();
        let heat = folded("step_ns", &cells, Some("no steps"));
        let rows = heat["rows"].as_array().unwrap();
        assert_eq!((rows.len(), heat["columns"].as_array().unwrap().len()), (ROWS, COLUMNS));
        assert_eq!(rows[1], json!({ "label": "rank 3 to rank 5", "ranks": [3, 5] }));
        assert_eq!(heat["columns"][1], json!({ "from": 2, "to": 3 }));
        assert_eq!(heat["values"][1][0], 5.0);
        assert_eq!((&heat["least"], &heat["missing"]), (&json!(2.0), &Value::Null));
    }

    #[test]
    fn a_cell_that_was_not_measured_has_no_value() {
        let cells = [("rank 0".to_owned(), 7, None), ("rank 1".to_owned(), 7, Some(2.0))];
        let heat = folded("idle_ns", &cells, None);
        assert_eq!(heat["values"], json!([[null], [2.0]]));
        assert_eq!(folded("idle_ns", &[], Some("no device"))["missing"], "no device");
    }
}
