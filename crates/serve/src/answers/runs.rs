//! Answers with the list of runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::about::VERSION;
use super::rows::row;
use crate::app::App;
use crate::failure::Failure;

/// Answers `GET /api/v1/runs`.
pub async fn all(State(app): State<Arc<App>>) -> Json<Value> {
    let (runs, left_out) = app.registry.list();
    let pending = app.summaries.request_missing(&runs);
    let rows: Vec<Value> = runs.iter().map(|run| row(&app, run)).collect();
    let mut list = json!({ "version": VERSION, "pending": pending, "runs": rows });
    if left_out > 0 {
        list["left_out"] = left_out.into();
    }
    Json(list)
}

/// Answers `GET /api/v1/runs/ID`.
pub async fn one(State(app): State<Arc<App>>, Path(id): Path<u32>) -> Result<Json<Value>, Failure> {
    Ok(Json(row(&app, &app.run(id)?)))
}
