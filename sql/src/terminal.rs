//! Includes the source files of `tprof`'s own terminal code, so that errors, colours and widths are
//! the same.

#[path = "../../profiler-cli/src/terminal/columns.rs"]
#[allow(dead_code, reason = "`tprof` uses all of it")]
pub mod columns;
#[path = "../../profiler-cli/src/terminal/errors.rs"]
#[allow(dead_code, reason = "`tprof` uses all of it")]
pub mod errors;
#[path = "../../profiler-cli/src/terminal/paint.rs"]
#[allow(dead_code, reason = "`tprof` uses all of it")]
pub mod paint;
