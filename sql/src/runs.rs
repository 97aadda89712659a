//! The run that is meant where none is named: as `tprof` itself finds it.

#[path = "../../profiler-cli/src/runs/newest.rs"]
#[allow(dead_code, reason = "`tprof` uses all of it")]
pub mod newest;
