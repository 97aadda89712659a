//! The report `findings`, as an analysis.

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::{Needs, RankTrace};

use crate::outcome::RankFindings;
use crate::rule::RuleAbout;
use crate::rules::{RULES, stragglers};
use crate::scene::Scene;
use crate::tables;

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
        Some(RankFindings::of(&scene, at, RULES))
    }

    fn join(&self, parts: Vec<(RankContext, Self::Part)>, _: &Options) -> Body {
        let mut ranks: Vec<RankFindings> = parts.into_iter().filter_map(|(_, part)| part).collect();
        stragglers::judge(&mut ranks);
        tables::body(&ranks)
    }
}

/// All rules, for the documentation.
pub fn rules() -> Vec<RuleAbout> {
    RULES.iter().map(|rule| rule.about()).chain([stragglers::ABOUT]).collect()
}
