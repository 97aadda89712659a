//! Creates and describes views that the user's statements define. They exist only on the server,
//! and only in the session of this command.

use std::collections::BTreeSet;

use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{CreateView, Statement};
use tprof_ui::errors::Failure;

use super::answer::{Answer, StreamFailure};
use super::client::Client;
use super::messages::{Op, Plan};
use super::relations::UserView;
use super::{Remote, failure, relations};
use crate::execute::columns_of;
use crate::output::Output;
use crate::query_failure::QueryFailure;
use crate::session::Session;
use crate::statements::Source;
use crate::status::QUERY;

impl Remote {
    /// Lists the columns of a view that a statement created.
    pub(super) async fn describe(
        &self,
        client: &Client,
        session: &Session,
        name: &str,
        output: &mut Output,
    ) -> Result<(), QueryFailure> {
        let text = format!("SELECT * FROM `{name}` LIMIT 0");
        let rows = async {
            let plan = Plan { op: Some(Op::Root(relations::sql(&text))) };
            let mut rows = Answer::of(client, plan).await?;
            let mut schema = None;
            while let Some(batches) = rows.next().await? {
                schema = schema.or_else(|| batches.first().map(|batch| batch.schema()));
            }
            rows.release().await;
            schema.ok_or_else(|| StreamFailure::Unreadable("it has no columns".into()))
        };
        let schema = match rows.await {
            Ok(schema) => schema,
            Err(broken) => return Err(failure::of(broken, client, &text, session).await),
        };
        let batch =
            columns_of(&schema).map_err(|error| QueryFailure::of(&error, &text, session))?;
        output.begin(&batch.schema())?;
        output.write(&batch)?;
        output.end()
    }

    /// Creates the view that a statement defines.
    pub(super) async fn create_view(
        &self,
        client: &Client,
        session: &Session,
        source: &Source,
        needed: BTreeSet<String>,
    ) -> Result<(), QueryFailure> {
        let Some(view) = view(&source.parsed) else { return Ok(()) };
        let name = view.name.to_string().replace('`', "").to_lowercase();
        let wrong = |what: String, why: &str, hint: &str| {
            Err(QueryFailure::from(Failure::new(what).cause(why).hint(hint).code(QUERY)))
        };
        if session.tables.is_table(&name) {
            let what = format!("{name} is a table of the run: a view needs another name");
            return wrong(what, "tables stay as they are", "CREATE VIEW another AS …");
        }
        if !view.columns.is_empty() || view.if_not_exists || name.contains('.') {
            let what = format!("the view `{name}` cannot be made so");
            let why = "a server is given its name and its query";
            return wrong(what, why, "CREATE OR REPLACE VIEW name AS SELECT a AS b …");
        }
        let query = source.sent.as_ref().and_then(|sent| sent.behind_as.clone());
        let Some(query) = query else {
            return wrong(
                format!("the view `{name}` has no query"),
                "AS is missing",
                "… AS SELECT …",
            );
        };
        match self.registry.make(client, UserView { name, query, needed }, view.or_replace).await {
            Ok(()) => Ok(()),
            Err(broken) => Err(failure::of(broken, client, &source.text, session).await),
        }
    }
}

/// Returns the definition of the view that a statement creates; `None` for other statements.
pub(super) fn view(parsed: &Parsed) -> Option<&CreateView> {
    match parsed {
        Parsed::Statement(statement) => match &**statement {
            Statement::CreateView(view) => Some(view),
            _ => None,
        },
        _ => None,
    }
}
