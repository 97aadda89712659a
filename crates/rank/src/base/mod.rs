//! The basics that every module uses: times, intervals, numbers that may be missing, names,
//! statistics, work on several cores. Nothing in these modules depends on what a trace means.

pub mod apportion;
pub mod frames;
pub mod has_schema;
pub mod innermost;
pub mod intervals;
pub mod names;
pub mod object;
pub mod parallel;
pub mod reading;
pub mod search;
pub mod sort_rows;
pub mod stats;
