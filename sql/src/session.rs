//! The engine with its tables, functions and limits.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use tempfile::TempDir;

use crate::failed::QUERY;
use crate::functions::{self, report};
use crate::limits::Limits;
use crate::problems::Problems;
use crate::tables::Tables;
use crate::tables::dataset::DataSets;
use crate::terminal::errors::Failure;
use crate::words::Sources;

/// Catalogue and schema of all tables.
const CATALOGUE: &str = "tprof";
const SCHEMA: &str = "public";
/// Memory that a sort keeps for the end of its work, bytes.
const SORT_RESERVE: usize = 10 << 20;

/// A session.
pub struct Session {
    /// The engine.
    pub context: SessionContext,
    /// Its tables.
    pub tables: Arc<Tables>,
    /// What could not be read so far.
    pub problems: Problems,
    is_empty: bool,
}

impl Session {
    /// A session over runs, which writes what exceeds its memory into a directory.
    pub fn new(sources: &Sources, limits: Limits, spill: PathBuf) -> Result<Session, Failure> {
        let failed = |error: datafusion::error::DataFusionError| {
            Failure::new("cannot start the query engine").cause(error.to_string()).code(QUERY)
        };
        let mut config = SessionConfig::new()
            .with_target_partitions(limits.threads)
            .with_information_schema(true)
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOGUE, SCHEMA);
        let reserve = limits.memory_bytes / (8 * limits.threads);
        config.options_mut().execution.sort_spill_reservation_bytes = reserve.min(SORT_RESERVE);
        // Errors name their place.
        config.options_mut().sql_parser.collect_spans = true;
        let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![spill]));
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(limits.memory_bytes)))
            .with_disk_manager_builder(disk)
            .build_arc()
            .map_err(failed)?;
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_default_features()
            .build();
        let context = SessionContext::new_with_state(state);
        let problems = Problems::default();
        let sets = DataSets::new(sources.sets.clone(), problems.clone());
        let tables = Arc::new(Tables::new(sets));
        let catalogue = MemoryCatalogProvider::new();
        catalogue.register_schema(SCHEMA, Arc::clone(&tables) as _).map_err(failed)?;
        context.register_catalog(CATALOGUE, Arc::new(catalogue));
        functions::register(&context);
        report::register(&context, sources.runs.clone(), problems.clone());
        Ok(Session { context, tables, problems, is_empty: sources.is_empty() })
    }

    /// Whether it is over no run at all.
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

/// The directory for what exceeds a query's memory. It goes with this value.
pub fn spill_directory() -> Result<TempDir, Failure> {
    tempfile::Builder::new().prefix("tprof-sql-").tempdir().map_err(|error| {
        Failure::new("cannot make a temporary directory")
            .cause(error.to_string())
            .hint("TMPDIR=DIR names another place")
            .code(QUERY)
    })
}
