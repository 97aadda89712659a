//! Interfaces to the kernel: system calls as safe functions, and readers of `/proc` and of cgroups.

pub mod cgroup;
mod commit;
mod gpu_host;
pub mod host_cpu;
pub mod maps;
pub mod proc;
mod socket;
pub mod sys;
pub mod variables;
pub mod wall_clock;

pub use commit::commit_of;
pub use gpu_host::{GpuHost, gpu_host};
