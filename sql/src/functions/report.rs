//! `report('KIND'[, 'TABLE'[, 'RUN']])`: returns the result of `tprof report KIND` as a table.
//!
//! The analysis runs in this process when the query is planned, because a report's columns are
//! known only when it is finished. The column `run` distinguishes rows of several runs. An unknown
//! figure is null. The error of an estimate is in a separate column `error_…`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, RecordBatch, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::{MemTable, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionContext;
use tprof_analyze::{KINDS, document};
use tprof_document::{Cell, Column, Document, Options, Table, Unit, Value};
use tprof_trace::live::is_collector_alive;
use tprof_ui::errors::nearest;

use crate::problems::Problems;

/// A run for which reports are made.
#[derive(Clone, Debug)]
pub struct ReportRun {
    /// Name in the column `run`.
    pub name: String,
    /// Its directory or file.
    pub path: PathBuf,
}

/// Registers the function and its short forms.
pub fn register(context: &SessionContext, runs: Vec<ReportRun>, problems: Problems) {
    let shared = Arc::new(Reports { runs, problems, made: Mutex::default() });
    let of = |short| Arc::new(Function { reports: Arc::clone(&shared), short });
    context.register_udtf("report", of(None));
    context.register_udtf("breakdown", of(Some(("breakdown", "breakdown"))));
    context.register_udtf("stragglers", of(Some(("stragglers", "late_arrivals"))));
}

/// Cache of reports, so that each is made once.
#[derive(Debug)]
struct Reports {
    runs: Vec<ReportRun>,
    problems: Problems,
    made: Mutex<HashMap<(PathBuf, &'static str), Arc<Document>>>,
}

/// A name under which reports can be called.
#[derive(Debug)]
struct Function {
    reports: Arc<Reports>,
    /// For a short form such as `breakdown()`, its kind and table; `None` for `report()` itself.
    short: Option<(&'static str, &'static str)>,
}

impl TableFunctionImpl for Function {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let words = args.exprs().iter().map(text).collect::<Result<Vec<_>>>()?;
        let mut words = words.iter().map(String::as_str);
        let (kind, table) = match self.short {
            Some((kind, table)) => (kind, Some(table)),
            None => match words.next() {
                Some(kind) => (kind, words.next()),
                None => return kinds(),
            },
        };
        let run = words.next();
        if words.next().is_some() {
            return plan_err!("too many arguments for a report of {kind}");
        }
        self.reports.table(kind, table, run)
    }
}

/// Returns the kinds of report with their descriptions: the result of `report()` without a kind.
fn kinds() -> Result<Arc<dyn TableProvider>> {
    let column = |texts: Vec<&str>| Arc::new(StringArray::from(texts)) as ArrayRef;
    let (names, abouts) = KINDS.iter().map(|kind| (kind.name, kind.about)).unzip();
    let field = |name| Field::new(name, DataType::Utf8, false);
    let schema = Arc::new(Schema::new(vec![field("kind"), field("about")]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column(names), column(abouts)])?;
    Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
}

/// Returns the text of a literal.
fn text(expr: &Expr) -> Result<String> {
    match expr {
        Expr::Literal(
            ScalarValue::Utf8(Some(text))
            | ScalarValue::LargeUtf8(Some(text))
            | ScalarValue::Utf8View(Some(text)),
            _,
        ) => Ok(text.clone()),
        other => plan_err!("a report's arguments are texts in single quotes, not {other}"),
    }
}

impl Reports {
    fn table(
        &self,
        kind: &str,
        table: Option<&str>,
        run: Option<&str>,
    ) -> Result<Arc<dyn TableProvider>> {
        let documents = self
            .wanted(run)?
            .into_iter()
            .map(|run| Ok((run.name.as_str(), self.made(kind, run)?)))
            .collect::<Result<Vec<_>>>()?;
        let keys = documents.iter().flat_map(|(_, document)| &document.tables).map(|of| of.key);
        let key = match table {
            None => keys.clone().next(),
            Some(wanted) => keys.clone().find(|key| *key == wanted),
        };
        let Some(key) = key else {
            let mut there: Vec<&str> = Vec::new();
            keys.for_each(|key| {
                if !there.contains(&key) {
                    there.push(key)
                }
            });
            let near = nearest(table.unwrap_or_default(), there.iter().copied());
            let near = near.map(|near| format!("; the nearest is '{near}'")).unwrap_or_default();
            return plan_err!(
                "the report '{kind}' has no table '{}'{near}; it has {}",
                table.unwrap_or_default(),
                there.join(", ")
            );
        };
        let tables: Vec<(&str, &Table)> = documents
            .iter()
            .filter_map(|(run, of)| Some((*run, of.tables.iter().find(|one| one.key == key)?)))
            .collect();
        let batch = batch(&tables)?;
        Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
    }

    fn wanted(&self, run: Option<&str>) -> Result<Vec<&ReportRun>> {
        if self.runs.is_empty() {
            return plan_err!(
                "a report is of a run, and there is none but Parquet data sets, if any"
            );
        }
        let Some(wanted) = run else { return Ok(self.runs.iter().collect()) };
        let is_wanted = |run: &&ReportRun| run.name == wanted || run.path.as_os_str() == wanted;
        match self.runs.iter().find(is_wanted) {
            Some(run) => Ok(vec![run]),
            None => {
                let there: Vec<&str> = self.runs.iter().map(|run| run.name.as_str()).collect();
                plan_err!("there is no run '{wanted}' here; there is {}", there.join(", "))
            }
        }
    }

    fn made(&self, kind: &str, run: &ReportRun) -> Result<Arc<Document>> {
        let Some(kind) = KINDS.iter().find(|known| known.name == kind) else {
            if matches!(kind, "summary" | "memory") {
                return plan_err!(
                    "the report '{kind}' has no tables: `tprof report {kind} --json` prints it"
                );
            }
            let near = nearest(kind, KINDS.iter().map(|kind| kind.name));
            let near = near.map(|near| format!("; the nearest is '{near}'")).unwrap_or_default();
            return plan_err!(
                "there is no report '{kind}'{near}; SELECT * FROM report() lists them"
            );
        };
        let key = (run.path.clone(), kind.name);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(document) = made.get(&key) {
            return Ok(Arc::clone(document));
        }
        let options =
            Options { data: true, is_running: Some(is_collector_alive), ..Options::default() };
        let document = document(kind, &run.path, &options, None)
            .map_err(|error| DataFusionError::Execution(error.to_string()))?;
        for problem in &document.problems {
            self.problems.add(format!("{}: {problem}", run.name));
        }
        let document = Arc::new(document);
        made.insert(key, Arc::clone(&document));
        Ok(document)
    }
}

/// A column of the joined tables of all runs.
struct Wide<'a> {
    name: String,
    kind: DataType,
    /// Value of each row's cell, or the error of an estimate.
    values: Vec<Option<&'a Value>>,
}

/// Joins tables with the same key, one per run.
fn batch(tables: &[(&str, &Table)]) -> Result<RecordBatch> {
    let mut order: Vec<&Column> = Vec::new();
    for column in tables.iter().flat_map(|(_, table)| &table.columns) {
        if !order.iter().any(|known| known.key == column.key) {
            order.push(column);
        }
    }
    let runs: StringBuilder = tables.iter().fold(StringBuilder::new(), |mut runs, (run, table)| {
        table.rows.iter().for_each(|_| runs.append_value(run));
        runs
    });
    let mut fields = vec![Field::new("run", DataType::Utf8, false)];
    let mut arrays: Vec<ArrayRef> = vec![Arc::new({ runs }.finish())];
    for column in order {
        let cells = || {
            tables.iter().flat_map(|(_, table)| {
                let at = table.columns.iter().position(|one| one.key == column.key);
                table.rows.iter().map(move |row| at.and_then(|at| row.get(at)))
            })
        };
        let values: Vec<_> = cells().map(|cell| cell.and_then(Cell::value)).collect();
        let errors: Vec<_> = cells()
            .map(|cell| match cell {
                Some(Cell::Estimate { error, .. }) => Some(error),
                _ => None,
            })
            .collect();
        let mut columns = vec![Wide {
            // If the report itself has a column `run`, it gets another name here.
            name: if column.key == "run" { "of_run".into() } else { column.key.to_owned() },
            kind: kind(column.unit, &values),
            values,
        }];
        if errors.iter().any(Option::is_some) {
            let name = format!("error_{}", column.key);
            columns.push(Wide { name, kind: kind(column.unit, &errors), values: errors });
        }
        for Wide { name, kind, values } in columns {
            arrays.push(array(&kind, &values));
            fields.push(Field::new(name, kind, true));
        }
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

/// Returns the type of a column: that of its unit, or a wider type that can hold all of its values.
fn kind(unit: Unit, values: &[Option<&Value>]) -> DataType {
    let there = || values.iter().flatten();
    let of_unit = match unit {
        Unit::Text | Unit::Name => DataType::Utf8,
        Unit::Id | Unit::Count | Unit::Duration | Unit::Time | Unit::Bytes => DataType::Int64,
        Unit::BytesPerSecond | Unit::Share | Unit::Number => DataType::Float64,
        Unit::Flag => DataType::Boolean,
    };
    let fits = |value: &&Value| match value {
        Value::Text(_) => of_unit == DataType::Utf8,
        Value::Unsigned(_) | Value::Signed(_) => {
            matches!(of_unit, DataType::Int64 | DataType::Float64)
        }
        Value::Float(_) => of_unit == DataType::Float64,
        Value::Flag(_) => of_unit == DataType::Boolean,
    };
    if there().all(fits) {
        return of_unit;
    }
    match there().all(|value| value.number().is_some()) {
        true => DataType::Float64,
        false => DataType::Utf8,
    }
}

fn array(kind: &DataType, values: &[Option<&Value>]) -> ArrayRef {
    match kind {
        DataType::Int64 => {
            let mut builder = Int64Builder::with_capacity(values.len());
            for value in values {
                builder.append_option(match value {
                    Some(Value::Signed(value)) => Some(*value),
                    Some(Value::Unsigned(value)) => i64::try_from(*value).ok(),
                    _ => None,
                });
            }
            Arc::new(builder.finish())
        }
        DataType::Float64 => {
            let mut builder = Float64Builder::with_capacity(values.len());
            values.iter().for_each(|value| builder.append_option(value.and_then(Value::number)));
            Arc::new(builder.finish())
        }
        DataType::Boolean => {
            let mut builder = BooleanBuilder::with_capacity(values.len());
            for value in values {
                builder.append_option(match value {
                    Some(Value::Flag(value)) => Some(*value),
                    _ => None,
                });
            }
            Arc::new(builder.finish())
        }
        _ => {
            let mut builder = StringBuilder::new();
            for value in values {
                builder.append_option(value.map(|value| match value {
                    Value::Text(text) => text.clone(),
                    Value::Unsigned(value) => value.to_string(),
                    Value::Signed(value) => value.to_string(),
                    Value::Float(value) => value.to_string(),
                    Value::Flag(value) => value.to_string(),
                }));
            }
            Arc::new(builder.finish())
        }
    }
}
