//! `findings`: what holds the job up, how much fixing it may gain, what to do.
//!
//! One file per `rule::Rule`. A rule judges a `scene::Scene`, one rank's
//! steps, and returns what it found, that it found nothing, or which data it
//! needs. Each finding has an upper bound, from which its severity follows; bounds
//! of different findings overlap and must not be added. Each rule states its
//! trigger and its bound (`rule::RuleAbout`), of which the table in `docs/metrics.md` is made.

mod absent;
mod blocking;
mod company;
mod finding;
mod join;
mod judge;
pub(crate) mod lines;
mod lost;
mod outcome;
mod rule;
mod rules;
mod scene;
mod severity;
mod tables;
#[cfg(test)]
mod tests;
mod verdict;
mod words;

use crate::document::{Analysis, Body, DocumentKind, Options, RankAt, boxed};
use crate::rank::{Needs, RankTrace};
use rules::{RULES, stragglers};
use scene::Scene;

pub use lost::BUSY;
pub use outcome::RankFindings;
pub use rule::RuleAbout;

/// All rules, for the documentation.
pub fn rules() -> Vec<RuleAbout> {
    RULES.iter().map(|rule| rule.about()).chain([stragglers::ABOUT]).collect()
}

/// The kind.
pub const KIND: DocumentKind = DocumentKind {
    name: "findings",
    about: "what costs time, what fixing it may gain, what to do",
    analysis: || boxed(Findings),
};

/// Rules over ranks.
pub struct Findings;

impl Analysis for Findings {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = Option<RankFindings>;

    fn needs(&self, _: &Options) -> Needs {
        Needs::ALL
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankAt, _: &Options) -> Option<RankFindings> {
        // A launcher has no steps to speed up.
        at.rank?;
        let mut scene = Scene::of(rank, at.clock);
        scene.machine = at.machine;
        Some(RankFindings::of(&scene, at, &RULES))
    }

    fn join(&self, parts: Vec<(RankAt, Self::Part)>, _: &Options) -> Body {
        let mut ranks: Vec<RankFindings> = parts.into_iter().filter_map(|(_, part)| part).collect();
        stragglers::judge(&mut ranks);
        tables::body(&ranks)
    }
}
