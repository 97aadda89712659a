//! The report `steps`: how long training steps take, how steady they are, and where warm-up ends.

mod compiled;
pub mod device_time_by_class;
mod judge;
mod phases;
mod tables;
#[cfg(test)]
mod tests;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_facts::steps::Steps as StepsFound;
use tprof_rank::{Needs, RankTrace, WINDOW_NEEDS};
use tprof_trace::model::SpanKind;

pub(crate) use compiled::{compiling, steady};
pub use device_time_by_class::StepDeviceTime;
pub use judge::{JudgedSteps, StepOrigin, warm_up};
pub use phases::PhaseRow;

use crate::program::flops::use_of_steps;

/// The report `steps`.
pub const KIND: DocumentKind = DocumentKind {
    name: "steps",
    about: "step times, their spread, outliers, where warm-up ends",
    analysis: || boxed(Steps),
};

/// Reports the times of training steps.
pub struct Steps;

impl Analysis for Steps {
    const KIND: &'static str = KIND.name;
    type Part = JudgedSteps;
    const TAKES: &'static [&'static str] = &["--peaks", "--steady"];

    fn needs(&self, options: &Options) -> Needs {
        let needs = WINDOW_NEEDS | Needs::spans(SpanKind::Nvtx) | Needs::COMPILE;
        // Operators are most of a trace, and the columns that need them aren't displayed. So they
        // are read only for data formats.
        match options.data {
            true => needs | Needs::OPERATORS,
            false => needs,
        }
    }

    fn rank(&self, rank: &RankTrace<'_>, _at: &RankContext, options: &Options) -> JudgedSteps {
        let StepsFound { source, others, bounds, batches, skipped, estimate, .. } =
            rank.steps_found().clone();
        let found = StepOrigin { source, others, bounds, batches, skipped, estimate };
        let all = rank.steps();
        let steps = if options.steady { steady(rank, all.clone()) } else { all.clone() };
        let left_out = options.steady.then(|| all.len() - steps.len());
        let compiled_ns = compiled::in_steps(rank, &steps);
        let times = options.data.then(|| device_time_by_class::of_steps(rank, &steps, true));
        let times = times.unwrap_or_default();
        let uses = if options.data { use_of_steps(rank, options) } else { Vec::new() };
        let uses = compiled::of_kept(&all, uses, &steps);
        let phases = PhaseRow::of(rank);
        JudgedSteps { found, phases, times, uses, compiled_ns, left_out, ..JudgedSteps::of(steps) }
    }

    fn join(&self, parts: Vec<(RankContext, JudgedSteps)>, options: &Options) -> Body {
        tables::body(&parts, options.data)
    }
}
