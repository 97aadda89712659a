//! An archive that the server shows: its list of runs, the figures of each, and queries for more.

use std::sync::Arc;

use serde_json::{Value, json};

use super::address::Address;
use super::figures::RunFigures;
use super::list::ArchivedRun;
use super::queries::{ArchiveQueries, Rows, may_succeed_with_fewer_runs};
use super::run_list::{Listing, Runs};
use crate::app::Catalogue;
use crate::failure::Failure;
use crate::work::{JobQueue, Priority};

/// Why an archive lacks some figures.
const NOT_ARCHIVED: &str = "archives do not have it; the run's own files do";

/// An archive that is served.
#[derive(Debug)]
pub struct Archive {
    /// Version of tprof, and its kinds of report.
    pub catalogue: Arc<Catalogue>,
    queries: ArchiveQueries,
    runs: Runs,
    figures: RunFigures,
}

impl Archive {
    /// Opens an archive by reading its list of runs. Each child process may use `memory_bytes` of
    /// memory.
    pub async fn open(
        address: Address,
        jobs: Arc<JobQueue>,
        memory_bytes: u64,
        catalogue: Arc<Catalogue>,
    ) -> Result<Arc<Archive>, Failure> {
        let queries = ArchiveQueries::new(jobs, address, memory_bytes);
        let runs = Runs::open(&queries).await?;
        let archive =
            Arc::new(Archive { catalogue, queries, runs, figures: RunFigures::default() });
        // Computing starts now, because a browser will request the list in a moment.
        archive.request_missing(&archive.known().runs);
        let working = Arc::clone(&archive);
        tokio::spawn(async move { working.figures.work(&working.queries).await });
        Ok(archive)
    }

    /// Returns the runs that are known. Also starts a check for new runs in the background, which
    /// the next request will see.
    pub fn listing(self: &Arc<Archive>) -> Listing {
        let archive = Arc::clone(self);
        tokio::spawn(async move {
            archive.runs.refresh(&archive.queries).await;
        });
        self.runs.listing()
    }

    /// Returns the runs that are known, without looking for more.
    pub fn known(&self) -> Listing {
        self.runs.listing()
    }

    /// Requests missing figures of runs, and returns how many are missing.
    pub fn request_missing(&self, runs: &[Arc<ArchivedRun>]) -> usize {
        self.figures.request_missing(runs)
    }

    /// Returns a run by its number.
    pub fn run(&self, id: u32) -> Result<Arc<ArchivedRun>, Failure> {
        self.runs.get(id).ok_or_else(|| {
            Failure::absent(format!("there is no run {id}"), "the archive has none of this number")
                .hint("GET /api/v1/runs lists all")
        })
    }

    /// Returns the rows of statements over runs.
    pub async fn ask(&self, runs: &[&ArchivedRun], statements: &[String]) -> Result<Rows, Failure> {
        let ids: Vec<&str> = runs.iter().map(|run| &*run.run).collect();
        self.queries.ask(&ids, statements, Priority::Interactive).await
    }

    /// Returns a run as a row of the list.
    pub fn row(&self, run: &ArchivedRun) -> Value {
        let mut row = json!({
            "id": run.id,
            "name": run.run,
            "path": run.run,
            "command": null,
            "start_unix_ns": run.start_unix_ns,
            "archived_unix_ns": run.archived_unix_ns,
            "host": run.hosts.join(", "),
            "bytes": run.bytes,
            "why": run.notes.first(),
            "notes": run.notes,
            "state": null,
            "failed": null,
            "failed_why": NOT_ARCHIVED,
            "processes": null,
            "processes_why": NOT_ARCHIVED,
            "peak_bytes": null,
            "peak_bytes_why": NOT_ARCHIVED,
            "peak_rss_bytes": null,
            "peak_rss_bytes_why": NOT_ARCHIVED,
            "summary": "pending",
        });
        match self.figures.of(run) {
            None => {}
            Some(Ok(figures)) => {
                let figures = figures.as_object().into_iter().flatten();
                figures.for_each(|(key, value)| row[key] = value.clone());
                row["summary"] = "ready".into();
            }
            Some(Err(failure)) => {
                row["summary"] = "failed".into();
                row["why"] = failure.to_string().into();
                // If the store does not answer, the run is not damaged.
                match may_succeed_with_fewer_runs(&failure) {
                    true => row["state"] = "damaged".into(),
                    false => row["state_why"] = failure.to_string().into(),
                }
            }
        }
        row
    }
}
