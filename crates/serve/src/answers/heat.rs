//! Answers requests for a heat map: a metric by rank and by step or time. Neighbouring values are
//! merged into as many cells as a screen can show.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use rustc_hash::FxHashMap;
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
/// Largest report to read for the reason why a table has no rows, bytes.
const SMALL_REPORT: u64 = 64 << 20;
/// Largest table to read, bytes. A table of 4,096 ranks with 1,000 steps has 400 MB.
const MAX_BYTES: u64 = 1 << 30;

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
    table: &'static str,
    column: &'static str,
}

impl ByStep {
    const fn new(
        key: &'static str,
        kind: &'static str,
        table: &'static str,
        column: &'static str,
    ) -> ByStep {
        ByStep { key, kind, table, column }
    }
}

const BY_STEP: [ByStep; 5] = [
    ByStep::new("step_ns", "steps", "steps", "duration_ns"),
    ByStep::new("compute_ns", "steps", "device_time_by_step", "compute_ns"),
    ByStep::new(
        "exposed_communication_ns",
        "steps",
        "device_time_by_step",
        "exposed_communication_ns",
    ),
    ByStep::new("idle_ns", "steps", "device_time_by_step", "idle_ns"),
    ByStep::new("late_ns", "stragglers", "late_by_step", "late_ns"),
];

/// Keys of the metrics that are known by step.
pub const STEP_METRICS: [&str; 5] =
    [BY_STEP[0].key, BY_STEP[1].key, BY_STEP[2].key, BY_STEP[3].key, BY_STEP[4].key];

/// The values of a metric by rank and step.
#[derive(Debug, Default)]
pub struct HeatCells {
    /// Labels of the ranks, in the order of the report, which is by rank number.
    labels: Vec<String>,
    /// Index of each label.
    places: FxHashMap<String, u32>,
    /// Index of the rank, step, and the value, if it was measured.
    cells: Vec<(u32, u64, Option<f64>)>,
}

impl HeatCells {
    /// Adds a value.
    pub fn add(&mut self, rank: &str, step: u64, value: Option<f64>) {
        let known = self.places.get(rank).copied();
        let place = known.unwrap_or_else(|| {
            let place = self.labels.len() as u32;
            self.labels.push(rank.to_owned());
            self.places.insert(rank.to_owned(), place);
            place
        });
        self.cells.push((place, step, value));
    }
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
    let output = table(&app, &run, by_step).await?;
    let range = asked.from.unwrap_or(0)..=asked.to.unwrap_or(u64::MAX);
    let read = move || read(&output, by_step.column, range);
    let cells = tokio::task::spawn_blocking(read)
        .await
        .map_err(|error| Failure::new("cannot make the heat map", error))??;
    let missing = match cells.cells.is_empty() {
        true => missing(&app, &run, by_step).await?,
        false => None,
    };
    let fold = move || folded(by_step.key, &cells, missing.as_deref());
    tokio::task::spawn_blocking(fold)
        .await
        .map_err(|error| Failure::new("cannot make the heat map", error))
        .map(Json)
}

/// Makes a table as CSV. The JSON of a whole report is eight times as large.
async fn table(app: &Arc<App>, run: &RegisteredRun, of: &ByStep) -> Result<Arc<Output>, Failure> {
    let words = ["report", of.kind, "--csv", "--table", of.table];
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    words.push(run.readable()?.into());
    app.make(words, &[run]).await
}

/// Returns the reason why a table has no rows, which only the report's JSON has.
async fn missing(
    app: &Arc<App>,
    run: &RegisteredRun,
    of: &ByStep,
) -> Result<Option<String>, Failure> {
    let output = document(app, run, of.kind, &BTreeMap::new()).await?;
    let key = format!("{}_missing", of.table);
    let read = move || -> Option<String> {
        let value: Value = match output.len() {
            ..=SMALL_REPORT => serde_json::from_reader(output.reader()).ok()?,
            _ => return None,
        };
        Some(value["tables"][&key].as_str()?.to_owned())
    };
    tokio::task::spawn_blocking(read)
        .await
        .map_err(|error| Failure::new("cannot make the heat map", error))
}

/// Reads the cells of a table whose rows have a rank, a step and a value.
fn read(
    output: &Output,
    column: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Result<HeatCells, Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::new("cannot make the heat map", why);
    if output.len() > MAX_BYTES {
        return Err(failed(&"the report is too large"));
    }
    let mut lines = BufReader::new(output.reader()).lines();
    let heading = lines.next().transpose().map_err(|error| failed(&error))?.unwrap_or_default();
    let keys: Vec<&str> = heading.split(',').collect();
    let place = |key: &str| keys.iter().position(|known| *known == key);
    let [Some(rank), Some(step), Some(value)] = ["rank", "step", column].map(place) else {
        return Err(failed(&"the report has no such column"));
    };
    let mut cells = HeatCells::default();
    for line in lines {
        let line = line.map_err(|error| failed(&error))?;
        let row = fields(&line);
        let [Some(rank), Some(step), Some(value)] = [rank, step, value].map(|at| row.get(at))
        else {
            continue;
        };
        let Some(step) = step.parse().ok().filter(|step| range.contains(step)) else { continue };
        cells.add(rank, step, value.parse().ok());
    }
    Ok(cells)
}

/// Separates the fields of a line of CSV. Labels of ranks may contain commas, and are then quoted.
/// No field that is read has a quotation mark.
fn fields(line: &str) -> Vec<&str> {
    let (mut fields, mut rest) = (Vec::new(), line);
    loop {
        let (field, after) = match rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
            Some((field, after)) => (field, after.strip_prefix(',')),
            None => match rest.split_once(',') {
                Some((field, after)) => (field, Some(after)),
                None => (rest, None),
            },
        };
        fields.push(field);
        match after {
            Some(after) => rest = after,
            None => return fields,
        }
    }
}

/// Folds values by rank and step into rows of ranks and columns of steps. A cell that stands for
/// several values has the largest one.
pub fn folded(metric: &str, cells: &HeatCells, missing: Option<&str>) -> Value {
    let HeatCells { labels, cells, .. } = cells;
    let steps: Vec<u64> =
        cells.iter().map(|cell| cell.1).collect::<BTreeSet<_>>().into_iter().collect();
    let ranks_each = labels.len().div_ceil(ROWS).max(1);
    let steps_each = steps.len().div_ceil(COLUMNS).max(1);
    let width = steps.len().div_ceil(steps_each);
    let mut values: Vec<Vec<Option<f64>>> =
        vec![vec![None; width]; labels.len().div_ceil(ranks_each)];
    for (rank, step, value) in cells {
        let (Ok(at), Some(value)) = (steps.binary_search(step), value) else { continue };
        let cell = &mut values[*rank as usize / ranks_each][at / steps_each];
        *cell = Some(cell.map_or(*value, |known| known.max(*value)));
    }
    let rows = labels.chunks(ranks_each).enumerate().map(|(at, group)| {
        let first = at * ranks_each;
        let label = match group {
            [one] => one.clone(),
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
        let mut cells = HeatCells::default();
        for (rank, step) in
            (0..ranks).flat_map(|rank| (0..2 * COLUMNS as u64).map(move |step| (rank, step)))
        {
            cells.add(&format!("rank {rank}"), step, (rank != 4).then_some(rank as f64));
        }
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
        let mut cells = HeatCells::default();
        cells.add("rank 0", 7, None);
        cells.add("rank 1", 7, Some(2.0));
        let heat = folded("idle_ns", &cells, None);
        assert_eq!(heat["values"], json!([[null], [2.0]]));
        assert_eq!(
            folded("idle_ns", &HeatCells::default(), Some("no device"))["missing"],
            "no device"
        );
    }

    #[test]
    fn labels_with_commas_are_one_field() {
        assert_eq!(fields("rank 0,3,7.5,"), ["rank 0", "3", "7.5", ""]);
        assert_eq!(fields("\"rank 0, restart 1\",3"), ["rank 0, restart 1", "3"]);
        assert_eq!(fields("3,\"rank 0, restart 1\""), ["3", "rank 0, restart 1"]);
    }
}
