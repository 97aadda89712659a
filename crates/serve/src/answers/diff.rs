//! Compares two runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;

use super::{body, export, page};
use crate::app::App;
use crate::failure::Failure;

/// Query parameters: the numbers of the two runs.
#[derive(Deserialize)]
pub struct Pair {
    pub a: u32,
    pub b: u32,
}

/// Answers `GET /api/v1/diff`.
pub async fn diff(
    State(app): State<Arc<App>>,
    Query(pair): Query<Pair>,
) -> Result<Response, Failure> {
    let (a, b) = (app.run(pair.a)?, app.run(pair.b)?);
    let words = vec!["diff".into(), a.readable()?.into(), b.readable()?.into(), "--json".into()];
    Ok(body::of(app.make(words, &[&a, &b]).await?, "application/json"))
}

/// Answers `GET /api/v1/diff/flame`.
pub async fn flame(
    State(app): State<Arc<App>>,
    Query(pair): Query<Pair>,
) -> Result<Response, Failure> {
    let (a, b) = (app.run(pair.a)?, app.run(pair.b)?);
    let against = ["--against".into(), a.readable()?.into()];
    let output = export::exported(&app, &b, "flame", &against, &BTreeMap::new()).await?;
    page::of_export(&output)
}
