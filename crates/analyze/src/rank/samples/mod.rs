//! CPU samples of a rank: added up by thread, stack and state, with functions named
//! and waits separated by cause.

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
pub(crate) use names::FrameFunctions;
pub use names::{Func, FuncId, FunctionTable, Layer, Stack};
pub use part::{PARTS, Part};
pub(crate) use part::{is_interpreter, joins, loads_inline, takes_from_thread, wants_held_lock};
pub(crate) use role::Role;
pub use stretch::Stretch;
pub use unsampled_share::UnsampledShare;
pub use waits::word;

/// The advice if a run has no samples.
pub(crate) const NO_SAMPLES: &str = "the run has no CPU samples: record with --activities cpu (`tprof doctor` checks what it \
     needs)";
