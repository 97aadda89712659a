//! Declares the columns of a table to a server, which infers no types.

use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use tprof_ui::errors::Failure;

use crate::query_failure::QueryFailure;
use crate::status::QUERY;

/// Returns names and types of columns in Spark SQL.
pub fn of(schema: &Schema) -> Result<Vec<(String, &'static str)>, QueryFailure> {
    let column = |field: &FieldRef| {
        let kind = match field.data_type() {
            DataType::Int32 => "INT",
            DataType::Int64 => "BIGINT",
            DataType::Float64 => "DOUBLE",
            DataType::Boolean => "BOOLEAN",
            DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "STRING",
            other => {
                let what = format!("a server cannot read the column `{}`", field.name());
                let failure = Failure::new(what)
                    .cause(format!("its type is {other}, as tables of an older tprof have it"))
                    .hint("tprof export RUN --to parquet --compact")
                    .code(QUERY);
                return Err(failure.into());
            }
        };
        Ok((field.name().clone(), kind))
    };
    schema.fields().iter().map(column).collect()
}

/// Returns `` `run` STRING, `rank` INT, … `` for columns.
pub fn declared(columns: &[(String, &str)]) -> String {
    let columns = columns.iter().map(|(name, kind)| format!("`{name}` {kind}"));
    columns.collect::<Vec<_>>().join(", ")
}

/// Returns a query that has these columns and no rows.
pub fn nothing(columns: &[(String, &str)]) -> String {
    let columns = columns.iter().map(|(name, kind)| format!("CAST(NULL AS {kind}) AS `{name}`"));
    format!("SELECT {} WHERE 1 = 0", columns.collect::<Vec<_>>().join(", "))
}
