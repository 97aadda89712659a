//! Finds the run to query if none is named, in the same way as `tprof`.

#[path = "../../profiler-cli/src/runs/newest.rs"]
#[allow(dead_code, reason = "`tprof` uses all of it")]
pub mod newest;
