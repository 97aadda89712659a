//! The collector reads what the processes of a job record, and writes the files of the run while
//! the job runs. It drains rings, converts all times to one clock and assigns processes to ranks.
//!
//! It stands on crates that know nothing of runs: `tprof-os` (system calls, `/proc`),
//! `tprof-symbols` (names of addresses), `tprof-unwind` (files of code, and their unwind rows) and
//! `tprof-sampler` (samples of threads).
//!
//! The modules in reading order. Each module uses only modules of its own paragraph of `mod` lines
//! below and of the paragraphs above it:
//!
//! - `shared`: the memory that targets share with the collector, and their clock;
//! - `output`: the files of a run, the fates of its processes, and the losses;
//! - `gpu`, `machine`, `nvml`: CUPTI's records of devices, errors of the machine, and the GPU
//!   driver's readings of devices;
//! - `gpu_metrics`: the process that samples counters of devices, and its rows;
//! - `targets`: the attached processes of the job, their rings and records, and the assignment of
//!   samples to them;
//! - `directory`: the directory of a session: its socket, its lock, its owner;
//! - `engine`: the main loop, and the threads that do its slow work;
//! - `session`: begins and ends a run, and answers processes that attach;
//! - `fuzzing`: the entry point of a fuzz target, without which none of it is compiled.
//!
//! `tprof run` owns a [`Session`].

mod capture;
pub mod config;
mod error;
mod schedule;

mod shared;

mod output;

mod gpu;
mod machine;
mod nvml;

pub mod gpu_metrics;

mod targets;

mod directory;

mod engine;

mod session;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use config::{
    Activity, CallSource, Capture, CaptureEnd, CaptureRange, Config, DEFAULT_GPU_INTERVAL,
    DEFAULT_GPU_METRICS, DEFAULT_RSS_INTERVAL, DEFAULT_SAMPLE_INTERVAL, DumpOn, GPU_INTERVALS,
    GPU_METRICS_INTERVALS, GraphDetail, IfExists, Keep, KinetoWindow, MemMode, NcclEvent, OnFull,
    OnHang, OperatorDetail, PerfEvent, RSS_INTERVALS, StackMode,
};
pub use directory::owned::{Owned, PREFIX, claim, places, sweep};
pub use error::CollectError;
pub use nvml::{GpmSupport, gpm_support};
pub use output::keeping;
pub use output::module_names::{HOOK_FILE, HOOK_TITLE, PYTHON_PATH, holds_hook};
pub use output::ranks;
pub use output::stepping::{Progress, Stepping};
pub use schedule::{ScheduleUnit, Timetable};
pub use session::{
    Libraries, RunPath, Session, collect_on_demand, control, dumps, free, injections,
};
