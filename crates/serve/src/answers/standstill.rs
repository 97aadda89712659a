//! Says where a run in progress stands still, as `tprof where` does.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::Value;

use crate::app::App;
use crate::failure::Failure;

/// Longest output of `tprof where` to read, bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Answers `GET /api/v1/runs/ID/where`.
pub async fn standstill(
    State(app): State<Arc<App>>,
    Path(id): Path<u32>,
) -> Result<Json<Value>, Failure> {
    let run = app.run(id)?;
    let words = ["where".into(), "--json".into(), run.readable()?.as_os_str().to_owned()];
    let output = app.jobs.run_uncached(&words).await?;
    let failed = |error: &dyn std::fmt::Display| Failure::new("cannot read the answer", error);
    let text = output.read_all(MAX_BYTES).map_err(|error| failed(&error))?;
    serde_json::from_slice(&text).map(Json).map_err(|error| failed(&error))
}
