//! What an archive's own files say about its runs, which is known before any table is read.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Output of `tprof archive --list --json`.
#[derive(Debug, Deserialize)]
pub struct List {
    /// Location of the archive.
    pub archive: String,
    /// Version of the tables that `tprof-sql` reads.
    pub tables_version: u32,
    /// The archived runs.
    pub runs: Vec<ArchivedRun>,
    /// Parts of the archive that could not be read, in sentences.
    pub problems: Vec<String>,
}

/// A run, as the archive's own file on it describes it.
#[derive(Clone, Debug, Deserialize)]
pub struct ArchivedRun {
    /// ID of the run.
    pub run: String,
    /// Number of the run, from 1; 0 if it has none yet.
    #[serde(skip)]
    pub id: u32,
    /// When the run was archived, in ns since 1970.
    pub archived_unix_ns: u64,
    /// When the run began, in ns since 1970.
    pub start_unix_ns: Option<u64>,
    /// Names of the run's hosts.
    pub hosts: Vec<String>,
    /// Whether the run had ended.
    pub ended: bool,
    /// Version of the run's tables.
    pub tables_version: u32,
    /// Number of the run's rows in each table that it has.
    pub tables: BTreeMap<String, u64>,
    /// Total bytes of the run's objects.
    pub bytes: u64,
    /// Parts of the run that could not be read when it was archived.
    pub notes: Vec<String>,
}

impl ArchivedRun {
    /// Explains why a table has no row of the run; `None` if it has some. `what` is the plural noun
    /// for the rows.
    pub fn missing(&self, table: &str, what: &str) -> Option<String> {
        match self.tables.get(table) {
            Some(0) => Some(format!("the run has no {what}")),
            Some(_) => None,
            None => Some(format!("the run was archived without its table `{table}`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_without_rows_is_distinguished_from_an_absent_one() {
        let run: ArchivedRun = serde_json::from_value(json!({
            "run": "a", "archived_unix_ns": 9, "start_unix_ns": null, "hosts": [], "ended": true,
            "tables_version": 2, "tables": { "findings": 0, "runs": 1 }, "bytes": 5, "notes": [],
        }))
        .unwrap();
        assert_eq!(run.missing("runs", "x"), None);
        assert_eq!(run.missing("findings", "findings").unwrap(), "the run has no findings");
        assert!(run.missing("ranks", "ranks").unwrap().contains("without its table"));
    }
}
