//! Answers with documents of `tprof report --json`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::Response;

use super::body;
use super::routes::REPORT;
use crate::app::App;
use crate::failure::Failure;
use crate::runs::RegisteredRun;
use crate::work::Output;

/// Names of the parameters that are switches.
const SWITCHES: [&str; 4] = ["hta", "steady", "lines", "mine"];
/// Longest value of a parameter, in bytes.
const MAX_VALUE: usize = 512;

/// Answers `GET /api/v1/runs/ID/report/KIND`.
pub async fn report(
    State(app): State<Arc<App>>,
    Path((id, kind)): Path<(u32, String)>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Result<Response, Failure> {
    let run = app.run(id)?;
    let output = document(&app, &run, &kind, &query).await?;
    Ok(body::of(output, "application/json"))
}

/// Returns the document of a kind of report.
pub async fn document(
    app: &Arc<App>,
    run: &RegisteredRun,
    kind: &str,
    query: &BTreeMap<String, String>,
) -> Result<Arc<Output>, Failure> {
    if !app.catalogue.kinds.iter().any(|known| known.name == kind) {
        return Err(Failure::absent(
            format!("there is no report `{kind}`"),
            "no kind has this name",
        )
        .hint("GET /api/v1 lists all"));
    }
    let mut words: Vec<OsString> = vec!["report".into(), kind.into(), "--json".into()];
    words.extend(options(query)?);
    words.push(run.readable()?.into());
    app.make(words, &[run]).await
}

/// Converts the query to options.
fn options(query: &BTreeMap<String, String>) -> Result<Vec<OsString>, Failure> {
    let mut words = Vec::new();
    for (name, value) in query {
        if !REPORT.iter().any(|(known, _)| known == name) {
            let known: Vec<&str> = REPORT.iter().map(|(known, _)| *known).collect();
            return Err(Failure::misuse(
                format!("there is no parameter `{name}`"),
                "no report takes it",
            )
            .hint(known.join(", ")));
        }
        if value.len() > MAX_VALUE || value.contains('\0') {
            return Err(Failure::misuse(
                format!("bad value of `{name}`"),
                "it is too long, or contains a zero byte",
            ));
        }
        let option = name.replace('_', "-");
        match SWITCHES.contains(&name.as_str()) {
            false => words.push(format!("--{option}={value}").into()),
            true if value == "1" => words.push(format!("--{option}").into()),
            true => {}
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_becomes_options_and_nothing_else() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            options(&pairs.collect())
        };
        assert_eq!(of(&[("rank", "3"), ("hta", "1")]).unwrap(), ["--hta", "--rank=3"]);
        assert_eq!(of(&[("within", "--output=/etc/x")]).unwrap(), ["--within=--output=/etc/x"]);
        assert!(of(&[("hta", "0")]).unwrap().is_empty());
        for bad in [("output", "/tmp"), ("csv", "1"), ("within", "a\0b")] {
            assert!(of(&[bad]).is_err(), "{bad:?}");
        }
        assert!(of(&[("within", &"a".repeat(MAX_VALUE + 1))]).is_err());
    }
}
