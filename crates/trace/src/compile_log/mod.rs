//! PyTorch's structured log of `torch.compile` (`TORCH_TRACE`), as a run keeps it.
//!
//! Each process of a job writes its own log. The log of a killed job is read as far as it goes. A
//! line consists of glog's prefix (month and day but no year, in the job's local time, and the
//! process) and JSON with one event. The lines of the event's payload follow, each after a tab.
//!
//! Reading is tolerant, because the versions of PyTorch have different events and fields. Events
//! that this reader doesn't use are counted, unknown ones by name, and damaged lines are counted as
//! such. Memory holds one line and one payload of bounded length, and the result within [`Bounds`].
//! Content that a bound leaves out is counted.
//!
//! `dates` and `line` read a prefix, `events` lists PyTorch's events, `head` reads the JSON, and
//! `metrics` the figures of a compilation. `numbers` tells apart compilations with the same number.
//! `graph_break`, `graph`, `code`, `stacks` and `payload` read payloads. `source` opens files, and
//! `keep` writes those that a run takes over. `reader` separates `lines` into events and payloads,
//! and `rows` makes a [`CompileLog`] of them.

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
