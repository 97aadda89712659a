//! Lanes of host threads: their spans, and their samples as nested functions.

use std::collections::BTreeMap;

use tprof_trace::model::{Sample, Span, SpanKind, ThreadIndex, ThreadState};

use super::events::{Event, EventKind, Lane, LaneKind, Lanes};
use super::processes::Processes;
use crate::flame::{FrameKind, FrameTable, Labels, waiting_for};
use crate::page::thread_name;
use crate::rows::wanted;
use crate::{Part, Written};

/// Adds the spans of a file.
pub(crate) fn spans(
    part: &Part<'_>,
    written: &mut Written,
    processes: &mut Processes,
    lanes: &mut Lanes,
) {
    let file = &part.trace;
    let mut threads: BTreeMap<ThreadIndex, Lane> = BTreeMap::new();
    for row in wanted::<Span>(part, written) {
        let lane = threads.entry(row.thread).or_insert_with(|| Lane {
            kind: LaneKind::Thread,
            process: processes.index(part, row.process),
            name: thread_name(file, row.thread, false),
            device: None,
            events: Vec::new(),
        });
        let name = lanes.names.of(file.name(row.name));
        let detail = lanes.details.of(&detail(part, &row));
        lane.events.push(Event {
            start_ns: part.at(row.start_ns),
            duration_ns: row.duration_ns,
            name,
            kind: kind(row.kind),
            detail,
            correlation: row.correlation,
        });
    }
    let tid = |thread: ThreadIndex| {
        file.threads().iter().find(|row| row.thread == thread).map_or(u32::MAX, |row| row.tid)
    };
    // The first thread of a process has its lowest number; pseudo-threads have none.
    let mut threads: Vec<(ThreadIndex, Lane)> = threads.into_iter().collect();
    threads.sort_by_key(|(thread, lane)| (lane.process, tid(*thread).wrapping_sub(1)));
    lanes.lanes.extend(threads.into_iter().map(|(_, lane)| lane));
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

/// What many spans share: domain, and a failed call's status.
fn detail(part: &Part<'_>, row: &Span) -> String {
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

/// Adds the samples of a file: neighbouring samples that share the outer part of
/// their stacks are shown as one call of it, which they need not have been.
pub(crate) fn samples(
    part: &Part<'_>,
    written: &mut Written,
    processes: &mut Processes,
    lanes: &mut Lanes,
) {
    let rows = wanted::<Sample>(part, written);
    if rows.is_empty() {
        return;
    }
    let mut table = FrameTable::default();
    let mut labels = Labels::new(part, false, &mut table);
    let mut threads: BTreeMap<ThreadIndex, Vec<Sample>> = BTreeMap::new();
    rows.into_iter().for_each(|row| threads.entry(row.thread).or_default().push(row));
    for (thread, rows) in threads {
        let process = rows[0].process;
        let mut open: Vec<(u32, Event)> = Vec::new();
        let mut events = Vec::new();
        let mut end_ns = 0;
        for row in rows {
            let mut frames = labels.stack(process, row.stack, &mut table).to_vec();
            if let Some(what) = waiting_for(row.state) {
                frames.push(table.frame(FrameKind::Unknown, what, ""));
            }
            let at_ns = part.at(row.time_ns);
            let mut same = open.iter().zip(&frames).take_while(|((a, _), b)| a == *b).count();
            if at_ns > end_ns {
                // Nothing was seen in between.
                same = 0;
            }
            events.extend(open.drain(same..).map(|(_, event)| event));
            end_ns = end_ns.max(at_ns + row.weight_ns);
            for &frame in &frames[same..] {
                let kind = match table.kinds[frame as usize] {
                    FrameKind::Python => EventKind::Python,
                    FrameKind::Unknown if row.state != ThreadState::Running => EventKind::Waiting,
                    _ => EventKind::Native,
                };
                let name = lanes.names.of(&table.names[frame as usize]);
                let detail = lanes.details.of(&table.places[frame as usize]);
                let event = Event {
                    start_ns: at_ns,
                    duration_ns: 0,
                    name,
                    kind,
                    detail,
                    correlation: None,
                };
                open.push((frame, event));
            }
            for (_, event) in &mut open {
                event.duration_ns = end_ns - event.start_ns;
            }
        }
        events.extend(open.into_iter().map(|(_, event)| event));
        lanes.lanes.push(Lane {
            kind: LaneKind::Samples,
            process: processes.index(part, process),
            name: thread_name(&part.trace, thread, false),
            device: None,
            events,
        });
    }
}
