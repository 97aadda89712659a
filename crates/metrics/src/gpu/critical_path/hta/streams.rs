//! Adds the edges of device rows to HTA's graph: durations, launches, waits, and from each kernel
//! to the next.

use rustc_hash::FxHashMap;
use tprof_rank::RankTrace;
use tprof_trace::model::SyncKind;

use super::events::{DeviceEvent, Events};
use super::graph::{EdgeKind, Graph, Node};
use super::queue::{QueueLengths, launches};
use super::waits::Waits;

/// Adds the edges of all device rows within the window.
pub fn add_streams(graph: &mut Graph, rank: &RankTrace, events: &Events) {
    let launches = launches(rank, events);
    let mut streams = StreamEdges {
        rank,
        events,
        queue: QueueLengths::of(rank, events, &launches),
        waits: Waits::of(rank, events, &launches),
        node_of_call: events
            .host
            .iter()
            .zip(0..)
            .filter_map(|(row, at)| Some((row.call?, at)))
            .collect(),
        last: FxHashMap::default(),
        waits_for: FxHashMap::default(),
    };
    let seen = |(row, within): &(&DeviceEvent, bool)| *within && row.correlation.get().is_some();
    let rows = events.device.iter().zip(events.within.iter().copied());
    let mut rows: Vec<(u64, u32)> = rows
        .zip(0..)
        .filter(|(row, _)| seen(row))
        // Sort a wait by its end, because the work that it waits for may start during the wait.
        .map(|((row, _), at)| (if row.wait.is_some() { row.end_ns } else { row.start_ns }, at))
        .collect();
    rows.sort_by_key(|(time, _)| *time);
    for (_, at) in rows {
        match events.device[at as usize].wait.is_some() {
            true => streams.wait(graph, at),
            false => streams.work(graph, at),
        }
    }
}

struct StreamEdges<'r, 'a> {
    rank: &'r RankTrace<'a>,
    events: &'r Events,
    queue: QueueLengths,
    waits: Waits,
    node_of_call: FxHashMap<u32, u32>,
    /// The last row on each stream, of the rows that were visited so far.
    last: FxHashMap<u64, u32>,
    /// For a row, the row of another stream that it waits for.
    waits_for: FxHashMap<u32, u32>,
}

impl StreamEdges<'_, '_> {
    fn node(&self, row: u32, end: bool) -> Node {
        Node { event: self.events.host.len() as u32 + row, end }
    }

    fn row(&self, at: u32) -> &DeviceEvent {
        &self.events.device[at as usize]
    }

    fn call_end(&self, call: Option<u32>) -> Option<Node> {
        Some(Node { event: *self.node_of_call.get(&call?)?, end: true })
    }

    fn wait(&mut self, graph: &mut Graph, at: u32) {
        let row = *self.row(at);
        let kind = row.wait.map_or(SyncKind::Unknown, |wait| wait.kind);
        let call_end = self.call_end(row.call);
        match kind {
            SyncKind::StreamWaitEvent => {
                let source = self.waits.source(&row);
                let target = self.waits.target(self.rank, &row);
                if let (Some(source), Some(target)) = (source, target) {
                    self.waits_for.insert(target, source);
                }
            }
            SyncKind::Event => {
                let source = self.waits.source(&row).filter(|at| self.is_node(*at));
                if let (Some(source), Some(call_end)) = (source, call_end) {
                    graph.add(self.node(source, true), call_end, 0, EdgeKind::Sync);
                }
            }
            SyncKind::Stream | SyncKind::Context | SyncKind::Unknown => {
                let stream = row.stream.map(|at| self.rank.streams[at as usize].stream);
                let mut last: Vec<(&u64, &u32)> = self.last.iter().collect();
                last.sort_unstable();
                let context = kind == SyncKind::Context;
                for (_, at) in last.into_iter().filter(|(of, _)| context || stream == Some(**of)) {
                    if let Some(call_end) = call_end {
                        graph.add(self.node(*at, true), call_end, 0, EdgeKind::Sync);
                    }
                }
            }
        }
    }

    fn is_node(&self, at: u32) -> bool {
        self.events.within[at as usize] && self.row(at).correlation.get().is_some()
    }

    fn work(&mut self, graph: &mut Graph, at: u32) {
        let row = *self.row(at);
        let Some(stream) = row.stream.map(|at| self.rank.streams[at as usize].stream) else {
            return;
        };
        let (start, end) = (self.node(at, false), self.node(at, true));
        graph.add(start, end, (row.end_ns - row.start_ns) as i64, EdgeKind::Operator);
        let awaited = self.waits_for.remove(&at).filter(|source| self.is_node(*source));
        if let Some(source) = awaited {
            graph.add(self.node(source, true), start, 0, EdgeKind::Sync);
        }
        let awaited_end = awaited.map(|source| self.row(source).end_ns);
        let last = self.last.get(&stream).copied();
        let last_end = last.map(|last| self.row(last).end_ns);
        let called = row.call.map(|call| (call, self.rank.calls[call as usize].start_ns));
        let before = |end: Option<u64>, moment: u64| end.is_none_or(|end| end < moment);
        let launch = called.filter(|&(call, called_ns)| {
            self.queue.was_alone(call, at)
                && before(last_end, called_ns)
                && before(awaited_end, called_ns)
        });
        let call_node = launch.and_then(|(call, _)| self.node_of_call.get(&call).copied());
        if let (Some((_, called_ns)), Some(event)) = (launch, call_node) {
            let weight = row.start_ns as i64 - called_ns as i64;
            graph.add(Node { event, end: false }, start, weight, EdgeKind::LaunchDelay);
        } else if let (Some(last), Some(last_end)) = (last, last_end)
            && before(awaited_end, last_end)
        {
            let weight = row.start_ns as i64 - last_end as i64;
            graph.add(self.node(last, true), start, weight, EdgeKind::KernelDelay);
        }
        self.last.insert(stream, at);
    }
}
