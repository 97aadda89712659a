//! Executes a single statement with the local query engine, and writes its rows.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::TableReference;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::prelude::DataFrame;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::Statement;
use futures::StreamExt;
use tprof_ui::errors::print_stderr;

use crate::allowed;
use crate::functions;
use crate::output::Output;
use crate::query_failure::QueryFailure;
use crate::session::Session;
use crate::statements::Source;
use crate::tables::about::type_name;

/// Executes a statement and writes its result, if it has one.
pub async fn execute(
    session: &Session,
    source: &Source,
    output: &mut Output,
) -> Result<(), QueryFailure> {
    allowed::check(&source.parsed)?;
    if let Some(listing) = listing(session, &source.parsed) {
        let batch = listing.map_err(|error| QueryFailure::of(&error, &source.text, session))?;
        output.begin(&batch.schema())?;
        output.write(&batch)?;
        return output.end();
    }
    let failed = |error: DataFusionError| QueryFailure::of(&error, &source.text, session);
    let state = session.context.state();
    let plan = state.statement_to_plan(source.parsed.clone()).await.map_err(failed)?;
    allowed::check_plan(&plan)?;
    if matches!(plan, LogicalPlan::Ddl(DdlStatement::CreateView(_))) {
        return session.context.execute_logical_plan(plan).await.map(drop).map_err(failed);
    }
    let (mut rows, mut next) = match begun(state.clone(), plan.clone()).await {
        Err(error) if is_want_of_memory(&error) => {
            print_stderr(AGAIN);
            begun(with_less_memory(state), plan).await.map_err(failed)?
        }
        other => other.map_err(failed)?,
    };
    output.begin(&rows.schema())?;
    while let Some(batch) = next {
        if !output.write(&batch)? {
            break;
        }
        next = rows.next().await.transpose().map_err(failed)?;
    }
    output.end()
}

/// Message when a query is restarted.
const AGAIN: &str =
    "note: the query needs more memory than it may have; it is executed again, slower, with less\n";

/// Starts to execute a plan and waits for its first rows. Until then nothing is written, so that a
/// query that runs out of memory can be started again.
async fn begun(
    state: SessionState,
    plan: LogicalPlan,
) -> Result<(SendableRecordBatchStream, Option<RecordBatch>), DataFusionError> {
    let mut rows = DataFrame::new(state, plan).execute_stream().await?;
    let first = rows.next().await.transpose()?;
    Ok((rows, first))
}

/// Number of partitions of a query that saves memory. With a single partition, the engine would use
/// hash joins even if it is told to prefer others.
const LEAST_PARTS: usize = 2;

/// Returns the same engine configured to save memory: with few partitions per operator, and with
/// sort-merge joins. These can spill to temporary files, which hash joins cannot.
fn with_less_memory(mut state: SessionState) -> SessionState {
    let options = state.config_mut().options_mut();
    options.optimizer.prefer_hash_join = false;
    let config = state.config().clone().with_target_partitions(LEAST_PARTS);
    *state.config_mut() = config;
    state
}

fn is_want_of_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Table functions that generate rows and read no run.
const OF_NO_RUN: [&str; 2] = ["generate_series", "range"];

/// Whether a statement reads tables of a run; otherwise no run is needed.
pub fn needs_run(source: &Source) -> bool {
    let is_listing = match &source.parsed {
        Parsed::Statement(statement) => matches!(
            **statement,
            Statement::ShowTables { .. }
                | Statement::ShowColumns { .. }
                | Statement::ExplainTable { .. }
        ),
        _ => false,
    };
    let named = resolve_table_references(&source.parsed, true);
    let is_of_run = |table: &TableReference| !OF_NO_RUN.contains(&table.table());
    is_listing || named.map_or(true, |(tables, _)| tables.iter().any(is_of_run))
}

/// Answers statements that list tables, columns or functions, without the engine. Returns `None`
/// for other statements.
pub fn listing(session: &Session, parsed: &Parsed) -> Option<Result<RecordBatch, DataFusionError>> {
    let Parsed::Statement(statement) = parsed else { return None };
    match &**statement {
        Statement::ShowTables { .. } => Some(tables(session)),
        Statement::ShowFunctions { .. } => Some(functions(session)),
        _ => described(parsed).map(|name| columns(session, &name)),
    }
}

/// Returns the table or view whose columns a statement lists.
pub fn described(parsed: &Parsed) -> Option<String> {
    let Parsed::Statement(statement) = parsed else { return None };
    let name = match &**statement {
        Statement::ExplainTable { table_name, .. } => table_name,
        Statement::ShowColumns { show_options, .. } => {
            show_options.show_in.as_ref()?.parent_name.as_ref()?
        }
        _ => return None,
    };
    let name = name.0.last()?.as_ident()?;
    Some(name.value.to_lowercase())
}

/// Lists the tables, and the meaning of a row of each.
pub fn tables(session: &Session) -> Result<RecordBatch, DataFusionError> {
    let names = session.tables.names();
    let abouts = names.iter().map(|name| session.tables.row_about(name)).collect();
    texts(&[("table_name", names.clone()), ("about", abouts)])
}

/// Lists the columns of a table and their meaning.
pub fn columns(session: &Session, name: &str) -> Result<RecordBatch, DataFusionError> {
    let missing = || DataFusionError::Plan(format!("table '{name}' not found"));
    let about = session.tables.about(name).ok_or_else(missing)?;
    let schema = session.tables.schema(name).ok_or_else(missing)?;
    let kinds = schema.fields().iter().map(|field| type_name(field.data_type())).collect();
    let (names, abouts) =
        about.columns.into_iter().map(|column| (column.name, column.about)).unzip();
    texts(&[("column_name", names), ("data_type", kinds), ("about", abouts)])
}

/// Lists columns of which only names and types are known.
pub fn columns_of(schema: &Schema) -> Result<RecordBatch, DataFusionError> {
    let names = schema.fields().iter().map(|field| field.name().clone()).collect();
    let kinds = schema.fields().iter().map(|field| type_name(field.data_type())).collect();
    let abouts = vec![String::new(); schema.fields().len()];
    texts(&[("column_name", names), ("data_type", kinds), ("about", abouts)])
}

/// Lists functions, their kinds and results.
pub fn functions(session: &Session) -> Result<RecordBatch, DataFusionError> {
    let state = session.context.state();
    let mut rows: Vec<(String, &str, String)> = Vec::new();
    for (name, function) in state.scalar_functions() {
        rows.push((name.clone(), "scalar", first_line(function.documentation())));
    }
    for (name, function) in state.aggregate_functions() {
        rows.push((name.clone(), "aggregate", first_line(function.documentation())));
    }
    for (name, function) in state.window_functions() {
        rows.push((name.clone(), "window", first_line(function.documentation())));
    }
    for name in state.table_functions().keys() {
        rows.push((name.clone(), "table", String::new()));
    }
    for row in &mut rows {
        let is_own = |(call, _): &&(&str, &str)| call.split('(').next() == Some(&row.0);
        if let Some((call, about)) = functions::OWN.iter().find(is_own) {
            row.2 = format!("{call}: {about}");
        }
    }
    rows.sort();
    let names = rows.iter().map(|row| row.0.clone()).collect();
    let kinds = rows.iter().map(|row| row.1.to_owned()).collect();
    let abouts = rows.into_iter().map(|row| row.2).collect();
    texts(&[("function", names), ("kind", kinds), ("about", abouts)])
}

fn first_line(documentation: Option<&datafusion::logical_expr::Documentation>) -> String {
    let text = documentation.map(|of| of.description.as_str()).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

fn texts(columns: &[(&str, Vec<String>)]) -> Result<RecordBatch, DataFusionError> {
    let field = |(name, _): &(&str, Vec<String>)| Field::new(*name, DataType::Utf8, true);
    let array = |(_, values): &(&str, Vec<String>)| -> ArrayRef {
        let known = |value: &String| (!value.is_empty()).then(|| value.clone());
        Arc::new(values.iter().map(known).collect::<StringArray>())
    };
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    Ok(RecordBatch::try_new(Arc::new(schema), columns.iter().map(array).collect())?)
}
