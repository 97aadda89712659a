//! `findings`: reports what delays the job, how much a fix may gain, and how to fix it.
//!
//! Each rule has a file and implements `rule::Rule`. A rule judges a `scene::Scene`, which contains
//! one rank's steps. It returns its findings, or says that it found nothing, or which data it
//! lacks. Each finding has an upper bound of its gain, from which its severity follows. The bounds
//! of different findings overlap, so they must not be added. Each rule documents its trigger and
//! its bound (`rule::RuleAbout`). The table in `docs/metrics.md` is generated from these texts.

mod absent;
mod blocking;
mod finding;
mod join;
mod judge;
pub(crate) mod lines;
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

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::{Needs, RankTrace};

use rules::{RULES, stragglers};
use scene::Scene;

pub use outcome::RankFindings;
pub use rule::RuleAbout;

/// All rules, for the documentation.
pub fn rules() -> Vec<RuleAbout> {
    RULES.iter().map(|rule| rule.about()).chain([stragglers::ABOUT]).collect()
}
pub use stolen_time::BUSY;

/// The report `findings`.
pub const KIND: DocumentKind = DocumentKind {
    name: "findings",
    about: "what costs time, what fixing it may gain, what to do",
    analysis: || boxed(Findings),
};

/// The analysis that judges ranks by all rules.
pub struct Findings;

impl Analysis for Findings {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = Option<RankFindings>;

    fn needs(&self, _: &Options) -> Needs {
        Needs::ALL
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, _: &Options) -> Option<RankFindings> {
        // A launcher has no steps that a fix could shorten.
        at.rank?;
        let mut scene = Scene::of(rank, at.clock);
        scene.machine = at.machine;
        Some(RankFindings::of(&scene, at, &RULES))
    }

    fn join(&self, parts: Vec<(RankContext, Self::Part)>, _: &Options) -> Body {
        let mut ranks: Vec<RankFindings> = parts.into_iter().filter_map(|(_, part)| part).collect();
        stragglers::judge(&mut ranks);
        tables::body(&ranks)
    }
}
