//! What a run means: one home for each fact that several readers must agree on.
//!
//! Reports and exports read the same files and do not depend on each other; what both
//! state of a run is decided here. [`zero`] is when the run began, on each host's
//! clock; [`steps`] are its training steps, [`cycles`] the parts that a schedule recorded; [`class`] and [`communication`] decide what
//! device work is for; [`modules`] are calls of PyTorch's modules, [`histograms`] those of a program's own values, [`operators`] is for how long its operators were recorded. [`copies`], [`labels`] and [`frames`] are what copies, processes
//! and frames of stacks are called, [`counters`] what counters are, [`passages`] which frames nobody needs; [`printable`] is how names reach a person; [`compile`] joins logs of `torch.compile` with ranks; [`flops`] what operators have to do and devices can; [`sources`] has lines of source files; [`units`] is how numbers are written, and read from
//! a command line, [`csv`] how tables are.

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
