//! Reads traces that others made into a run of tprof's: Kineto and Chrome JSON,
//! plain or gzipped, one file or a directory of ranks; memory snapshots of PyTorch, and its logs of `torch.compile`.
//!
//! [`import`] streams: memory holds one event, one block of rows per table, and the
//! different names; a snapshot is in memory as a whole. What cannot be kept is counted by kind and listed in the run. A
//! crate of its own so that the collector, which every job runs beside, links no
//! decompressor, and so that the trace model is proven to suffice for other sources.

mod builder;
mod categories;
mod comm;
mod compile_logs;
mod compiled;
mod content;
mod cursor;
mod device;
mod document;
mod era;
mod error;
mod event;
mod facts;
mod frames;
mod group;
mod implausible;
mod inputs;
mod instants;
mod key;
mod kinds;
mod names;
mod number;
mod output;
mod pairs;
mod part;
mod pickle;
mod rank;
mod run;
mod samples;
mod serial;
mod snapshot;
mod source;
mod spans;
mod stacks;
mod tally;
mod text;
mod threads;
mod window;
mod within;

pub use content::packed_as;
pub use error::ImportError;
pub use run::{Imported, Options, Progress, import, is_foreign};
