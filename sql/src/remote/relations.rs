//! Registers tables and views on the server.
//!
//! A table consists of exactly the files that the local engine would read, with the columns that it
//! would have: the server lists no directory and infers no types from files. A table without files
//! has no rows.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use datafusion::common::cast::as_int64_array;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tprof_tables::VIEWS;
use tprof_ui::errors::Failure;

use super::answer::{Answer, StreamFailure, is_of_connection};
use super::client::Client;
use super::messages::{
    Act, Action, CreateView, DataSource, Op, Plan, Read, Relation, RelationCommon, Rows,
    SetOperation, Sql, UNION,
};
use super::names::Names;
use super::{check, columns, failure};
use crate::query_failure::QueryFailure;
use crate::session::Session;
use crate::statements::{self, Dialect};
use crate::status::QUERY;
use crate::tables::Files;

/// Number of tables to register at once, because most of the time is spent on the server.
const AT_ONCE: usize = 4;

/// Tables and views that are registered on the server.
#[derive(Debug)]
pub struct Registry {
    /// Names of the files on the server.
    names: Names,
    /// Registered tables and views of tprof.
    registered: Mutex<BTreeSet<String>>,
    /// Views that the user's statements created, in order.
    own: Mutex<Vec<UserView>>,
}

/// A view that a statement created.
#[derive(Clone, Debug)]
pub struct UserView {
    /// Name of the view.
    pub name: String,
    /// Its query, as sent to a server.
    pub query: String,
    /// Tables and views of tprof that it uses.
    pub needed: BTreeSet<String>,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new(names: Names) -> Registry {
        Registry { names, registered: Mutex::default(), own: Mutex::default() }
    }

    /// Whether a statement created a view of this name.
    pub fn is_user_view(&self, name: &str) -> bool {
        locked(&self.own).iter().any(|own| own.name == name)
    }

    /// Creates a view of a statement's query.
    pub async fn make(
        &self,
        client: &Client,
        view: UserView,
        replace: bool,
    ) -> Result<(), StreamFailure> {
        let replace = replace || locked(&self.registered).contains(&view.name);
        done(client, named(&view.name, sql(&view.query), replace)).await?;
        let mut own = locked(&self.own);
        own.retain(|other| other.name != view.name);
        own.push(view);
        Ok(())
    }

    /// Whether the server still has the registered relations. A server that does not answer counts
    /// as having them.
    pub async fn is_there(&self, client: &Client) -> bool {
        let registered = locked(&self.registered).first().cloned();
        let Some(name) = registered.or_else(|| Some(locked(&self.own).first()?.name.clone()))
        else {
            return true;
        };
        let query = format!("SELECT * FROM `{name}` LIMIT 0");
        match done(client, plan(&query)).await {
            Ok(()) => true,
            Err(StreamFailure::Status(status)) => is_of_connection(&status),
            Err(_) => false,
        }
    }

    /// Registers the views that statements created in a new session, in order; everything else is
    /// registered when a statement needs it. Fails at the first view that cannot be created, and
    /// drops it and the views after it.
    pub async fn begin_session(
        &self,
        client: &Client,
        session: &Session,
    ) -> Result<(), QueryFailure> {
        client.begin_session();
        locked(&self.registered).clear();
        let own = std::mem::take(&mut *locked(&self.own));
        for view in own {
            self.register(client, session, view.needed.clone()).await?;
            let text = view.query.clone();
            if let Err(broken) = self.make(client, view, true).await {
                return Err(failure::of(broken, client, &text, session).await);
            }
        }
        Ok(())
    }

    /// Registers tables and views and the relations that they use, unless that was done before.
    /// Returns the tables among all of them.
    pub async fn register(
        &self,
        client: &Client,
        session: &Session,
        mut needed: BTreeSet<String>,
    ) -> Result<Vec<String>, QueryFailure> {
        // In `VIEWS`, a view comes after the views that it uses. The reverse order finds a view
        // before the relations that it needs.
        for view in VIEWS.iter().rev() {
            if needed.contains(view.name) && !self.is_user_view(view.name) {
                needed.extend(used_relations(view.query()));
            }
        }
        let tables = needed.iter().filter(|name| session.tables.is_table(name)).cloned().collect();
        let is_new =
            |name: &String| !locked(&self.registered).contains(name) && !self.is_user_view(name);
        needed.retain(is_new);
        let mut given: Vec<BoxFuture<'_, Result<(), QueryFailure>>> = Vec::new();
        for name in needed.iter().filter(|name| session.tables.is_table(name)) {
            let files = session.tables.files(name).map_err(|why| no_files(name, why))?;
            let relation = self.table(&files)?;
            let count = files.groups.iter().map(Vec::len).sum();
            given.push(
                async move {
                    self.give(client, name, relation).await?;
                    found(client, session, name, count).await
                }
                .boxed(),
            );
        }
        if !given.is_empty() {
            self.names.check_used()?;
        }
        let mut given = futures::stream::iter(given).buffer_unordered(AT_ONCE);
        while let Some(done) = given.next().await {
            done?;
        }
        for view in VIEWS.iter().filter(|view| needed.contains(view.name)) {
            self.give(client, view.name, sql(view.query())).await?;
        }
        Ok(tables)
    }

    /// Fails if the server lacks files of these tables.
    pub async fn check_files(
        &self,
        client: &Client,
        session: &Session,
        tables: &[String],
    ) -> Result<(), QueryFailure> {
        for name in tables {
            let files = session.tables.files(name).map_err(|why| no_files(name, why))?;
            found(client, session, name, files.groups.iter().map(Vec::len).sum()).await?;
        }
        Ok(())
    }

    async fn give(
        &self,
        client: &Client,
        name: &str,
        relation: Relation,
    ) -> Result<(), QueryFailure> {
        match done(client, named(name, relation, true)).await {
            Ok(()) => {
                locked(&self.registered).insert(name.to_owned());
                Ok(())
            }
            Err(broken) => Err(failure::of_table(broken, client, name).await),
        }
    }

    /// Returns a relation with the rows of all files.
    fn table(&self, files: &Files) -> Result<Relation, QueryFailure> {
        let columns = columns::of(&files.schema)?;
        let mut parts = Vec::new();
        for group in files.groups.iter().filter(|group| !group.is_empty()) {
            let paths = group.iter().map(|address| self.names.on_server(address));
            let source = DataSource {
                format: Some("parquet".into()),
                schema: Some(columns::declared(&columns)),
                paths: paths.collect::<Result<_, _>>()?,
                ..DataSource::default()
            };
            parts.push(relation(Rows::Read(Read { data_source: Some(source) })));
        }
        let both = |left, right| {
            relation(Rows::SetOperation(Box::new(SetOperation {
                left_input: Some(Box::new(left)),
                right_input: Some(Box::new(right)),
                kind: UNION,
                is_all: Some(true),
            })))
        };
        Ok(parts.into_iter().reduce(both).unwrap_or_else(|| sql(columns::nothing(&columns))))
    }
}

/// Fails if the server does not find all files of a table, because some servers return no rows and
/// no error for a missing file.
async fn found(
    client: &Client,
    session: &Session,
    name: &str,
    count: usize,
) -> Result<(), QueryFailure> {
    if count == 0 {
        return Ok(());
    }
    let (there, here, what) = match client.files(plan(&format!("SELECT * FROM {name}"))).await {
        Some(files) => (files as u64, count as u64, "files"),
        // If the server does not tell the number of files, it counts rows instead. The expected
        // number is in the files' metadata.
        None => (rows(client, session, name).await?, session.tables.rows(name), "rows"),
    };
    if there == here {
        return Ok(());
    }
    Err(Failure::new(format!("the server cannot read the table `{name}`"))
        .cause(format!("it finds {there} of its {here} {what}"))
        .hint("--remote-data FROM=TO, where the server has the files under another name")
        .code(QUERY)
        .into())
}

async fn rows(client: &Client, session: &Session, name: &str) -> Result<u64, QueryFailure> {
    let query = format!("SELECT count(*) AS n FROM {name}");
    let counted = async {
        let mut answer = Answer::of(client, plan(&query)).await?;
        let mut count = 0;
        while let Some(batches) = answer.next().await? {
            for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
                let counts = as_int64_array(batch.column(0));
                let counts =
                    counts.map_err(|error| StreamFailure::Unreadable(error.to_string()))?;
                count = counts.value(0).try_into().unwrap_or(0);
            }
        }
        answer.release().await;
        Ok(count)
    };
    match counted.await {
        Ok(count) => Ok(count),
        Err(broken) => Err(failure::of(broken, client, &query, session).await),
    }
}

fn plan(query: &str) -> Plan {
    Plan { op: Some(Op::Root(sql(query))) }
}

/// Executes a command, and waits for its end.
async fn done(client: &Client, plan: Plan) -> Result<(), StreamFailure> {
    let mut answer = Answer::of(client, plan).await?;
    while answer.next().await?.is_some() {}
    answer.release().await;
    Ok(())
}

/// Returns the command that gives a relation a name in the session.
fn named(name: &str, relation: Relation, replace: bool) -> Plan {
    let view =
        CreateView { input: Some(relation), name: name.to_owned(), is_global: false, replace };
    Plan { op: Some(Op::Action(Action { act: Some(Act::CreateView(view)) })) }
}

/// Returns a relation with the rows of a query.
pub fn sql(query: impl Into<String>) -> Relation {
    relation(Rows::Sql(Sql { query: query.into() }))
}

fn relation(rows: Rows) -> Relation {
    static NUMBER: AtomicI64 = AtomicI64::new(0);
    let plan_id = Some(NUMBER.fetch_add(1, Ordering::Relaxed));
    Relation { common: Some(RelationCommon { plan_id }), rows: Some(rows) }
}

/// Returns the tables and views that a view's query uses.
fn used_relations(query: &str) -> BTreeSet<String> {
    let parsed = statements::parse(query, Dialect::Server).unwrap_or_default();
    let named = parsed.iter().flat_map(|source| check::relations(&source.parsed));
    named.filter(|one| !one.is_defined).map(|one| one.name).collect()
}

fn no_files(name: &str, why: &str) -> Failure {
    Failure::new(format!("a server cannot read the table `{name}`"))
        .cause(why)
        .hint("tprof export RUN --to parquet --compact")
        .code(QUERY)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_uses_the_relations_of_its_query() {
        let of = |name: &str| {
            let view = VIEWS.iter().find(|view| view.name == name).unwrap();
            used_relations(view.query()).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of("breakdown"), ["device_time"]);
        assert_eq!(of("device_time"), ["copies", "kernels"]);
        assert_eq!(of("meetings"), ["collective_runs"]);
        for view in VIEWS {
            assert!(!used_relations(view.query()).is_empty(), "{}", view.name);
        }
    }
}
