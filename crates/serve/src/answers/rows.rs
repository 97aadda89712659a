//! Builds the row of a run in the list.

use serde_json::{Value, json};

use crate::app::App;
use crate::runs::RegisteredRun;
use crate::runs::notes::Notes;

/// Returns the row: the content of the run's `run.json`, and the figures that are known.
pub fn row(app: &App, run: &RegisteredRun) -> Value {
    let entry = &*run.entry;
    let notes = match &entry.refused {
        None => Notes::of(&entry.path),
        Some(_) => Notes::default(),
    };
    let name = entry.path.file_name().unwrap_or(entry.path.as_os_str());
    let mut row = json!({
        "id": run.id,
        "name": name.to_string_lossy(),
        "path": entry.path.to_string_lossy(),
        "command": entry.command,
        "state": entry.state,
        "why": entry.why,
        "start_unix_ns": entry.start_unix_ns,
        "wall_ns": entry.wall_ns,
        "ranks": entry.ranks,
        "processes": entry.processes,
        "bytes": entry.bytes,
        "recorded": entry.recorded,
        "lost": entry.lost,
        "lost_why": entry.lost.is_none().then_some(&entry.why),
        "complete": entry.complete,
        "commit": entry.commit,
        "host": entry.hosts.join(", "),
        "failed": entry.failed,
        "tags": notes.tags,
        "note": notes.note,
    });
    let figures = app.summaries.of(run);
    row["summary"] = match (&figures, &entry.refused) {
        (Ok(_), _) => "ready".into(),
        (Err(None), None) => "pending".into(),
        _ => "failed".into(),
    };
    match figures {
        Ok(figures) => {
            let known = figures.as_object().into_iter().flatten();
            // If the losses of a run are unknown, the report's count must not replace that: it
            // counts only the losses in the files that could be read.
            let is_known = |key: &str| key != "lost" || entry.lost.is_some();
            for (key, value) in known.filter(|(key, value)| !value.is_null() && is_known(key)) {
                row[key] = value.clone();
            }
        }
        Err(Some(why)) => row["why"] = why.into(),
        Err(None) => {}
    }
    row
}
