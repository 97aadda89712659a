//! Descriptions of tables and columns, for `\d`, `DESCRIBE`, completion and errors.

use datafusion::arrow::datatypes::{DataType, Schema};

/// Description of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableAbout {
    /// Name of the table.
    pub name: String,
    /// Meaning of a row; empty if unknown.
    pub about: String,
    /// Columns, in the table's order.
    pub columns: Vec<ColumnAbout>,
}

/// Description of a column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnAbout {
    /// Name of the column.
    pub name: String,
    /// Meaning of its values; empty if unknown.
    pub about: String,
}

impl TableAbout {
    /// Describes a table of which only the name is known.
    pub fn unknown(name: &str) -> TableAbout {
        TableAbout { name: name.to_owned(), ..TableAbout::default() }
    }

    /// Adds the columns of a schema, in its order.
    pub fn complete(&mut self, schema: &Schema) {
        let known = std::mem::take(&mut self.columns);
        let column = |name: &String| {
            let about = known.iter().find(|one| one.name == *name).map(|one| one.about.clone());
            let about = about.unwrap_or_else(|| of_every_table(name).to_owned());
            ColumnAbout { name: name.clone(), about }
        };
        self.columns = schema.fields().iter().map(|field| column(field.name())).collect();
    }
}

/// Returns the meaning of a column with which every table begins (`run`, `rank`).
fn of_every_table(name: &str) -> &'static str {
    match name {
        "run" => "run that the row is of",
        "rank" => "rank; null for a launcher",
        "instance" => "start of that rank, from 0",
        "host" => "host that it ran on",
        _ => "",
    }
}

/// Returns the name of a type in tprof's documentation.
pub fn type_name(kind: &DataType) -> String {
    match kind {
        DataType::Int8 | DataType::Int16 | DataType::Int32 => "int32".to_owned(),
        DataType::Int64 => "int64".to_owned(),
        DataType::UInt64 => "uint64".to_owned(),
        DataType::Float32 | DataType::Float64 => "double".to_owned(),
        DataType::Boolean => "bool".to_owned(),
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "string".to_owned(),
        DataType::Dictionary(_, value) => type_name(value),
        other => other.to_string().to_lowercase(),
    }
}
