//! `--compile`: stores PyTorch's own log of `torch.compile` in the run.
//!
//! PyTorch writes the log itself if `TORCH_TRACE` names a directory. `log_directory` creates one in
//! the run, and `log_bounds` limits the length of each log while the job runs. If the job sets
//! `TORCH_TRACE` itself, tprof leaves it alone, and `copy_logs` copies the logs that the job wrote
//! there. `outcome` describes the results at the end.

mod copy_logs;
mod find_logs;
mod log_bounds;
mod log_directory;
mod outcome;

pub use log_directory::CompileLogs;
