//! The trace model and its file.
//!
//! [`model`] names the tables that every analysis and export reads;
//! [`TraceWriter`] and [`TraceFile`] write and read one `.tprof` per rank;
//! [`run`] is `run.json`; [`RunDir`] opens a run directory as a whole.
//! `docs/format.md` describes the bytes.

mod code;
mod columns;
mod columns_read;
mod dir;
mod error;
mod file;
mod heap_block;
mod heap_events;
mod in_order;
pub mod live;
mod loaded;
mod map_events;
pub mod model;
mod pending;
mod planes;
mod reader;
mod recorded;
mod row_blocks;
pub mod run;
mod scan;
mod tables;
mod writer;

pub use code::{CodeMap, CodePlace, Function, SymbolSource, address_of};
pub use dir::{RankFile, RankLabel, RunDir};
pub use error::{Problem, TraceError};
pub use file::{FORMAT_VERSION, OLDEST_READABLE, TraceHeader};
pub use heap_block::HeapBlock;
pub use heap_events::HeapEvents;
pub use in_order::RowsInOrder;
pub use map_events::MapEvents;
pub use reader::TraceFile;
pub use recorded::Recorded;
pub use row_blocks::RowBlocks;
pub use tables::{TracePart, TraceRow};
pub use writer::TraceWriter;
