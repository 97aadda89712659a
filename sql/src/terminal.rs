//! The terminal code of `tprof` itself, included from the same source files, so that errors,
//! colours and widths are the same.

#[path = "../../profiler-cli/src/terminal/columns.rs"]
#[allow(dead_code, reason = "`tprof` uses all of it")]
pub mod columns;
#[path = "../../profiler-cli/src/terminal/errors.rs"]
#[allow(dead_code, reason = "`tprof` uses all of it")]
pub mod errors;
#[path = "../../profiler-cli/src/terminal/paint.rs"]
#[allow(dead_code, reason = "`tprof` uses all of it")]
pub mod paint;
