//! Routes `/api/profiler/…` with the key names of the first dashboard, for scripts that were
//! written for it. A value that was not measured is null, with the reason next to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::export::exported;
use super::report::document;
use crate::app::App;
use crate::failure::Failure;
use crate::runs::RegisteredRun;

/// Longest document to read.
const MAX_BYTES: u64 = 256 << 20;
/// Number of kernels in an answer.
const TOP: usize = 100;
/// Largest number of nodes of a tree of stacks.
const MAX_NODES: usize = 200_000;
const MEGABYTE: f64 = 1e6;

/// Query parameters: the number of the run.
#[derive(Deserialize)]
pub struct RunQuery {
    run: Option<u32>,
}

type SeedAnswer = Result<Json<Value>, Failure>;

fn wanted(app: &App, asked: &RunQuery) -> Result<RegisteredRun, Failure> {
    match asked.run {
        Some(id) => app.run(id),
        None => {
            let (all, _) = app.registry.list();
            all.into_iter().next().ok_or_else(|| {
                Failure::absent("there is no run", "the directory has none")
                    .hint("tprof run -- COMMAND")
            })
        }
    }
}

async fn tables(app: &Arc<App>, run: &RegisteredRun, kind: &str) -> Result<Value, Failure> {
    let output = document(app, run, kind, &BTreeMap::new()).await?;
    let failed = |error: &dyn std::fmt::Display| Failure::new("cannot read the report", error);
    let text = output.read_all(MAX_BYTES).map_err(|error| failed(&error))?;
    let mut document: Value = serde_json::from_slice(&text).map_err(|error| failed(&error))?;
    Ok(document["tables"].take())
}

fn rows<'a>(tables: &'a Value, table: &str) -> &'a [Value] {
    tables[table].as_array().map_or(&[], Vec::as_slice)
}

/// Explains why a table has no rows.
fn why(tables: &Value, table: &str) -> Value {
    match &tables[format!("{table}_missing")] {
        Value::Null if rows(tables, table).is_empty() => "nothing of the kind was recorded".into(),
        why => why.clone(),
    }
}

fn head(run: &RegisteredRun) -> Map<String, Value> {
    let fields = [("run", json!(run.id)), ("path", json!(run.entry.path.to_string_lossy()))];
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn with(run: &RegisteredRun, fields: Value) -> Json<Value> {
    let mut all = head(run);
    all.extend(fields.as_object().cloned().unwrap_or_default());
    Json(all.into())
}

/// Answers `GET /api/profiler/flame`.
pub async fn flame(State(app): State<Arc<App>>, Query(asked): Query<RunQuery>) -> SeedAnswer {
    let run = wanted(&app, &asked)?;
    let folded = exported(&app, &run, "folded", &[], &BTreeMap::new()).await;
    let text = match folded {
        Ok(output) => output
            .read_all(MAX_BYTES)
            .map_err(|error| Failure::new("cannot read the stacks", error))?,
        Err(failure) => {
            return Ok(with(&run, json!({ "flame": null, "why": failure.to_string() })));
        }
    };
    let mut root = Node::default();
    let mut nodes = 0;
    for line in String::from_utf8_lossy(&text).lines() {
        let Some((stack, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<u64>() else { continue };
        root.add(stack, value, &mut nodes);
    }
    let is_cut =
        (nodes >= MAX_NODES).then_some("the deepest frames of further stacks are left out");
    Ok(with(&run, json!({ "flame": root.json("all"), "cut": is_cut })))
}

/// A frame of a stack, and the frames that it calls.
#[derive(Default)]
struct Node {
    value: u64,
    children: BTreeMap<String, Node>,
}

impl Node {
    fn add(&mut self, stack: &str, value: u64, nodes: &mut usize) {
        self.value += value;
        let mut at = self;
        for frame in stack.split(';').take(512) {
            if *nodes >= MAX_NODES && !at.children.contains_key(frame) {
                return;
            }
            at = at.children.entry(frame.to_owned()).or_insert_with(|| {
                *nodes += 1;
                Node::default()
            });
            at.value += value;
        }
    }

    fn json(&self, name: &str) -> Value {
        let children = self.children.iter().map(|(name, node)| node.json(name));
        json!({ "name": name, "value": self.value, "children": children.collect::<Vec<_>>() })
    }
}

/// Answers `GET /api/profiler/memory`.
pub async fn memory(State(app): State<Arc<App>>, Query(asked): Query<RunQuery>) -> SeedAnswer {
    let run = wanted(&app, &asked)?;
    let tables = tables(&app, &run, "device-memory").await?;
    let points: Vec<(f64, f64)> = rows(&tables, "curve")
        .iter()
        .filter_map(|row| {
            Some((row["time_ns"].as_f64()? / 1e6, row["allocated_bytes"].as_f64()? / MEGABYTE))
        })
        .collect();
    let peak = points.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    let timeline: Vec<Value> = points
        .iter()
        .map(|(time, used)| json!({ "time_ms": time, "allocated_mb": used }))
        .collect();
    Ok(with(
        &run,
        json!({
            "timeline": if points.is_empty() { Value::Null } else { timeline.into() },
            "peak_allocated_mb": peak.map(|peak| peak.1),
            "peak_time_ms": peak.map(|peak| peak.0),
            "why": if points.is_empty() { why(&tables, "curve") } else { Value::Null },
        }),
    ))
}

/// Answers `GET /api/profiler/timeline`.
pub async fn timeline(State(app): State<Arc<App>>, Query(asked): Query<RunQuery>) -> SeedAnswer {
    let run = wanted(&app, &asked)?;
    let tables = tables(&app, &run, "breakdown").await?;
    let rows = rows(&tables, "host_and_gpu");
    let us = |key: &str| {
        let values = rows.iter().filter_map(|row| row[key].as_f64());
        (!rows.is_empty()).then(|| values.sum::<f64>() / 1e3)
    };
    Ok(with(
        &run,
        json!({
            "total_us": us("window_ns"),
            "cpu_active_us": us("host_ns"),
            "gpu_active_us": us("gpu_ns"),
            "overlap_us": us("both_ns"),
            "ranks": rows.len(),
            "why": if rows.is_empty() { why(&tables, "host_and_gpu") } else { Value::Null },
        }),
    ))
}

/// Answers `GET /api/profiler/kernels`.
pub async fn kernels(State(app): State<Arc<App>>, Query(asked): Query<RunQuery>) -> SeedAnswer {
    let run = wanted(&app, &asked)?;
    let tables = tables(&app, &run, "kernels").await?;
    Ok(with(&run, top_kernels(&tables)))
}

fn top_kernels(tables: &Value) -> Value {
    let rows = rows(tables, "kernels");
    let kernel = |row: &Value| {
        json!({
            "name": row["name"],
            "cuda_time_us": row["total_ns"].as_f64().map(|ns| ns / 1e3),
            "calls": row["count"],
            "mean_us": row["mean_ns"].as_f64().map(|ns| ns / 1e3),
            "share": row["share"],
            "class": row["class"],
        })
    };
    let kernels: Vec<Value> = rows.iter().take(TOP).map(kernel).collect();
    json!({
        "kernels": if rows.is_empty() { Value::Null } else { kernels.into() },
        "why": if rows.is_empty() { why(tables, "kernels") } else { Value::Null },
    })
}

/// Answers `GET /api/profiler/hta`.
pub async fn hta(State(app): State<Arc<App>>, Query(asked): Query<RunQuery>) -> SeedAnswer {
    let run = wanted(&app, &asked)?;
    let breakdown = tables(&app, &run, "breakdown").await?;
    let rows_of = rows(&breakdown, "breakdown");
    // The shares are of the summed device time of all ranks.
    let sum = |key: &str| rows_of.iter().filter_map(|row| row[key].as_f64()).sum::<f64>();
    let window = sum("window_ns");
    let percent = |keys: &[&str]| {
        (window > 0.0).then(|| 100.0 * keys.iter().map(|key| sum(key)).sum::<f64>() / window)
    };
    let kernels = tables(&app, &run, "kernels").await?;
    let findings = tables(&app, &run, "findings").await?;
    let advice = rows(&findings, "findings").iter().map(|row| {
        json!({ "rule": row["rule"], "severity": row["severity"], "what": row["what"], "try": row["try"] })
    });
    Ok(with(
        &run,
        json!({
            "gpu_idle_pct": percent(&["idle_ns"]),
            "gpu_compute_pct": percent(&["compute_ns"]),
            "gpu_communication_pct": percent(&["exposed_ns"]),
            "gpu_copies_pct": percent(&["copies_ns", "other_ns"]),
            "top_kernels": top_kernels(&kernels)["kernels"],
            "recommendations": advice.collect::<Vec<_>>(),
            "why": if rows_of.is_empty() { why(&breakdown, "breakdown") } else { Value::Null },
        }),
    ))
}

/// Answers `GET /api/profiler/compile`.
pub async fn compile(State(app): State<Arc<App>>, Query(asked): Query<RunQuery>) -> SeedAnswer {
    let run = wanted(&app, &asked)?;
    let tables = tables(&app, &run, "compile").await?;
    // If the compile logs of all ranks are complete and contain no event of a kind, the list of
    // these events is empty. Otherwise a missing list means that it is unknown. `counted` is the
    // column of `compile_ranks` that counts events of the kind.
    let ranks = rows(&tables, "compile_ranks");
    let is_known =
        |counted: &str| !ranks.is_empty() && ranks.iter().all(|row| row[counted].is_u64());
    let list = |key: &str, is_known: bool| match rows(&tables, key) {
        [] if !is_known => Value::Null,
        rows => rows.into(),
    };
    let breaks = list("graph_breaks", is_known("graph_breaks"));
    let recompiles = list("recompiles", is_known("recompiles"));
    let graphs = list("graphs", false);
    let why_unknown =
        |list: &Value, key: &str| if list.is_null() { why(&tables, key) } else { Value::Null };
    let total: f64 =
        rows(&tables, "frames").iter().filter_map(|row| row["total_ns"].as_f64()).sum();
    let has_frames = !rows(&tables, "frames").is_empty() || is_known("compilations");
    Ok(with(
        &run,
        json!({
            "compile_time_ms": has_frames.then_some(total / 1e6),
            "graph_breaks_why": why_unknown(&breaks, "graph_breaks"),
            "graph_breaks": breaks,
            "recompiles_why": why_unknown(&recompiles, "recompiles"),
            "recompiles": recompiles,
            "graphs_why": why_unknown(&graphs, "graphs"),
            "graphs": graphs,
            "speedup": null,
            "speedup_why": "one run has no figure without compilation: record one, then tprof diff",
            "why": if has_frames { Value::Null } else { why(&tables, "frames") },
        }),
    ))
}
