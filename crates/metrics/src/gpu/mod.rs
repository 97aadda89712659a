//! Analyzes the activity of GPUs. Most kinds of report have one file or folder here.

pub mod api;
pub mod bandwidth;
pub mod breakdown;
pub mod comm;
pub mod critical_path;
pub mod device_memory;
pub mod gemms;
pub mod gpu_time;
mod host_overlap;
pub mod idle;
pub mod kernels;
pub mod launches;
pub mod measured;
pub mod memcpy;
mod outside;
pub mod overlap;
pub mod queue;
pub mod replay;
pub mod report_gpu;
pub mod stalls;
pub mod stragglers;
pub mod waves;
