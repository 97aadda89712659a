//! Victim programs, and what it takes to run them with and without tprof and
//! compare.
//!
//! A test builds a victim from `programs/` (`programs`), runs it as a
//! [`Job`] in a [`Scratch`] folder, natively and under `tprof run`, and reads
//! the run through `tprof report --json` (`report`), as a user's script
//! would. Nothing here looks inside tprof.

mod clients;
pub mod foreign;
mod job;
mod live;
mod many_ranks;
mod programs;
mod report;
mod scratch;
mod stand_ins;
mod synthetic;
mod sys;
mod tprof;

pub use clients::{client_python, clients, with_real_nvtx};
pub use job::{Job, Outcome};
pub use live::Live;
pub use many_ranks::many_ranks;
pub use programs::{Kind, build, program};
pub use report::{
    Expected, Report, document, expected, memory_report, report, run_info, says_cut_off, stack,
};
pub use scratch::Scratch;
pub use stand_ins::{gemms, stand_ins, train, what_ran};
pub use synthetic::{Counts, Synthetic, scatter};
pub use sys::{am_root, can_mount, host_name, kill, mode_of};
pub use tprof::{
    DEFAULT, EXACT, Traced, assert_refused, assert_unchanged, attach_script, tprof, tprof_at,
    traced, traced_job,
};

use std::io::Write;

/// Says why a test does not run here. Written past the test harness's capture,
/// so that it is seen when the test passes.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Leaves a test, saying why, unless the condition holds.
#[macro_export]
macro_rules! need {
    ($holds:expr, $why:expr) => {
        if !$holds {
            return $crate::skip($why);
        }
    };
}

/// The value, or leaves the test saying why there is none.
#[macro_export]
macro_rules! need_some {
    ($value:expr) => {
        match $value {
            Ok(value) => value,
            Err(why) => return $crate::skip(&why),
        }
    };
}
