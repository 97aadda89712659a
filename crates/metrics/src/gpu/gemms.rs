//! Reports matrix multiplications by shape: how many operations they took, and how fast they were.
//!
//! The hooks of cuBLAS record what a call multiplies, but not the kernel that does it. The launch
//! within the call, on the same thread, leads to the kernel.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use tprof_document::{
    Analysis, Body, Cell, Column, DocumentKind, Options, RankContext, Table, Unit, boxed,
};
use tprof_facts::flops::ElementType;
use tprof_facts::flops::peaks::{self, Peaks};
use tprof_facts::units;
use tprof_rank::base::intervals::Cover;
use tprof_rank::base::names::Names;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{HostSpan, Needs, RankTrace, WINDOW_NEEDS, Work};
use tprof_trace::model::{NameId, SpanKind};

use crate::gpu::outside::{LeftOutRows, add_left_out};

/// The report `gemms`.
pub const KIND: DocumentKind = DocumentKind {
    name: "gemms",
    about: "cuBLAS matrix multiplications by shape: FLOPs, time, rate",
    analysis: || boxed(Gemms::default()),
};

/// Category of the spans that the recorder writes for cuBLAS calls.
const CATEGORY: &str = "cublas";
const NO_GEMMS: &str = "no cuBLAS matrix multiplication was recorded";
const NO_KERNELS: &str = "no kernel of these calls was recorded";
const SEVERAL: &str = "its groups have several sizes";
const NO_PEAK: &str = "the peak of the ranks' devices for this type is unknown (--peaks bf16=989T states it), or no kernel was recorded";
const NO_BYTES: &str = "its groups have several sizes, or a type has no known size";
const ONE: &str = "all multiplications of the call have one size";
const TOO_MANY: &str = "the number does not fit 64 bits";

/// The sizes and types of a call's matrices, parsed from the span's arguments.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct GemmShape {
    m: Option<u64>,
    n: Option<u64>,
    k: Option<u64>,
    /// Number of groups, if their sizes differ.
    groups: Option<u64>,
    batch: u64,
    transposed: String,
    a: String,
    b: String,
    c: String,
    #[serde(default)]
    compute: String,
    flops: Option<u64>,
}

impl GemmShape {
    /// Returns the bytes of both factors, each read once, and of the result, written once.
    fn bytes(&self) -> Option<u64> {
        let of = |name: &str, rows: u64, columns: u64| {
            let element = ElementType::of(name)?.bytes();
            rows.checked_mul(columns)?.checked_mul(element)
        };
        let (m, n, k) = (self.m?, self.n?, self.k?);
        let all = [of(&self.a, m, k)?, of(&self.b, k, n)?, of(&self.c, m, n)?];
        all.into_iter().try_fold(0_u64, u64::checked_add)?.checked_mul(self.batch)
    }
}

impl fmt::Display for GemmShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.m, self.n, self.k) {
            (Some(m), Some(n), Some(k)) => {
                if self.batch != 1 {
                    write!(f, "{} of ", self.batch)?;
                }
                write!(f, "{m} x {n} x {k}")?;
            }
            _ => write!(f, "{} in {} groups", self.batch, self.groups.unwrap_or(0))?,
        }
        write!(f, ", {} {}", self.transposed, self.a)?;
        if self.b != self.a {
            write!(f, " {}", self.b)?;
        }
        if self.c != self.a || self.c != self.b {
            write!(f, " to {}", self.c)?;
        }
        Ok(())
    }
}

/// The calls of one function with one shape, added up.
#[derive(Clone, Debug, PartialEq)]
struct Calls {
    /// Number of calls.
    calls: u64,
    /// Number of calls that launched at least one recorded kernel, copy or memset.
    seen: u64,
    /// Number of kernels, copies and memsets that the calls launched.
    work: u64,
    /// Time in which any of that work ran.
    busy_ns: u64,
    /// The longest kernel of these calls: its duration in ns, and its name.
    longest: Option<(u64, Arc<str>)>,
}

/// The matrix products of a rank.
#[derive(Clone, Debug, Default)]
struct RankGemms {
    rows: Vec<(Arc<str>, GemmShape, Calls)>,
    /// Number of calls that failed, or whose shape is unknown.
    shapeless: u64,
    /// Number of kernels that graphs replayed, whose shapes are unknown.
    replayed: u64,
    /// Peaks of the rank's devices, if they are all alike.
    peaks: Option<Peaks>,
    /// Calls outside of the steps.
    left_out: LeftOutRows,
}

/// Returns the peaks of a file's devices, if they are all alike; `given` takes precedence.
fn peaks_of(rank: &RankTrace<'_>, given: Option<Peaks>) -> Option<Peaks> {
    let devices = rank.file.devices().iter();
    let known = devices.map(|device| Peaks::of(rank.name(device.name), device.memory_bytes));
    let all: Vec<Option<Peaks>> = known.collect();
    let first =
        all.first().copied().flatten().filter(|first| all.iter().all(|one| *one == Some(*first)));
    match (first, given) {
        (Some(known), Some(given)) => Some(known.with(&given)),
        (known, given) => known.or(given),
    }
}

fn of_rank(rank: &RankTrace<'_>, names: &Names) -> RankGemms {
    let spans = outermost(rank);
    let work = work_within(rank, &spans);
    let judged = rank.judged();
    let mut left_out = LeftOutRows::of(rank);
    let mut found: FxHashMap<(NameId, NameId), Calls> = FxHashMap::default();
    for (span, work) in spans.iter().zip(work) {
        let is_judged = judged.holds(work.first().copied(), span.start_ns);
        left_out.count(is_judged, span.duration_ns, || rank.name(span.name).to_owned());
        if !is_judged {
            continue;
        }
        let calls = found.entry((span.name, span.args)).or_insert(Calls {
            calls: 0,
            seen: 0,
            work: 0,
            busy_ns: 0,
            longest: None,
        });
        calls.calls += 1;
        calls.seen += u64::from(!work.is_empty());
        calls.work += work.len() as u64;
        let rows = || work.iter().map(|at| &rank.work[*at as usize]);
        calls.busy_ns += rows().map(|row| row.interval()).collect::<Cover>().length();
        if let Some(row) = rows().max_by_key(|row| row.duration_ns)
            && calls.longest.as_ref().is_none_or(|(longest, _)| row.duration_ns > *longest)
        {
            calls.longest = Some((row.duration_ns, names.get(&rank.work_name(row))));
        }
    }
    let in_graph =
        |(row, is_judged): &(&Work, &bool)| **is_judged && row.is_kernel() && row.graph.is_some();
    let replayed = rank.work.iter().zip(&judged.work).filter(in_graph).count();
    let mut rows = RankGemms { replayed: replayed as u64, left_out, ..RankGemms::default() };
    for ((function, args), calls) in found {
        match serde_json::from_str(rank.name(args)) {
            Ok(shape) => rows.rows.push((names.get(rank.name(function)), shape, calls)),
            Err(_) => rows.shapeless += calls.calls,
        }
    }
    rows
}

/// Returns the cuBLAS calls that lie in no other cuBLAS call. A cuBLAS call may contain a cuBLASLt
/// call, and both are one multiplication.
fn outermost<'r>(rank: &'r RankTrace<'_>) -> Vec<&'r HostSpan> {
    let mut spans: Vec<&HostSpan> = Vec::new();
    // The spans are in order of threads and then of starts. Of spans with the same start, the
    // longer one comes first.
    for span in rank.spans(SpanKind::Other) {
        if rank.name(span.category) != CATEGORY {
            continue;
        }
        let within = spans
            .last()
            .is_some_and(|last| last.thread == span.thread && span.end_ns() <= last.end_ns());
        if !within {
            spans.push(span);
        }
    }
    spans
}

/// Returns the work that each cuBLAS call launched. A launch belongs to the call that contains the
/// launch's middle: the clocks of the two records may differ by up to half the length of a launch.
fn work_within(rank: &RankTrace<'_>, spans: &[&HostSpan]) -> Vec<Vec<u32>> {
    let mut found = vec![Vec::new(); spans.len()];
    for (at, call) in rank.calls.iter().enumerate() {
        let work = rank.launches.work_of(at);
        if work.is_empty() {
            continue;
        }
        let middle = (call.thread, call.start_ns + call.duration_ns / 2);
        let after = spans.partition_point(|span| (span.thread, span.start_ns) <= middle);
        let Some(before) = after.checked_sub(1) else { continue };
        if spans[before].thread == call.thread && spans[before].end_ns() >= middle.1 {
            found[before].extend_from_slice(work);
        }
    }
    found
}

/// Makes the report `gemms`.
#[derive(Default)]
struct Gemms {
    names: Names,
}

impl Analysis for Gemms {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    const TAKES: &'static [&'static str] = &["--peaks"];
    type Part = RankGemms;

    fn needs(&self, _: &Options) -> Needs {
        WINDOW_NEEDS | Needs::spans(SpanKind::Other)
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, options: &Options) -> RankGemms {
        RankGemms { peaks: peaks_of(rank, options.peaks), ..of_rank(rank, &self.names) }
    }

    fn join(&self, parts: Vec<(RankContext, RankGemms)>, _: &Options) -> Body {
        let shapeless: u64 = parts.iter().map(|(_, part)| part.shapeless).sum();
        let mut notes = Vec::new();
        if shapeless > 0 {
            let calls = units::count(shapeless);
            notes.push(format!(
                "{calls} calls are left out: they failed, or their shape is unknown"
            ));
        }
        let replayed: u64 = parts.iter().map(|(_, part)| part.replayed).sum();
        if replayed > 0 && parts.iter().any(|(_, part)| !part.rows.is_empty()) {
            let kernels = units::count(replayed);
            notes.push(format!(
                "{kernels} kernels were replayed by graphs: their shapes are unknown, and none of \
                 them counts here"
            ));
        }
        let with_calls = parts.iter().filter(|(_, part)| !part.rows.is_empty());
        let mut of_ranks = with_calls.map(|(_, part)| part.peaks);
        let first = of_ranks.next().flatten();
        let peaks = first.filter(|first| of_ranks.all(|one| one == Some(*first)));
        let mut rows: BTreeMap<(Arc<str>, GemmShape), Calls> = BTreeMap::new();
        for (function, shape, calls) in parts.iter().flat_map(|(_, part)| &part.rows) {
            let key = (function.clone(), shape.clone());
            rows.entry(key).and_modify(|sum| sum.add(calls)).or_insert_with(|| calls.clone());
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_rows_by_key(|((_, shape), calls)| {
            Reverse((calls.busy_ns, shape.flops.unwrap_or(u64::MAX)))
        });
        let mut body = Body { tables: vec![table(&rows, peaks.as_ref())], notes };
        let left_out = parts.iter().map(|(at, part)| (at, &part.left_out));
        add_left_out(&mut body, "calls of cuBLAS", &["gemms"], left_out);
        body
    }
}

impl Calls {
    fn add(&mut self, other: &Calls) {
        self.calls += other.calls;
        self.seen += other.seen;
        self.work += other.work;
        self.busy_ns += other.busy_ns;
        self.longest = self.longest.take().max(other.longest.clone());
    }
}

fn table(rows: &[((Arc<str>, GemmShape), Calls)], peaks: Option<&Peaks>) -> Table {
    let columns = vec![
        Column::new("busy_ns", "GPU time", Unit::Duration),
        Column::new("calls", "calls", Unit::Count),
        Column::data("calls_with_kernels", Unit::Count),
        Column::data("work", Unit::Count),
        Column::data("flops_per_call", Unit::Count),
        Column::data("flops", Unit::Count),
        Column::data("flops_per_s", Unit::Number),
        Column::new("rate", "TFLOP/s", Unit::Text),
        Column::new("of_peak", "of peak", Unit::Share),
        Column::data("bytes_per_call", Unit::Bytes),
        Column::data("bytes_per_s", Unit::BytesPerSecond),
        Column::data("bound", Unit::Text),
        Column::data("m", Unit::Count),
        Column::data("n", Unit::Count),
        Column::data("k", Unit::Count),
        Column::data("batch", Unit::Count),
        Column::data("groups", Unit::Count),
        Column::data("transposed", Unit::Text),
        Column::data("type_a", Unit::Text),
        Column::data("type_b", Unit::Text),
        Column::data("type_c", Unit::Text),
        Column::data("compute", Unit::Text),
        Column::data("function", Unit::Text),
        Column::data("kernel", Unit::Name),
        Column::new("what", "m x n x k", Unit::Name),
    ];
    let mut table = Table::new("gemms", "Matrix multiplications by GPU time", columns)
        .about(
            "by shape and types, over all ranks; rate: exact operations of calls with recorded \
             kernels, over the kernels' time",
        )
        .empty(NO_GEMMS);
    for ((function, shape), calls) in rows {
        table.row(cells(function, shape, calls, peaks));
    }
    table
}

fn cells(function: &str, shape: &GemmShape, calls: &Calls, peaks: Option<&Peaks>) -> Vec<Cell> {
    let all = shape.flops.and_then(|flops| flops.checked_mul(calls.calls));
    let rate = shape
        .flops
        .filter(|_| calls.busy_ns > 0)
        .map(|flops| flops as f64 * calls.seen as f64 / calls.busy_ns as f64 * 1e9);
    let why = if calls.seen == 0 { NO_KERNELS } else { TOO_MANY };
    let kernel = calls.longest.as_ref().map(|(_, name)| name);
    // cuBLAS may round to TF32 by its own choice or because the program asked for it. The kernel's
    // name shows whether it did.
    let tf32 = kernel.is_some_and(|name| peaks::is_tf32(name));
    let peak = ElementType::of(&shape.a).and_then(|of| peaks?.of_product(of, tf32));
    let bytes = shape.bytes();
    let bytes_per_s = bytes
        .filter(|_| calls.busy_ns > 0)
        .map(|bytes| bytes as f64 * calls.seen as f64 / calls.busy_ns as f64 * 1e9);
    let memory = peaks.and_then(|peaks| peaks.memory);
    let bound = shape.flops.zip(bytes).zip(peak.zip(memory)).map(|(work, ((peak, _), memory))| {
        match work.0 as f64 / peak >= work.1 as f64 / memory {
            true => "compute",
            false => "memory",
        }
    });
    vec![
        Cell::known((calls.seen > 0).then_some(calls.busy_ns), NO_KERNELS),
        calls.calls.into(),
        calls.seen.into(),
        calls.work.into(),
        Cell::known(shape.flops, TOO_MANY),
        Cell::known(all, TOO_MANY),
        Cell::known(rate, why),
        Cell::known(rate.map(|rate| format!("{:.3}", rate / 1e12)), why),
        Cell::known(rate.zip(peak).map(|(rate, (peak, _))| rate / peak), NO_PEAK),
        Cell::known(bytes, NO_BYTES),
        Cell::known(bytes_per_s, if bytes.is_none() { NO_BYTES } else { why }),
        Cell::known(bound, if bytes.is_none() { NO_BYTES } else { NO_PEAK }),
        Cell::known(shape.m, SEVERAL),
        Cell::known(shape.n, SEVERAL),
        Cell::known(shape.k, SEVERAL),
        shape.batch.into(),
        Cell::known(shape.groups, ONE),
        shape.transposed.as_str().into(),
        shape.a.as_str().into(),
        shape.b.as_str().into(),
        shape.c.as_str().into(),
        Cell::known(
            (!shape.compute.is_empty()).then_some(shape.compute.as_str()),
            "not in the call",
        ),
        function.into(),
        Cell::known(kernel.map(|name| &**name), NO_KERNELS),
        shape.to_string().into(),
    ]
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::{Kernel, Span};

    use super::*;

    const SMALL: &str = r#"{"m":2,"n":3,"k":5,"batch":1,"transposed":"NN","a":"Half","b":"Half","c":"Half","flops":60}"#;

    fn multiplied(made: &mut Fixture, start_ns: u64, end_ns: u64, function: &str, args: &str) {
        let (category, args) = (made.name(CATEGORY), made.name(args));
        let kind = SpanKind::Other;
        let duration_ns = end_ns - start_ns;
        made.span(
            Span { start_ns, duration_ns, kind, category, args, ..Span::default() },
            function,
        );
    }

    fn launched(made: &mut Fixture, start_ns: u64, correlation: u64, ran: u64, name: &str) {
        made.call(0, start_ns, 100, "cudaLaunchKernel", correlation);
        let kernel = Kernel {
            start_ns: start_ns + 1_000,
            duration_ns: ran,
            correlation: Some(correlation),
            ..Kernel::default()
        };
        made.kernel(kernel, name);
    }

    #[test]
    fn a_call_owns_the_kernels_launched_within_it() {
        let mut made = Fixture::new();
        multiplied(&mut made, 1_000, 2_000, "cublasGemmEx", SMALL);
        // cuBLAS calls cuBLASLt here, so the two calls are one multiplication.
        multiplied(&mut made, 1_100, 1_900, "cublasLtMatmul", SMALL);
        launched(&mut made, 1_200, 1, 40, "gemm");
        launched(&mut made, 1_400, 2, 10, "splitK_reduce");
        // The launch of this call seems to begin before it, since the clocks differ a little.
        multiplied(&mut made, 5_000, 6_000, "cublasGemmEx", SMALL);
        launched(&mut made, 4_980, 3, 50, "gemm");
        launched(&mut made, 6_200, 4, 90, "relu");
        // The first call was captured into a graph, so nothing ran. The second one failed.
        multiplied(&mut made, 8_000, 9_000, "cublasGemmEx", SMALL);
        multiplied(&mut made, 9_500, 9_600, "cublasGemmEx", "");
        let file = made.finish();
        let report = Gemms::default();
        let rank = RankTrace::load(&file, report.needs(&Options::default()));
        let found = of_rank(&rank, &report.names);
        assert_eq!(found.shapeless, 1);
        let [(function, shape, calls)] = &found.rows[..] else { panic!("{found:?}") };
        assert_eq!((&**function, shape.m, shape.compute.as_str()), ("cublasGemmEx", Some(2), ""));
        let wanted =
            Calls { calls: 3, seen: 2, work: 3, busy_ns: 100, longest: Some((50, "gemm".into())) };
        assert_eq!(*calls, wanted);
        let row = cells(function, shape, calls, None);
        assert_eq!(shape.to_string(), "2 x 3 x 5, NN Half");
        assert_eq!(row[5], 180_u64.into());
        assert_eq!(row[6], (60.0 * 2.0 / 100.0 * 1e9).into());
        assert_eq!(row[8], Cell::missing(NO_PEAK));
        let peaks = Peaks::parse("fp16=2.4G").unwrap();
        let row = cells(function, shape, calls, Some(&peaks));
        assert_eq!((&row[8], &row[11]), (&0.5.into(), &Cell::missing(NO_PEAK)));
        // The matrices have 10, 15 and 6 elements of 2 bytes. The 60 operations take 25 ns. Moving
        // the 62 bytes takes longer than that in the first case below, and less in the second.
        assert_eq!((&row[9], &row[10]), (&62_u64.into(), &(62.0 * 2.0 / 100.0 * 1e9).into()));
        for (memory, bound) in [("memory=1G", "memory"), ("memory=10G", "compute")] {
            let peaks = peaks.with(&Peaks::parse(memory).unwrap());
            assert_eq!(cells(function, shape, calls, Some(&peaks))[11], bound.into());
        }
    }
}
