//! Writes results as they come, in the requested format.

mod file;
mod sink;
mod table;

pub use file::{Destination, terminal_width};
pub use sink::Sink;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::{FileWriter, StreamWriter};
use datafusion::arrow::json;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

use tprof_ui::args::ResultFormat as Format;
use tprof_ui::errors::{Failure, print_stderr};

use crate::query_failure::QueryFailure;
use crate::status::QUERY;
use table::TableText;

/// Rows of a Parquet row group, all of which are in memory at once.
const GROUP_ROWS: usize = 1 << 17;

/// Writes results to a sink, one after another.
pub struct Output {
    format: Format,
    sink: Sink,
    /// Width of the terminal in columns, if there is one.
    width: Option<usize>,
    /// Whether the sink is a file, in which a format can seek.
    is_file: bool,
    writer: Option<Writer>,
    /// Number of results begun so far.
    results: usize,
    /// Number of rows of the last result.
    rows: usize,
    /// Note about the last result.
    note: Option<String>,
}

/// A result that is being written.
enum Writer {
    Table(TableText),
    Csv(Box<csv::Writer<Sink>>),
    Json(Box<json::ArrayWriter<Sink>>),
    Parquet(Box<ArrowWriter<Sink>>, SchemaRef),
    ArrowFile(Box<FileWriter<Sink>>, SchemaRef),
    ArrowStream(Box<StreamWriter<Sink>>, SchemaRef),
}

impl Output {
    /// Creates an output of a format into a sink.
    pub fn new(format: Format, sink: Sink, width: Option<usize>, is_file: bool) -> Output {
        Output { format, sink, width, is_file, writer: None, results: 0, rows: 0, note: None }
    }

    /// Number of rows of the last result.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of results begun so far.
    pub fn results(&self) -> usize {
        self.results
    }

    /// Whether any statement had a result. A statement that creates a view has none.
    pub fn has_result(&self) -> bool {
        self.results > 0
    }

    /// Prints the note about the last result, once.
    pub fn print_note(&mut self) {
        if let Some(note) = self.note.take() {
            print_stderr(&note);
        }
    }

    /// Begins a result.
    pub fn begin(&mut self, schema: &SchemaRef) -> Result<(), QueryFailure> {
        self.begin_any(schema).map_err(|failed| self.known(failed))
    }

    /// Writes rows. Returns false if no more are wanted.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<bool, QueryFailure> {
        self.write_any(batch).map_err(|failed| self.known(failed))
    }

    /// Ends the current result.
    pub fn end(&mut self) -> Result<(), QueryFailure> {
        self.end_any().map_err(|failed| self.known(failed))
    }

    /// Returns a writer's failure, or `NobodyReads` if the reader has closed the sink. The failure
    /// alone doesn't show this, because writers replace the sink's errors by their own.
    fn known(&self, failed: QueryFailure) -> QueryFailure {
        if self.sink.is_unread() { QueryFailure::NobodyReads } else { failed }
    }

    fn begin_any(&mut self, schema: &SchemaRef) -> Result<(), QueryFailure> {
        let is_one = matches!(self.format, Format::Parquet | Format::Arrow);
        if is_one && self.results > 0 {
            return Err(Failure::new(format!("a file of {} holds one result", self.format.name()))
                .cause("more than one statement returns a result")
                .hint("CREATE VIEW for all but the last")
                .code(QUERY)
                .into());
        }
        if self.results > 0 && matches!(self.format, Format::Table | Format::Csv) {
            self.sink.write_all(b"\n")?;
        }
        (self.results, self.rows) = (self.results + 1, 0);
        let sink = self.sink.clone();
        self.writer = Some(match self.format {
            Format::Table => Writer::Table(TableText::new(schema)),
            Format::Csv => Writer::Csv(Box::new(csv(schema, sink)?)),
            Format::Json => {
                named_once(schema)?;
                let nulls = json::WriterBuilder::new().with_explicit_nulls(true);
                Writer::Json(Box::new(nulls.build(sink)))
            }
            Format::Parquet => {
                let schema = plain_schema(schema);
                let writer = ArrowWriter::try_new(sink, Arc::clone(&schema), Some(properties()));
                Writer::Parquet(Box::new(writer.map_err(write_failed)?), schema)
            }
            Format::Arrow if self.is_file => {
                let schema = plain_schema(schema);
                let writer = FileWriter::try_new(sink, &schema).map_err(arrow_failed)?;
                Writer::ArrowFile(Box::new(writer), schema)
            }
            Format::Arrow => {
                let schema = plain_schema(schema);
                let writer = StreamWriter::try_new(sink, &schema).map_err(arrow_failed)?;
                Writer::ArrowStream(Box::new(writer), schema)
            }
        });
        Ok(())
    }

    fn write_any(&mut self, batch: &RecordBatch) -> Result<bool, QueryFailure> {
        self.rows += batch.num_rows();
        let Some(writer) = &mut self.writer else { return Ok(false) };
        match writer {
            Writer::Table(table) => return table.add(batch).map_err(arrow_failed),
            Writer::Csv(writer) => writer.write(batch).map_err(arrow_failed)?,
            Writer::Json(writer) => writer.write(batch).map_err(arrow_failed)?,
            Writer::Parquet(writer, schema) => {
                writer.write(&plain(batch, schema)?).map_err(write_failed)?;
            }
            Writer::ArrowFile(writer, schema) => {
                writer.write(&plain(batch, schema)?).map_err(arrow_failed)?;
            }
            Writer::ArrowStream(writer, schema) => {
                writer.write(&plain(batch, schema)?).map_err(arrow_failed)?;
            }
        }
        Ok(true)
    }

    fn end_any(&mut self) -> Result<(), QueryFailure> {
        match self.writer.take() {
            None => {}
            Some(Writer::Table(table)) => {
                self.sink.write_all(table.text(self.width).as_bytes())?;
                self.note = table.note();
            }
            Some(Writer::Csv(_)) => {}
            Some(Writer::Json(mut writer)) => {
                writer.finish().map_err(arrow_failed)?;
                self.sink.write_all(b"\n")?;
            }
            Some(Writer::Parquet(writer, _)) => {
                writer.close().map_err(write_failed)?;
            }
            Some(Writer::ArrowFile(mut writer, _)) => writer.finish().map_err(arrow_failed)?,
            Some(Writer::ArrowStream(mut writer, _)) => writer.finish().map_err(arrow_failed)?,
        }
        Ok(self.sink.flush()?)
    }
}

/// Fails if two columns have the same name, because readers of a JSON object would see only one of
/// them.
fn named_once(schema: &Schema) -> Result<(), QueryFailure> {
    let mut names = HashSet::new();
    match schema.fields().iter().find(|field| !names.insert(field.name())) {
        Some(field) => Err(Failure::new(format!("two columns are named `{}`", field.name()))
            .cause("a JSON object can have each name only once")
            .hint("SELECT … AS another_name; --format csv")
            .code(QUERY)
            .into()),
        None => Ok(()),
    }
}

/// Creates a CSV writer that writes its header even if the result has no rows.
fn csv(schema: &SchemaRef, sink: Sink) -> Result<csv::Writer<Sink>, QueryFailure> {
    let mut writer = csv::WriterBuilder::new().with_header(true).build(sink);
    writer.write(&RecordBatch::new_empty(Arc::clone(schema))).map_err(arrow_failed)?;
    Ok(writer)
}

fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_created_by(format!("tprof {}", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Converts a schema so that every reader understands its texts, by making them plain strings. They
/// can't be dictionaries, because an Arrow file may have only one per column, nor views, because
/// many readers don't know these.
fn plain_schema(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| {
        let kind = match field.data_type() {
            DataType::Dictionary(_, value) => plain_type(value),
            other => plain_type(other),
        };
        Field::new(field.name(), kind, true)
    };
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

fn plain_type(kind: &DataType) -> DataType {
    match kind {
        DataType::Utf8View => DataType::Utf8,
        other => other.clone(),
    }
}

fn plain(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, QueryFailure> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()));
    let columns = columns.collect::<Result<Vec<_>, _>>().map_err(arrow_failed)?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(arrow_failed)
}

fn arrow_failed(error: ArrowError) -> QueryFailure {
    match error {
        ArrowError::IoError(_, error) => error.into(),
        // For example, CSV has no nested columns.
        other => Failure::new("this format cannot hold the result")
            .cause(other.to_string())
            .hint("--format parquet has every type")
            .code(QUERY)
            .into(),
    }
}

fn write_failed(error: parquet::errors::ParquetError) -> QueryFailure {
    match error {
        parquet::errors::ParquetError::External(inner) => {
            match inner.downcast::<std::io::Error>() {
                Ok(error) => (*error).into(),
                Err(other) => std::io::Error::other(other.to_string()).into(),
            }
        }
        other => std::io::Error::other(other.to_string()).into(),
    }
}
