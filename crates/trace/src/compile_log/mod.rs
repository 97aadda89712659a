//! Reads PyTorch's structured log of `torch.compile` (`TORCH_TRACE`), which a run stores as PyTorch
//! wrote it.
//!
//! Each process of a job writes its own log. If the job was killed, the log is read up to its last
//! whole line. A line consists of glog's prefix and JSON with one event. The prefix has the month
//! and day but no year, in the job's local time, and the process. The lines of the event's payload
//! follow, each after a tab.
//!
//! The reader is tolerant, because the versions of PyTorch have different events and fields. It
//! counts events that it doesn't use, unknown events by name, and damaged lines. Memory contains
//! one line and one payload, both of bounded length, and a result that fits [`Bounds`]. The reader
//! counts the content that a bound leaves out.
//!
//! `dates` and `line` read a prefix, `events` lists PyTorch's events, `head` reads the JSON, and
//! `metrics` reads the metrics of a compilation. `numbers` tells apart compilations with the same
//! number. `graph_break`, `graph`, `nodes`, `code`, `stacks` and `payload` read payloads; `json`
//! and `texts` bound their parts. `source` opens files, and `keep` copies a log into a run.
//! `reader` separates `lines` into events and payloads, and `rows` makes a [`CompileLog`] of them.

mod bounds;
mod code;
mod dates;
mod events;
mod graph;
mod graph_break;
mod head;
mod json;
mod keep;
mod line;
mod lines;
mod log;
mod metrics;
mod nodes;
mod numbers;
mod payload;
mod reader;
mod rows;
mod source;
mod stacks;
mod texts;

pub use bounds::Bounds;
pub use code::{GeneratedKernel, KernelLanguage};
pub use events::{EventCount, EventUse};
pub use graph::{GraphStage, OperatorCounts};
pub use keep::{KEPT_ENDING, keep};
pub use log::{
    CacheOutcome, CacheUse, CompileId, CompileLog, CompilePhases, CompiledFrame, GeneratedCode,
    GraphBreak, LeftOut, Recompiled,
};
pub use reader::{open, read};
pub use source::{COMPILE_DIRECTORY, CUT_LINE, LOG_PREFIX, is_compile_log, process_of, text};
