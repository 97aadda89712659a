//! Sums up CUDA API calls by function name.

use rustc_hash::FxHashMap;
use tprof_document::nsys::{self, Values};
use tprof_document::{
    Analysis, Body, Column, DocumentKind, Options, RankContext, Table, Unit, boxed,
};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{Needs, RankTrace, WINDOW_NEEDS};
use tprof_trace::model::{NameId, SpanKind};

use crate::gpu::outside::{LeftOutRows, add_left_out};

/// The report `api`.
pub const KIND: DocumentKind = DocumentKind {
    name: "api",
    about: "CUDA runtime and driver calls by name: count, time",
    analysis: || boxed(Api),
};

const NO_CALLS: &str = "no CUDA or HIP call was recorded";

/// Times of API calls: `tprof report api`.
struct Api;

/// The identity of a function: calls with the same identity are summed.
struct Function {
    name: String,
    interface: &'static str,
}

impl Analysis for Api {
    const KIND: &'static str = KIND.name;
    type Part = (Vec<Values<Function>>, LeftOutRows);

    fn needs(&self, _: &Options) -> Needs {
        WINDOW_NEEDS
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, _: &Options) -> Self::Part {
        of_rank(rank)
    }

    fn join(&self, mut parts: Vec<(RankContext, Self::Part)>, _: &Options) -> Body {
        let own =
            [Column::new("interface", "of", Unit::Text), Column::new("name", "call", Unit::Name)];
        let columns = nsys::columns(&nsys::TIMES, &own);
        let mut table = Table::new("cuda_api_sum", "CUDA calls by total time", columns)
            .about("time: share of the sum of a rank's calls; nested calls count twice")
            .empty(NO_CALLS);
        for (at, (functions, _)) in &mut parts {
            nsys::add_times(&mut table, &at.label, std::mem::take(functions), |call| {
                vec![call.row.interface.into(), call.row.name.as_str().into()]
            });
        }
        let mut body = Body { tables: vec![table], notes: Vec::new() };
        let left_out = parts.iter().map(|(at, (_, left_out))| (at, left_out));
        add_left_out(&mut body, "calls", &["cuda_api_sum"], left_out);
        body
    }
}

fn of_rank(rank: &RankTrace<'_>) -> (Vec<Values<Function>>, LeftOutRows) {
    let mut found: FxHashMap<(NameId, bool), Vec<u64>> = FxHashMap::default();
    let mut left_out = LeftOutRows::of(rank);
    for (call, is_judged) in rank.calls.iter().zip(rank.is_call_judged()) {
        left_out.count(is_judged, call.duration_ns, || rank.name(call.name).to_owned());
        if is_judged {
            let driver = call.kind == SpanKind::Driver;
            found.entry((call.name, driver)).or_default().push(call.duration_ns);
        }
    }
    let function = |((name, driver), values)| Values {
        row: Function {
            name: rank.name(name).to_owned(),
            interface: if driver { "driver" } else { "runtime" },
        },
        values,
    };
    let mut rows: Vec<Values<Function>> = found.into_iter().map(function).collect();
    rows.sort_rows_by(|a, b| a.row.name.cmp(&b.row.name));
    (rows, left_out)
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::Span;

    use super::*;

    #[test]
    fn calls_are_counted_by_name_and_interface() {
        let mut made = Fixture::new();
        for (at, kind, name, duration_ns) in [
            (0, SpanKind::Runtime, "cudaMalloc", 10),
            (20, SpanKind::Runtime, "cudaMalloc", 30),
            (21, SpanKind::Driver, "cuMemAlloc", 5),
            (99, SpanKind::Operator, "aten::mm", 5),
        ] {
            made.span(Span { start_ns: at, duration_ns, kind, ..Span::default() }, name);
        }
        let file = made.finish();
        let (rows, _) = of_rank(&RankTrace::load(&file, Needs::CALLS));
        let seen: Vec<(&str, &str, &[u64])> = rows
            .iter()
            .map(|row| (row.row.name.as_str(), row.row.interface, row.values.as_slice()))
            .collect();
        assert_eq!(
            seen,
            [("cuMemAlloc", "driver", &[5][..]), ("cudaMalloc", "runtime", &[10, 30])]
        );
    }
}
