//! Measures copies and memsets: their bytes, their rates, and how both change over time.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use tprof_document::{
    Analysis, Body, Cell, Column, DocumentKind, Options, RankContext, Table, Unit, View, boxed,
};
use tprof_facts::copies::direction;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::base::stats::Description;
use tprof_rank::{Class, Needs, RankTrace, WINDOW_NEEDS, Work, WorkKind};
use tprof_trace::model::CopyKind;

use crate::gpu::outside::{LeftOutRows, add_left_out};

/// The report `bandwidth`.
pub const KIND: DocumentKind = DocumentKind {
    name: "bandwidth",
    about: "copies and memsets by kind: bytes, time, rate",
    analysis: || boxed(Bandwidth),
};

/// Number of buckets of the curve.
const BUCKETS: u64 = 200;

/// Kinds of copies that the curve shows.
const CURVES: [CopyKind; 5] = [
    CopyKind::HostToDevice,
    CopyKind::DeviceToHost,
    CopyKind::DeviceToDevice,
    CopyKind::PeerToPeer,
    CopyKind::Memset,
];

/// The reason that the report gives when it has no rows.
const NO_COPIES: &str = "no copy or memset ran";
/// The reason that the report gives for a missing rate.
pub const NO_BYTES: &str = "the trace lacks the size of some of these copies";

/// Copies of one kind in one rank.
#[derive(Clone, Debug)]
pub struct KindCopies {
    /// The kind of the copies.
    pub kind: CopyKind,
    /// Number of copies.
    pub count: u64,
    /// Sum of the copies' bytes; `None` if the size of any copy is missing.
    pub bytes: Option<u64>,
    /// Time in which at least one copy ran, ns.
    pub busy_ns: u64,
    /// The highest rate of a single copy, bytes per second.
    pub fastest: Option<f64>,
    /// Statistics of the total rate of all concurrent copies, in gigabytes per second. Each change
    /// of the rate gives one value, and values of 0 are left out, as Holistic Trace Analysis does.
    pub points: Option<Description>,
}

impl KindCopies {
    /// Bytes per second of the time in which at least one copy ran.
    pub fn rate(&self) -> Option<f64> {
        self.bytes
            .filter(|_| self.busy_ns > 0)
            .map(|bytes| bytes as f64 / self.busy_ns as f64 * 1e9)
    }
}

/// Bytes moved in one part of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The beginning of the part, ns.
    pub start_ns: u64,
    /// Length of the part, ns.
    pub length_ns: u64,
    /// Bytes by kind, in the order of `CURVES`.
    pub bytes: [f64; CURVES.len()],
}

/// Copies of one rank.
#[derive(Clone, Debug, Default)]
pub struct RankCopies {
    /// Copies by kind, most time first.
    pub kinds: Vec<KindCopies>,
    /// Bytes moved over time.
    pub curve: Vec<Bucket>,
    /// The rate after each change; empty unless the user asked for each change.
    pub series: Vec<(CopyKind, RateSeries)>,
    /// The copies that ran outside of the steps.
    pub left_out: LeftOutRows,
}

/// The rate after each change: time in ns, and gigabytes per second.
pub type RateSeries = Vec<(u64, f64)>;

/// Returns the copies of a rank that lie in its steps, each with its kind; without steps, all
/// copies. With Holistic Trace Analysis's reading, the kind comes from the row's name.
fn copies<'r>(rank: &'r RankTrace<'_>, left_out: &mut LeftOutRows) -> Vec<(CopyKind, &'r Work)> {
    let mut found = Vec::new();
    let rows = rank.work.iter().zip(rank.is_judged());
    for (row, is_judged) in rows.filter(|(row, _)| row.class == Class::Memory) {
        let kind = match row.kind {
            WorkKind::Copy { kind, .. } => kind,
            _ => CopyKind::Unknown,
        };
        left_out.count(is_judged, row.duration_ns, || direction(kind).to_owned());
        found.extend(is_judged.then_some((kind, row)));
    }
    found
}

/// Returns a copy's rate in gigabytes per second. It prefers the rate in the trace, which comes
/// from a finer clock than the trace's times, to bytes over duration.
fn rate(rank: &RankTrace<'_>, row: &Work) -> Option<f64> {
    let recorded = || {
        let args = rank.name(row.args);
        if !args.contains("bandwidth") {
            return None;
        }
        let args: serde_json::Value = serde_json::from_str(args).ok()?;
        args.get("memory bandwidth (GB/s)")?.as_f64()
    };
    let measured = || match rank.hta {
        // Holistic Trace Analysis treats a missing rate as zero.
        true => Some(0.0),
        false => Some(row.bytes.get()? as f64 / row.duration_ns.max(1) as f64),
    };
    recorded().or_else(measured)
}

/// Returns the total rate of concurrent copies at each change, by kind.
fn series(rank: &RankTrace<'_>, copies: &[(CopyKind, &Work)]) -> Vec<(CopyKind, RateSeries)> {
    let mut changes: FxHashMap<CopyKind, [RateSeries; 2]> = FxHashMap::default();
    for &(kind, row) in copies {
        let Some(rate) = rate(rank, row) else { continue };
        // Holistic Trace Analysis counts a copy of zero length as one microsecond.
        let end_ns = row.start_ns + if row.duration_ns == 0 { 1000 } else { row.duration_ns };
        let [starts, ends] = changes.entry(kind).or_default();
        starts.push((row.start_ns, rate));
        ends.push((end_ns, -rate));
    }
    let mut all: Vec<(CopyKind, RateSeries)> = changes
        .into_iter()
        .map(|(kind, [mut starts, mut changes])| {
            // If one copy ends when another begins, they don't overlap. So the end is applied
            // before the start, or the sum would rise for a moment.
            changes.append(&mut starts);
            changes.sort_by_key(|(time_ns, _)| *time_ns);
            let mut sum = 0.0;
            for (_, rate) in &mut changes {
                sum += *rate;
                *rate = sum;
            }
            (kind, changes)
        })
        .collect();
    all.sort_rows_by_key(|(kind, _)| *kind);
    all
}

/// Sums up the copies of a rank. The result has each change of the rates only if `all`.
pub fn of_rank(rank: &RankTrace<'_>, all: bool) -> RankCopies {
    let mut left_out = LeftOutRows::of(rank);
    let copies = copies(rank, &mut left_out);
    let mut by_kind: FxHashMap<CopyKind, Vec<&Work>> = FxHashMap::default();
    for &(kind, row) in &copies {
        by_kind.entry(kind).or_default().push(row);
    }
    let series = series(rank, &copies);
    let points: FxHashMap<CopyKind, &RateSeries> =
        series.iter().map(|(kind, points)| (*kind, points)).collect();
    let of_kind = |(kind, rows): (CopyKind, Vec<&Work>)| {
        let rates = points.get(&kind).into_iter().flat_map(|points| points.iter());
        let mut above: Vec<f64> = rates.map(|(_, rate)| *rate).filter(|rate| *rate > 0.0).collect();
        let fastest = rows.iter().filter_map(|row| rate(rank, row)).max_by(f64::total_cmp);
        KindCopies {
            kind,
            count: rows.len() as u64,
            bytes: rows.iter().map(|row| row.bytes.get()).sum(),
            busy_ns: rows.iter().map(|row| row.interval()).collect::<Cover>().length(),
            fastest: fastest.map(|rate| rate * 1e9),
            points: Description::of(&mut above),
        }
    };
    let mut kinds: Vec<KindCopies> = by_kind.into_iter().map(of_kind).collect();
    kinds.sort_rows_by_key(|row| (Reverse(row.busy_ns), row.kind));
    let series = if all { series } else { Vec::new() };
    RankCopies { kinds, curve: curve(rank, &copies), series, left_out }
}

/// Returns the bytes that were copied over time. A copy's bytes are spread evenly over its
/// duration.
fn curve(rank: &RankTrace<'_>, copies: &[(CopyKind, &Work)]) -> Vec<Bucket> {
    let judged = rank.work.iter().zip(rank.is_judged()).filter(|(_, is_judged)| *is_judged);
    let Some(whole) = Interval::hull(judged.map(|(row, _)| row.interval())) else {
        return Vec::new();
    };
    let length_ns = whole.length().div_ceil(BUCKETS).max(1);
    let bucket = |at: u64| Bucket {
        start_ns: whole.start + at * length_ns,
        length_ns,
        bytes: [0.0; CURVES.len()],
    };
    let mut curve: Vec<Bucket> =
        (0..whole.length().div_ceil(length_ns).max(1)).map(bucket).collect();
    for &(kind, row) in copies {
        let Some(at) = CURVES.iter().position(|curve| *curve == kind) else { continue };
        let Some(bytes) = row.bytes.get() else { continue };
        let copy = Interval::new(row.start_ns, row.end_ns().max(row.start_ns + 1));
        let first = ((copy.start - whole.start) / length_ns) as usize;
        for bucket in curve.iter_mut().skip(first) {
            let within = Interval::new(bucket.start_ns, bucket.start_ns + length_ns).overlap(copy);
            if within.length() == 0 {
                break;
            }
            bucket.bytes[at] += bytes as f64 * within.length() as f64 / copy.length() as f64;
        }
    }
    curve
}

/// Rates of copies: `tprof report bandwidth`.
struct Bandwidth;

impl Analysis for Bandwidth {
    const KIND: &'static str = KIND.name;
    type Part = RankCopies;

    fn needs(&self, _: &Options) -> Needs {
        WINDOW_NEEDS
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, options: &Options) -> RankCopies {
        of_rank(rank, options.lists_single_rows())
    }

    fn join(&self, parts: Vec<(RankContext, RankCopies)>, options: &Options) -> Body {
        let mut tables = vec![table(&parts)];
        if let [(at, part)] = parts.as_slice() {
            tables.push(curve_table(at, part));
            if options.lists_single_rows() {
                tables.push(series_table(at, part));
            }
        }
        let mut body = Body { tables, notes: Vec::new() };
        let left_out = parts.iter().map(|(at, part)| (at, &part.left_out));
        let tables = ["bandwidth", "curve", "series"];
        add_left_out(&mut body, "copies and memsets", &tables, left_out);
        body
    }
}

fn table(parts: &[(RankContext, RankCopies)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("kind", "kind", Unit::Text),
        Column::new("count", "copies", Unit::Count),
        Column::new("bytes", "bytes", Unit::Bytes),
        Column::new("busy_ns", "time", Unit::Duration),
        Column::new("rate", "rate", Unit::BytesPerSecond),
        Column::new("fastest", "fastest copy", Unit::BytesPerSecond),
        Column::data("points", Unit::Count),
        Column::data("points_mean_gb_s", Unit::Number),
        Column::data("points_deviation_gb_s", Unit::Number),
        Column::data("points_min_gb_s", Unit::Number),
        Column::data("points_lower_quartile_gb_s", Unit::Number),
        Column::data("points_median_gb_s", Unit::Number),
        Column::data("points_upper_quartile_gb_s", Unit::Number),
        Column::data("points_max_gb_s", Unit::Number),
    ];
    let mut table = Table::new("bandwidth", "Copies and memsets by kind", columns)
        .about("time: at least one ran; rate: bytes over that time")
        .empty(NO_COPIES);
    let mut rows: Vec<(&RankContext, &KindCopies)> =
        parts.iter().flat_map(|(at, part)| part.kinds.iter().map(move |row| (at, row))).collect();
    rows.sort_rows_by_key(|(_, row)| Reverse(row.busy_ns));
    for (at, row) in rows {
        let mut cells = vec![
            at.label.as_str().into(),
            direction(row.kind).into(),
            row.count.into(),
            Cell::known(row.bytes, NO_BYTES),
            row.busy_ns.into(),
            Cell::known(row.rate(), NO_BYTES),
            Cell::known(row.fastest, NO_BYTES),
        ];
        let points = row.points.as_ref();
        cells.push(points.map_or(0, |found| found.count).into());
        let of = |of: fn(&Description) -> f64| Cell::applies(points.map(of));
        cells.extend([
            of(|found| found.mean),
            Cell::applies(points.and_then(|found| found.deviation)),
            of(|found| found.min),
            of(|found| found.lower_quartile),
            of(|found| found.median),
            of(|found| found.upper_quartile),
            of(|found| found.max),
        ]);
        table.row(cells);
    }
    table
}

fn curve_table(at: &RankContext, part: &RankCopies) -> Table {
    let columns = vec![
        Column::new("time_ns", "time", Unit::Time),
        Column::new("host_to_device", "HtoD", Unit::BytesPerSecond),
        Column::new("device_to_host", "DtoH", Unit::BytesPerSecond),
        Column::new("device_to_device", "DtoD", Unit::BytesPerSecond),
        Column::new("peer_to_peer", "PtoP", Unit::BytesPerSecond),
        Column::new("memset", "Memset", Unit::BytesPerSecond),
    ];
    let mut table = Table::new("curve", "Copies over time", columns)
        .about("bytes per second, a copy's bytes spread over its time")
        .view(View::Curve)
        .empty(NO_COPIES);
    let used: Vec<bool> = (0..CURVES.len())
        .map(|kind| part.curve.iter().any(|bucket| bucket.bytes[kind] > 0.0))
        .collect();
    for bucket in &part.curve {
        let mut cells: Vec<Cell> = vec![at.clock.since_start(bucket.start_ns).into()];
        cells.extend(bucket.bytes.iter().zip(&used).map(|(bytes, used)| match used {
            true => (bytes / bucket.length_ns as f64 * 1e9).into(),
            false => Cell::Empty,
        }));
        table.row(cells);
    }
    table
}

fn series_table(at: &RankContext, part: &RankCopies) -> Table {
    let columns = vec![
        Column::new("kind", "kind", Unit::Text),
        Column::new("time_ns", "time", Unit::Time),
        Column::new("rate_gb_s", "GB/s", Unit::Number),
    ];
    let mut table = Table::new("series", "Rates at each change, by kind", columns)
        .view(View::Data)
        .empty(NO_COPIES);
    for (kind, points) in &part.series {
        for (time_ns, rate) in points {
            let time_ns = at.clock.since_start(*time_ns);
            table.row(vec![direction(*kind).into(), time_ns.into(), (*rate).into()]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::MemoryCopy;

    use super::*;

    fn copy(start_ns: u64, duration_ns: u64, bytes: Option<u64>) -> MemoryCopy {
        let kind = CopyKind::HostToDevice;
        MemoryCopy { start_ns, duration_ns, bytes, kind, ..MemoryCopy::default() }
    }

    #[test]
    fn concurrent_copies_share_time_and_add_rates() {
        let mut made = Fixture::new();
        made.copy(copy(0, 100, Some(1000)), "");
        made.copy(copy(50, 100, Some(2000)), "");
        made.copy(MemoryCopy { kind: CopyKind::Memset, ..copy(400, 10, None) }, "");
        let file = made.finish();
        let rank = RankTrace::load(&file, Needs::WORK);
        let found = of_rank(&rank, false);
        let to_device = &found.kinds[0];
        assert_eq!((to_device.count, to_device.bytes, to_device.busy_ns), (2, Some(3000), 150));
        assert_eq!((to_device.rate(), to_device.fastest), (Some(2e10), Some(2e10)));
        let memset = &found.kinds[1];
        assert_eq!((memset.bytes, memset.rate(), memset.points.clone()), (None, None, None));
        let rates = &of_rank(&rank, true).series[0].1;
        assert_eq!(*rates, [(0, 10.0), (50, 30.0), (100, 20.0), (150, 0.0)]);
        let total: f64 = found.curve.iter().map(|bucket| bucket.bytes[0]).sum();
        assert!((total - 3000.0).abs() < 1e-6);
    }

    #[test]
    fn the_recorded_rate_is_preferred_to_bytes_over_duration() {
        let mut made = Fixture::new();
        let args = made.name(r#"{"memory bandwidth (GB/s)":12.5,"context":1}"#);
        made.copy(MemoryCopy { args, ..copy(0, 1000, Some(10_000)) }, "");
        let file = made.finish();
        let found = of_rank(&RankTrace::load(&file, Needs::WORK), false);
        assert_eq!(found.kinds[0].fastest, Some(12.5e9));
    }
}
