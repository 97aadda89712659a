//! What a column is: its name, its type, and what it makes of a row.

use crate::context::Context;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Signed 64 bits. Unsigned numbers of the trace keep their bits: engines that have no unsigned
    /// type read `UINT_64` as a decimal, or wrongly.
    Int,
    /// Signed 32 bits: small numbers that name something.
    Id,
    /// 64-bit floating point.
    Float,
    /// True or false.
    Bool,
    /// UTF-8.
    Text,
}

impl Type {
    /// As the documentation calls it.
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

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Not known, or it does not apply.
    Null,
    /// Of [`Type::Int`] and [`Type::Id`].
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(&'a str),
}

impl<'a> Cell<'a> {
    /// An unsigned number; above 2^63 - 1 its bits.
    pub(crate) fn uint(value: u64) -> Cell<'a> {
        Cell::Int(value as i64)
    }

    /// One that may be unknown.
    pub(crate) fn opt(value: Option<impl Into<u64>>) -> Cell<'a> {
        value.map_or(Cell::Null, |value| Cell::uint(value.into()))
    }

    /// A text; an empty one is null.
    pub(crate) fn text(value: &'a str) -> Cell<'a> {
        if value.is_empty() { Cell::Null } else { Cell::Text(value) }
    }
}

/// One column of rows of type `R`.
pub struct Column<R> {
    /// Name; its unit last: `duration_ns`.
    pub name: &'static str,
    /// Type.
    pub kind: Type,
    /// What it is, for the documentation.
    pub about: &'static str,
    /// Its value in a row.
    pub get: for<'a> fn(&'a R, &'a Context<'_>) -> Cell<'a>,
}

// Not derived: that would ask the same of the row.
impl<R> Clone for Column<R> {
    fn clone(&self) -> Column<R> {
        *self
    }
}

impl<R> Copy for Column<R> {}

/// Columns of [`identity`].
pub(crate) const IDENTITY: usize = 4;

/// What every row of a rank begins with: which run, and which rank's file of it.
pub(crate) fn identity<R>() -> [Column<R>; IDENTITY] {
    [
        Column {
            name: "run",
            kind: Type::Text,
            about: "name of the run's directory",
            get: |_, c| Cell::text(&c.who.run),
        },
        Column {
            name: "rank",
            kind: Type::Id,
            about: "rank; null for processes of no rank",
            get: |_, c| Cell::opt(c.who.rank),
        },
        Column {
            name: "instance",
            kind: Type::Id,
            about: "which file of the rank: 0, or higher after a restart or of a second launch",
            get: |_, c| Cell::uint(c.who.instance.into()),
        },
        Column {
            name: "host",
            kind: Type::Text,
            about: "host; null where an imported trace does not name it",
            get: |_, c| Cell::text(&c.who.host),
        },
    ]
}

/// Takes tables.
pub trait Sink {
    /// What can go wrong where they go.
    type Error;

    /// Whether a column of a table is wanted. Rows are not joined to others for columns that are not.
    fn takes(&self, table: &'static str, column: &'static str) -> bool {
        let _ = (table, column);
        true
    }

    /// One table of a rank: its rows come in batches, those of large tables by time.
    fn table<R>(
        &mut self,
        name: &'static str,
        columns: &[Column<R>],
        context: &Context<'_>,
        rows: &mut dyn Iterator<Item = Vec<R>>,
    ) -> Result<(), Self::Error>;
}

/// Defines the columns of a table.
macro_rules! columns {
    ($visibility:vis $table:ident of $row:ty: $( $name:literal $kind:ident $about:literal $get:expr; )*) => {
        $visibility const $table: &[$crate::column::Column<$row>] = &[ $(
            $crate::column::Column {
                name: $name,
                kind: $crate::column::Type::$kind,
                about: $about,
                get: $get,
            },
        )* ];
    };
}
pub(crate) use columns;
