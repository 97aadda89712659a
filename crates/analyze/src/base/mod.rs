//! The basics that every module uses: times, intervals, numbers that may be missing, names,
//! statistics, work on several cores. Nothing in these modules depends on what a trace means.

pub(crate) mod apportion;
pub mod frames;
pub mod has_schema;
pub(crate) mod innermost;
pub mod intervals;
pub mod names;
pub(crate) mod object;
pub mod parallel;
pub mod reading;
pub(crate) mod search;
pub mod stats;
