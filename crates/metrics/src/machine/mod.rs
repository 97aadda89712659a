//! `machine`: reports the errors of the machine beside a run: XIDs and counters of errors of GPUs,
//! lines of the kernel's log, and errors of the network.

mod errors;
mod tables;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::{Needs, RankTrace};

pub use errors::{CounterKey, MachineErrors, Rise, TimedError, Totals, UNCORRECTED};

/// Registers the report, for the list of kinds.
pub const KIND: DocumentKind = DocumentKind {
    name: "machine",
    about: "errors of GPUs, the kernel and the network beside the run",
    analysis: || boxed(Machine),
};

/// Errors of the machine: `tprof report machine`.
struct Machine;

impl Analysis for Machine {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = MachineErrors;

    fn needs(&self, _: &Options) -> Needs {
        Needs::default()
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, _: &Options) -> MachineErrors {
        MachineErrors::of(rank.file)
    }

    fn join(&self, parts: Vec<(RankContext, MachineErrors)>, _: &Options) -> Body {
        tables::body(&parts)
    }
}
