//! The list of an archive's runs: gives each run a number, and checks for new runs.
//!
//! An archive only grows, so what is known about a run stays valid. Only the check for new runs is
//! repeated, and only when a page requests the list.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::list::{ArchivedRun, List};
use super::queries::ArchiveQueries;
use crate::failure::Failure;

/// How long the list of an archive in a directory stays fresh.
const FRESH: Duration = Duration::from_secs(3);
/// How long the list of an archive in a store stays fresh: longer, because a check is a request
/// over the network.
const FRESH_OF_STORE: Duration = Duration::from_secs(30);

/// The list as it is currently known.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Location of the archive.
    pub archive: String,
    /// Runs of the archive, newest first.
    pub runs: Vec<Arc<ArchivedRun>>,
    /// Parts of the archive that could not be read, in sentences.
    pub problems: Vec<String>,
    /// Why the last check for new runs failed, if it did.
    pub stale: Option<Failure>,
}

#[derive(Debug, Default)]
struct ListState {
    listing: Listing,
    numbers: HashMap<String, u32>,
    /// Sorted IDs of all runs in the archive, including runs whose files could not be read.
    ids: Vec<String>,
    asked: Option<Instant>,
    is_asking: bool,
}

/// The runs of an archive.
#[derive(Debug, Default)]
pub struct Runs {
    state: Mutex<ListState>,
}

impl Runs {
    /// Reads the list for the first time.
    pub async fn open(queries: &ArchiveQueries) -> Result<Runs, Failure> {
        let runs = Runs::default();
        // IDs are read before the list. If a run is archived in between, the next check sees a new
        // ID and reads the list again.
        let ids = queries.ids().await?;
        runs.take(ids, queries.list().await?);
        Ok(runs)
    }

    /// Returns the list as it is known now.
    pub fn listing(&self) -> Listing {
        self.state().listing.clone()
    }

    /// Returns a run by its number.
    pub fn get(&self, id: u32) -> Option<Arc<ArchivedRun>> {
        self.state().listing.runs.iter().find(|run| run.id == id).cloned()
    }

    /// Checks for new runs, unless another check is running or ended a moment ago.
    pub async fn refresh(&self, queries: &ArchiveQueries) {
        let fresh = if queries.address().is_store { FRESH_OF_STORE } else { FRESH };
        {
            let mut state = self.state();
            if state.is_asking || state.asked.is_some_and(|at| at.elapsed() < fresh) {
                return;
            }
            state.is_asking = true;
        }
        let found = self.more(queries).await;
        let mut state = self.state();
        state.is_asking = false;
        state.asked = Some(Instant::now());
        state.listing.stale = found.err();
    }

    async fn more(&self, queries: &ArchiveQueries) -> Result<(), Failure> {
        let ids = queries.ids().await?;
        if self.state().ids != ids {
            let list = queries.list().await?;
            self.take(ids, list);
        }
        Ok(())
    }

    fn take(&self, ids: Vec<String>, list: List) {
        let mut state = self.state();
        let List { archive, tables_version, mut runs, mut problems } = list;
        let mut named = HashSet::new();
        runs.retain(|run| {
            let is_first = named.insert(run.run.clone());
            if !is_first {
                problems.push(format!("two files in _runs are of the run {}", run.run));
            }
            is_first
        });
        runs.sort_by(|a, b| (a.start_unix_ns, &a.run).cmp(&(b.start_unix_ns, &b.run)));
        for run in &mut runs {
            let next = state.numbers.len() as u32 + 1;
            if run.tables_version != tables_version {
                run.notes.push(format!(
                    "archived with tables of version {}, where tprof-sql has {tables_version}: \
                     columns may be missing",
                    run.tables_version
                ));
            }
            run.id = *state.numbers.entry(run.run.clone()).or_insert(next);
        }
        runs.reverse();
        let runs = runs.into_iter().map(Arc::new).collect();
        state.ids = ids;
        state.asked = Some(Instant::now());
        state.listing = Listing { archive, runs, problems, stale: None };
    }

    fn state(&self) -> MutexGuard<'_, ListState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(runs: &[(&str, u64)]) -> List {
        let run = |(run, start): &(&str, u64)| {
            json!({
                "run": run, "archived_unix_ns": 9, "start_unix_ns": start, "hosts": [],
                "ended": true, "tables_version": 2, "tables": { "findings": 0, "runs": 1 },
                "bytes": 5, "notes": [],
            })
        };
        let runs: Vec<_> = runs.iter().map(run).collect();
        let list = json!({ "archive": "a", "tables_version": 2, "runs": runs, "problems": [] });
        serde_json::from_value(list).unwrap()
    }

    #[test]
    fn runs_keep_their_numbers_when_more_runs_appear() {
        let runs = Runs::default();
        let numbers = || {
            let listing = runs.listing();
            listing.runs.iter().map(|run| (run.run.clone(), run.id)).collect::<Vec<_>>()
        };
        let named = |all: &[(&str, u32)]| -> Vec<_> {
            all.iter().map(|(run, id)| ((*run).to_owned(), *id)).collect()
        };
        runs.take(vec![], list(&[("new", 7), ("old", 3)]));
        assert_eq!(numbers(), named(&[("new", 2), ("old", 1)]));
        runs.take(vec![], list(&[("new", 7), ("between", 5), ("old", 3)]));
        assert_eq!(numbers(), named(&[("new", 2), ("between", 3), ("old", 1)]));
        assert_eq!(runs.get(3).unwrap().run, "between");
        assert!(runs.get(4).is_none());
        // The same run in two files is listed once.
        runs.take(vec![], list(&[("new", 7), ("new", 7)]));
        assert_eq!(numbers(), named(&[("new", 2)]));
        assert!(runs.listing().problems[0].contains("of the run new"));
    }
}
