//! Defines the values of cells, and the types of columns.

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A signed 64-bit number. An unsigned number of the trace is stored with the same bits.
    /// Parquet's `UINT_64` isn't used, because engines without an unsigned type read it as a
    /// decimal or wrongly.
    Int,
    /// A signed 32-bit number. It is for small numbers that identify something, such as ranks.
    Id,
    /// A 64-bit floating-point number.
    Float,
    /// True or false.
    Bool,
    /// A text in UTF-8.
    Text,
}

impl Type {
    /// Returns the name of the type in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Type::Int => "int64",
            Type::Id => "int32",
            Type::Float => "double",
            Type::Bool => "bool",
            Type::Text => "string",
        }
    }
}

/// One value of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// The value is unknown or does not apply.
    Null,
    /// A value of [`Type::Int`] or [`Type::Id`].
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A borrowed text.
    Text(&'a str),
}

impl<'a> Cell<'a> {
    /// Returns the cell of an unsigned number. A number above 2^63 - 1 becomes negative, with the
    /// same bits.
    pub(crate) fn uint(value: u64) -> Cell<'a> {
        Cell::Int(value as i64)
    }

    /// Returns the cell of a number; null if the number is unknown.
    pub(crate) fn opt(value: Option<impl Into<u64>>) -> Cell<'a> {
        value.map_or(Cell::Null, |value| Cell::uint(value.into()))
    }

    /// Returns the cell of a text; an empty text is null.
    pub(crate) fn text(value: &'a str) -> Cell<'a> {
        if value.is_empty() { Cell::Null } else { Cell::Text(value) }
    }
}
