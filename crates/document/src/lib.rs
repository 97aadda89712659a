//! The interface of analyses, and reports as data: titled tables of typed columns.
//!
//! Every kind of report except the summary and `memory` is a [`Document`]. There is one renderer
//! each for text, JSON, CSV and HTML, so an analysis only computes: it makes rows in the order in
//! which they should be read, and columns with a meaning and a unit.

mod cell;
mod document;
mod json;
mod make;
pub mod nsys;
mod option_matches;
pub mod over_ranks;
mod table_row;

pub use cell::{Cell, Value};
pub use document::{Column, Document, FoldedRows, Table, Unit, View};
pub use json::{REPORT_VERSION, Shown, Tables};
pub use make::{
    Analysis, Body, DocumentKind, LineTables, Machine, Options, RankContext, SortBy,
    StartedAnalysis, TimeSelection, UnjoinedAnalysis, Window, begin, boxed,
};
pub use option_matches::{OptionMatches, text_and_number};
pub use table_row::TableRow;
