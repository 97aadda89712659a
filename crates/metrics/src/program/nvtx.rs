//! The report `nvtx`: NVTX ranges by domain and text, with the GPU time that they caused.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_document::nsys::{self, Values};
use tprof_document::{
    Analysis, Body, Cell, Column, DocumentKind, Options, RankContext, Table, Unit, boxed,
};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{HostSpan, Needs, RankTrace};
use tprof_trace::model::{NameId, SpanKind};

use crate::gpu::breakdown::NO_WORK;
use crate::gpu::device_memory::device_within;
use crate::memory::{HeldWindow, HeldWithin, heap_within};
use crate::program::annotations::caused_by;

/// The report `nvtx`.
pub const KIND: DocumentKind = DocumentKind {
    name: "nvtx",
    about: "NVTX ranges by domain and text: time, GPU time of their work",
    analysis: || boxed(Nvtx),
};

const NO_PUSH_POP: &str = "no NVTX range was pushed and popped (torch.cuda.nvtx.range(), \
                           nvtx.annotate(), nvtxRangePush())";
const NO_START_END: &str =
    "no NVTX range was started and ended (nvtx.start_range(), nvtxRangeStart())";

/// NVTX ranges by domain and text: `tprof report nvtx`.
struct Nvtx;

/// Identifies the ranges of one row: whether they were started and ended by handle (`start_end`),
/// and `domain:text`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RangeKey {
    start_end: bool,
    range: String,
}

/// The ranges of one key. `kernels` and `gpu_ns` are `None` if no device work was recorded.
struct RangeColumns {
    key: RangeKey,
    kernels: Option<u64>,
    gpu_ns: Option<u64>,
    /// The most bytes that the process held within one of the ranges: on its heap and on its
    /// devices.
    held: Option<[HeldWithin; 2]>,
}

impl Analysis for Nvtx {
    const KIND: &'static str = KIND.name;
    type Part = Vec<Values<RangeColumns>>;

    fn needs(&self, _: &Options) -> Needs {
        Needs::WORK
            | Needs::CALLS
            | Needs::ANNOTATIONS
            | Needs::ALLOCATIONS
            | Needs::spans(SpanKind::Nvtx)
    }

    fn rank(
        &self,
        rank: &RankTrace<'_>,
        _: &RankContext,
        _: &Options,
    ) -> Vec<Values<RangeColumns>> {
        of_rank(rank)
    }

    fn join(&self, parts: Vec<(RankContext, Vec<Values<RangeColumns>>)>, _: &Options) -> Body {
        let mut push_pop = table("nvtx_pushpop_sum", "NVTX ranges, pushed and popped", NO_PUSH_POP);
        let mut start_end =
            table("nvtx_startend_sum", "NVTX ranges, started and ended", NO_START_END);
        for (at, part) in parts {
            let (free, nested): (Vec<_>, Vec<_>) =
                part.into_iter().partition(|row| row.row.key.start_end);
            for (table, rows) in [(&mut push_pop, nested), (&mut start_end, free)] {
                nsys::add_times(table, &at.label, rows, |row| {
                    let RangeColumns { key, kernels, gpu_ns, held } = &row.row;
                    let of_device = |value: &Option<u64>| Cell::known(*value, NO_WORK);
                    let mut cells = vec![of_device(gpu_ns), of_device(kernels)];
                    for held in held.iter().flatten() {
                        cells.extend(
                            [&held.peak_bytes, &held.rise_bytes].map(|of| of.clone().into()),
                        );
                    }
                    cells.push(key.range.as_str().into());
                    cells
                });
            }
        }
        Body { tables: vec![push_pop, start_end], notes: Vec::new() }
    }
}

fn table(key: &'static str, title: &str, empty: &str) -> Table {
    let own = [
        Column::new("gpu_ns", "on GPU", Unit::Duration),
        Column::data("kernels", Unit::Count),
        Column::data("peak_bytes", Unit::Bytes),
        Column::data("peak_rise_bytes", Unit::Bytes),
        Column::data("device_peak_bytes", Unit::Bytes),
        Column::data("device_peak_rise_bytes", Unit::Bytes),
        Column::new("range", "domain:range", Unit::Name),
    ];
    Table::new(key, title, nsys::columns(&nsys::TIMES, &own))
        .about(
            "time: share of the sum of a rank's ranges, nested ones included; on GPU: GPU time of \
             work launched inside the range",
        )
        .empty(empty)
}

fn of_rank(rank: &RankTrace<'_>) -> Vec<Values<RangeColumns>> {
    let ranges: Vec<&HostSpan> = rank.spans(SpanKind::Nvtx).iter().collect();
    let mut rows: Vec<Values<RangeColumns>> = Vec::new();
    let mut numbers: BTreeMap<RangeKey, u32> = BTreeMap::new();
    // Many ranges have the same interned ids, so the texts of each combination are compared only
    // once.
    let mut known: FxHashMap<[NameId; 3], u32> = FxHashMap::default();
    let ids = |range: &HostSpan| [range.name, range.category, range.args];
    let window = |range: &&HostSpan| {
        let (process, start_ns) = (range.process, range.start_ns);
        HeldWindow { process, start_ns, end_ns: start_ns.saturating_add(range.duration_ns) }
    };
    let windows: Vec<HeldWindow> = ranges.iter().map(window).collect();
    let held = heap_within(rank.file, &windows).into_iter().zip(device_within(rank, &windows));
    for (range, (heap, device)) in ranges.iter().zip(held) {
        let number = *known.entry(ids(range)).or_insert_with(|| {
            let key = RangeKey {
                start_end: rank.name(range.args).contains("\"style\":\"start/end\""),
                range: format!("{}:{}", rank.name(range.category), rank.name(range.name)),
            };
            *numbers.entry(key.clone()).or_insert_with(|| {
                let none = (!rank.work.is_empty()).then_some(0);
                let row = RangeColumns { key, kernels: none, gpu_ns: none, held: None };
                rows.push(Values { row, values: Vec::new() });
                rows.len() as u32 - 1
            })
        });
        let row = &mut rows[number as usize];
        row.values.push(range.duration_ns);
        row.row.held = Some(match row.row.held.take() {
            Some([of_heap, of_device]) => [of_heap.or_higher(&heap), of_device.or_higher(&device)],
            None => [heap, device],
        });
    }
    for (number, caused) in caused_by(rank, ranges, |range| known[&ids(range)]) {
        let row = &mut rows[number as usize].row;
        row.kernels = row.kernels.map(|_| caused.kernels);
        row.gpu_ns = row.gpu_ns.map(|_| caused.busy_ns);
    }
    rows.sort_rows_by(|a, b| a.row.key.cmp(&b.row.key));
    rows
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::{Kernel, Span};

    use super::*;

    fn range(start_ns: u64, duration_ns: u64) -> Span {
        Span { start_ns, duration_ns, kind: SpanKind::Nvtx, ..Span::default() }
    }

    #[test]
    fn ranges_with_the_same_domain_and_style_are_one_row() {
        let mut made = Fixture::new();
        let domain = made.name("library");
        let free = made.name(r#"{"style":"start/end"}"#);
        let payload = made.name(r#"{"payload":3}"#);
        made.span(range(0, 1000), "step");
        made.span(Span { args: payload, ..range(2000, 3000) }, "step");
        made.span(Span { category: domain, ..range(100, 10) }, "step");
        made.span(Span { args: free, ..range(50, 70) }, "step");
        made.call(0, 200, 5, "cudaLaunchKernel", 1);
        made.call(0, 2100, 5, "cudaLaunchKernel", 2);
        for (correlation, start_ns) in [(1, 5000), (2, 5500)] {
            let correlation = Some(correlation);
            made.kernel(
                Kernel { start_ns, duration_ns: 100, correlation, ..Kernel::default() },
                "k",
            );
        }
        let file = made.finish();
        let rows = of_rank(&RankTrace::load(
            &file,
            Needs::WORK | Needs::CALLS | Needs::spans(SpanKind::Nvtx),
        ));
        let seen: Vec<_> = rows
            .iter()
            .map(|row| {
                let RangeColumns { key, kernels, gpu_ns, .. } = &row.row;
                (key.start_end, key.range.as_str(), row.values.as_slice(), *kernels, *gpu_ns)
            })
            .collect();
        assert_eq!(
            seen,
            [
                (false, ":step", &[1000, 3000][..], Some(2), Some(200)),
                (false, "library:step", &[10], Some(0), Some(0)),
                (true, ":step", &[70], Some(0), Some(0)),
            ]
        );
    }

    #[test]
    fn effects_of_ranges_are_unknown_without_device_work() {
        let mut made = Fixture::new();
        made.span(range(0, 1000), "step");
        let file = made.finish();
        let rows = of_rank(&RankTrace::load(&file, Needs::WORK | Needs::spans(SpanKind::Nvtx)));
        assert_eq!((rows[0].row.kernels, rows[0].row.gpu_ns), (None, None));
    }
}
