//! `tprof report`: prints reports of a run's files, as text, JSON or CSV on stdout.

mod args;
mod csv;
mod distinguish;
pub mod document;
mod frames;
mod gpu;
mod head;
pub mod held_memory;
mod kinds;
mod many;
mod memory;
mod plot;
pub mod print;
mod ranks;
mod sites;
mod summary;
#[cfg(test)]
mod tests;

pub use args::{ReportWords, table_without_csv};
pub use kinds::{is_kind, kind_name, report_kinds};
pub use print::{print_schema, run};
