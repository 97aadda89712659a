//! The collector: drains rings, joins clocks, resolves symbols, assigns ranks, and writes the files
//! while the job runs.
//!
//! The modules in reading order; each uses only those of its own paragraph and above
//! (`scripts/check-arrows.py` checks that):
//!
//! - `os`: system calls, and what `/proc` shows of processes;
//! - [`elf`], [`unwind_table`], [`symbols`], [`modules`]: the code that processes run;
//! - `shared`: the memory that targets share with the collector, and their clock;
//! - [`perf`], `python`, [`cpu`]: samples of threads, by perf events or by `/proc`, with Python's
//!   frames;
//! - `out`: the files of a run, the fates of its processes, and the losses;
//! - `gpu`, `nvml`: CUPTI's records of devices, and their driver's readings;
//! - `targets`: the processes of the job, their rings and their records, and the assignment of
//!   samples;
//! - `directory`: the directory of a session: its socket, its lock, its owner;
//! - `engine`: the main loop, and threads for work that takes longer than a pass over the rings may;
//! - `session`: begins and ends a run, and answers processes that attach.
//!
//! `tprof run` holds a [`Session`].

mod capture;
pub mod config;
mod error;
mod os;
mod schedule;

pub mod disk_cache;
pub mod elf;
pub mod modules;
pub mod symbols;
pub mod unwind_table;

mod shared;

pub mod cpu;
pub mod perf;
mod python;

mod out;

mod gpu;
mod nvml;

mod targets;

mod directory;

mod engine;

mod session;

pub use config::{
    Activity, CallSource, Capture, CaptureEnd, CaptureRange, Config, DEFAULT_GPU_INTERVAL,
    DEFAULT_RSS_INTERVAL, DEFAULT_SAMPLE_INTERVAL, GPU_INTERVALS, GraphDetail, IfExists,
    KinetoWindow, MemMode, NcclEvent, OnFull, OperatorDetail, PerfEvent, RSS_INTERVALS, StackMode,
};
pub use cpu::{DEFAULT_RATE as DEFAULT_SAMPLE_RATE, highest_rate as highest_sample_rate};
pub use directory::owned::{Owned, PREFIX, claim, places, sweep};
pub use error::CollectError;
pub use os::sys::{host_name, monotonic_ns};
pub use os::{GpuHost, gpu_host, proc};
pub use out::module_names::{HOOK_FILE, HOOK_TITLE, PYTHON_PATH, holds_hook};
pub use out::ranks;
pub use out::stepping::{Progress, Stepping};
pub use schedule::{ScheduleUnit, Timetable};
pub use session::{Libraries, RunPath, Session, collect_on_demand, control, free, injections};
