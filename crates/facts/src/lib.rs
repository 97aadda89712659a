//! The meaning of a run: each fact on which several readers must agree has one module.
//!
//! Reports and exports read the same files and do not depend on each other. Facts that both need
//! are decided here:
//!
//! - [`zero`] finds the beginning of the run on each host's clock, [`steps`] its training steps,
//!   [`cycles`] the parts that a schedule recorded;
//! - [`class`] and [`communication`] decide the purpose of device work, [`flops`] the work of
//!   operators and the peaks of devices, [`clock_reasons`] names why clocks are low;
//! - [`history`] adds up the figures of each step for the whole job;
//! - [`modules`] recognises calls of PyTorch's modules, [`operators`] tells whether operators were
//!   recorded all the time, [`thinned`] what `--budget` left out from when on, [`compile`] joins logs of `torch.compile` with ranks;
//! - [`stalls`] groups the reasons for which warps of GPU kernels wait;
//! - [`histograms`] parses distributions of a program's own values, [`counters`] has the names and
//!   units of counters, [`host_parts`] the names of the parts of host time;
//! - [`machine_errors`] recognises errors of the machine beside a run: XIDs, OOM kills, broken links;
//! - [`copies`], [`labels`], [`frames`] and [`functions`] name copies, processes, frames of stacks
//!   and functions; [`pass_through`] leaves out frames that nobody needs, [`owner`] decides who
//!   owns the code of a frame;
//! - [`printable`] makes names safe to print, [`markup`] escapes them for HTML and XML, [`sources`]
//!   reads lines of source files, [`far_run`] names runs on other hosts, [`files`] has the words for calls on files, [`units`] formats and parses numbers, [`csv`] formats tables.

pub mod class;
pub mod clock_reasons;
pub mod communication;
pub mod compile;
pub mod copies;
pub mod counters;
pub mod csv;
pub mod cycles;
pub mod far_run;
pub mod files;
pub mod flops;
pub mod frames;
pub mod functions;
pub mod histograms;
pub mod history;
pub mod host_parts;
pub mod labels;
pub mod machine_errors;
pub mod markup;
pub mod modules;
pub mod operators;
pub mod owner;
pub mod pass_through;
pub mod printable;
pub mod sampled_time;
pub mod sources;
pub mod stalls;
pub mod steps;
pub mod thinned;
pub mod units;
pub mod zero;

pub use class::Class;
pub use steps::Step;
pub use zero::{Clock, Zero};
