//! `findings`: reports what delays the job, how much a fix may gain, and how to fix it.
//!
//! Each rule has a file and implements `rule::Rule`. A rule judges a `scene::Scene`, which contains
//! one rank's steps. It returns its findings, or says that it found nothing, or which data it
//! lacks. Each finding has an upper bound of its gain, from which its severity follows. The bounds
//! of different findings overlap, so they must not be added. Each rule documents its trigger and
//! its bound (`rule::RuleAbout`). The table in `docs/metrics.md` is generated from these texts.

mod absent;
mod analysis;
mod blocking;
mod finding;
mod join;
mod judge;
pub mod lines;
mod outcome;
mod rank_collectives;
mod rule;
mod rules;
mod scene;
mod severity;
mod stolen_time;
mod tables;
#[cfg(test)]
mod tests;
mod verdict;
mod words;

pub use analysis::{Findings, KIND, rules};
pub use outcome::RankFindings;
pub use rule::RuleAbout;
pub use stolen_time::BUSY;
