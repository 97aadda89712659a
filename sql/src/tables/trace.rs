//! Tables of runs, read from their `.tprof` files when a query needs them, without a prior export.
//!
//! A table of ranks is read by several threads, each of which reads its own ranks. Conditions on
//! `run` and `rank` select files, and conditions on the time column select blocks of a file. The
//! engine checks all conditions again for each row. A table about runs is computed as a whole by
//! the analysis.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use tprof_tables::read::{OpenRun, Request};
use tprof_tables::{Scope, TableAbout};

use super::batches::{Batches, of_run, schema, text};
use super::prune;
use crate::problems::Problems;

/// Number of batches per part that may wait for the engine.
const WAITING: usize = 2;

/// A table of all runs of a session.
#[derive(Debug)]
pub struct TraceTable {
    about: TableAbout,
    schema: SchemaRef,
    runs: Arc<Vec<OpenRun>>,
    problems: Problems,
}

/// Index of the run in the session, and of the file in the run.
type FileAt = (usize, usize);

impl TraceTable {
    /// Creates a table from its description in the catalogue.
    pub fn new(about: TableAbout, runs: Arc<Vec<OpenRun>>, problems: Problems) -> TraceTable {
        TraceTable { schema: schema(&about, &text()), about, runs, problems }
    }

    /// Returns all files, or all runs for a table about runs.
    fn places(&self) -> Vec<FileAt> {
        let of_run = |(run, open): (usize, &OpenRun)| {
            let files = match self.about.scope {
                Scope::Rank => open.files().len(),
                Scope::Run => 1,
            };
            (0..files).map(move |file| (run, file))
        };
        self.runs.iter().enumerate().flat_map(of_run).collect()
    }

    /// Returns the columns that are constant within a file.
    fn by_place(&self, places: &[FileAt]) -> Result<RecordBatch> {
        let runs: StringArray =
            places.iter().map(|(run, _)| Some(self.runs[*run].name())).collect();
        let mut arrays: Vec<(&str, ArrayRef)> = vec![("run", Arc::new(runs))];
        if self.about.scope == Scope::Rank {
            let rank = |(run, file): &FileAt| self.runs[*run].files()[*file].rank;
            let ranks = places.iter().map(|place| i32::try_from(rank(place)?).ok());
            arrays.push(("rank", Arc::new(ranks.collect::<Int32Array>())));
        }
        let mut fields: Vec<Field> = Vec::new();
        let mut columns: Vec<ArrayRef> = Vec::new();
        for (name, array) in arrays {
            let field = self.schema.field_with_name(name)?;
            columns.push(cast(&array, field.data_type())?);
            fields.push(field.clone());
        }
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }
}

#[async_trait]
impl TableProvider for TraceTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let places = self.places();
        let kept = prune::files(filters, session, &self.by_place(&places)?)?;
        let kept = places.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(place, _)| place);
        let columns: Vec<usize> = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let time = self.about.time();
        let (from_ns, to_ns) = time.map_or((None, None), |column| prune::times(filters, column));
        let projected = Arc::new(self.schema.project(&columns)?);
        let part = |places: Vec<FileAt>| ReadPart {
            name: self.about.name,
            scope: self.about.scope,
            schema: Arc::clone(&projected),
            runs: Arc::clone(&self.runs),
            // The request's end is exclusive, but rows that begin at the last moment must be
            // included.
            request: Request {
                columns: columns.clone(),
                from_ns,
                to_ns: to_ns.map(|ns| ns.saturating_add(1)),
            },
            places,
            limit,
            problems: self.problems.clone(),
        };
        let threads = session.config().target_partitions();
        let parts = divided(kept.collect(), threads);
        let parts = parts.into_iter().map(|places| Arc::new(part(places)) as _).collect();
        let scan = StreamingTableExec::try_new(projected, parts, None, [], false, limit)?;
        Ok(Arc::new(scan))
    }
}

/// Divides files among threads. Each of N threads gets every Nth file, because neighbouring ranks
/// often have equally many rows.
fn divided(places: Vec<FileAt>, threads: usize) -> Vec<Vec<FileAt>> {
    let count = threads.min(places.len()).max(1);
    let mut parts = vec![Vec::new(); count];
    places.into_iter().enumerate().for_each(|(at, place)| parts[at % count].push(place));
    parts
}

/// The files of one thread.
struct ReadPart {
    name: &'static str,
    scope: Scope,
    schema: SchemaRef,
    runs: Arc<Vec<OpenRun>>,
    request: Request,
    places: Vec<FileAt>,
    limit: Option<usize>,
    problems: Problems,
}

impl fmt::Debug for ReadPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { from_ns, to_ns, .. } = self.request;
        write!(f, "{}: {} files", self.name, self.places.len())?;
        match (from_ns, to_ns) {
            (None, None) => Ok(()),
            (from, to) => write!(f, ", from {from:?} to {to:?} ns"),
        }
    }
}

impl PartitionStream for ReadPart {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), WAITING);
        let sender = builder.tx();
        let (name, scope, limit) = (self.name, self.scope, self.limit);
        let (runs, places) = (Arc::clone(&self.runs), self.places.clone());
        let (request, problems) = (self.request.clone(), self.problems.clone());
        let mut batches =
            Batches::new(Arc::clone(&self.schema), context.session_config().batch_size());
        builder.spawn_blocking(move || {
            let mut left = limit.unwrap_or(usize::MAX);
            // Returns false when no more batches are wanted, because the query has ended or has
            // enough rows.
            let mut send = |batch: Result<RecordBatch>| {
                let rows = batch.as_ref().map_or(0, RecordBatch::num_rows);
                left = left.saturating_sub(rows);
                sender.blocking_send(batch).is_ok() && left > 0
            };
            for (run, file) in places {
                let run = &runs[run];
                let mut wants_more = true;
                match scope {
                    Scope::Rank => {
                        let read = run.read_rank(file, name, &request, &mut |batch| {
                            wants_more = batches.add(batch, &mut send);
                            wants_more
                        });
                        match read {
                            Ok(found) => found.into_iter().for_each(|one| problems.add(one)),
                            Err(error) => problems.add(error.to_string()),
                        }
                    }
                    Scope::Run => {
                        let read = run.read_run(&[name]);
                        read.problems.into_iter().for_each(|one| problems.add(one));
                        for table in read.tables {
                            wants_more = send(of_run(&table, &request.columns, batches.schema()));
                        }
                    }
                }
                if !wants_more {
                    return Ok(());
                }
            }
            batches.finish(&mut send);
            Ok(())
        });
        builder.build()
    }
}
