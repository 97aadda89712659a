//! Presents runs as plain tables. The columns are defined once, both for export formats that are
//! tables and for engines that query tables.
//!
//! [`catalogue`] lists the tables and their columns; `docs/exports.md` contains the same list.
//! Tables of a rank ([`RankTables`]) have the rows of its file, joined with the values that reports
//! derive from them. Tables of a run ([`read_run`]) have the figures that reports print for each
//! rank. Names are resolved, and times are nanoseconds since the run began. An unknown value is
//! null, never 0.
//!
//! [`mod@parquet`], [`csv`] and [`json`] write tables to files. [`read`] passes only those columns
//! of a table to an engine that a query needs.

mod row_source;

mod cell;
mod data;

mod context;

mod column;
mod host_time;
mod rows;

mod columns;

mod each;
mod run;

mod about;
mod views;

pub mod csv;
pub mod json;
pub mod parquet;
pub mod read;

pub use about::{Scope, TableAbout, VERSION, catalogue, is_table};
pub use cell::{Cell, Type};
pub use column::{Column, ColumnAbout, Sink};
pub use context::Context;
pub use data::{Data, Texts, Values};
pub use each::{RANK_TABLES, RankTables};
pub use host_time::HostTime;
pub use row_source::{RowSource, name_of};
pub use run::{OwnedCell, RUN_TABLES, RunTable, RunTables, read_run, run_columns};
pub use views::{VIEWS, View};
