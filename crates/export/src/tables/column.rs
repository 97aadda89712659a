//! What a column is: its name, its type, and what it makes of a row.

use tprof_facts::Clock;
use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, ThreadIndex};

use crate::OpenRank;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// Signed 64 bits.
    Int,
    /// Unsigned 64 bits.
    Uint,
    /// 64-bit floating point.
    Float,
    Bool,
    /// UTF-8.
    Text,
}

impl Type {
    /// As the documentation calls it.
    pub fn name(self) -> &'static str {
        match self {
            Type::Int => "int64",
            Type::Uint => "uint64",
            Type::Float => "double",
            Type::Bool => "bool",
            Type::Text => "string",
        }
    }
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    Null,
    Int(i64),
    Uint(u64),
    Float(f64),
    Bool(bool),
    Text(&'a str),
}

impl<'a> Cell<'a> {
    pub fn opt(value: Option<impl Into<u64>>) -> Cell<'a> {
        value.map_or(Cell::Null, |value| Cell::Uint(value.into()))
    }

    /// A text; an empty one is null.
    pub fn text(value: &'a str) -> Cell<'a> {
        if value.is_empty() { Cell::Null } else { Cell::Text(value) }
    }
}

/// One column of rows of type `R`.
pub(crate) struct Column<R> {
    pub name: &'static str,
    pub kind: Type,
    /// What it is, for the documentation.
    pub about: &'static str,
    pub get: for<'a> fn(&'a R, &Context<'a>) -> Cell<'a>,
}

/// What rows refer to.
pub(crate) struct Context<'a> {
    pub trace: &'a TraceFile,
    clock: Clock,
}

impl<'a> Context<'a> {
    pub fn of(part: &'a OpenRank<'_>) -> Context<'a> {
        Context { trace: &part.trace, clock: part.clock }
    }

    pub fn time(&self, time_ns: u64) -> Cell<'a> {
        Cell::Int(self.clock.signed_since_start(time_ns))
    }

    pub fn time_opt(&self, time_ns: Option<u64>) -> Cell<'a> {
        time_ns.map_or(Cell::Null, |time_ns| self.time(time_ns))
    }

    pub fn name(&self, name: NameId) -> Cell<'a> {
        Cell::text(self.trace.name(name))
    }

    pub fn tid(&self, thread: ThreadIndex) -> Cell<'a> {
        let threads = self.trace.threads();
        let found = threads.binary_search_by_key(&thread, |row| row.thread);
        found.map_or(Cell::Null, |at| Cell::Uint(threads[at].tid.into()))
    }
}

/// Takes tables.
pub(crate) trait Sink {
    type Error;

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
        $visibility const $table: &[$crate::tables::column::Column<$row>] = &[ $(
            $crate::tables::column::Column {
                name: $name,
                kind: $crate::tables::column::Type::$kind,
                about: $about,
                get: $get,
            },
        )* ];
    };
}
pub(crate) use columns;
