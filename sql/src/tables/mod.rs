//! The tables of the runs that a session is over, each made when a query first names it.

pub mod about;
pub mod dataset;
pub mod prune;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::plan_err;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlanBuilder;

use about::TableAbout;
use dataset::DataSets;

/// All tables, and the views made of them.
#[derive(Debug)]
pub struct Tables {
    sets: DataSets,
    made: Mutex<BTreeMap<String, Arc<dyn TableProvider>>>,
    views: Mutex<BTreeMap<String, Arc<dyn TableProvider>>>,
}

impl Tables {
    /// Tables of data sets.
    pub fn new(sets: DataSets) -> Tables {
        Tables { sets, made: Mutex::default(), views: Mutex::default() }
    }

    /// Names of tables, then those of views.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.of_runs().into_iter().collect();
        names.extend(locked(&self.views).keys().cloned());
        names
    }

    fn of_runs(&self) -> BTreeSet<String> {
        self.sets.names()
    }

    /// What a table or view is; none if there is none of that name.
    pub fn about(&self, name: &str) -> Option<TableAbout> {
        let view = locked(&self.views).get(name).cloned();
        let provider = view.clone().or_else(|| self.made(name).ok().flatten())?;
        let known = self.sets.about(name).filter(|_| view.is_none());
        let mut about = known.cloned().unwrap_or_else(|| TableAbout::unknown(name));
        if view.is_some() {
            about.about = "view".to_owned();
        }
        about.complete(&provider.schema());
        Some(about)
    }

    /// The columns of a table or view.
    pub fn schema(&self, name: &str) -> Option<SchemaRef> {
        let view = locked(&self.views).get(name).cloned();
        Some(view.or_else(|| self.made(name).ok().flatten())?.schema())
    }

    /// What the rows of a table are, without its columns.
    pub fn row_about(&self, name: &str) -> String {
        match locked(&self.views).contains_key(name) {
            true => "view".to_owned(),
            false => self.sets.about(name).map(|of| of.about.clone()).unwrap_or_default(),
        }
    }

    fn made(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(made) = locked(&self.made).get(name) {
            return Ok(Some(Arc::clone(made)));
        }
        let parts: Vec<Arc<dyn TableProvider>> =
            self.sets.table(name).into_iter().map(|table| table as _).collect();
        let made = joined(name, parts)?;
        if let Some(made) = &made {
            locked(&self.made).insert(name.to_owned(), Arc::clone(made));
        }
        Ok(made)
    }
}

/// The rows of all parts, with columns of the same name under each other.
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
        match view {
            Some(view) => Ok(Some(view)),
            None => self.made(name),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.names().iter().any(|known| known == name)
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
