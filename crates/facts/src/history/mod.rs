//! The figures of a rank's steps over the whole job: one row a step, or a second.
//!
//! The collector gives every row that it writes to a [`HistoryBuilder`], which adds up what lies in
//! each step. Of what happened it remembers only what belongs to rows that aren't complete yet, so
//! its memory doesn't grow with the job. The rows stay in the file when the rest of what happened is
//! deleted (`--keep`). For a file without them, [`of_file`] computes the same rows from the events.
//!
//! - `device_time` and `happened` remember intervals and instants for a while, `levels` readings;
//! - `draft` puts consecutive steps together;
//! - `builder` makes rows of all that;
//! - `recorded` reads the rows of a file, `late` compares those of several ranks, and `energy` says
//!   what a row's devices took, and by what.

mod builder;
mod device_time;
mod draft;
mod energy;
mod happened;
mod late;
mod levels;
mod recorded;
#[cfg(test)]
mod tests;

pub use builder::HistoryBuilder;
pub use draft::word;
pub use energy::{Energy, EnergySources};
pub use late::{lateness, meeting_ns};
pub use recorded::{LATE_PROPERTY, RankHistory, of_events, of_file};
