//! Measures the idle time of each stream, by what the stream's next work waited for.

mod tables;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::stats::Description;
use tprof_rank::{Needs, RankTrace, StreamKey, WINDOW_NEEDS, WorkKind, window_of};

use crate::gpu::outside::OutsideWork;

/// The report `idle`.
pub const KIND: DocumentKind = DocumentKind {
    name: "idle",
    about: "why streams were idle: late host, launch delay, other",
    analysis: || boxed(Idle),
};

/// A shorter gap before work that was already launched counts as the device's own delay between two
/// kernels. Holistic Trace Analysis has the same default.
pub const KERNEL_WAIT_NS: u64 = 30_000;

/// Number of gaps of each rank that the report keeps, longest first.
const LONGEST: usize = 20;

/// The cause of a gap between two pieces of work on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The next work's launch began only after the stream had fallen idle.
    HostWait,
    /// The next work had been launched before, and the gap was shorter than [`KERNEL_WAIT_NS`].
    KernelWait,
    /// The next work had been launched before, but the gap was longer: the work waited for another
    /// stream, an event, or a busy device.
    Other,
    /// The launch of the next work wasn't recorded.
    Unknown,
}

impl Cause {
    /// All causes, in the order of tables.
    pub const ALL: [Cause; 4] = [Cause::HostWait, Cause::KernelWait, Cause::Other, Cause::Unknown];

    /// The name that reports print.
    pub fn name(self) -> &'static str {
        match self {
            Cause::HostWait => "host wait",
            Cause::KernelWait => "kernel wait",
            Cause::Other => "other",
            Cause::Unknown => "launch not seen",
        }
    }
}

/// Idle time of one stream between the start of its first work and the end of its last; if there
/// are steps, only within its device's steps.
#[derive(Clone, Debug)]
pub struct StreamIdle {
    /// The stream that is idle.
    pub stream: StreamKey,
    /// Time in which work ran on the stream, ns.
    pub busy_ns: u64,
    /// Idle time by cause, in the order of [`Cause::ALL`]. With Holistic Trace Analysis's reading,
    /// overlapping work makes gaps of negative length, so the sums may be negative.
    pub idle_ns: [i64; 4],
    /// Describes the lengths of the gaps by cause, in the same order.
    pub gaps: [Option<Description>; 4],
}

impl StreamIdle {
    /// Sum of the idle time, ns.
    pub fn total_ns(&self) -> i64 {
        self.idle_ns.iter().sum()
    }
}

/// One of the longest gaps of a rank.
#[derive(Clone, Debug)]
pub struct LongGap {
    /// The stream with the gap.
    pub stream: StreamKey,
    /// The beginning of the gap, ns.
    pub start_ns: u64,
    /// Length of the gap, ns.
    pub length_ns: u64,
    /// The cause of the gap.
    pub cause: Cause,
    /// Name of the work that ended the gap.
    pub next: String,
}

/// Idle time of one rank.
#[derive(Clone, Debug, Default)]
pub struct RankIdle {
    /// Idle time by stream, in order.
    pub streams: Vec<StreamIdle>,
    /// The longest gaps of the rank.
    pub longest: Vec<LongGap>,
    /// The work outside of the steps, which the report leaves out.
    pub outside: OutsideWork,
}

/// A gap whose names aren't resolved yet.
struct FoundGap {
    start_ns: u64,
    length_ns: i64,
    cause: Cause,
    /// Index of the work that ended the gap.
    next: u32,
}

/// Computes the idle time of a rank's streams.
pub fn of_rank(rank: &RankTrace<'_>) -> RankIdle {
    let mut by_stream: Vec<Vec<u32>> = vec![Vec::new(); rank.streams.len()];
    for (row, at) in rank.work.iter().zip(0..) {
        // Holistic Trace Analysis leaves out waits in this report and in no other.
        if matches!(row.kind, WorkKind::Kernel | WorkKind::Copy { .. }) {
            by_stream[row.stream as usize].push(at);
        }
    }
    let mut streams = Vec::new();
    let mut longest: Vec<(StreamKey, FoundGap)> = Vec::new();
    let windows = rank.device_windows();
    for (stream, work) in rank.streams.iter().zip(&by_stream).filter(|(_, work)| !work.is_empty()) {
        let of_stream = window_of(&windows, Some(stream.device));
        let steps = of_stream.filter(|window| !window.is_whole()).map(|window| &window.judged);
        let (mut gaps, mut busy) = (gaps(rank, work), busy(rank, work));
        if let Some(steps) = steps {
            gaps.retain_mut(|gap| gap.cut(steps));
            busy = busy.intersection(steps);
            if gaps.is_empty() && busy.is_empty() {
                continue;
            }
        }
        streams.push(summary(*stream, &gaps, busy.length()));
        longest.extend(gaps.into_iter().map(|gap| (*stream, gap)));
        longest.sort_by_key(|(_, gap)| Reverse(gap.length_ns));
        longest.truncate(LONGEST);
    }
    let shown = |(stream, gap): (StreamKey, FoundGap)| LongGap {
        stream,
        start_ns: gap.start_ns,
        length_ns: gap.length_ns.max(0) as u64,
        cause: gap.cause,
        next: rank.work_name(&rank.work[gap.next as usize]).into_owned(),
    };
    let longest = longest.into_iter().map(shown).collect();
    RankIdle { streams, longest, outside: OutsideWork::of(rank) }
}

fn busy(rank: &RankTrace<'_>, work: &[u32]) -> Cover {
    work.iter().map(|at| rank.work[*at as usize].interval()).collect()
}

impl FoundGap {
    /// Cuts the gap to its part within `time`, which may consist of several intervals. The gap then
    /// starts with the first of them. Returns whether any of the gap is left.
    fn cut(&mut self, time: &Cover) -> bool {
        let gap = Interval::new(self.start_ns, self.start_ns.saturating_add_signed(self.length_ns));
        let within = time.within(gap);
        self.length_ns = within.length() as i64;
        self.start_ns = within.span().map_or(self.start_ns, |span| span.start);
        self.length_ns > 0
    }
}

/// Finds the gaps of one stream, in order of time.
fn gaps(rank: &RankTrace<'_>, work: &[u32]) -> Vec<FoundGap> {
    let mut gaps = Vec::new();
    let mut idle_from: Option<u64> = None;
    for at in work {
        let row = &rank.work[*at as usize];
        if let Some(start_ns) = idle_from {
            let length_ns = row.start_ns as i64 - start_ns as i64;
            if rank.hta || length_ns > 0 {
                let cause = cause(rank, *at as usize, start_ns, length_ns);
                gaps.push(FoundGap { start_ns, length_ns, cause, next: *at });
            }
        }
        // Holistic Trace Analysis measures the gap from the end of the work that began last, not
        // from the latest end.
        idle_from = idle_from.filter(|_| !rank.hta).max(Some(row.end_ns()));
    }
    gaps
}

/// Returns the cause for which the work with index `work` was late on a stream that had been idle
/// since `idle_from_ns`.
fn cause(rank: &RankTrace<'_>, work: usize, idle_from_ns: u64, length_ns: i64) -> Cause {
    let seen = rank.launches.call_of(work).map(|call| rank.calls[call].start_ns);
    let launch_ns = seen.or(rank.first_row_ns);
    let waited = || match length_ns < KERNEL_WAIT_NS as i64 {
        true => Cause::KernelWait,
        false => Cause::Other,
    };
    match launch_ns {
        Some(launch_ns) if launch_ns > idle_from_ns => Cause::HostWait,
        None if !rank.hta => Cause::Unknown,
        _ => waited(),
    }
}

fn summary(stream: StreamKey, gaps: &[FoundGap], busy_ns: u64) -> StreamIdle {
    let of = |cause| gaps.iter().filter(move |gap| gap.cause == cause).map(|gap| gap.length_ns);
    StreamIdle {
        stream,
        busy_ns,
        idle_ns: Cause::ALL.map(|cause| of(cause).sum()),
        gaps: Cause::ALL.map(|cause| {
            Description::of(&mut of(cause).map(|length| length as f64).collect::<Vec<f64>>())
        }),
    }
}

/// Idle time of streams: `tprof report idle`.
struct Idle;

impl Analysis for Idle {
    const KIND: &'static str = KIND.name;
    type Part = RankIdle;

    fn needs(&self, _: &Options) -> Needs {
        WINDOW_NEEDS
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, _: &Options) -> RankIdle {
        of_rank(rank)
    }

    fn join(&self, parts: Vec<(RankContext, RankIdle)>, _: &Options) -> Body {
        tables::body(&parts)
    }
}
