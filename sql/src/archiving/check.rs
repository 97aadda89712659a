//! Implements `tprof archive --list` and `--check`: lists the runs of an archive, and finds objects
//! that are missing, truncated or belong to no run.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use futures::TryStreamExt;
use object_store::ObjectStore;
use tprof_tables::RANK_TABLES;
use tprof_ui::errors::Failure;

use crate::archive::commit::{Commit, Commits};
use crate::archive::failure::{self, FAILED};
use crate::archive::location::Location;
use crate::archive::names::table_and_run;

/// Returns the runs of the archive as rows.
pub fn list(commits: &Commits) -> Result<RecordBatch, Failure> {
    let runs = &commits.runs;
    let texts = |of: &dyn Fn(&Commit) -> String| -> ArrayRef {
        let text = |run: &Commit| Some(of(run)).filter(|text| !text.is_empty());
        Arc::new(runs.iter().map(text).collect::<StringArray>())
    };
    let numbers = |of: &dyn Fn(&Commit) -> Option<u64>| -> ArrayRef {
        let number = |run: &Commit| of(run).and_then(|value| i64::try_from(value).ok());
        Arc::new(runs.iter().map(number).collect::<Int64Array>())
    };
    let raw = |run: &Commit| {
        let raw = RANK_TABLES.into_iter().filter(|table| run.tables.contains_key(*table));
        let raw: Vec<&str> = raw.collect();
        if raw.len() == RANK_TABLES.len() { "all".to_owned() } else { raw.join(",") }
    };
    rows(vec![
        ("run", texts(&|run| run.run.clone())),
        ("start_unix_ns", numbers(&|run| run.start_unix_ns)),
        ("files", numbers(&|run| Some(run.files as u64))),
        ("hosts", texts(&|run| run.hosts.join(","))),
        ("raw", texts(&raw)),
        ("objects", numbers(&|run| Some(run.objects.len() as u64))),
        ("bytes", numbers(&|run| Some(run.bytes()))),
        ("tprof", texts(&|run| run.tprof.clone())),
    ])
}

/// An error in the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `missing`, `size` or `orphan`.
    pub what: &'static str,
    /// Path of the object.
    pub path: String,
    /// Actual size of the object, if it exists.
    pub bytes: Option<u64>,
    /// Size of the object when it was archived; `None` for an orphan.
    pub expected: Option<u64>,
}

impl Finding {
    /// Whether readers of the archive are affected.
    pub fn is_damage(&self) -> bool {
        self.what != "orphan"
    }
}

/// Compares the objects that the archive should contain with those that exist. Objects that no
/// archiver wrote are ignored.
pub async fn check(
    place: &Location,
    store: &Arc<dyn ObjectStore>,
    commits: &Commits,
) -> Result<Vec<Finding>, Failure> {
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for object in commits.runs.iter().flat_map(|run| &run.objects) {
        expected.insert(&object.path, object.bytes);
    }
    let mut findings = Vec::new();
    let mut there = store.list(Some(place.root()).filter(|root| !root.as_ref().is_empty()));
    let failed = |error: object_store::Error| failure::of(&error, place.describe_store(), "read");
    while let Some(object) = there.try_next().await.map_err(failed)? {
        let Some(parts) = object.location.prefix_match(place.root()) else { continue };
        let path = parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/");
        let finding = |what, expected| Finding {
            what,
            path: path.clone(),
            bytes: Some(object.size),
            expected,
        };
        match expected.remove(&*path) {
            Some(bytes) if bytes == object.size => {}
            Some(bytes) => findings.push(finding("size", Some(bytes))),
            None if table_and_run(&path).is_some() => findings.push(finding("orphan", None)),
            None => {}
        }
    }
    findings.extend(expected.into_iter().map(|(path, bytes)| Finding {
        what: "missing",
        path: path.to_owned(),
        bytes: None,
        expected: Some(bytes),
    }));
    findings.sort_by(|a, b| (a.what, &a.path).cmp(&(b.what, &b.path)));
    Ok(findings)
}

/// Returns the findings as rows.
pub fn findings(findings: &[Finding]) -> Result<RecordBatch, Failure> {
    let number = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok());
    let texts = |of: fn(&Finding) -> &str| -> ArrayRef {
        Arc::new(findings.iter().map(|one| Some(of(one))).collect::<StringArray>())
    };
    let numbers = |of: fn(&Finding) -> Option<u64>| -> ArrayRef {
        Arc::new(findings.iter().map(|one| number(of(one))).collect::<Int64Array>())
    };
    rows(vec![
        ("problem", texts(|one| one.what)),
        ("object", texts(|one| &one.path)),
        ("bytes", numbers(|one| one.bytes)),
        ("archived_bytes", numbers(|one| one.expected)),
    ])
}

fn rows(columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch, Failure> {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, of)| (name, of, true)))
        .map_err(|error| Failure::new("cannot list").cause(error.to_string()).code(FAILED))
}
