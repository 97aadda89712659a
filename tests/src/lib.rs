//! Builds victim programs, runs them with and without tprof, and compares the outcomes.
//!
//! A test builds a victim from `programs/` (`programs`), runs it as a [`Job`] in a [`Scratch`]
//! folder, natively and under `tprof run`, and reads the run through `tprof report --json`
//! (`report`), as a user's script would. No function here uses tprof's internals.

mod clients;
pub mod foreign;
mod gpu_runs;
mod http;
mod job;
mod live;
mod many_ranks;
mod nvcc;
mod opened;
mod programs;
mod report;
mod rows;
mod scratch;
mod served;
mod skip;
mod stand_ins;
mod synthetic;
mod sys;
mod tprof;
pub mod view_pairs;
mod wait;

pub use clients::{client_python, clients, junit, otlp_metrics, tensorboard, with_real_nvtx};
pub use gpu_runs::{gpu_run, gpu_runs, real_traces};
pub use http::{Answer, Reading, Request, exchange};
pub use job::{Job, Outcome};
pub use live::Live;
pub use many_ranks::many_ranks;
pub use nvcc::{compiled, cuda_libraries, nvcc};
pub use opened::Opened;
pub use programs::{Kind, build, program, target_dir};
pub use report::{
    Expected, Report, assert_cut_off, document, document_with, expected, memory_report,
    page_contents, report, run_info, stack,
};
pub use rows::{rank_file, rows};
pub use scratch::Scratch;
pub use served::Served;
pub use skip::{Refused, Why, has_native, has_native_or_skip, skip, skip_for};
pub use stand_ins::{comms, gemms, memory, profiled, stand_ins, subscribed, train, what_ran};
pub use synthetic::{Counts, Synthetic, scatter};
pub use sys::{am_root, can_mount, children_of, host_name, kill, mode_of, state_of};
pub use tprof::{
    DEFAULT, EXACT, Traced, assert_refused, assert_unchanged, attach_script, stolen_s, tprof,
    tprof_at, traced, traced_job,
};
pub use wait::wait_until;
