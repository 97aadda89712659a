//! The reports `flops` and `roofline`: the work of operators, computed from the sizes of their
//! inputs, and their rates compared with the device's peaks.

mod count;
mod figures;
mod joined;
mod measured;
mod modelled;
mod parts;
mod per_rank;
mod rates;
mod roof;
mod roofline;
mod sums;
mod tables;
#[cfg(test)]
mod tests;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::{Needs, RankTrace};

pub use count::counted_work;
pub use figures::tera_text;
pub(crate) use joined::AutogradLinks;
pub use modelled::{Modelled, ModelledRun};
pub use rates::sized_runs;
pub(crate) use rates::{OperatorRate, StepUse, operator_rates, rate_cells, use_of_steps};
pub use roof::RoofBound;
pub use sums::RankFlops;

/// The report `flops`.
pub const FLOPS: DocumentKind = DocumentKind {
    name: "flops",
    about: "operations and bytes by operator, module, step; MFU and HFU",
    analysis: || boxed(FlopsReport::<false>),
};

/// The report `roofline`.
pub const ROOFLINE: DocumentKind = DocumentKind {
    name: "roofline",
    about: "operators' rates against the device's peaks, and their bounds",
    analysis: || boxed(FlopsReport::<true>),
};

/// Both reports. They show the same figures of each rank in different tables.
struct FlopsReport<const ROOFLINE: bool>;

impl<const ROOFLINE: bool> Analysis for FlopsReport<ROOFLINE> {
    const KIND: &'static str = if ROOFLINE { self::ROOFLINE.name } else { FLOPS.name };
    const HTA: bool = false;
    const TAKES: &'static [&'static str] = &["--peaks"];
    type Part = RankFlops;

    fn needs(&self, _: &Options) -> Needs {
        needs()
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, options: &Options) -> RankFlops {
        per_rank::of_rank(rank, at, options)
    }

    fn join(&self, parts: Vec<(RankContext, RankFlops)>, options: &Options) -> Body {
        if ROOFLINE { roofline::body(&parts, options) } else { tables::body(&parts) }
    }
}

fn needs() -> Needs {
    Needs::WORK | Needs::CALLS | Needs::OPERATORS | Needs::STEPS | Needs::COLLECTIVES
}
