//! Answers with the list of archived runs, and with the features of this server.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::super::about::{VERSION, described};
use super::super::routes::{ROUTES, Route};
use super::is_answered;
use super::kinds::KINDS;
use crate::archive::Archive;
use crate::failure::Failure;

fn routes() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().filter(|route| is_answered(route.endpoint))
}

/// Answers `GET /api/v1`.
pub async fn about(State(archive): State<Arc<Archive>>) -> Json<Value> {
    let kinds = KINDS
        .iter()
        .map(|kind| json!({ "name": kind.name, "about": kind.about(&archive.catalogue) }));
    let address = archive.known().archive;
    Json(json!({
        "version": VERSION,
        "tprof": archive.catalogue.tprof,
        "directory": address,
        "archive": address,
        "control": false,
        "kinds": kinds.collect::<Vec<_>>(),
        "formats": [],
        "routes": routes().map(|route| format!("{} {}", route.method, route.path)).collect::<Vec<_>>(),
    }))
}

/// Answers `GET /api/v1/openapi.json`.
pub async fn openapi(State(archive): State<Arc<Archive>>) -> Json<Value> {
    Json(described(&archive.catalogue.tprof, routes()))
}

/// Answers `GET /api/v1/runs`.
pub async fn all(State(archive): State<Arc<Archive>>) -> Json<Value> {
    let listing = archive.listing();
    let pending = archive.request_missing(&listing.runs);
    let rows: Vec<Value> = listing.runs.iter().map(|run| archive.row(run)).collect();
    let stale = listing
        .stale
        .map(|failure| json!({ "error": failure.what, "why": failure.why, "try": failure.hint }));
    Json(json!({
        "version": VERSION,
        "pending": pending,
        "runs": rows,
        "problems": listing.problems,
        "stale": stale,
    }))
}

/// Answers `GET /api/v1/runs/ID`.
pub async fn one(
    State(archive): State<Arc<Archive>>,
    Path(id): Path<u32>,
) -> Result<Json<Value>, Failure> {
    let run = archive.run(id)?;
    archive.request_missing(&archive.known().runs);
    let mut row = archive.row(&run);
    row["tables"] = json!(run.tables);
    Ok(Json(row))
}
