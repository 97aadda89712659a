//! Answers with reports of archived runs, in the shape of `tprof report KIND --json`.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::super::about::VERSION;
use super::kinds::{ArchivedKind, KINDS, RANK_FILES, Table};
use crate::app::Catalogue;
use crate::archive::{Archive, ArchivedRun};
use crate::failure::Failure;

/// Note in the documents of all kinds except [`RANK_FILES`].
const SUMS: &str =
    "From an archive: sums of each rank. Other tables of this report need the run itself.";

/// Query parameters of a report.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportQuery {
    rank: Option<u32>,
}

/// Answers `GET /api/v1/runs/ID/report/KIND`.
pub async fn report(
    State(archive): State<Arc<Archive>>,
    Path((id, name)): Path<(u32, String)>,
    Query(asked): Query<ReportQuery>,
) -> Result<Response, Failure> {
    let run = archive.run(id)?;
    let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        return Err(Failure::absent(
            format!("an archive has no report `{name}`"),
            format!("its reports are {}", known.join(", ")),
        )
        .hint("tprof report of the run itself, or tprof sql ARCHIVE"));
    };
    let statements: Vec<String> =
        kind.tables.iter().map(|table| table.statement(asked.rank)).collect();
    let rows = archive.ask(&[&run], &statements).await?;
    let texts: Vec<&[u8]> = (0..kind.tables.len()).map(|at| rows.text(at)).collect();
    let text = document(&archive.catalogue, &run, kind, &texts);
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

/// Builds a document around the rows, which are inserted exactly as `tprof-sql` printed them, so
/// the columns keep their order.
fn document(
    catalogue: &Catalogue,
    run: &ArchivedRun,
    kind: &ArchivedKind,
    rows: &[&[u8]],
) -> Vec<u8> {
    let value = |value: Value| value.to_string().into_bytes();
    // `tprof report` has no kind `rank-files`, so the note does not apply to it.
    let mut notes = match kind.name {
        RANK_FILES => Vec::new(),
        _ => vec![SUMS.to_owned()],
    };
    notes.extend(kind.tables.iter().zip(rows).filter_map(|(table, rows)| cut(table, run, rows)));
    let head = json!({
        "version": VERSION, "tprof": catalogue.tprof, "kind": kind.name, "archived": run.run,
        "notes": notes, "problems": run.notes, "shown": kind.shown(catalogue),
    });
    let mut text = value(head);
    // Removes the closing brace, so that more keys can follow.
    text.pop();
    text.extend_from_slice(b",\"tables\":{");
    for (at, (table, rows)) in kind.tables.iter().zip(rows).enumerate() {
        if at > 0 {
            text.push(b',');
        }
        text.extend(value(table.key.into()));
        text.push(b':');
        text.extend_from_slice(rows);
        if *rows == b"[]" {
            let none = || format!("the rank has no {}", table.of);
            let why = run.missing(table.source, table.of).unwrap_or_else(none);
            text.push(b',');
            text.extend(value(format!("{}_missing", table.key).into()));
            text.push(b':');
            text.extend(value(why.into()));
        }
    }
    text.extend_from_slice(b"}}\n");
    text
}

/// Returns a note if the limit on rows may have left some rows of a table out of the document.
fn cut(table: &Table, run: &ArchivedRun, rows: &[u8]) -> Option<String> {
    let all = *run.tables.get(table.source)?;
    let count = |rows| serde_json::from_slice::<Vec<IgnoredAny>>(rows).map_or(0, |rows| rows.len());
    // A statement that sums rows, or selects one rank, returns fewer rows than the table has. Its
    // result is complete if it has fewer rows than the limit.
    let is_cut = all > table.limit && count(rows) as u64 >= table.limit;
    is_cut.then(|| {
        format!(
            "`{}` has at most {} rows here; `{}` of the archive has {all} of this run (`tprof sql`).",
            table.key, table.limit, table.source
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> ArchivedRun {
        serde_json::from_value(json!({
            "run": "r1-</script>", "archived_unix_ns": 9, "start_unix_ns": 1, "hosts": [], "ended": true,
            "tables_version": 2, "tables": { "rank_kernels": 6000, "rank_steps": 0 }, "bytes": 5,
            "notes": ["rank 3 \"was\" cut off"],
        }))
        .unwrap()
    }

    #[test]
    fn documents_contain_printed_rows_or_why_there_are_none() {
        let kind = |name| KINDS.iter().find(|kind| kind.name == name).unwrap();
        let catalogue: Catalogue = serde_json::from_value(json!({
            "tprof": "0.1", "formats": [],
            "kinds": [{ "name": "steps", "about": "", "shown": { "step_times": 7, "other": 8 } }],
        }))
        .unwrap();
        let rows: [&[u8]; 3] = [b"[]", b"[{\"b\":1,\"a\":2}]", b"[]"];
        let steps = document(&catalogue, &run(), kind("steps"), &rows);
        assert!(std::str::from_utf8(&steps).unwrap().contains("[{\"b\":1,\"a\":2}]"));
        let read: Value = serde_json::from_slice(&steps).unwrap();
        assert_eq!(read["tables"]["step_times_missing"], "the run has no steps");
        assert_eq!(read["shown"], json!({ "step_times": 7 }), "only tables of the archive");
        assert_eq!(read["problems"][0], "rank 3 \"was\" cut off");
        let cut = format!("[{}{{}}]", "{},".repeat(4999));
        let kernels = document(&catalogue, &run(), kind("kernels"), &[b"[{}]", cut.as_bytes()]);
        let notes = serde_json::from_slice::<Value>(&kernels).unwrap()["notes"].to_string();
        assert!(notes.contains("`by_rank` has at most 5000 rows here"), "{notes}");
        assert!(!notes.contains("`kernels` has"), "sums of all of them: {notes}");
    }
}
