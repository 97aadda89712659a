//! Columns in memory, and how each is packed.

use std::sync::Arc;

use parquet::basic::{Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterPropertiesBuilder;
use parquet::file::writer::SerializedColumnWriter;
use parquet::schema::types::{ColumnPath, Type as Schema, TypePtr};
use rustc_hash::FxHashMap;

use crate::tables::{Cell, Column, Type};

/// Columns with values that differ little from one row to the next.
const DELTA: [&str; 10] = [
    "start_ns",
    "time_ns",
    "correlation",
    "external",
    "id",
    "parent",
    "sequence",
    "ordinal",
    "queued_ns",
    "submitted_ns",
];

pub(super) fn is_delta(name: &str) -> bool {
    DELTA.contains(&name)
}

/// Packs a column as differences; the others have dictionaries.
pub(super) fn delta(properties: WriterPropertiesBuilder, name: &str) -> WriterPropertiesBuilder {
    let path = || ColumnPath::from(name);
    properties
        .set_column_dictionary_enabled(path(), false)
        .set_column_encoding(path(), Encoding::DELTA_BINARY_PACKED)
}

/// The schema of a table. Every column may be null.
pub(super) fn schema<R>(name: &str, columns: &[Column<R>]) -> Result<TypePtr> {
    let one = |column: &Column<R>| -> Result<TypePtr> {
        let (physical, logical) = match column.kind {
            Type::Int => (Physical::INT64, None),
            Type::Uint => {
                let unsigned = LogicalType::integer(64, false);
                (Physical::INT64, Some(unsigned))
            }
            Type::Float => (Physical::DOUBLE, None),
            Type::Bool => (Physical::BOOLEAN, None),
            Type::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let column = Schema::primitive_type_builder(column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()?;
        Ok(Arc::new(column))
    };
    let fields = columns.iter().map(one).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Schema::group_type_builder(name).with_fields(fields).build()?))
}

/// Values of a column that are not null, and which rows have one.
pub(super) struct Buffer {
    levels: Vec<i16>,
    values: Values,
}

enum Values {
    /// Signed and unsigned integers share their bits.
    Int(Vec<i64>),
    Float(Vec<f64>),
    Bool(Vec<bool>),
    Text {
        rows: Vec<ByteArray>,
        known: FxHashMap<Box<str>, ByteArray>,
    },
}

impl Buffer {
    pub fn new(kind: Type) -> Buffer {
        let values = match kind {
            Type::Int | Type::Uint => Values::Int(Vec::new()),
            Type::Float => Values::Float(Vec::new()),
            Type::Bool => Values::Bool(Vec::new()),
            Type::Text => Values::Text { rows: Vec::new(), known: FxHashMap::default() },
        };
        Buffer { levels: Vec::new(), values }
    }

    /// Adds a value; one of another type than the column's is null.
    pub fn push(&mut self, cell: Cell<'_>) {
        let there = match (&mut self.values, cell) {
            (Values::Int(values), Cell::Int(value)) => {
                values.push(value);
                true
            }
            (Values::Int(values), Cell::Uint(value)) => {
                values.push(value as i64);
                true
            }
            (Values::Float(values), Cell::Float(value)) => {
                values.push(value);
                true
            }
            (Values::Bool(values), Cell::Bool(value)) => {
                values.push(value);
                true
            }
            (Values::Text { rows, known }, Cell::Text(text)) => {
                let row = match known.get(text) {
                    Some(row) => row.clone(),
                    None => {
                        let row = ByteArray::from(text.as_bytes().to_vec());
                        known.insert(text.into(), row.clone());
                        row
                    }
                };
                rows.push(row);
                true
            }
            _ => false,
        };
        self.levels.push(there.into());
    }

    /// Writes the column of a row group, and is empty afterwards.
    pub fn write(&mut self, column: &mut SerializedColumnWriter<'_>) -> Result<()> {
        let levels = Some(&self.levels[..]);
        match (&mut self.values, column.untyped()) {
            (Values::Int(values), ColumnWriter::Int64ColumnWriter(writer)) => {
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
            (Values::Float(values), ColumnWriter::DoubleColumnWriter(writer)) => {
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
            (Values::Bool(values), ColumnWriter::BoolColumnWriter(writer)) => {
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
            (Values::Text { rows, known }, ColumnWriter::ByteArrayColumnWriter(writer)) => {
                writer.write_batch(rows, levels, None)?;
                rows.clear();
                known.clear();
            }
            _ => return Err(ParquetError::General("a column of another type".into())),
        }
        self.levels.clear();
        Ok(())
    }
}
