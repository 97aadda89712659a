//! Adds up the spans of one rank.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use tprof_facts::Clock;
use tprof_rank::RankTrace;
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::sort_rows::SortRows;
use tprof_trace::TraceFile;
use tprof_trace::model::NameId;

use super::allocated::{self, Allocated};
use super::find::{self, OwnSpan};
use super::launched;
use super::sums::{SlowSpan, SpanSums, SumsByName};
use super::time::{self, SpanGroup, ThreadTime, Unknown};
use crate::gpu::device_memory::device_within;
use crate::memory::{HeldWindow, HeldWithin, heap_within};

/// Number of slowest spans that are kept for each name and rank.
const SLOWEST: usize = 5;

/// The sums of the spans with one name, and the slowest of these spans, slowest first.
#[derive(Default)]
struct OfName {
    sums: SpanSums,
    slowest: Vec<u32>,
}

/// Adds up the spans of a rank that begin within an interval of its clock.
pub(super) fn of_rank(rank: &RankTrace<'_>, wanted: Interval, clock: Clock) -> SumsByName {
    let file = rank.file;
    let spans = find::of_file(file);
    let allocated = allocated::of_spans(file, &spans);
    let windows: Vec<HeldWindow> = spans.iter().map(OwnSpan::window).collect();
    let heap = heap_within(file, &windows);
    let device = device_within(rank, &windows);
    let (inner_ns, flops) = within(&spans);
    let mut by_id: FxHashMap<(NameId, bool), OfName> = FxHashMap::default();
    let mut counted: Vec<u32> = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        let start_ns = span.row.start_ns;
        if start_ns < wanted.start || start_ns >= wanted.end {
            continue;
        }
        let of = by_id.entry((span.row.name, span.any_thread)).or_default();
        let (sum, duration_ns) = (&mut of.sums, span.row.duration_ns);
        sum.durations.push(duration_ns);
        sum.self_ns += duration_ns.saturating_sub(inner_ns[at]);
        sum.flops = sum.flops.saturating_add(span.flops);
        sum.moves(span.bytes.map_or((0, 0), |bytes| (bytes, duration_ns)));
        sum.is_of(span.category.as_deref());
        sum.holds(Some(&heap[at]), Some(&device[at]));
        if !is_within_same_name(&spans, span) {
            sum.total_ns += duration_ns;
            sum.flops_within = sum.flops_within.saturating_add(flops[at]);
            sum.allocate(&allocated[at]);
            counted.push(at as u32);
        }
        of.keep(&spans, at as u32);
    }
    let mut by_id: Vec<_> = by_id.into_iter().collect();
    let times = times(rank, &spans, &counted, &mut by_id);
    let mut times = times.into_iter();
    let named = |((name, any_thread), of): ((NameId, bool), OfName)| {
        let mut sums = of.sums;
        let slowest = of.slowest.iter().zip(times.by_ref());
        sums.slowest = slowest
            .map(|(at, time)| {
                let at = *at as usize;
                let held = (heap[at].clone(), device[at].clone());
                slow(file, &spans[at], &allocated[at], held, time, clock)
            })
            .collect();
        ((file.name(name).to_owned(), any_thread), sums)
    };
    by_id.into_iter().map(named).collect()
}

/// Adds to each name the activity of threads within its spans, and the work launched there. Returns
/// the activity within each of the slowest spans, in their order.
fn times(
    rank: &RankTrace<'_>,
    spans: &[OwnSpan],
    counted: &[u32],
    by_id: &mut [((NameId, bool), OfName)],
) -> Vec<ThreadTime> {
    let ids = by_id.iter().zip(0_u32..).map(|((id, _), group)| (*id, group));
    let ids: FxHashMap<(NameId, bool), u32> = ids.collect();
    let mut groups_of = vec![[None; 2]; spans.len()];
    let mut groups = vec![SpanGroup::default(); by_id.len()];
    let unknown = Unknown::of(rank);
    let enter = |group: &mut SpanGroup, span: &OwnSpan| {
        group.total_ns += span.row.duration_ns;
        if group.missing.is_none() {
            group.missing = unknown.why(span).map(str::to_owned);
        }
    };
    for at in counted {
        let span = &spans[*at as usize];
        let group = ids[&(span.row.name, span.any_thread)];
        groups_of[*at as usize][0] = Some(group);
        enter(&mut groups[group as usize], span);
    }
    let of_names: Vec<Option<u32>> = groups_of.iter().map(|groups| groups[0]).collect();
    for at in by_id.iter().flat_map(|(_, of)| &of.slowest) {
        groups_of[*at as usize][1] = Some(groups.len() as u32);
        let mut group = SpanGroup::default();
        enter(&mut group, &spans[*at as usize]);
        groups.push(group);
    }
    let mut times = time::of_groups(rank, spans, &groups, &groups_of);
    let of_slowest = times.split_off(by_id.len());
    let launched = launched::of_groups(rank, spans, &of_names, by_id.len());
    for (((_, of), time), launched) in by_id.iter_mut().zip(times).zip(launched) {
        (of.sums.time, of.sums.launched) = (time, launched);
    }
    of_slowest
}

/// Returns for each span the time in spans directly within it, ns, and the operations that the
/// program stated for the span and all spans within it.
fn within(spans: &[OwnSpan]) -> (Vec<u64>, Vec<u64>) {
    let mut inner_ns = vec![0_u64; spans.len()];
    let mut flops: Vec<u64> = spans.iter().map(|span| span.flops).collect();
    for at in (0..spans.len()).rev() {
        if let Some(parent) = spans[at].parent {
            inner_ns[parent as usize] += spans[at].row.duration_ns;
            flops[parent as usize] = flops[parent as usize].saturating_add(flops[at]);
        }
    }
    (inner_ns, flops)
}

fn is_within_same_name(spans: &[OwnSpan], span: &OwnSpan) -> bool {
    let mut around = span.parent;
    while let Some(at) = around {
        let outer = &spans[at as usize];
        if outer.row.name == span.row.name {
            return true;
        }
        around = outer.parent;
    }
    false
}

fn slow(
    file: &TraceFile,
    span: &OwnSpan,
    allocated: &Allocated,
    (heap, device): (HeldWithin, HeldWithin),
    time: ThreadTime,
    clock: Clock,
) -> SlowSpan {
    let row = &span.row;
    let process = file.process(row.process);
    let thread = file.thread(row.thread);
    SlowSpan {
        duration_ns: row.duration_ns,
        start_ns: clock.since_start(row.start_ns),
        pid: process.map_or(0, |process| process.pid),
        tid: thread.map_or(0, |thread| thread.tid),
        allocated: allocated.clone(),
        heap,
        device,
        time,
    }
}

impl OfName {
    fn keep(&mut self, spans: &[OwnSpan], at: u32) {
        let lasted = |at: &u32| spans[*at as usize].row.duration_ns;
        let last = self.slowest.last().filter(|_| self.slowest.len() == SLOWEST);
        if last.is_some_and(|last| lasted(last) >= lasted(&at)) {
            return;
        }
        self.slowest.push(at);
        let order = |at: &u32| (Reverse(lasted(at)), spans[*at as usize].row.start_ns);
        self.slowest.sort_rows_by_key(order);
        self.slowest.truncate(SLOWEST);
    }
}
