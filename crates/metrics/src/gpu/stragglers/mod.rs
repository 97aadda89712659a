//! `stragglers`: finds the ranks that hold up the others, and measures how unevenly the load is
//! spread.

mod arrivals;
mod clocks;
mod decided;
mod experts;
mod hta;
mod stages;
mod tables;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::base::intervals::Cover;
use tprof_rank::collectives::{Operation, operations};
use tprof_rank::meetings::ComparedCollectives;
use tprof_rank::{Class, Needs, RankTrace};
use tprof_trace::model::SpanKind;

pub use arrivals::{Arrival, arrivals};

use crate::gpu::outside::{LeftOutRows, add_left_out};
use crate::gpu::replay::RankSteps;

/// The report `stragglers`.
pub const KIND: DocumentKind = DocumentKind {
    name: "stragglers",
    about: "ranks that come late to collectives, load imbalance",
    analysis: || boxed(Stragglers),
};

/// Compares ranks by their arrivals and loads.
pub struct Stragglers;

/// The data that the report keeps of a rank.
#[derive(Clone, Debug, Default)]
pub struct RankStragglers {
    compared: ComparedCollectives,
    steps: RankSteps,
    load: Load,
    experts: experts::ExpertExchanges,
    hta: hta::RankKernelTimes,
    left_out: LeftOutRows,
}

/// The compute load of a rank, which doesn't depend on other ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Time in which at least one kernel computed, ns; only in steps if there are any.
    pub compute_ns: u64,
    /// Number of the rank's steps; `None` if there are no steps.
    pub steps: Option<u64>,
}

impl Load {
    /// Returns the compute time per step, or of the whole trace if there are no steps, ns.
    pub fn per_step_ns(&self) -> u64 {
        self.compute_ns / self.steps.unwrap_or(1).max(1)
    }
}

/// Returns the imbalance of loads: the highest load over the mean, minus 1 (Pearce and others,
/// "Quantifying the effectiveness of load balance algorithms", ICS 2012). `None` without load.
pub fn imbalance(loads: &[u64]) -> Option<f64> {
    let highest = *loads.iter().max()? as f64;
    let mean = loads.iter().map(|&load| load as f64).sum::<f64>() / loads.len() as f64;
    (mean > 0.0).then(|| highest / mean - 1.0)
}

impl Analysis for Stragglers {
    const KIND: &'static str = KIND.name;
    type Part = RankStragglers;

    fn needs(&self, options: &Options) -> Needs {
        let nvtx = Needs::spans(SpanKind::Nvtx);
        let needs = Needs::WORK | Needs::CALLS | Needs::COLLECTIVES | Needs::STEPS | nvtx;
        match options.hta {
            true => needs,
            false => needs | Needs::OPERATORS | Needs::SAMPLES,
        }
    }

    fn rank(&self, rank: &RankTrace<'_>, _at: &RankContext, options: &Options) -> RankStragglers {
        if options.hta {
            return RankStragglers {
                hta: hta::RankKernelTimes::of(rank),
                ..RankStragglers::default()
            };
        }
        let steps = rank.steps();
        let steps_of_work = rank.steps_of_work(&steps);
        let (operations, _) = operations(rank);
        let judged = rank.judged();
        let meets = |operation: &Operation| judged.holds(operation.work, operation.start_ns);
        let mut left_out = LeftOutRows::of(rank);
        for operation in &operations {
            let name = || operation.name.clone();
            left_out.count(meets(operation), operation.duration_ns, name);
        }
        let compared = ComparedCollectives::of(rank, &operations, &steps, &steps_of_work, meets);
        let of_steps = RankSteps::of(rank, &operations, &steps, &steps_of_work);
        let experts = experts::ExpertExchanges::of(&operations, &steps, &steps_of_work);
        let counts = |at: usize| steps.is_empty() || steps_of_work[at].is_some();
        let computes = rank.work.iter().enumerate().filter(|(_, w)| w.class == Class::Compute);
        let cover: Cover =
            computes.filter(|(at, _)| counts(*at)).map(|(_, work)| work.interval()).collect();
        let steps = (!steps.is_empty()).then_some(steps.len() as u64);
        let load = Load { compute_ns: cover.length(), steps };
        let hta = hta::RankKernelTimes::default();
        RankStragglers { compared, steps: of_steps, load, experts, left_out, hta }
    }

    fn join(&self, parts: Vec<(RankContext, RankStragglers)>, options: &Options) -> Body {
        let mut body = tables::body(&parts, options);
        let left_out = parts.iter().map(|(at, part)| (at, &part.left_out));
        add_left_out(&mut body, "collectives", &[], left_out);
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imbalance_is_what_the_highest_load_exceeds_the_mean_by() {
        assert_eq!(imbalance(&[10, 10, 10]), Some(0.0));
        assert_eq!(imbalance(&[30, 10, 20]), Some(0.5));
        assert_eq!(imbalance(&[0, 0]), None);
        assert_eq!(imbalance(&[]), None);
        assert_eq!(Load { compute_ns: 90, steps: Some(3) }.per_step_ns(), 30);
    }
}
