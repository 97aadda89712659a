//! Requests that change something, which need `--control`.

use std::ffi::OsString;
use std::path::Path as FilePath;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::rows::row;
use crate::app::App;
use crate::failure::Failure;
use crate::http;
use crate::runs::notes::Notes;

/// Longest output of `tprof ctl` to read, bytes.
const MAX_BYTES: u64 = 16 << 20;
/// Longest name of a mark.
const MAX_NAME: usize = 256;

/// A request to a run in progress.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ControlRequest {
    action: Action,
    name: Option<String>,
    steps: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Start,
    Stop,
    Mark,
    Step,
    Snapshot,
}

/// Answers `POST /api/v1/runs/ID/control`.
pub async fn control(
    State(app): State<Arc<App>>,
    Path(id): Path<u32>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let asked: ControlRequest = read(request).await?;
    let run = app.run(id)?;
    let words = words(&asked, run.readable()?)?;
    let output = app.jobs.run_uncached(&words).await?;
    let text = output
        .read_all(MAX_BYTES)
        .map_err(|error| Failure::new("cannot read the answer", error))?;
    let answer = serde_json::from_slice(&text).unwrap_or(Value::Null);
    Ok(Json(match asked.action {
        Action::Snapshot => {
            json!({ "message": "the snapshot was saved in the run", "snapshot": answer })
        }
        _ => json!({ "message": "done" }),
    }))
}

/// Returns the arguments of `tprof ctl`.
fn words(asked: &ControlRequest, run: &FilePath) -> Result<Vec<OsString>, Failure> {
    let refused = |why: &str| Failure::misuse("the request is not valid", why);
    let mut words: Vec<OsString> = vec!["ctl".into()];
    match asked.action {
        Action::Start => {
            words.push("start".into());
            words.extend(asked.steps.map(|steps| format!("--steps={steps}").into()));
        }
        Action::Stop => words.push("stop".into()),
        Action::Step => {
            words.push("step".into());
            words.extend(asked.steps.map(|number| number.to_string().into()));
        }
        Action::Snapshot => words.extend(["snapshot".into(), "--json".into()]),
        Action::Mark => {
            let name = asked.name.as_deref().unwrap_or_default().trim();
            if name.is_empty() || name.len() > MAX_NAME || name.contains('\0') {
                return Err(refused("a mark has a name of 1 to 256 bytes"));
            }
            // The name of a mark may begin with a dash.
            words.extend(["mark".into(), "--".into(), name.into()]);
        }
    }
    words.push(run.into());
    Ok(words)
}

/// Answers `PUT /api/v1/runs/ID/notes`.
pub async fn notes(
    State(app): State<Arc<App>>,
    Path(id): Path<u32>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let notes: Notes = read(request).await?;
    notes.check().map_err(|why| Failure::misuse("the notes are refused", why))?;
    let run = app.run(id)?;
    let path = run.readable()?;
    notes.save(path).map_err(|error| Failure::new("cannot keep the notes", error))?;
    app.registry.forget();
    Ok(Json(row(&app, &app.run(id)?)))
}

/// Answers `DELETE /api/v1/runs/ID`.
pub async fn remove(
    State(app): State<Arc<App>>,
    Path(id): Path<u32>,
) -> Result<Json<Value>, Failure> {
    let run = app.run(id)?;
    let words = ["rm".into(), "--yes".into(), run.entry.path.as_os_str().to_owned()];
    app.jobs.run_uncached(&words).await?;
    app.registry.forget();
    Ok(Json(json!({ "message": format!("run {id} was deleted") })))
}

async fn read<T: DeserializeOwned>(request: Request) -> Result<T, Failure> {
    let body = http::body(request).await?;
    serde_json::from_slice(&body).map_err(|error| Failure::misuse("cannot read the request", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Result<Vec<OsString>, Failure> {
        words(&serde_json::from_str(text).unwrap(), FilePath::new("/r"))
    }

    #[test]
    fn a_request_becomes_words_of_ctl() {
        assert_eq!(
            asked(r#"{"action":"start","steps":5}"#).unwrap(),
            ["ctl", "start", "--steps=5", "/r"]
        );
        assert_eq!(
            asked(r#"{"action":"mark","name":"--x"}"#).unwrap(),
            ["ctl", "mark", "--", "--x", "/r"]
        );
        assert_eq!(asked(r#"{"action":"snapshot"}"#).unwrap(), ["ctl", "snapshot", "--json", "/r"]);
        assert!(asked(r#"{"action":"mark","name":" "}"#).is_err());
        assert!(serde_json::from_str::<ControlRequest>(r#"{"action":"rm"}"#).is_err());
        assert!(
            serde_json::from_str::<ControlRequest>(r#"{"action":"stop","output":"/"}"#).is_err()
        );
    }
}
