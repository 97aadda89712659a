//! Plans the built-in views, which answer with SQL the same questions as reports.
//!
//! A view is planned when a query first names it, because there are a dozen views and most queries
//! name none.

use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::catalog::TableProvider;
use datafusion::datasource::ViewTable;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use tprof_tables::{VIEWS, View};

/// Returns the view of this name.
pub fn of_name(name: &str) -> Option<&'static View> {
    VIEWS.iter().find(|view| view.name == name)
}

/// Returns the state of a session; `None` if the session was dropped.
type State = Box<dyn Fn() -> Option<SessionState> + Send + Sync>;

/// Plans views with the state of their session, which is created after the planner.
#[derive(Default)]
pub struct Planner(OnceLock<State>);

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Planner")
    }
}

impl Planner {
    /// Sets a function that returns the state.
    pub fn set(&self, state: impl Fn() -> Option<SessionState> + Send + Sync + 'static) {
        // The state is set only once, because each session has its own tables and planner.
        let _ = self.0.set(Box::new(state));
    }

    /// Plans a view over the existing tables.
    pub async fn table(&self, view: &View) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(state) = self.0.get().and_then(|state| state()) else { return Ok(None) };
        let plan = state.create_logical_plan(view.query()).await?;
        Ok(Some(Arc::new(ViewTable::new(plan, Some(view.query().to_owned())))))
    }
}
