//! Writes one Parquet file of a table.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::packing;
use crate::about::VERSION;
use crate::cell::Cell;
use crate::column::ColumnAbout;
use crate::data::Data;

/// Number of rows in a row group. An engine skips groups by their minimum and maximum values, and
/// its threads work on different groups.
const GROUP_ROWS: usize = 100_000;

/// A file that is being written.
pub(super) struct TableFile {
    writer: SerializedFileWriter<File>,
    columns: Vec<Data>,
    count: u64,
}

impl TableFile {
    pub fn begin(path: &Path, name: &str, columns: &[ColumnAbout]) -> io::Result<TableFile> {
        let version = KeyValue::new("tprof.tables_version".into(), VERSION.to_string());
        let level = ZstdLevel::try_new(1).map_err(parquet_failed)?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_created_by(format!("tprof {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(vec![version]));
        for column in columns {
            properties = packing::packed(properties, column);
        }
        let schema = packing::schema(name, columns).map_err(parquet_failed)?;
        let file = File::create_new(path)?;
        let properties = Arc::new(properties.build());
        let writer = SerializedFileWriter::new(file, schema, properties).map_err(parquet_failed)?;
        let columns = columns.iter().map(|column| Data::new(column.kind)).collect();
        Ok(TableFile { writer, columns, count: 0 })
    }

    /// Appends this many rows. `column` is called once per column, and appends the column's cells.
    pub fn add(&mut self, rows: usize, mut column: impl FnMut(usize, &mut Data)) -> io::Result<()> {
        for (at, data) in self.columns.iter_mut().enumerate() {
            column(at, data);
        }
        self.count += rows as u64;
        if self.columns.first().is_some_and(|first| first.len() >= GROUP_ROWS) {
            self.group()?;
        }
        Ok(())
    }

    /// Appends a single row.
    pub fn row<'c>(&mut self, cells: impl Iterator<Item = Cell<'c>>) -> io::Result<()> {
        let mut cells = cells;
        self.add(1, |_, data| data.push(cells.next().unwrap_or(Cell::Null)))
    }

    /// Writes the collected rows as one row group.
    fn group(&mut self) -> io::Result<()> {
        if self.columns.first().is_none_or(Data::is_empty) {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(parquet_failed)?;
        for data in &mut self.columns {
            let Some(mut column) = group.next_column().map_err(parquet_failed)? else { break };
            packing::write(data, &mut column).map_err(parquet_failed)?;
            column.close().map_err(parquet_failed)?;
            data.clear();
        }
        group.close().map_err(parquet_failed)?;
        Ok(())
    }

    /// Finishes the file. Returns its number of rows.
    pub fn finish(mut self) -> io::Result<u64> {
        self.group()?;
        let mut file = self.writer.into_inner().map_err(parquet_failed)?;
        file.flush()?;
        Ok(self.count)
    }
}

/// Converts a Parquet error to an I/O error. If an I/O error caused it, returns that one.
fn parquet_failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other.to_string()),
        },
        other => io::Error::other(other.to_string()),
    }
}
