//! Converts columns that tprof has read from trace files to Arrow columns of the query engine.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch,
    RecordBatchOptions, StringArray,
};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use datafusion::error::Result;
use tprof_tables::read::Batch;
use tprof_tables::{Data, RunTable, TableAbout, Type, Values};

/// Returns the columns of a table, all nullable, with texts of this type.
pub fn schema(about: &TableAbout, text: &DataType) -> SchemaRef {
    let field = |column: &tprof_tables::ColumnAbout| {
        let kind = match column.kind {
            Type::Int => DataType::Int64,
            Type::Id => DataType::Int32,
            Type::Float => DataType::Float64,
            Type::Bool => DataType::Boolean,
            Type::Text => text.clone(),
        };
        Field::new(column.name, kind, true)
    };
    Arc::new(Schema::new(about.columns.iter().map(field).collect::<Vec<_>>()))
}

/// Returns the type of texts of trace files: dictionaries, because there are few distinct ones.
pub fn text() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// Joins small batches to larger ones. A rank may have only ten rows, and each batch costs the
/// engine about the same.
pub struct Batches {
    schema: SchemaRef,
    rows: usize,
    pending: Vec<RecordBatch>,
    pending_rows: usize,
}

/// Sends a batch to the engine. Returns false if no more are wanted.
type Send<'a> = &'a mut dyn FnMut(Result<RecordBatch>) -> bool;

impl Batches {
    /// Creates batches of about this many rows.
    pub fn new(schema: SchemaRef, rows: usize) -> Batches {
        Batches { schema, rows, pending: Vec::new(), pending_rows: 0 }
    }

    /// Returns the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Adds rows, and sends complete batches. Returns false if no more are wanted.
    pub fn add(&mut self, batch: Batch, send: Send<'_>) -> bool {
        let batch = match self.record_batch(batch) {
            Ok(batch) => batch,
            Err(error) => return send(Err(error)),
        };
        if batch.num_rows() >= self.rows {
            // A large batch is divided, so that sorts and joins can free it in parts.
            let rows = self.rows;
            let part = |from: usize| batch.slice(from, rows.min(batch.num_rows() - from));
            let mut starts = (0..batch.num_rows()).step_by(rows);
            return self.finish(send) && starts.all(|from| send(Ok(part(from))));
        }
        self.pending_rows += batch.num_rows();
        self.pending.push(batch);
        self.pending_rows < self.rows || self.finish(send)
    }

    /// Sends the remaining rows.
    pub fn finish(&mut self, send: Send<'_>) -> bool {
        let pending = std::mem::take(&mut self.pending);
        self.pending_rows = 0;
        match &pending[..] {
            [] => true,
            [one] => send(Ok(one.clone())),
            _ => send(concat_batches(&self.schema, &pending).map_err(Into::into)),
        }
    }

    fn record_batch(&self, batch: Batch) -> Result<RecordBatch> {
        let columns = batch.columns.into_iter().map(array).collect::<Result<Vec<_>>>()?;
        // The number of rows is set explicitly, because a query such as `SELECT count(*)` needs no
        // column.
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &rows)?)
    }
}

fn array(data: Data) -> Result<ArrayRef> {
    let Data { valid, nulls, values } = data;
    let valid = (nulls > 0).then(|| NullBuffer::new(BooleanBuffer::from(valid)));
    Ok(match values {
        Values::Int(values) => Arc::new(Int64Array::new(values.into(), valid)),
        Values::Id(values) => Arc::new(Int32Array::new(values.into(), valid)),
        Values::Float(values) => Arc::new(Float64Array::new(values.into(), valid)),
        Values::Bool(values) => Arc::new(BooleanArray::new(BooleanBuffer::from(values), valid)),
        Values::Text(texts) => {
            let keys: Vec<i32> = texts.keys.iter().map(|key| *key as i32).collect();
            let distinct: StringArray =
                texts.distinct.iter().map(|text| Some(text.as_ref())).collect();
            let keys = Int32Array::new(keys.into(), valid);
            Arc::new(DictionaryArray::<Int32Type>::try_new(keys, Arc::new(distinct))?)
        }
    })
}

/// Returns the wanted columns of a table about runs.
pub fn of_run(table: &RunTable, wanted: &[usize], schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |(at, field): (&usize, &Arc<Field>)| {
        let mut data = Data::new(match field.data_type() {
            DataType::Int64 => Type::Int,
            DataType::Int32 => Type::Id,
            DataType::Float64 => Type::Float,
            DataType::Boolean => Type::Bool,
            _ => Type::Text,
        });
        table.rows.iter().for_each(|row| data.push(row[*at].cell()));
        array(data)
    };
    let columns = wanted.iter().zip(schema.fields()).map(column).collect::<Result<Vec<_>>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(table.rows.len()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &rows)?)
}
