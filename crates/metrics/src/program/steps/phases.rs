//! Lists the phases of a rank's job: epochs, training, validation, checkpoints.

use tprof_facts::steps::{Phase, PhaseKind, Step};
use tprof_rank::RankTrace;
use tprof_rank::base::intervals::Interval;

/// A phase of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseRow {
    pub(super) kind: PhaseKind,
    pub(super) number: Option<u64>,
    pub(super) interval: Interval,
    /// Number of steps of the phase's process that ended within the phase.
    pub(super) steps: usize,
    pub(super) fetches: usize,
    /// Name of the phase's range; `None` for an estimate.
    pub(super) name: Option<String>,
}

impl PhaseRow {
    /// Returns all phases of a rank, in order of time.
    pub(super) fn of(rank: &RankTrace<'_>) -> Vec<PhaseRow> {
        let found = rank.steps_found();
        let row = |phase: &Phase| {
            let within = |step: &&Step| {
                let ends_within = phase.start_ns < step.end_ns && step.end_ns <= phase.end_ns;
                step.process == phase.process && ends_within
            };
            PhaseRow {
                kind: phase.kind,
                number: phase.number,
                interval: Interval::new(phase.start_ns, phase.end_ns),
                steps: found.all.iter().filter(within).count(),
                fetches: phase.fetches,
                name: phase.name.map(|name| rank.file.name(name).to_owned()),
            }
        };
        found.phases.iter().map(row).collect()
    }
}
