//! State that all requests share.

use std::ffi::OsString;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::http::Guard;
use crate::live::FollowedRuns;
use crate::runs::{RegisteredRun, Registry};
use crate::summary::Summaries;
use crate::work::{Job, JobQueue, Output, Priority, Tprof};

/// Kinds of report and formats that `tprof` offers.
#[derive(Debug, Default, Deserialize)]
pub struct Catalogue {
    /// Version of tprof.
    pub tprof: String,
    /// Kinds of report.
    pub kinds: Vec<Kind>,
    /// The formats that a run can be exported to.
    pub formats: Vec<Format>,
}

impl Catalogue {
    /// Asks `tprof` for the kinds and formats that it offers.
    pub async fn of(tprof: &Tprof) -> Result<Catalogue, Failure> {
        let output = tprof.run(&["__catalogue".into()], false).await?;
        let read = output.read_all(1 << 20).and_then(|text| Ok(serde_json::from_slice(&text)?));
        read.map_err(|error| {
            Failure::new("cannot ask tprof for its reports", error)
                .hint("install tprof and tprof-serve of one version, side by side")
        })
    }
}

/// A kind of report.
#[derive(Debug, Deserialize)]
pub struct Kind {
    /// Name of the kind.
    pub name: String,
    /// Description of the report's content.
    pub about: String,
    /// The titles and headings of the report's tables, as in its JSON.
    #[serde(default)]
    pub shown: Map<String, Value>,
}

/// An export format.
#[derive(Debug, Deserialize)]
pub struct Format {
    /// Name of the format.
    pub name: String,
    /// Description of the format's purpose.
    pub about: String,
    /// Name of the file that the export writes. If it writes a directory, the name ends with a
    /// slash.
    pub file: String,
    /// Whether the export of a run is always a single file. If not, the server sends the files as
    /// one `.tar`.
    pub is_one_file: bool,
}

/// The state of the server.
#[derive(Debug)]
pub struct App {
    /// Runs by number.
    pub registry: Registry,
    /// Queue that runs `tprof` and caches its output.
    pub jobs: Arc<JobQueue>,
    /// Checks who may send requests.
    pub guard: Arc<Guard>,
    /// Kinds of report and formats on offer.
    pub catalogue: Arc<Catalogue>,
    /// Runs in progress that someone watches.
    pub lives: FollowedRuns,
    /// Figures that the list of runs shows.
    pub summaries: Summaries,
}

impl App {
    /// Creates the state of a server that has not read any run yet.
    pub fn new(
        registry: Registry,
        jobs: Arc<JobQueue>,
        guard: Arc<Guard>,
        catalogue: Arc<Catalogue>,
    ) -> Arc<App> {
        let (lives, summaries) = (FollowedRuns::default(), Summaries::default());
        Arc::new(App { registry, jobs, guard, catalogue, lives, summaries })
    }

    /// Returns a run by its number.
    pub fn run(&self, id: u32) -> Result<RegisteredRun, Failure> {
        self.registry.get(id).ok_or_else(|| {
            Failure::absent(
                format!("there is no run {id}"),
                "it was deleted, or the server is another one",
            )
            .hint("GET /api/v1/runs lists all")
        })
    }

    /// Runs `tprof` with the arguments `words`, or finds its output in the cache, and returns the
    /// output. `runs` are the runs whose paths are in `words`: cached output is valid until their
    /// files change.
    pub async fn make(
        &self,
        words: Vec<OsString>,
        runs: &[&RegisteredRun],
    ) -> Result<Arc<Output>, Failure> {
        self.jobs.get(Job::of(words, runs, Priority::Interactive)).await
    }
}
