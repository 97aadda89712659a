//! Runs in the formats of other tools: one file per format.
//!
//! [`perfetto`] writes a trace for Perfetto's page and engine, [`chrome`] the
//! JSON that torch.profiler writes, [`folded`] collapsed stacks for flame graphs,
//! [`flame`] an interactive page of them, [`timeline`] one of all threads and
//! streams, [`parquet`], [`csv`] and [`json`] tables, [`speedscope`] and
//! [`pprof`] profiles, [`tensorboard`] a log directory. Every output is written
//! beside its final name and renamed when it is whole ([`output`]); [`Slice`] selects
//! which part of a run goes in.

mod busy;
pub mod chrome;
mod collectives;
mod correlations;
mod counters;
pub mod csv;
mod error;
mod external;
pub mod flame;
pub mod folded;
mod gpus;
mod in_order;
pub mod json;
mod lanes;
mod numbers;
pub mod output;
mod page;
pub mod parquet;
mod paths;
pub mod perfetto;
pub mod pprof;
mod proto;
pub mod report_page;
mod rows;
mod slice;
pub mod speedscope;
mod stacks;
mod tables;
pub mod tensorboard;
mod text;
pub mod timeline;
mod words;

pub use error::ExportError;
pub use folded::Weight;
pub use numbers::Numbers;
pub use slice::{Part, Selection, Slice, Window};

use std::path::PathBuf;
use tprof_trace::{RunDir, SymbolSource};

/// Where to write, and what.
#[derive(Clone, Default)]
pub struct Options<'a> {
    /// File or directory; each format has its own default. `-` is stdout.
    pub output: Option<PathBuf>,
    /// Replace what is there.
    pub force: bool,
    /// Which part of the run.
    pub slice: Slice,
    /// Most bytes of a file.
    pub max_bytes: Option<u64>,
    /// The run to compare with, for formats that compare.
    pub against: Option<&'a RunDir>,
    /// What a stack's number counts; by default time, where CPU samples were taken.
    pub weight: Option<Weight>,
    /// JSON in place of a page, for formats that have both.
    pub json: bool,
    /// Names addresses that the recorder left without one.
    pub symbols: Option<&'a dyn SymbolSource>,
}

impl Options<'_> {
    /// Refuses a size for a format that cannot be cut.
    pub(crate) fn without_max_bytes(&self, format: &'static str) -> Result<(), ExportError> {
        match self.max_bytes {
            Some(_) => Err(ExportError::NoMaxSize { format }),
            None => Ok(()),
        }
    }
}

/// What an export did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// What is there now; empty if it went to stdout.
    pub paths: Vec<PathBuf>,
    /// Rows of the trace that were written.
    pub events: u64,
    /// Rows that lie outside the slice, or did not fit.
    pub left_out: u64,
    /// What else a reader of the output should know.
    pub notes: Vec<String>,
}
