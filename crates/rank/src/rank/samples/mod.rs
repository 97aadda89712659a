//! Adds up the CPU samples of a rank by thread, stack and state, names their functions, and
//! separates waits by cause.

mod load;
mod names;
mod owner;
mod part;
mod role;
mod stretch;
mod unsampled_share;
mod unsampled_waits;
mod waits;

pub use load::CpuTrace;
pub use names::{FrameFunctions, Func, FuncId, FunctionTable, Layer, Stack};
pub use part::{
    PARTS, Part, is_collective_module, is_interpreter, joins, loads_inline, takes_from_thread,
    wants_held_lock,
};
pub use role::Role;
pub use stretch::Stretch;
pub use unsampled_share::UnsampledShare;
pub use waits::word;

/// The text of a report for a run without samples, which says how to record them.
pub const NO_SAMPLES: &str = "the run has no CPU samples: record with --activities cpu (`tprof doctor` checks what it \
     needs)";
