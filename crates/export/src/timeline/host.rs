//! Adds lanes of host threads, which show the threads' spans.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_facts::labels::{self, Ids};
use tprof_trace::hash::joined;
use tprof_trace::model::{FlowPoint, Span, SpanKind, ThreadIndex};

use super::events::{Event, EventKind, Lane, LaneKind, Lanes};
use super::processes::Processes;
use crate::arrows::Arrows;
use crate::rows::wanted;
use crate::{OpenRank, Written};

/// Adds a lane for each thread of a file that has spans.
pub(crate) fn spans(
    part: &OpenRank<'_>,
    written: &mut Written,
    processes: &mut Processes,
    lanes: &mut Lanes,
) {
    let file = &part.trace;
    let arrows = arrows(part, processes);
    // If spans begin together, an arrow belongs to the innermost span, which is the shortest.
    let mut ends: FxHashMap<(ThreadIndex, u64), (usize, u64)> = FxHashMap::default();
    let mut threads: BTreeMap<ThreadIndex, Lane> = BTreeMap::new();
    for row in wanted::<Span>(part, written) {
        let lane = threads.entry(row.thread).or_insert_with(|| Lane {
            kind: LaneKind::Thread,
            process: processes.index(part, row.process),
            name: labels::thread(file, row.thread, Ids::Shown),
            thread: Some(row.thread),
            device: None,
            events: Vec::new(),
        });
        let name = lanes.names.of(file.name(row.name));
        let detail = lanes.details.of(&detail(part, &row));
        lane.events.push(Event {
            start_ns: part.since_start(row.start_ns),
            duration_ns: row.duration_ns,
            name,
            kind: kind(row.kind),
            detail,
            correlation: row.correlation,
            kin: 0,
        });
        if arrows.contains_key(&(row.thread, row.start_ns)) {
            let found = (lane.events.len() - 1, row.duration_ns);
            let end = ends.entry((row.thread, row.start_ns)).or_insert(found);
            if found.1 <= end.1 {
                *end = found;
            }
        }
    }
    for ((thread, start_ns), (at, _)) in ends {
        if let Some(lane) = threads.get_mut(&thread) {
            lane.events[at].kin = arrows[&(thread, start_ns)];
        }
    }
    let tid = |thread: ThreadIndex| file.thread(thread).map_or(u32::MAX, |row| row.tid);
    // Lanes are sorted by tid, so that the first thread of a process comes first. Threads with the
    // tid 0 are not real threads, and come last.
    let mut threads: Vec<(ThreadIndex, Lane)> = threads.into_iter().collect();
    threads.sort_by_key(|(thread, lane)| (lane.process, tid(*thread).wrapping_sub(1)));
    lanes.lanes.extend(threads.into_iter().map(|(_, lane)| lane));
}

/// Finds the ends of arrows from forward to backward operators. Returns the id of the arrow for
/// each thread and time.
fn arrows(part: &OpenRank<'_>, processes: &mut Processes) -> FxHashMap<(ThreadIndex, u64), u64> {
    let (mut arrows, mut messages) = (FxHashMap::default(), Arrows::default());
    for row in part.trace.in_order::<FlowPoint>(0, u64::MAX).flatten() {
        let lines = messages.point(&row);
        if let Some(thread) = row.thread
            && part.trace.name(row.category) == "fwdbwd"
        {
            let process = processes.index(part, row.process) as u64;
            arrows.insert((thread, row.time_ns), joined(&[process, lines.number(row.id, 0)]) | 1);
        }
    }
    arrows
}

fn kind(kind: SpanKind) -> EventKind {
    match kind {
        SpanKind::Runtime | SpanKind::Driver => EventKind::Call,
        SpanKind::Operator => EventKind::Operator,
        SpanKind::Annotation | SpanKind::Nvtx => EventKind::Range,
        SpanKind::Python => EventKind::Python,
        SpanKind::Overhead => EventKind::Overhead,
        SpanKind::Other => EventKind::Other,
    }
}

/// Returns the details that a span shares with many others: its domain, its category, and the
/// status if the call failed.
fn detail(part: &OpenRank<'_>, row: &Span) -> String {
    let mut parts = Vec::new();
    match row.kind {
        SpanKind::Nvtx => parts.push("NVTX".to_owned()),
        SpanKind::Driver => parts.push("CUDA driver".to_owned()),
        _ => {}
    }
    match part.trace.name(row.category) {
        "" => {}
        category => parts.push(category.to_owned()),
    }
    if let Some(status) = row.status.filter(|&status| status != 0) {
        parts.push(format!("failed with status {status}"));
    }
    parts.join(" · ")
}
