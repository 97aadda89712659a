//! Answers with files of `tprof export`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_DISPOSITION;
use axum::response::Response;

use super::body;
use super::routes::SLICE;
use crate::app::App;
use crate::failure::Failure;
use crate::runs::RegisteredRun;
use crate::work::Output;

/// Answers `GET /api/v1/runs/ID/export/FORMAT`.
pub async fn export(
    State(app): State<Arc<App>>,
    Path((id, name)): Path<(u32, String)>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Result<Response, Failure> {
    let run = app.run(id)?;
    let Some(format) = app.catalogue.formats.iter().find(|format| format.name == name) else {
        return Err(Failure::absent(
            format!("there is no format `{name}`"),
            "no export has this name",
        )
        .hint("GET /api/v1 lists all"));
    };
    let file = match format.is_one_file {
        true => format.file.clone(),
        false => format!("{}.tar", format.name),
    };
    let output = exported(&app, &run, &name, &[], &query).await?;
    let mut response = body::of(output, "application/octet-stream");
    // The download is named after the run's number: the run's name could contain characters that
    // are not valid in this header.
    let disposition = format!("attachment; filename=\"run-{id}-{file}\"");
    if let Ok(disposition) = HeaderValue::try_from(disposition) {
        response.headers_mut().insert(CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}

/// Returns what `tprof export` writes for a run.
pub async fn exported(
    app: &Arc<App>,
    run: &RegisteredRun,
    format: &str,
    further: &[OsString],
    query: &BTreeMap<String, String>,
) -> Result<Arc<Output>, Failure> {
    let mut words: Vec<OsString> = vec!["export".into(), run.readable()?.into()];
    words.extend(["--to".into(), format.into(), "-o".into(), "-".into()]);
    words.extend(further.iter().cloned());
    for (name, value) in query {
        if !SLICE.iter().any(|(known, _)| known == name)
            || value.len() > 256
            || value.contains('\0')
        {
            return Err(Failure::misuse(
                format!("there is no parameter `{name}`"),
                "no export takes it",
            )
            .hint("rank, steps, from_time, to_time"));
        }
        words.push(format!("--{}={value}", name.replace('_', "-")).into());
    }
    app.make(words, &[run]).await
}
