//! `--compile`: PyTorch's own log of `torch.compile`, kept in the run.
//!
//! PyTorch writes the log itself where TORCH_TRACE names a directory: `home` makes one in the run,
//! `bound` keeps each log to a length while the job runs. A job that has TORCH_TRACE keeps it; `taken`
//! copies what came there. `recorded` has what is stated at the end.

mod copy_logs;
mod find_logs;
mod log_bounds;
mod log_directory;
mod outcome;

pub use log_directory::CompileLogs;
