//! `--remote`: executes statements on a Spark Connect server.
//!
//! The server reads the files of the data sets itself, so it must be able to reach them. tprof
//! tells it the files and columns of each table, so that it infers nothing. A table or view is
//! registered on the server when a statement first names it. The allowed statements, the lists of
//! tables and the output formats are the same as without a server.

pub mod address;
mod answer;
mod check;
mod client;
mod columns;
mod connection;
mod failure;
mod messages;
pub mod names;
mod relations;
mod views;

use std::collections::BTreeSet;

use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::Statement;
use tokio::sync::OnceCell;
use tprof_ui::args::SqlArgs;
use tprof_ui::errors::{Failure, print_stderr};

use crate::command_line::Sources;
use crate::execute::{described, listing};
use crate::output::Output;
use crate::query_failure::{QueryFailure, excerpt, no_table};
use crate::session::Session;
use crate::statements::Source;
use crate::status::{MISUSE, QUERY};
use address::Address;
use answer::Answer;
use client::{Client, SessionHealth};
use messages::{Op, Plan};
use names::Names;
use relations::Registry;

pub use check::check;

/// A server, and the relations that were registered on it.
pub struct Remote {
    address: Address,
    client: OnceCell<Client>,
    registry: Registry,
}

impl Remote {
    /// Returns the server that the options name, if any. It is not contacted yet.
    pub fn of(args: &SqlArgs) -> Result<Option<Remote>, Failure> {
        let Some(text) = &args.remote else {
            return match args.remote_data.is_empty() {
                true => Ok(None),
                false => Err(Failure::new("--remote-data needs --remote")
                    .cause("it gives the names that a server has for the files")
                    .hint("--remote sc://HOST:15002")
                    .code(MISUSE)),
            };
        };
        let limits = [
            ("--memory-limit", args.memory_limit.is_some()),
            ("--threads", args.threads.is_some()),
        ];
        if let Some((name, _)) = limits.iter().find(|(_, is_given)| *is_given) {
            return Err(Failure::new(format!("{name} does not apply with --remote"))
                .cause("the server runs the query, with its own memory and cores")
                .hint("the server's own settings: spark.executor.memory, spark.executor.cores")
                .code(MISUSE));
        }
        Ok(Some(Remote {
            address: Address::parse(text, |name| std::env::var(name).ok())?,
            client: OnceCell::new(),
            registry: Registry::new(Names::parse(&args.remote_data)?),
        }))
    }

    /// Fails if there is a source that no server can read.
    pub fn check_sources(sources: &Sources) -> Result<(), Failure> {
        let Some(run) = sources.runs.first() else { return Ok(()) };
        let path = run.path.display();
        Err(Failure::new(format!("a server cannot read the run `{path}`"))
            .cause("it reads tables of Parquet, not trace files")
            .hint(format!(
                "tprof export {path} --to parquet --compact, or \
                 tprof archive {path} --to DIR|URL --raw all; then name what they wrote"
            ))
            .code(MISUSE))
    }

    async fn client(&self) -> Result<&Client, Failure> {
        self.client.get_or_try_init(|| Client::connect(self.address.clone())).await
    }

    /// Stops everything that the server executes.
    pub async fn interrupt(&self) {
        if let Some(client) = self.client.get() {
            client.interrupt().await;
        }
    }

    /// Ends the session on the server.
    pub async fn leave(&self) {
        if let Some(client) = self.client.get() {
            client.leave().await;
        }
    }

    /// Executes a statement and writes its result, if it has one.
    pub async fn execute(
        &self,
        session: &Session,
        source: &Source,
        output: &mut Output,
    ) -> Result<(), QueryFailure> {
        check(source)?;
        if let Some(listing) = self.listing(session, source) {
            let batch = listing?;
            output.begin(&batch.schema())?;
            output.write(&batch)?;
            return output.end();
        }
        check_quoted(session, source)?;
        let needed = self.needed(session, source)?;
        let client = self.client().await?;
        let before = output.results();
        let Err(failed) = self.attempt(session, source, output, needed.clone()).await else {
            return Ok(());
        };
        let is_gone = match client.health() {
            SessionHealth::Lost => true,
            SessionHealth::Unreachable => false,
            SessionHealth::Alive => !self.registry.is_there(client).await,
        };
        if !is_gone {
            return Err(failed);
        }
        self.registry.begin_session(client, session).await?;
        // If rows were already written, the statement must not be started again, because they would
        // be written twice.
        if output.results() > before {
            return Err(failed);
        }
        print_stderr(&format!(
            "note: {} was started again; it has its tables and views anew\n",
            client.address.shown()
        ));
        self.attempt(session, source, output, needed).await
    }

    /// Executes a statement in the current session on the server, without a retry.
    async fn attempt(
        &self,
        session: &Session,
        source: &Source,
        output: &mut Output,
        needed: BTreeSet<String>,
    ) -> Result<(), QueryFailure> {
        let client = self.client().await?;
        if let Some(name) = described(&source.parsed) {
            return self.describe(client, session, &name, output).await;
        }
        let tables = self.registry.register(client, session, needed.clone()).await?;
        if views::view(&source.parsed).is_some() {
            return self.create_view(client, session, source, needed).await;
        }
        if query(client, session, source, output).await? {
            // Some servers report no error for a file that has disappeared, and leave out its rows.
            // So the files are checked first.
            self.registry.check_files(client, session, &tables).await?;
            output.end()?;
        }
        Ok(())
    }

    /// Answers statements that list tables, columns or functions. Returns `None` for statements
    /// that the server answers.
    fn listing(
        &self,
        session: &Session,
        source: &Source,
    ) -> Option<Result<datafusion::arrow::array::RecordBatch, QueryFailure>> {
        let Parsed::Statement(statement) = &source.parsed else { return None };
        match &**statement {
            // The server lists its own functions.
            Statement::ShowFunctions { .. } => return None,
            _ if described(&source.parsed)
                .is_some_and(|name| self.registry.is_user_view(&name)) =>
            {
                return None;
            }
            _ => {}
        }
        let listing = listing(session, &source.parsed)?;
        Some(listing.map_err(|error| QueryFailure::of(&error, &source.text, session)))
    }

    /// Returns the tables and views that a statement names; an unknown name is an error.
    fn needed(&self, session: &Session, source: &Source) -> Result<BTreeSet<String>, QueryFailure> {
        let there = session.tables.names();
        let mut needed = BTreeSet::new();
        for named in check::relations(&source.parsed) {
            if self.registry.is_user_view(&named.name) && !named.has_parts {
                continue;
            }
            if there.contains(&named.name) && !named.has_parts {
                needed.insert(named.name);
            } else if !named.is_defined {
                let (line, column) = named.place;
                return Err(QueryFailure::Query {
                    failure: no_table(&named.name, session).code(QUERY),
                    excerpt: excerpt(&source.text, line, column),
                });
            }
        }
        Ok(needed)
    }
}

/// Refuses a name in double quotes, because a server takes it for a text and returns that text in
/// each row.
fn check_quoted(session: &Session, source: &Source) -> Result<(), QueryFailure> {
    let quoted = source.sent.iter().flat_map(|sent| &sent.quoted);
    let mut columns = BTreeSet::new();
    for (text, (line, column)) in quoted {
        if columns.is_empty() {
            let schemas = session.tables.names().into_iter();
            let schemas = schemas.filter_map(|name| session.tables.schema(&name));
            columns.extend(schemas.flat_map(|schema| {
                schema.fields().iter().map(|field| field.name().to_lowercase()).collect::<Vec<_>>()
            }));
        }
        if columns.contains(&text.to_lowercase()) {
            let failure =
                Failure::new(format!("the server reads `\"{text}\"` as a text, not as a column"))
                    .cause("double quotes enclose texts there, not names")
                    .hint(format!("`{text}` in backticks is the column, '{text}' the text"))
                    .code(QUERY);
            return Err(QueryFailure::Query {
                failure,
                excerpt: excerpt(&source.text, *line, *column),
            });
        }
    }
    Ok(())
}

/// Executes a query and writes its rows as they come. Returns whether there was a result.
async fn query(
    client: &Client,
    session: &Session,
    source: &Source,
    output: &mut Output,
) -> Result<bool, QueryFailure> {
    let text = source.sent.as_ref().map(|sent| sent.text.clone()).unwrap_or_default();
    let plan = Plan { op: Some(Op::Root(relations::sql(text))) };
    let mut rows = match Answer::of(client, plan).await {
        Ok(rows) => rows,
        Err(broken) => return Err(failure::of(broken, client, &source.text, session).await),
    };
    let mut has_begun = false;
    let ended = loop {
        let batches = match rows.next().await {
            Ok(Some(batches)) => batches,
            Ok(None) => break Ok(()),
            Err(broken) => {
                break Err(failure::of(broken, client, &source.text, session).await);
            }
        };
        match written(&batches, output, &mut has_begun) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(failed) => break Err(failed),
        }
    };
    rows.release().await;
    ended?;
    // A result has columns even if it has no rows. So if nothing has begun, the statement has no
    // result.
    Ok(has_begun)
}

/// Writes rows. Returns false if no more are wanted.
fn written(
    batches: &[datafusion::arrow::array::RecordBatch],
    output: &mut Output,
    has_begun: &mut bool,
) -> Result<bool, QueryFailure> {
    for batch in batches {
        if !*has_begun {
            output.begin(&batch.schema())?;
            *has_begun = true;
        }
        if !output.write(batch)? {
            return Ok(false);
        }
    }
    Ok(true)
}
