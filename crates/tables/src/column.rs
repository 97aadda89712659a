//! Defines columns. A column has a name, a type, and a function that returns its value for a row.

pub(crate) use crate::cell::{Cell, Type};
use crate::context::Context;
use crate::data::Data;

/// One column of rows of type `R`.
pub struct Column<R> {
    /// Name, with the unit last: `duration_ns`.
    pub name: &'static str,
    /// Type of the values.
    pub kind: Type,
    /// A description for the documentation.
    pub about: &'static str,
    /// Returns the value of the column for a row.
    pub get: for<'a> fn(&'a R, &'a Context<'_>) -> Cell<'a>,
    /// Appends the values of the column for several rows. This has the same effect as `get`, but
    /// needs only one call for all rows.
    pub fill: fn(&[R], &Context<'_>, &mut Data),
}

/// Appends the value of each row to a column. This is the usual [`Column::fill`].
#[inline(always)]
pub(crate) fn fill<R>(
    rows: &[R],
    context: &Context<'_>,
    data: &mut Data,
    get: impl for<'a> Fn(&'a R, &'a Context<'_>) -> Cell<'a>,
) {
    rows.iter().for_each(|row| data.push(get(row, context)));
}

/// Like [`fill`], but for a value that all rows of a file share, so that it is computed once.
fn fill_same<R>(
    rows: &[R],
    context: &Context<'_>,
    data: &mut Data,
    get: impl for<'a> Fn(&'a R, &'a Context<'_>) -> Cell<'a>,
) {
    if let Some(first) = rows.first() {
        data.push_all(get(first, context), rows.len());
    }
}

// Don't derive `Clone`, because the derived implementation would require `R: Clone`.
impl<R> Clone for Column<R> {
    fn clone(&self) -> Column<R> {
        *self
    }
}

impl<R> Copy for Column<R> {}

/// Number of columns that [`identity`] returns.
pub(crate) const IDENTITY: usize = 4;

/// Returns the columns with which every table of a rank begins. They identify the run, and the
/// rank's file in it.
pub(crate) fn identity<R>() -> [Column<R>; IDENTITY] {
    macro_rules! same {
        ($name:literal $kind:ident $about:literal $get:expr) => {
            Column {
                name: $name,
                kind: Type::$kind,
                about: $about,
                get: $get,
                fill: |rows, context, data| fill_same(rows, context, data, $get),
            }
        };
    }
    [
        same!("run" Text "name of the run's directory" |_, c| Cell::text(&c.source.run)),
        same!("rank" Id "rank; null for processes of no rank" |_, c| Cell::opt(c.source.rank)),
        same!("instance" Id "which file of the rank: 0, or higher after a restart or of a second launch"
            |_, c| Cell::uint(c.source.instance.into())),
        same!("host" Text "host; null where an imported trace does not name it"
            |_, c| Cell::text(&c.source.host)),
    ]
}

/// The description of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnAbout {
    /// Name, with the unit last: `duration_ns`.
    pub name: &'static str,
    /// Type of the values. Every column may contain nulls.
    pub kind: Type,
    /// A description; empty if the name says everything.
    pub about: &'static str,
}

impl<R> From<&Column<R>> for ColumnAbout {
    fn from(column: &Column<R>) -> ColumnAbout {
        ColumnAbout { name: column.name, kind: column.kind, about: column.about }
    }
}

/// Receives the rows of tables, for example to write them to a file.
pub trait Sink {
    /// The error that the destination of the rows may report.
    type Error;

    /// Whether a column of a table is wanted. The values of an unwanted column are not computed, so
    /// they may be missing in the rows.
    fn takes(&self, table: &'static str, column: &'static str) -> bool {
        let _ = (table, column);
        true
    }

    /// Receives one table of a rank. Its rows are passed in batches. If only some columns are
    /// wanted, the rows may be in the file's order instead of in order of time.
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
                fill: |rows, context, data| $crate::column::fill(rows, context, data, $get),
            },
        )* ];
    };
}
pub(crate) use columns;
