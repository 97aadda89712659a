//! Provides the tables of a session. Each is created when a query first names it.

pub mod about;
pub mod archived;
mod batches;
mod builtin_views;
pub mod dataset;
mod prune;
mod scan;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::plan_err;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlanBuilder;

use about::{ColumnAbout, TableAbout};
use archived::Archives;
use builtin_views::Planner;
use dataset::DataSets;
use tprof_tables::read::OpenRun;
use tprof_tables::{VIEWS, catalogue};
use trace::TraceTable;

use crate::problems::Problems;

/// The files of a table.
#[derive(Clone, Debug)]
pub struct Files {
    /// Columns of all files.
    pub schema: SchemaRef,
    /// Absolute paths or addresses of objects, grouped by archive or by data set.
    pub groups: Vec<Vec<String>>,
}

/// All tables and the views over them.
#[derive(Debug)]
pub struct Tables {
    runs: Arc<Vec<OpenRun>>,
    sets: DataSets,
    archives: Archives,
    problems: Problems,
    made: Mutex<BTreeMap<String, Arc<dyn TableProvider>>>,
    views: Mutex<BTreeMap<String, Arc<dyn TableProvider>>>,
    planner: Planner,
}

impl Tables {
    /// Creates the tables of runs, data sets and archives.
    pub fn new(
        runs: Vec<OpenRun>,
        sets: DataSets,
        archives: Archives,
        problems: Problems,
    ) -> Tables {
        let runs = Arc::new(runs);
        Tables {
            runs,
            sets,
            archives,
            problems,
            made: Mutex::default(),
            views: Mutex::default(),
            planner: Planner::default(),
        }
    }

    /// Sets a function that returns the session's state, with which built-in views are planned.
    pub fn plan_by(&self, state: impl Fn() -> Option<SessionState> + Send + Sync + 'static) {
        self.planner.set(state);
    }

    /// Returns the names of tables, then those of views.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.of_runs().into_iter().collect();
        let shipped = VIEWS.iter().filter(|_| !names.is_empty());
        let mut views: BTreeSet<String> = shipped.map(|view| view.name.to_owned()).collect();
        views.extend(locked(&self.views).keys().cloned());
        names.extend(views);
        names
    }

    fn of_runs(&self) -> BTreeSet<String> {
        let mut names = self.sets.names();
        if !self.runs.is_empty() || !self.archives.is_empty() {
            names.extend(catalogue().into_iter().map(|table| table.name.to_owned()));
        }
        names
    }

    /// Whether the name is a table and not a view.
    pub fn is_table(&self, name: &str) -> bool {
        self.of_runs().contains(name)
    }

    /// Returns the files of a table, or the reason why the table has more than the content of
    /// files. Files that cannot be read become problems.
    pub fn files(&self, name: &str) -> std::result::Result<Files, &'static str> {
        let schema = self.schema(name).ok_or("no file of it can be read")?;
        let mut groups = Vec::new();
        if let Some(table) = self.archived(name) {
            groups.extend(table.addresses());
        }
        if let Some(table) = self.sets.table(name) {
            groups.push(table.paths()?);
        }
        Ok(Files { schema, groups })
    }

    /// Returns the number of rows of a table, from the metadata of its files and archives.
    pub fn rows(&self, name: &str) -> u64 {
        let archived = self.archived(name).map_or(0, |table| table.rows());
        archived + self.sets.table(name).map_or(0, |table| table.rows())
    }

    fn archived(&self, name: &str) -> Option<Arc<archived::ArchivedTable>> {
        let about = catalogue().into_iter().find(|table| table.name == name)?;
        self.archives.table(&about)
    }

    /// Returns the description of a table from the catalogue, otherwise from a data set.
    fn known(&self, name: &str) -> Option<TableAbout> {
        let of_catalogue = catalogue().into_iter().find(|table| table.name == name);
        let column = |column: &tprof_tables::ColumnAbout| ColumnAbout {
            name: column.name.to_owned(),
            about: column.about.to_owned(),
        };
        let of_catalogue = of_catalogue.map(|table| TableAbout {
            name: table.name.to_owned(),
            about: table.about.to_owned(),
            columns: table.columns.iter().map(column).collect(),
        });
        of_catalogue.or_else(|| self.sets.about(name).cloned())
    }

    /// Returns the description of a table or view; `None` if there is none of that name.
    pub fn about(&self, name: &str) -> Option<TableAbout> {
        let schema = self.schema(name)?;
        let is_own = locked(&self.views).contains_key(name);
        let known = if is_own { None } else { self.known(name) };
        let mut about = known.unwrap_or_else(|| TableAbout::unknown(name));
        about.about = self.row_about(name);
        about.complete(&schema);
        Some(about)
    }

    /// Returns the columns of a table or view.
    pub fn schema(&self, name: &str) -> Option<SchemaRef> {
        // Creating a table reads no rows, so this doesn't block for long.
        let found = futures::executor::block_on(self.table(name));
        Some(found.ok().flatten()?.schema())
    }

    /// Returns the description of a row of a table, without its columns.
    pub fn row_about(&self, name: &str) -> String {
        if locked(&self.views).contains_key(name) {
            return "view".to_owned();
        }
        match builtin_views::of_name(name) {
            Some(view) => format!("view: {}", first_sentence(&view.about())),
            None => self.known(name).map(|of| of.about).unwrap_or_default(),
        }
    }

    /// Returns a built-in view, if its tables exist.
    async fn shipped(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(made) = locked(&self.made).get(name) {
            return Ok(Some(Arc::clone(made)));
        }
        let Some(view) = builtin_views::of_name(name) else { return Ok(None) };
        if self.of_runs().is_empty() {
            return Ok(None);
        }
        let made = self.planner.table(view).await?;
        if let Some(made) = &made {
            locked(&self.made).insert(name.to_owned(), Arc::clone(made));
        }
        Ok(made)
    }

    fn made(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(made) = locked(&self.made).get(name) {
            return Ok(Some(Arc::clone(made)));
        }
        let mut parts: Vec<Arc<dyn TableProvider>> = Vec::new();
        let of_runs = catalogue().into_iter().find(|table| table.name == name);
        if let Some(table) = &of_runs {
            parts.extend(self.archives.table(table).map(|table| table as _));
        }
        if let (Some(table), false) = (of_runs, self.runs.is_empty()) {
            let runs = Arc::clone(&self.runs);
            parts.push(Arc::new(TraceTable::new(table, runs, self.problems.clone())));
        }
        parts.extend(self.sets.table(name).map(|table| table as _));
        let made = joined(name, parts)?;
        if let Some(made) = &made {
            locked(&self.made).insert(name.to_owned(), Arc::clone(made));
        }
        Ok(made)
    }
}

fn first_sentence(text: &str) -> &str {
    text.split_inclusive(". ").next().unwrap_or(text).trim_end()
}

/// Returns a table with the rows of all parts. Columns are matched by name.
fn joined(
    name: &str,
    parts: Vec<Arc<dyn TableProvider>>,
) -> Result<Option<Arc<dyn TableProvider>>> {
    let mut parts = parts.into_iter();
    let Some(first) = parts.next() else { return Ok(None) };
    if parts.len() == 0 {
        return Ok(Some(first));
    }
    let mut plan = LogicalPlanBuilder::scan(name, provider_as_source(first), None)?;
    for part in parts {
        let scan = LogicalPlanBuilder::scan(name, provider_as_source(part), None)?.build()?;
        plan = plan.union_by_name(scan)?;
    }
    Ok(Some(Arc::new(ViewTable::new(plan.build()?, None))))
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        self.names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let view = locked(&self.views).get(name).cloned();
        if view.is_some() {
            return Ok(view);
        }
        match self.made(name)? {
            Some(made) => Ok(Some(made)),
            None => self.shipped(name).await,
        }
    }

    /// Built-in views do not count, because users may create views with their names.
    fn table_exist(&self, name: &str) -> bool {
        self.of_runs().contains(name) || locked(&self.views).contains_key(name)
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        if self.of_runs().contains(&name) {
            return plan_err!("{name} is a table of the run: a view needs another name");
        }
        Ok(locked(&self.views).insert(name, table))
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(locked(&self.views).remove(name))
    }
}
