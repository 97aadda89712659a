//! `machine`: reports the errors of the machine beside a run: XIDs and counters of errors of GPUs,
//! lines of the kernel's log, errors of the network, and what went over it.

mod errors;
mod network_table;
mod tables;
mod traffic;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::{Needs, RankTrace, WINDOW_NEEDS};

pub(crate) use network_table::{FOREIGN_RATE, NO_RATE};
pub(crate) use traffic::{FileTraffic, HostTraffic};

pub use traffic::{LineUse, fullest_line};

pub use errors::{CounterKey, MachineErrors, Rise, TimedError, Totals, UNCORRECTED};

/// Registers the report, for the list of kinds.
pub const KIND: DocumentKind = DocumentKind {
    name: "machine",
    about: "errors of GPUs, kernel and network; the network's bytes",
    analysis: || boxed(Machine),
};

/// Errors of the machine: `tprof report machine`.
struct Machine;

impl Analysis for Machine {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = (MachineErrors, FileTraffic);

    fn needs(&self, _: &Options) -> Needs {
        WINDOW_NEEDS
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, _: &Options) -> Self::Part {
        (MachineErrors::of(rank.file), FileTraffic::of(rank))
    }

    fn join(&self, parts: Vec<(RankContext, Self::Part)>, _: &Options) -> Body {
        tables::body(&parts)
    }
}
