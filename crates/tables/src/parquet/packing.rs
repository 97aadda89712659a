//! Chooses how each column of a file is encoded.

use std::sync::Arc;

use parquet::basic::{Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{EnabledStatistics, WriterPropertiesBuilder};
use parquet::file::writer::SerializedColumnWriter;
use parquet::schema::types::{ColumnPath, Type as Schema, TypePtr};

use crate::cell::Type;
use crate::column::ColumnAbout;
use crate::data::{Data, Values};

/// Columns of numbers that differ little from one row to the next, so differences are short.
const DELTA: [&str; 15] = [
    "start_ns",
    "time_ns",
    "launch_start_ns",
    "correlation",
    "external",
    "id",
    "parent",
    "row",
    "parent_row",
    "flop_row",
    "sequence",
    "ordinal",
    "queued_ns",
    "submitted_ns",
    "step",
];

/// Columns of numbers that many consecutive rows share. Their differences are zeros, which take no
/// space, and no dictionary has to be searched.
const FEW: [&str; 8] =
    ["rank", "instance", "process", "thread", "tid", "device", "stream", "launch_thread"];

/// Columns by which queries select rows. Their pages have minimum and maximum values, by which
/// engines skip pages.
const SEARCHED: [&str; 4] = ["start_ns", "time_ns", "rank", "step"];

/// Columns of texts by which queries select rows. Other columns of texts get no minimum and
/// maximum, because comparing texts for that takes a twentieth of an export's time.
const SEARCHED_TEXTS: [&str; 6] = ["run", "host", "name", "kind", "class", "cause"];

/// Sets the encoding of a column: differences if these are short, otherwise a dictionary.
pub(super) fn packed(
    properties: WriterPropertiesBuilder,
    column: &ColumnAbout,
) -> WriterPropertiesBuilder {
    let path = || ColumnPath::from(column.name);
    let statistics = match (column.name, column.kind) {
        (name, _) if SEARCHED.contains(&name) => EnabledStatistics::Page,
        (name, Type::Text) if !SEARCHED_TEXTS.contains(&name) => EnabledStatistics::None,
        _ => EnabledStatistics::Chunk,
    };
    let properties = properties.set_column_statistics_enabled(path(), statistics);
    if !DELTA.contains(&column.name) && !FEW.contains(&column.name) {
        return properties;
    }
    properties
        .set_column_dictionary_enabled(path(), false)
        .set_column_encoding(path(), Encoding::DELTA_BINARY_PACKED)
}

/// Returns the schema of a table. Every column may be null.
pub(super) fn schema(name: &str, columns: &[ColumnAbout]) -> Result<TypePtr> {
    let column_type = |column: &ColumnAbout| -> Result<TypePtr> {
        let (physical, logical) = match column.kind {
            Type::Int => (Physical::INT64, None),
            Type::Id => (Physical::INT32, None),
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
    let fields = columns.iter().map(column_type).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Schema::group_type_builder(name).with_fields(fields).build()?))
}

/// Writes a column as a part of a row group.
pub(super) fn write(data: &Data, column: &mut SerializedColumnWriter<'_>) -> Result<()> {
    let levels: Vec<i16> = data.valid.iter().map(|valid| i16::from(*valid)).collect();
    let levels = Some(&levels[..]);
    match (&data.values, column.untyped()) {
        (Values::Int(values), ColumnWriter::Int64ColumnWriter(writer)) => {
            writer.write_batch(&present(data, values), levels, None)?;
        }
        (Values::Id(values), ColumnWriter::Int32ColumnWriter(writer)) => {
            writer.write_batch(&present(data, values), levels, None)?;
        }
        (Values::Float(values), ColumnWriter::DoubleColumnWriter(writer)) => {
            writer.write_batch(&present(data, values), levels, None)?;
        }
        (Values::Bool(values), ColumnWriter::BoolColumnWriter(writer)) => {
            writer.write_batch(&present(data, values), levels, None)?;
        }
        (Values::Text(texts), ColumnWriter::ByteArrayColumnWriter(writer)) => {
            let distinct: Vec<ByteArray> =
                texts.distinct.iter().map(|text| text.as_bytes().to_vec().into()).collect();
            let present = texts.keys.iter().zip(&data.valid).filter(|(_, valid)| **valid);
            let rows: Vec<ByteArray> =
                present.map(|(key, _)| distinct[*key as usize].clone()).collect();
            writer.write_batch(&rows, levels, None)?;
        }
        _ => return Err(ParquetError::General("a column of another type".into())),
    }
    Ok(())
}

/// Returns the values of those rows that have a value.
fn present<'d, T: Copy>(data: &Data, values: &'d [T]) -> std::borrow::Cow<'d, [T]> {
    match data.nulls {
        0 => values.into(),
        _ => {
            let present = values.iter().zip(&data.valid).filter(|(_, valid)| **valid);
            present.map(|(value, _)| *value).collect()
        }
    }
}
