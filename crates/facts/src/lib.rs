//! The meaning of a run: one home for each fact that several readers must agree on.
//!
//! Reports and exports read the same files and do not depend on each other; facts that both state
//! about a run are decided here:
//!
//! - [`zero`] is the beginning of the run on each host's clock, [`steps`] are its training steps,
//!   [`cycles`] the parts that a schedule recorded;
//! - [`class`] and [`communication`] decide the purpose of device work, [`flops`] the work of
//!   operators and the peaks of devices;
//! - [`modules`] are calls of PyTorch's modules, [`operators`] is for how long its operators were
//!   recorded, [`compile`] joins logs of `torch.compile` with ranks;
//! - [`histograms`] are distributions of a program's own values, [`counters`] its counters and
//!   their units;
//! - [`copies`], [`labels`], [`frames`] and [`functions`] name copies, processes, frames of stacks
//!   and functions; [`pass_through`] leaves out frames that nobody needs, [`owner`] decides whose
//!   code a frame is;
//! - [`printable`] makes names safe to print, [`sources`] reads lines of source files, [`units`]
//!   formats and parses numbers, [`csv`] formats tables.

pub mod class;
pub mod communication;
pub mod compile;
pub mod copies;
pub mod counters;
pub mod csv;
pub mod cycles;
pub mod flops;
pub mod frames;
pub mod functions;
pub mod histograms;
pub mod labels;
pub mod modules;
pub mod operators;
pub mod owner;
pub mod pass_through;
pub mod printable;
pub mod sources;
pub mod steps;
pub mod units;
pub mod zero;

pub use class::Class;
pub use steps::Step;
pub use zero::{Clock, Zero};
