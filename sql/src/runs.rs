//! Finds the run to query if the command line names none, with the code of `tprof` itself.

#[path = "../../profiler-cli/src/runs/newest.rs"]
#[allow(dead_code, reason = "`tprof` uses all of it")]
pub mod newest;
