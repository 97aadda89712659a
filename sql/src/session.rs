//! Sets up the local query engine with tprof's tables, functions and limits.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use tempfile::TempDir;
use tprof_tables::read::OpenRun;
use tprof_ui::errors::Failure;

use crate::archive::Archive;
use crate::command_line::Sources;
use crate::functions;
use crate::functions::report::{self, ReportRun};
use crate::limits::Limits;
use crate::problems::Problems;
use crate::status::{MISUSE, QUERY};
use crate::tables::Tables;
use crate::tables::archived::Archives;
use crate::tables::dataset::DataSets;

/// Name of the catalogue and schema of all tables.
const CATALOGUE: &str = "tprof";
const SCHEMA: &str = "public";
/// A sort reserves this fraction (1/N) of its memory for merging the parts that it sorted. The
/// fraction is large, because a merge copies texts such as kernel names, which are longer than the
/// rows that refer to them.
const SORT_SHARE: usize = 4;
/// Largest memory in bytes that a sort reserves for merging.
const SORT_MOST: usize = 512 << 20;
/// Size in bytes of the parts that are sorted at once, before they are merged.
const SORT_PART: usize = 4 << 20;
/// With less memory per thread than this, in bytes, batches are small, because a merge has one
/// batch of each sorted part in memory.
const AMPLE: usize = 512 << 20;
/// Number of rows of a small batch.
const SMALL_BATCH: usize = 2048;

/// A query session over some runs.
pub struct Session {
    /// The query engine.
    pub context: SessionContext,
    /// Tables of the session.
    pub tables: Arc<Tables>,
    /// Problems found so far.
    pub problems: Problems,
    is_empty: bool,
}

impl Session {
    /// Creates a session over runs. Data that exceeds its memory is written to the directory
    /// `spill`.
    pub fn new(sources: &Sources, limits: Limits, spill: PathBuf) -> Result<Session, Failure> {
        let failed = |error: datafusion::error::DataFusionError| {
            Failure::new("cannot start the query engine").cause(error.to_string()).code(QUERY)
        };
        let mut config = SessionConfig::new()
            .with_target_partitions(limits.threads)
            .with_information_schema(true)
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOGUE, SCHEMA);
        let of_thread = limits.memory_bytes / limits.threads;
        config.options_mut().execution.sort_spill_reservation_bytes =
            (of_thread / SORT_SHARE).min(SORT_MOST);
        config.options_mut().execution.sort_in_place_threshold_bytes = SORT_PART;
        if of_thread < AMPLE {
            config = config.with_batch_size(SMALL_BATCH);
        }
        // With this option, errors contain their position in the statement.
        config.options_mut().sql_parser.collect_spans = true;
        let disk =
            DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![spill]));
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(limits.memory_bytes)))
            .with_disk_manager_builder(disk)
            .build_arc()
            .map_err(failed)?;
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(Arc::clone(&runtime))
            .with_default_features()
            .build();
        let context = SessionContext::new_with_state(state);
        let problems = Problems::default();
        let sets = DataSets::new(sources.sets.clone(), problems.clone());
        let mut archives = Vec::new();
        for word in &sources.archives {
            let archive = Archive::open(word.as_os_str(), &sources.only)?;
            if archive.place.as_directory().is_none() {
                let url = archive.place.url();
                runtime.register_object_store(url.as_ref(), Arc::clone(&archive.store));
            }
            archives.push(archive);
        }
        let archives = Archives::new(archives, problems.clone());
        let mut runs = Vec::new();
        for ReportRun { name, path } in &sources.runs {
            let run = OpenRun::open(path).map_err(|error| {
                Failure::new(format!("cannot read `{}`", path.display()))
                    .cause(error.to_string())
                    .hint("tprof ls")
                    .code(MISUSE)
            })?;
            runs.push(run.named(name.clone()));
        }
        let tables = Arc::new(Tables::new(runs, sets, archives, problems.clone()));
        let catalogue = MemoryCatalogProvider::new();
        catalogue.register_schema(SCHEMA, Arc::clone(&tables) as _).map_err(failed)?;
        context.register_catalog(CATALOGUE, Arc::new(catalogue));
        let state = context.state_weak_ref();
        tables.plan_by(move || state.upgrade().map(|state| state.read().clone()));
        functions::register(&context);
        report::register(&context, sources.runs.clone(), problems.clone());
        Ok(Session { context, tables, problems, is_empty: sources.is_empty() })
    }

    /// Whether the session has no run at all.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Names of all functions.
    pub fn functions(&self) -> Vec<String> {
        let state = self.context.state();
        let mut names: Vec<String> = state.scalar_functions().keys().cloned().collect();
        names.extend(state.aggregate_functions().keys().cloned());
        names.extend(state.window_functions().keys().cloned());
        names.extend(state.table_functions().keys().cloned());
        names.sort();
        names.dedup();
        names
    }
}

/// Creates the directory for spilled data. It is removed with this value.
pub fn spill_directory() -> Result<TempDir, Failure> {
    tempfile::Builder::new().prefix("tprof-sql-").tempdir().map_err(|error| {
        Failure::new("cannot make a temporary directory")
            .cause(error.to_string())
            .hint("TMPDIR=DIR names another place")
            .code(QUERY)
    })
}
