//! One rank's rows in memory, and what every analysis of them uses.
//!
//! The modules in reading order; each uses only those above it:
//!
//! - `base`: intervals, readings, statistics;
//! - `run`: a run without its rows: processes, completeness, overhead;
//! - `rank`: one rank's rows in memory, joined and in order;
//! - `clocks`: how the clocks of hosts relate, by the collectives of their ranks.

pub mod base;

pub mod run;

mod rank;

pub use rank::*;

pub mod clocks;
