//! Analyses what the program did: its steps, ranges, operators and counters. One file or folder per
//! kind of report.

pub mod annotations;
pub mod compile;
pub mod counters;
pub mod flops;
pub mod history;
pub mod nvtx;
pub mod operators;
pub mod sequences;
pub mod spans;
pub mod steps;
