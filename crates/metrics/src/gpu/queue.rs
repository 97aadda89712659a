//! Measures the length of each stream's queue: the number of launches whose work has not begun yet.

use std::cmp::Reverse;

use tprof_document::{
    Analysis, Body, Cell, Column, DocumentKind, Options, RankContext, Table, Unit, View, boxed,
};
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::base::stats::Description;
use tprof_rank::{HostSpan, Needs, RankTrace, StreamKey, WINDOW_NEEDS, window_of};
use tprof_trace::calls::function;

use crate::gpu::outside::{self, OutsideWork};

/// The report `queue`.
pub const KIND: DocumentKind = DocumentKind {
    name: "queue",
    about: "launched work that waits on streams; time with a full queue",
    analysis: || boxed(Queue),
};

/// Number of launches that a stream accepts before the next launch blocks. CUDA doesn't guarantee a
/// number. 1,022 to 1,024 have been observed, and Holistic Trace Analysis assumes 1,024.
pub const FULL: i64 = 1024;

/// Number of buckets of the curve.
const BUCKETS: usize = 200;

/// Calls that Holistic Trace Analysis counts as launches in this report.
const HTA_LAUNCHES: [&str; 10] = [
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernel",
    "cudaMemcpyAsync",
    "cudaMemsetAsync",
    "hipLaunchKernel",
    "hipExtModuleLaunchKernel",
    "hipMemsetAsync",
    "hipMemcpyAsync",
    "hipMemcpyWithStream",
];

/// The reason that the report gives when it has no rows.
const NO_LAUNCHES: &str = "no call with a recorded kernel or copy was recorded";

/// The length of a queue from one moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The moment, ns.
    pub time_ns: u64,
    /// Number of launches whose work has not begun.
    pub length: i64,
}

/// The queue of one stream.
#[derive(Clone, Debug)]
pub struct StreamQueue {
    /// The stream of the queue.
    pub stream: StreamKey,
    /// Statistics of the lengths, with one value for each change of the length, as in Holistic
    /// Trace Analysis.
    pub points: Description,
    /// Mean length over time. The time is that of the steps; without steps, from the first launch
    /// to the last start of work.
    pub mean: f64,
    /// Time in which the length was [`FULL`] or more, ns.
    pub full_ns: u64,
    /// `full_ns` as a share of the device's steps; without steps, of the rank's whole time.
    pub full_share: f64,
}

/// Queues of one rank.
#[derive(Clone, Debug, Default)]
pub struct RankQueues {
    /// The queues by stream, in order.
    pub streams: Vec<StreamQueue>,
    /// The highest sum of the lengths of all streams, in each of `BUCKETS` parts of the time.
    pub curve: Vec<Point>,
    /// All changes of the lengths; empty unless the user asked for them.
    pub series: Vec<(StreamKey, Vec<Point>)>,
    /// The work outside of the steps, which the queues leave out.
    pub outside: OutsideWork,
}

/// Returns the length of each stream's queue after each change, in order of time.
pub fn series(rank: &RankTrace<'_>) -> Vec<(StreamKey, Vec<Point>)> {
    let mut changes: Vec<Vec<(u64, i64)>> = vec![Vec::new(); rank.streams.len()];
    let is_launch =
        |call: &HostSpan| !rank.hta || HTA_LAUNCHES.contains(&function(rank.name(call.name)));
    let mut streams: Vec<(u32, u64)> = Vec::new();
    for (at, call) in rank.calls.iter().enumerate().filter(|(_, call)| is_launch(call)) {
        streams.clear();
        for row in rank.launches.work_of(at) {
            let row = &rank.work[*row as usize];
            // A graph launch counts once in a stream's queue, until its first piece of work on that
            // stream begins.
            if streams.iter().all(|(stream, _)| *stream != row.stream) {
                streams.push((row.stream, row.start_ns));
            }
        }
        for (stream, start_ns) in &streams {
            changes[*stream as usize].extend([(call.start_ns, 1), (*start_ns, -1)]);
        }
    }
    let mut all = Vec::new();
    for (stream, mut changes) in rank.streams.iter().zip(changes) {
        if changes.is_empty() {
            continue;
        }
        // At the same moment, launches come first, because work can't begin before its launch.
        changes.sort_by_key(|(time_ns, change)| (*time_ns, Reverse(*change)));
        let mut length = 0;
        let point = |(time_ns, change): (u64, i64)| {
            length += change;
            Point { time_ns, length }
        };
        all.push((*stream, changes.into_iter().map(point).collect()));
    }
    all
}

/// Computes the queues of a rank. The result contains each change only if `all`.
pub fn of_rank(rank: &RankTrace<'_>, all: bool) -> RankQueues {
    let windows = rank.device_windows();
    let steps_of = |stream: &StreamKey| {
        let of = window_of(&windows, Some(stream.device))?;
        (!of.is_whole()).then_some(&of.judged)
    };
    let mut series = series(rank);
    for (stream, points) in &mut series {
        if let Some(steps) = steps_of(stream) {
            *points = within(points, steps.span());
        }
    }
    series.retain(|(_, points)| !points.is_empty());
    let time = rank.extent.or_else(|| extent(rank)).map_or(0, Interval::length);
    let of_stream = |(stream, points): &(StreamKey, Vec<Point>)| {
        let mut lengths: Vec<f64> = points.iter().map(|point| point.length as f64).collect();
        let (mut weighted, mut full_ns) = (0.0, 0);
        let steps = steps_of(stream);
        let mut lasted = 0;
        for pair in points.windows(2) {
            let held = Interval::new(pair[0].time_ns, pair[1].time_ns);
            let held_ns = steps.map_or(held.length(), |steps| steps.length_within(held));
            lasted += held_ns;
            weighted += pair[0].length as f64 * held_ns as f64;
            full_ns += if pair[0].length >= FULL { held_ns } else { 0 };
        }
        let time = steps.map_or(time, Cover::length);
        Some(StreamQueue {
            stream: *stream,
            points: Description::of(&mut lengths)?,
            mean: weighted / lasted.max(1) as f64,
            full_ns,
            full_share: full_ns as f64 / time.max(1) as f64,
        })
    };
    let streams = series.iter().filter_map(of_stream).collect();
    let (curve, outside) = (curve(&series), OutsideWork::of(rank));
    RankQueues { streams, curve, series: if all { series } else { Vec::new() }, outside }
}

/// Returns the changes within an interval, with the lengths at its beginning and end added. Returns
/// nothing if the queue was empty throughout.
fn within(points: &[Point], interval: Option<Interval>) -> Vec<Point> {
    let Some(Interval { start, end }) = interval else { return points.to_vec() };
    let from = points.partition_point(|point| point.time_ns < start);
    let until = points.partition_point(|point| point.time_ns <= end);
    let at = |time_ns, next: usize| {
        let last = next.checked_sub(1).map(|at| points[at]);
        last.filter(|last| last.time_ns != time_ns).map(|last| Point { time_ns, ..last })
    };
    let begins = at(start, from).filter(|_| points.get(from).is_none_or(|p| p.time_ns > start));
    if from == until && begins.is_none_or(|point| point.length == 0) {
        return Vec::new();
    }
    let mut found: Vec<Point> = begins.into_iter().collect();
    found.extend(&points[from..until]);
    found.extend(at(end, until).filter(|_| until < points.len()));
    found
}

/// Returns the time from the first start to the last end of all calls and work.
fn extent(rank: &RankTrace<'_>) -> Option<Interval> {
    let calls = rank.calls.iter().map(|row| row.interval());
    Interval::hull(calls.chain(rank.work.iter().map(|row| row.interval())))
}

/// Sums the lengths over all streams and keeps the maximum of each bucket.
fn curve(series: &[(StreamKey, Vec<Point>)]) -> Vec<Point> {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for (_, points) in series {
        let mut before = 0;
        for point in points {
            changes.push((point.time_ns, point.length - before));
            before = point.length;
        }
    }
    changes.sort_by_key(|(time_ns, change)| (*time_ns, Reverse(*change)));
    let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return Vec::new() };
    let (first_ns, lasted) = (first.0, last.0 - first.0);
    let bucket_ns = (lasted / BUCKETS as u64).max(1);
    let mut curve: Vec<Point> = Vec::new();
    let mut length = 0;
    for (time_ns, change) in changes {
        let bucket = first_ns + (time_ns - first_ns) / bucket_ns * bucket_ns;
        // A new bucket begins with the length at which the bucket before it ended.
        if curve.last().is_none_or(|point| point.time_ns != bucket) {
            curve.push(Point { time_ns: bucket, length });
        }
        length += change;
        if let Some(point) = curve.last_mut() {
            point.length = point.length.max(length);
        }
    }
    curve
}

/// Lengths of queues: `tprof report queue`.
struct Queue;

impl Analysis for Queue {
    const KIND: &'static str = KIND.name;
    type Part = RankQueues;

    fn needs(&self, _: &Options) -> Needs {
        WINDOW_NEEDS
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, options: &Options) -> RankQueues {
        of_rank(rank, options.lists_single_rows())
    }

    fn join(&self, parts: Vec<(RankContext, RankQueues)>, options: &Options) -> Body {
        let mut tables = vec![table(&parts)];
        if let [(at, part)] = parts.as_slice() {
            tables.push(curve_table(at, part));
            if options.lists_single_rows() {
                tables.push(series_table(at, part));
            }
        }
        Body { tables, notes: outside::note(parts.iter().map(|(_, part)| part.outside)) }
    }
}

fn table(parts: &[(RankContext, RankQueues)]) -> Table {
    let streams = parts.iter().flat_map(|(_, part)| &part.streams);
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::device(streams.map(|row| Some(row.stream.device))),
        Column::data("context", Unit::Id),
        Column::new("stream", "stream", Unit::Id),
        Column::new("mean_length", "mean", Unit::Number),
        Column::new("median_length", "median", Unit::Number),
        Column::new("max_length", "max", Unit::Number),
        Column::new("full_ns", "full", Unit::Duration),
        Column::new("full_share", "of all time", Unit::Share),
        Column::data("points", Unit::Count),
        Column::data("points_mean", Unit::Number),
        Column::data("points_deviation", Unit::Number),
        Column::data("points_min", Unit::Number),
        Column::data("points_lower_quartile", Unit::Number),
        Column::data("points_upper_quartile", Unit::Number),
    ];
    let mut table = Table::new("queue", "Queued work by stream", columns)
        .about(
            "launched and not begun, in the steps; mean over time; median of the lengths at each change; \
             full: 1,024 or more, the next launch blocks",
        )
        .empty(NO_LAUNCHES);
    let mut rows: Vec<(&RankContext, &StreamQueue)> =
        parts.iter().flat_map(|(at, part)| part.streams.iter().map(move |row| (at, row))).collect();
    rows.sort_rows_by(|a, b| {
        b.1.full_ns.cmp(&a.1.full_ns).then(b.1.points.max.total_cmp(&a.1.points.max))
    });
    for (at, row) in rows {
        table.row(vec![
            at.label.as_str().into(),
            row.stream.device.into(),
            row.stream.context.into(),
            row.stream.stream.into(),
            row.mean.into(),
            row.points.median.into(),
            row.points.max.into(),
            row.full_ns.into(),
            row.full_share.into(),
            row.points.count.into(),
            row.points.mean.into(),
            Cell::applies(row.points.deviation),
            row.points.min.into(),
            row.points.lower_quartile.into(),
            row.points.upper_quartile.into(),
        ]);
    }
    table
}

fn curve_table(at: &RankContext, part: &RankQueues) -> Table {
    let columns = vec![
        Column::new("time_ns", "time", Unit::Time),
        Column::new("length", "waiting", Unit::Count),
    ];
    let mut table = Table::new("curve", "Queued work, all streams", columns)
        .view(View::Curve)
        .empty(NO_LAUNCHES);
    for point in &part.curve {
        table.row(vec![at.clock.since_start(point.time_ns).into(), point.length.into()]);
    }
    table
}

fn series_table(at: &RankContext, part: &RankQueues) -> Table {
    let columns = vec![
        Column::new("device", "device", Unit::Id),
        Column::new("stream", "stream", Unit::Id),
        Column::new("time_ns", "time", Unit::Time),
        Column::new("length", "length", Unit::Number),
    ];
    let mut table = Table::new("series", "Lengths at each change, by stream", columns)
        .view(View::Data)
        .empty(NO_LAUNCHES);
    for (stream, points) in &part.series {
        for point in points {
            table.row(vec![
                stream.device.into(),
                stream.stream.into(),
                at.clock.since_start(point.time_ns).into(),
                point.length.into(),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::Kernel;

    use super::*;

    fn queues(launches: &[(u64, u64)]) -> (RankQueues, Vec<Point>) {
        let mut made = Fixture::new();
        for (correlation, &(call, start_ns)) in (0..).zip(launches) {
            made.call(0, call, 2, "cudaLaunchKernel", correlation);
            let row = Kernel {
                start_ns,
                duration_ns: 5,
                correlation: Some(correlation),
                ..Kernel::default()
            };
            made.kernel(row, "k");
        }
        let file = made.finish();
        let rank = RankTrace::load(&file, Needs::WORK | Needs::CALLS);
        (of_rank(&rank, false), series(&rank).remove(0).1)
    }

    #[test]
    fn a_queue_grows_with_launches_and_shrinks_with_starts() {
        let (found, points) = queues(&[(0, 10), (4, 20), (8, 30)]);
        let lengths: Vec<(u64, i64)> =
            points.iter().map(|point| (point.time_ns, point.length)).collect();
        assert_eq!(lengths, [(0, 1), (4, 2), (8, 3), (10, 2), (20, 1), (30, 0)]);
        let row = &found.streams[0];
        assert_eq!((row.points.count, row.points.max, row.full_ns), (6, 3.0, 0));
        assert_eq!(row.mean, (4.0 + 8.0 + 6.0 + 20.0 + 10.0) / 30.0);
        assert_eq!(found.curve.iter().map(|point| point.length).max(), Some(3));
    }

    #[test]
    fn time_with_a_full_queue_is_counted() {
        let mut launches: Vec<(u64, u64)> = (0..1024).map(|at| (at, 5000 + at)).collect();
        let (found, _) = queues(&launches);
        assert_eq!(found.streams[0].full_ns, 5000 - 1023);
        assert_eq!(found.streams[0].full_share, 3977.0 / 6028.0);
        launches.pop();
        assert_eq!(queues(&launches).0.streams[0].full_ns, 0);
    }
}
