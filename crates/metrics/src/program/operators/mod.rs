//! The report `operators`: the host cost of the framework's operators, the kernels that they
//! launched, and the launch delays.

mod costs;
mod count;
mod hta;
mod shapes;
mod tables;
#[cfg(test)]
mod tests;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::{Needs, RankTrace};

use crate::program::flops::operator_rates;
use costs::OperatorCosts;

/// The report `operators`.
pub const KIND: DocumentKind = DocumentKind {
    name: "operators",
    about: "host time of operators, the kernels they launch, launch delays",
    analysis: || boxed(Operators),
};

/// Reports the host time and the launches of operators.
pub struct Operators;

impl Analysis for Operators {
    const KIND: &'static str = KIND.name;
    const TAKES: &'static [&'static str] = &["--peaks"];
    type Part = OperatorCosts;

    fn needs(&self, _: &Options) -> Needs {
        needs()
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, options: &Options) -> OperatorCosts {
        let mut costs = count_of(rank, options.hta);
        if options.hta {
            return costs;
        }
        let rates = operator_rates(rank, at, options.peaks);
        for ((operator, ..), rate) in &rates {
            costs
                .rates
                .entry(operator.clone())
                .and_modify(|known| known.add(rate))
                .or_insert_with(|| rate.clone());
        }
        if options.data {
            costs.shapes = shapes::of_rank(rank, rank.operator_tree(), rates);
        }
        costs
    }

    fn join(&self, parts: Vec<(RankContext, OperatorCosts)>, options: &Options) -> Body {
        let shapes = (options.data && !options.hta).then(|| {
            let has_work = parts.iter().any(|(_, sums)| sums.has_work);
            shapes::table(parts.iter().map(|(_, sums)| &sums.shapes), has_work)
        });
        let mut body = tables::body(parts, options.hta);
        body.tables.extend(shapes);
        body
    }
}

fn needs() -> Needs {
    Needs::WORK | Needs::CALLS | Needs::OPERATORS
}

fn count_of(rank: &RankTrace, hta: bool) -> OperatorCosts {
    match hta {
        true => hta::count(rank),
        false => count::count(rank, rank.operator_tree()),
    }
}
