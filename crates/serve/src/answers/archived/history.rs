//! Archived runs of one command, and what changed from one to the next.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use serde_json::{Value, json};

use super::super::about::VERSION;
use super::super::history::{HistoryQuery, Metric, metrics};
use crate::archive::Archive;
use crate::failure::Failure;

/// Figures that the history shows, of those that an archive contains.
const METRICS: [Metric; 5] = [
    ("step_ns", "ns", true),
    ("wall_ns", "ns", true),
    ("gpu_busy", "share", false),
    ("peak_device_bytes", "bytes", true),
    ("findings", "count", true),
];

/// Answers `GET /api/v1/history`.
pub async fn history(
    State(archive): State<Arc<Archive>>,
    Query(asked): Query<HistoryQuery>,
) -> Result<Json<Value>, Failure> {
    let run = archive.row(&*archive.run(asked.run)?);
    let listing = archive.listing();
    // The command is one of the figures, so a run without figures belongs to no history yet.
    let pending = archive.request_missing(&listing.runs);
    let all = listing.runs.iter().rev().map(|run| archive.row(run));
    let same: Vec<Value> = all.filter(|row| row["id"] == run["id"] || is_same(row, &run)).collect();
    Ok(Json(json!({
        "version": VERSION,
        "command": run["command_text"],
        "pending": pending,
        "metrics": metrics(&same, &METRICS),
        "runs": same,
    })))
}

/// Whether two runs have the same command, or the same name if no command was recorded.
fn is_same(a: &Value, b: &Value) -> bool {
    match (&a["command_text"], &b["command_text"]) {
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Null, Value::Null) if a["summary"] == "ready" && b["summary"] == "ready" => {
            name(a) == name(b)
        }
        _ => false,
    }
}

/// Returns the name of a run's directory, which is its ID without the hash.
fn name(row: &Value) -> &str {
    let id = row["name"].as_str().unwrap_or_default();
    id.rsplit_once('-').map_or(id, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_without_a_command_are_matched_by_name() {
        let row = |command: Value, name: &str| json!({ "command_text": command, "name": name, "summary": "ready" });
        let (a, b) = (row("x".into(), "r1-00"), row("x".into(), "r2-00"));
        assert!(is_same(&a, &b) && !is_same(&a, &row("y".into(), "r1-00")));
        assert!(is_same(&row(Value::Null, "r-1-00"), &row(Value::Null, "r-1-11")));
        assert!(!is_same(&row(Value::Null, "r-1-00"), &row(Value::Null, "r-2-00")));
        let pending = json!({ "command_text": null, "name": "r-1-00", "summary": "pending" });
        assert!(!is_same(&pending, &row(Value::Null, "r-1-11")));
    }
}
