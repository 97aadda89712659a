//! Views that come with tprof: questions that reports answer, as SQL over the tables.
//!
//! Each is planned when a query first names it: there are a dozen, and most queries name none.

use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::catalog::TableProvider;
use datafusion::datasource::ViewTable;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use tprof_tables::{VIEWS, View};

/// The view of a name.
pub fn of_name(name: &str) -> Option<&'static View> {
    VIEWS.iter().find(|view| view.name == name)
}

/// Gives the state of a session, while there is one.
type State = Box<dyn Fn() -> Option<SessionState> + Send + Sync>;

/// Plans views, by the state of the session that it belongs to, which is made of it.
#[derive(Default)]
pub struct Planner(OnceLock<State>);

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Planner")
    }
}

impl Planner {
    /// Says where the state is found.
    pub fn set(&self, state: impl Fn() -> Option<SessionState> + Send + Sync + 'static) {
        // A second session has tables of its own.
        let _ = self.0.set(Box::new(state));
    }

    /// A view over the tables that there are.
    pub async fn table(&self, view: &View) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(state) = self.0.get().and_then(|state| state()) else { return Ok(None) };
        let plan = state.create_logical_plan(view.query()).await?;
        Ok(Some(Arc::new(ViewTable::new(plan, Some(view.query().to_owned())))))
    }
}
