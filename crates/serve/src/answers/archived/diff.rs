//! Compares two archived runs, in the shape of `tprof diff A B --json`.
//!
//! If both runs have steps, figures are per step and rank, so that a longer run or one with more
//! ranks does not look slower. An archive contains only sums, from which no confidence interval can
//! be computed. `tprof diff` of the runs themselves shows how certain a change is.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::about::VERSION;
use super::super::diff::Pair;
use crate::archive::{Archive, ArchivedRun};
use crate::failure::Failure;

/// Largest number of rows of each table of changes.
const MOST: usize = 200;
/// Values whose relative difference is at most this count as equal, because rounding alone can
/// cause it.
const ROUNDING: f64 = 1e-12;
const NO_INTERVAL: &str = "sums do not have it; `tprof diff` of the runs themselves does";

/// SQL statement for the figures of each run. It returns one row per run.
const FIGURES: &str = "\
    SELECT r.run, r.ranks, r.duration_ns, r.command, r.commit, r.hosts, r.world_size, r.tprof, \
           s.median_ns, s.mean_ns, s.steps, d.compute_ns, d.exposed_communication_ns, d.exposed_copies_ns, \
           d.idle_ns, b.gpu_busy, b.compute_share, b.overlapped_share, b.exposed_share, b.copies_share, m.peak_bytes \
    FROM runs r \
    LEFT JOIN (SELECT run, max(median_ns) AS median_ns, avg(mean_ns) AS mean_ns, max(steps) AS steps FROM \
        (SELECT run, median(CAST(duration_ns AS DOUBLE)) AS median_ns, avg(duration_ns) AS mean_ns, count(*) AS steps \
         FROM rank_steps GROUP BY run, rank, instance, host) GROUP BY run) s ON s.run = r.run \
    LEFT JOIN (SELECT run, avg(compute_ns) AS compute_ns, avg(exposed_communication_ns) AS exposed_communication_ns, \
        avg(exposed_copies_ns) AS exposed_copies_ns, avg(idle_ns) AS idle_ns FROM rank_step_devices GROUP BY run) d \
        ON d.run = r.run \
    LEFT JOIN (SELECT run, 1 - avg(idle_share) AS gpu_busy, avg(compute_share) AS compute_share, \
        avg(overlapped_share) AS overlapped_share, avg(exposed_share) AS exposed_share, \
        avg(copies_share) AS copies_share FROM rank_summary GROUP BY run) b ON b.run = r.run \
    LEFT JOIN (SELECT run, max(peak_bytes) AS peak_bytes FROM rank_memory GROUP BY run) m ON m.run = r.run";

/// Tables of changes: key in the document, noun for the sentence "the run has no …", table of the
/// archive, and the SQL statement that returns rows of `run, name, ns, count`.
const CHANGES: [(&str, &str, &str, &str); 4] = [
    (
        "kernels",
        "kernels",
        "rank_kernels",
        "SELECT run, name, CAST(sum(total_ns) AS DOUBLE) AS ns, CAST(sum(count) AS DOUBLE) AS count \
         FROM rank_kernels GROUP BY run, name",
    ),
    (
        "collectives",
        "collectives",
        "rank_collectives",
        "SELECT run, operation AS name, CAST(sum(total_ns) AS DOUBLE) AS ns, CAST(sum(calls) AS DOUBLE) AS count \
         FROM rank_collectives GROUP BY run, operation",
    ),
    (
        "idle_streams",
        "record of streams",
        "rank_idle",
        "SELECT run, 'host wait' AS name, CAST(sum(host_wait_ns) AS DOUBLE) AS ns, CAST(NULL AS DOUBLE) AS count \
         FROM rank_idle GROUP BY run \
         UNION ALL SELECT run, 'kernel wait', sum(kernel_wait_ns), NULL FROM rank_idle GROUP BY run \
         UNION ALL SELECT run, 'other', sum(other_ns), NULL FROM rank_idle GROUP BY run \
         UNION ALL SELECT run, 'unknown', sum(unknown_ns), NULL FROM rank_idle GROUP BY run",
    ),
    (
        "launches",
        "launches",
        "rank_launches",
        "SELECT run, name, CAST(sum(call_total_ns) AS DOUBLE) AS ns, CAST(sum(calls) AS DOUBLE) AS count \
         FROM rank_launches GROUP BY run, name",
    ),
];

/// Compared metrics: table of the document, key, name, column of [`FIGURES`].
const METRICS: [(&str, &str, &str, &str); 13] = [
    ("times", "median_step_time", "median step of the slowest rank", "median_ns"),
    ("times", "mean_step_time", "mean step of all ranks", "mean_ns"),
    ("times", "compute", "GPU compute of a step", "compute_ns"),
    (
        "times",
        "exposed_communication",
        "exposed communication of a step",
        "exposed_communication_ns",
    ),
    ("times", "exposed_copies", "exposed copies of a step", "exposed_copies_ns"),
    ("times", "idle", "GPU idle in a step", "idle_ns"),
    ("shares", "gpu_busy", "GPU busy", "gpu_busy"),
    ("shares", "compute_share", "compute without communication", "compute_share"),
    ("shares", "overlapped_share", "compute with communication", "overlapped_share"),
    ("shares", "exposed_share", "exposed communication", "exposed_share"),
    ("shares", "copies_share", "copies", "copies_share"),
    ("run", "wall_time", "wall time", "duration_ns"),
    ("memory", "peak_device_memory", "peak device memory of a rank", "peak_bytes"),
];
/// Columns of [`FIGURES`] that describe how a run was made. A setting that differs is listed in
/// `differences`.
const SETTINGS: [&str; 6] = ["command", "commit", "hosts", "ranks", "world_size", "tprof"];

#[derive(Deserialize)]
struct Change {
    run: String,
    name: Option<String>,
    ns: Option<f64>,
    count: Option<f64>,
}

/// Time that a run spent on one name (of a kernel or collective, for example), per step and rank.
#[derive(Clone, Copy, Default)]
struct Share {
    ns: f64,
    count: Option<f64>,
}

/// Answers `GET /api/v1/diff`.
pub async fn diff(
    State(archive): State<Arc<Archive>>,
    Query(pair): Query<Pair>,
) -> Result<Json<Value>, Failure> {
    let (a, b) = (archive.run(pair.a)?, archive.run(pair.b)?);
    let statements: Vec<String> =
        [FIGURES].into_iter().chain(CHANGES.map(|one| one.3)).map(str::to_owned).collect();
    let rows = archive.ask(&[&a, &b], &statements).await?;
    let figures: Vec<Value> = rows.read(0)?;
    let of = |run: &ArchivedRun| {
        figures.iter().find(|row| row["run"] == *run.run).cloned().unwrap_or_default()
    };
    let (of_a, of_b) = (of(&a), of(&b));
    let mut tables = serde_json::Map::new();
    for table in ["times", "shares", "run", "memory"] {
        let all = METRICS.iter().filter(|metric| metric.0 == table);
        let made =
            all.map(|(_, key, name, column)| metric(key, name, &of_a[*column], &of_b[*column]));
        tables.insert(table.to_owned(), made.collect());
    }
    tables.insert("differences".to_owned(), differences(&of_a, &of_b));
    let shares = [share(&of_a), share(&of_b)];
    let each = match shares {
        [Some(a), Some(b)] => [a, b],
        _ => [ranks(&of_a), ranks(&of_b)],
    };
    let mut notes = vec!["From an archive: sums of each rank, without intervals.".to_owned()];
    for (at, (key, what, table, _)) in CHANGES.iter().enumerate() {
        // If a run lacks this table, its times are unknown. They must not count as zero, which
        // would look like a change.
        let unknown = [&a, &b].into_iter().find(|run| !run.tables.contains_key(*table));
        let mut made = match unknown {
            Some(_) => Vec::new(),
            None => changes(&rows.read::<Change>(at + 1)?, [&a.run, &b.run], each),
        };
        if made.is_empty() {
            let mut sides = unknown.into_iter().chain([&a, &b]);
            let why = sides.find_map(|run| run.missing(table, what));
            tables.insert(format!("{key}_missing"), why.into());
        }
        if made.len() > MOST {
            notes.push(format!("`{key}` has the {MOST} largest changes of {}.", made.len()));
            made.truncate(MOST);
        }
        tables.insert((*key).to_owned(), made.into());
    }
    let per = match shares {
        [Some(_), Some(_)] => {
            "Times of kernels, collectives, idle streams and launches are of a step and a rank."
        }
        _ => {
            "A run has no steps: times of kernels, collectives, idle streams and launches are of a rank."
        }
    };
    notes.push(per.to_owned());
    Ok(Json(json!({
        "version": VERSION,
        "tprof": archive.catalogue.tprof,
        "kind": "diff",
        "a": side(&archive, &a),
        "b": side(&archive, &b),
        "other_hardware": [],
        "notes": notes,
        "tables": tables,
    })))
}

fn side(archive: &Archive, run: &ArchivedRun) -> Value {
    let row = archive.row(run);
    let has_gaps = row["complete"] == false;
    let completeness = has_gaps.then(|| json!({ "complete": false, "lost": row["lost"] }));
    json!({ "run": { "path": run.run }, "completeness": completeness, "problems": run.notes })
}

fn ranks(figures: &Value) -> f64 {
    1.0 / figures["ranks"].as_f64().unwrap_or(1.0).max(1.0)
}

/// Factor that turns a sum over all ranks and steps into a value per step and rank; `None` without
/// steps.
fn share(figures: &Value) -> Option<f64> {
    let steps = figures["steps"].as_f64().filter(|steps| *steps > 0.0)?;
    Some(ranks(figures) / steps)
}

fn metric(key: &str, name: &str, a: &Value, b: &Value) -> Value {
    let (of_a, of_b) = (a.as_f64(), b.as_f64());
    let change = of_a.zip(of_b).map(difference);
    let missing = "the archive has none of this run";
    json!({
        "metric": key,
        "name": name,
        "a": of_a,
        "a_missing": of_a.is_none().then_some(missing),
        "b": of_b,
        "b_missing": of_b.is_none().then_some(missing),
        "change": change,
        "change_missing": change.is_none().then_some("a side has none"),
        "change_share": change.zip(of_a).filter(|(_, a)| *a != 0.0).map(|(change, a)| change / a.abs()),
        "interval": null,
        "interval_missing": NO_INTERVAL,
        "verdict": null,
    })
}

/// Returns B minus A, or 0 if they differ only by rounding: floating-point sums of the same values
/// in another order differ slightly.
fn difference((a, b): (f64, f64)) -> f64 {
    let change = b - a;
    if change.abs() > ROUNDING * a.abs().max(b.abs()) { change } else { 0.0 }
}

fn differences(a: &Value, b: &Value) -> Value {
    let text = |value: &Value| match value {
        Value::Null => Value::Null,
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    };
    let differ = SETTINGS.iter().filter(|key| a[**key] != b[**key]);
    differ.map(|key| json!({ "key": key, "a": text(&a[*key]), "b": text(&b[*key]) })).collect()
}

/// Joins the rows of both runs by name, largest changes first. `each` has the factor for the values
/// of each run.
fn changes(rows: &[Change], runs: [&str; 2], each: [f64; 2]) -> Vec<Value> {
    let mut sides: BTreeMap<&str, [Option<Share>; 2]> = BTreeMap::new();
    for row in rows {
        let (Some(name), Some(ns)) = (&row.name, row.ns) else { continue };
        for side in (0..2).filter(|side| runs[*side] == row.run) {
            let count = row.count.map(|count| count * each[side]);
            sides.entry(name).or_default()[side] = Some(Share { ns: ns * each[side], count });
        }
    }
    let mut made: Vec<(f64, Value)> = Vec::new();
    for (name, [a, b]) in sides {
        // If a run's table lacks a name, the name took no time in that run, because the table is
        // complete.
        let ns = |side: Option<Share>| side.map_or(0.0, |of| of.ns);
        let count = |side: Option<Share>| side.map_or(Some(0.0), |of| of.count);
        let change = difference((ns(a), ns(b)));
        let presence = match (a, b) {
            (Some(_), None) => "A",
            (None, Some(_)) => "B",
            _ => "",
        };
        let has_counts = count(a).is_some() && count(b).is_some();
        made.push((
            change.abs(),
            json!({
                "name": name, "a_ns": ns(a), "b_ns": ns(b), "change_ns": change,
                "interval_ns": null, "interval_ns_missing": NO_INTERVAL,
                "a_count": count(a).filter(|_| has_counts), "b_count": count(b).filter(|_| has_counts),
                "presence": presence,
            }),
        ));
    }
    made.sort_by(|a, b| b.0.total_cmp(&a.0));
    made.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_run_of_more_ranks_is_not_slower() {
        let row = |run: &str, name: &str, ns: f64| Change {
            run: run.to_owned(),
            name: Some(name.to_owned()),
            ns: Some(ns),
            count: Some(ns / 10.0),
        };
        // B has twice the ranks and three times the steps.
        let rows = [row("a", "k", 100.0), row("b", "k", 600.0), row("b", "new", 60.0)];
        let made = changes(&rows, ["a", "b"], [0.1, 0.1 / 6.0]);
        assert_eq!(made[0]["name"], "new");
        assert_eq!((&made[0]["presence"], &made[0]["a_ns"]), (&json!("B"), &json!(0.0)));
        assert_eq!(made[1]["change_ns"], 0.0, "{made:?}");
        assert!((made[1]["b_count"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{made:?}");
    }

    #[test]
    fn a_value_that_one_run_lacks_is_not_a_change() {
        let of = metric("k", "k", &json!(3.0), &Value::Null);
        assert_eq!((&of["change"], &of["change_share"]), (&Value::Null, &Value::Null));
        assert!(of["b_missing"].is_string() && of["a_missing"].is_null());
        let of = metric("k", "k", &json!(4.0), &json!(3.0));
        assert_eq!((&of["change"], &of["change_share"]), (&json!(-1.0), &json!(-0.25)));
        let (a, b) = (json!({ "ranks": 4, "commit": null }), json!({ "ranks": 8, "commit": "x" }));
        assert_eq!(
            differences(&a, &b),
            json!([{ "key": "commit", "a": null, "b": "x" }, { "key": "ranks", "a": "4", "b": "8" }])
        );
    }
}
