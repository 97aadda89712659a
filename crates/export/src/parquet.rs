//! Parquet: a directory with one table a directory and one file a rank, for
//! DuckDB, Polars, pandas, Spark.
//!
//! `DIR/kernels/rank=3/rank-3.parquet`: readers that know Hive's convention get
//! `rank` as a column. Columns are those of `tables`; a table without
//! rows has no file. `DIR/_tprof.json` describes the dataset.

mod columns;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use serde_json::{Map, json};
use tprof_trace::RunDir;

use crate::output::OutputDir;
use crate::tables::{self, Column, Context, Sink};
use crate::{ExportError, Options, Selection, Written, paths};
use columns::{Buffer, schema};

/// Rows of a row group: as many as may be in memory at once.
const GROUP_ROWS: usize = 1 << 17;

/// Writes a dataset: `DIR/parquet`, or what the options name.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    options.without_max_bytes("parquet")?;
    let selection = Selection::new(run, &options.slice, options.symbols)?;
    let path = options.output.clone().unwrap_or_else(|| paths::beside(run).join("parquet"));
    OutputDir::check(&path, options.force, "parquet")?;
    paths::parent(&path)?;
    let output = OutputDir::create(&path)?;
    let mut written = Written::default();
    let mut about = Map::new();
    for (file, name) in selection.files.iter().zip(paths::names(&selection.files)) {
        let part = written.open_spans(&selection, file)?;
        let rank = match file.rank {
            Some(rank) => format!("rank={rank}"),
            // Hive's name for none.
            None => "rank=__HIVE_DEFAULT_PARTITION__".to_owned(),
        };
        let before = written.events;
        let mut dataset = Dataset {
            dir: output.unfinished(),
            inside: PathBuf::from(rank).join(format!("{name}.parquet")),
            tables: &mut about,
            written: &mut written,
        };
        let failed = |source| ExportError::Write { path: path.clone(), source };
        tables::each(&part, &options.host_times_of(&selection, file), &mut dataset)
            .map_err(failed)?;
        let all = tables::count(&part.trace);
        written.left_out += all.saturating_sub(written.events - before);
    }
    if written.events == 0 && !options.slice.is_all_time() {
        return Err(ExportError::EmptySlice);
    }
    let about = json!({
        "tables_version": tables::VERSION,
        "tprof": env!("CARGO_PKG_VERSION"),
        "start_unix_ns": (selection.zero.unix_ns > 0).then_some(selection.zero.unix_ns),
        "files": selection.files.len(),
        "tables": about,
    });
    let failed = |source| ExportError::Write { path: path.clone(), source };
    let text = serde_json::to_string_pretty(&about).unwrap_or_default() + "\n";
    fs::write(output.unfinished().join("_tprof.json"), text).map_err(failed)?;
    written.paths.push(output.keep()?);
    Ok(written)
}

/// One rank's part of the dataset.
struct Dataset<'a> {
    dir: &'a Path,
    inside: PathBuf,
    /// What each table is, over all ranks.
    tables: &'a mut Map<String, serde_json::Value>,
    written: &'a mut Written,
}

impl Sink for Dataset<'_> {
    type Error = io::Error;

    fn table<R>(
        &mut self,
        name: &'static str,
        columns: &[Column<R>],
        context: &Context<'_>,
        rows: &mut dyn Iterator<Item = Vec<R>>,
    ) -> io::Result<()> {
        debug_assert!(tables::NAMES.contains(&name), "{name}");
        let mut rows = rows.peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let path = self.dir.join(name).join(&self.inside);
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut table = TableFile::begin(&path, name, columns)?;
        for batch in rows {
            table.add(&batch, columns, context)?;
        }
        let count = table.finish()?;
        if tables::is_timed(name) {
            self.written.events += count;
        }
        let about = |column: &Column<R>| json!({ "name": column.name, "type": column.kind.name(), "about": column.about });
        let columns: Vec<_> = columns.iter().map(about).collect();
        let table = self.tables.entry(name).or_insert_with(|| json!({ "columns": columns }));
        let sum = table["rows"].as_u64().unwrap_or(0);
        table["rows"] = (sum + count).into();
        Ok(())
    }
}

/// One file.
struct TableFile {
    writer: SerializedFileWriter<File>,
    buffers: Vec<Buffer>,
    pending: usize,
    count: u64,
}

impl TableFile {
    fn begin<R>(path: &Path, name: &str, columns: &[Column<R>]) -> io::Result<TableFile> {
        let version = KeyValue::new("tprof.tables_version".into(), tables::VERSION.to_string());
        let level = ZstdLevel::try_new(3).map_err(parquet_failed)?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_created_by(format!("tprof {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(vec![version]));
        for column in columns.iter().filter(|column| columns::is_delta(column.name)) {
            properties = columns::delta(properties, column.name);
        }
        let schema = schema(name, columns).map_err(parquet_failed)?;
        let file = File::create_new(path)?;
        let properties = Arc::new(properties.build());
        let writer = SerializedFileWriter::new(file, schema, properties).map_err(parquet_failed)?;
        let buffers = columns.iter().map(|column| Buffer::new(column.kind)).collect();
        Ok(TableFile { writer, buffers, pending: 0, count: 0 })
    }

    fn add<R>(
        &mut self,
        rows: &[R],
        columns: &[Column<R>],
        context: &Context<'_>,
    ) -> io::Result<()> {
        for part in rows.chunks(GROUP_ROWS) {
            if self.pending + part.len() > GROUP_ROWS {
                self.group()?;
            }
            for (column, buffer) in columns.iter().zip(&mut self.buffers) {
                for row in part {
                    buffer.push((column.get)(row, context));
                }
            }
            self.pending += part.len();
        }
        Ok(())
    }

    /// Writes what is in memory as one row group.
    fn group(&mut self) -> io::Result<()> {
        if self.pending == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(parquet_failed)?;
        for buffer in &mut self.buffers {
            let Some(mut column) = group.next_column().map_err(parquet_failed)? else { break };
            buffer.write(&mut column).map_err(parquet_failed)?;
            column.close().map_err(parquet_failed)?;
        }
        group.close().map_err(parquet_failed)?;
        self.count += self.pending as u64;
        self.pending = 0;
        Ok(())
    }

    fn finish(mut self) -> io::Result<u64> {
        self.group()?;
        let mut file = self.writer.into_inner().map_err(parquet_failed)?;
        file.flush()?;
        Ok(self.count)
    }
}

/// The disk's error, where it was the disk.
fn parquet_failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other.to_string()),
        },
        other => io::Error::other(other.to_string()),
    }
}
