//! Defines the trace model, and writes and reads it as `.tprof` files.
//!
//! [`model`] defines the tables that every analysis and export reads. [`TraceWriter`] and
//! [`TraceFile`] write and read one `.tprof` per rank. [`run`] describes `run.json`. [`RunDir`]
//! opens a whole run directory. `docs/format.md` describes the bytes.
//!
//! These are the modules in reading order. Each uses only modules above it.
//!
//! - `model`, `run`, `live`, `calls`, `kernel_name`, `error`, `plain_file`: the content of a run, the
//!   meaning of names, the errors, and how files are opened;
//! - `file`, `info_file`, `planes`, `columns`, `columns_read`, `tables`: convert rows to blocks of
//!   columns and back; `watch`: who sees the rows that are written;
//! - `heap_block`, `pending`, `scan`, `kept`, `loaded`, `damage_list`: blocks before they are written,
//!   and blocks that were found in a file, or in the segments that belong to it;
//! - `reader`: opens a file, with its small tables in memory;
//! - `row_blocks`, `in_order`, `heap_events`, `map_events`, `recorded`, `code`: the parts of a file
//!   that are read on demand;
//! - `tail`, `tail_names`: read a file that is still growing;
//! - `writer`: writes a file;
//! - `compile_log`: logs of `torch.compile` that a run keeps as PyTorch wrote them;
//! - `dir`: the files of a run.

pub mod calls;
mod error;
pub mod kernel_name;
pub mod live;
pub mod model;
mod plain_file;
pub mod run;

mod columns;
mod columns_read;
mod file;
mod info_file;
mod planes;
mod tables;
mod watch;

mod damage_list;
mod heap_block;
mod kept;
mod loaded;
mod pending;
mod scan;

mod reader;

mod code;
mod heap_events;
mod in_order;
mod map_events;
mod recorded;
mod row_blocks;
mod tail;
mod tail_names;

mod writer;

mod clock_line;
pub mod compile_log;

mod dir;

pub use clock_line::ClockLine;
pub use code::{CodeMap, CodePlace, Function, SymbolSource, address_of};
pub use damage_list::DamageList;
pub use dir::{CompileLogFile, CompileLogOwner, RankFile, RankLabel, RunDir, Start};
pub use error::{Problem, TraceError};
pub use file::{FORMAT_VERSION, OLDEST_READABLE, TraceHeader};
pub use heap_block::HeapBlock;
pub use heap_events::HeapEvents;
pub use in_order::RowsInOrder;
pub use info_file::{
    InfoFile, info_text, is_info_name, is_trace_file, is_unwritten_name, unwritten_marker,
};
pub use kept::KEEP_MARK;
pub use map_events::MapEvents;
pub use plain_file::{open_input, open_plain, read_plain};
pub use reader::{FilePart, TraceFile};
pub use recorded::Recorded;
pub use row_blocks::RowBlocks;
pub use tables::{TracePart, TraceRow};
pub use tail::{StackFunction, TailDecoder, TailOptions, TailUpdate, TraceTail};
pub use tprof_wire::{hash, pytorch};
pub use watch::RowWatcher;
pub use writer::{KeptCopy, KeptRoom, TraceWriter};
