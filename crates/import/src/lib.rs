//! Imports traces of other tools into a tprof run: Kineto and Chrome JSON, plain or gzipped, as one
//! file or a directory of ranks; memory snapshots of PyTorch; and logs of `torch.compile`.
//!
//! [`import`] streams: memory holds one event, one block of rows per table, and the distinct names;
//! only a snapshot is in memory as a whole. Data that cannot be kept is counted by kind and listed
//! in the run. Import is a crate of its own so that the collector, which runs next to every job,
//! links no decompressor, and to prove that the trace model suffices for other sources.

mod builder;
mod categories;
mod comm;
mod compile_logs;
mod compiled;
mod content;
mod cursor;
mod device;
mod document;
mod error;
mod event;
mod frames;
mod group;
mod implausible;
mod imported_file;
mod inputs;
mod instants;
mod key;
mod kinds;
mod losses;
mod names;
mod number;
mod output;
mod pairs;
mod pickle;
mod rank;
mod run;
mod run_period;
mod samples;
mod snapshot;
mod source;
mod spans;
mod stacks;
mod stream_overlaps;
mod subdirectories;
mod text;
mod threads;
mod top_level;
mod window;

pub use content::packed_as;
pub use error::ImportError;
pub use run::{Imported, Options, Progress, import, is_foreign};
