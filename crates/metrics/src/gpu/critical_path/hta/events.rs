//! Collects the rows within a window that the critical path of Holistic Trace Analysis (HTA) uses.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_rank::base::intervals::Interval;
use tprof_rank::{HostSpan, MaybeNumber, RankTrace, StreamIndex, WorkKind};
use tprof_trace::model::{NameId, SpanKind, SyncKind};

/// A host row. Only operators and calls become nodes of the graph. The other rows only affect how
/// rows are nested.
#[derive(Clone, Copy, Debug)]
pub struct HostEvent {
    pub start_ns: u64,
    pub end_ns: u64,
    pub process: u32,
    pub thread: u32,
    pub name: NameId,
    /// Index among the rank's calls; `None` if the row isn't a call.
    pub call: Option<u32>,
    pub is_node: bool,
}

/// A row of a device: work, or a wait.
#[derive(Clone, Copy, Debug)]
pub struct DeviceEvent {
    pub start_ns: u64,
    pub end_ns: u64,
    pub name: NameId,
    pub correlation: MaybeNumber,
    /// Index of the row's stream; `None` if the host waits for a device or an event.
    pub stream: Option<StreamIndex>,
    /// Index of the call that started the row, if the call was recorded.
    pub call: Option<u32>,
    pub wait: Option<Wait>,
}

/// A wait of a stream or of the host, for an event, a stream or a device.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub kind: SyncKind,
    /// Correlation of the call that recorded the event.
    pub event_correlation: Option<u64>,
    /// Device and stream on which the event was recorded.
    pub event_stream: Option<(u32, u64)>,
}

/// Rows of a rank.
pub struct Events {
    /// Host rows within the window, in order of thread and start.
    pub host: Vec<HostEvent>,
    /// All device rows, in order of start.
    pub device: Vec<DeviceEvent>,
    /// For each row of `device`: whether it is within the window.
    pub within: Vec<bool>,
    /// For each call, its device row; if it has several, the last one.
    pub device_of_call: FxHashMap<u32, u32>,
}

/// Kinds of host spans other than calls.
const HOST_KINDS: [SpanKind; 6] = [
    SpanKind::Python,
    SpanKind::Annotation,
    SpanKind::Nvtx,
    SpanKind::Other,
    SpanKind::Operator,
    SpanKind::Overhead,
];

impl Events {
    /// Collects the rows of a rank that was read with HTA's reading.
    pub fn of(rank: &RankTrace, window: Interval) -> Events {
        let (device, device_of_call) = devices(rank);
        let in_window = |span: &HostSpan| {
            span.start_ns >= window.start && span.start_ns <= window.end && span.duration_ns > 0
        };
        let is_within = |(row, at): (&DeviceEvent, u32)| match (row.stream, row.call) {
            // HTA treats the host's wait for an event or a device as a host row, so the row's own
            // time decides.
            (None, _) => {
                row.start_ns >= window.start
                    && row.start_ns <= window.end
                    && row.end_ns > row.start_ns
            }
            // HTA joins a call to only one device row, so the other rows of a graph launch aren't
            // in the window.
            (Some(_), Some(call)) if device_of_call.get(&call) == Some(&at) => {
                in_window(&rank.calls[call as usize]) || is_stream_wait(row)
            }
            _ => is_stream_wait(row),
        };
        let within = device.iter().zip(0..).map(is_within).collect();
        // HTA treats a host span that carries a stream number as a device row, so leave it out of
        // the host rows.
        let of_device: FxHashSet<(NameId, u64, u64)> = rank
            .work
            .iter()
            .filter(|work| work.kind == WorkKind::HostSpan)
            .map(|work| (work.name, work.start_ns, work.duration_ns))
            .collect();
        let is_host = |span: &HostSpan| {
            in_window(span) && !of_device.contains(&(span.name, span.start_ns, span.duration_ns))
        };
        let mut host: Vec<HostEvent> = Vec::new();
        for kind in HOST_KINDS {
            let spans = rank.spans(kind).iter().filter(|span| is_host(span));
            host.extend(spans.map(|span| HostEvent::of(span, None)));
        }
        let calls = rank.calls.iter().zip(0..).filter(|(span, _)| in_window(span));
        host.extend(calls.map(|(span, at)| HostEvent::of(span, Some(at))));
        Events { host, device, within, device_of_call }
    }
}

impl HostEvent {
    fn of(span: &HostSpan, call: Option<u32>) -> HostEvent {
        HostEvent {
            start_ns: span.start_ns,
            end_ns: span.end_ns(),
            process: span.process,
            thread: span.thread,
            name: span.name,
            call,
            is_node: call.is_some() || span.kind == SpanKind::Operator,
        }
    }
}

fn is_stream_wait(row: &DeviceEvent) -> bool {
    row.wait.is_some_and(|wait| wait.kind == SyncKind::StreamWaitEvent)
}

/// Returns the device rows in order of start, and the last row of each call.
fn devices(rank: &RankTrace) -> (Vec<DeviceEvent>, FxHashMap<u32, u32>) {
    let mut rows: Vec<DeviceEvent> = Vec::with_capacity(rank.work.len());
    for (at, work) in rank.work.iter().enumerate() {
        // Waits are added below from `synchronizations`, whose rows say what the stream or host
        // waited for.
        if work.kind != WorkKind::Wait {
            rows.push(DeviceEvent {
                start_ns: work.start_ns,
                end_ns: work.end_ns(),
                name: work.name,
                correlation: work.correlation,
                stream: Some(work.stream),
                call: rank.launches.call_of(at).map(|call| call as u32),
                wait: None,
            });
        }
    }
    let calls: FxHashMap<(u32, u64), u32> = rank
        .calls
        .iter()
        .zip(0..)
        .filter_map(|(call, at)| Some(((call.process, call.correlation.get()?), at)))
        .collect();
    let kept = kept_waits(rank);
    for wait in &rank.synchronizations {
        let key = wait.correlation.map(|correlation| (wait.process, correlation));
        let call = key.and_then(|key| calls.get(&key).copied());
        let on_stream = |key: &tprof_rank::StreamKey| {
            (key.process, Some(key.device), Some(key.stream))
                == (wait.process, wait.device.or(Some(0)), wait.stream)
        };
        let stream = rank.streams.iter().position(on_stream).map(|at| at as StreamIndex);
        if call.is_none() && !kept(wait.correlation) {
            continue;
        }
        let device = wait.device.unwrap_or(0);
        rows.push(DeviceEvent {
            start_ns: wait.start_ns,
            end_ns: wait.start_ns + wait.duration_ns,
            name: wait.name,
            correlation: wait.correlation.into(),
            stream,
            call,
            wait: Some(Wait {
                kind: wait.kind,
                event_correlation: wait.event_correlation,
                event_stream: wait.event_stream.map(|stream| (device, stream)),
            }),
        });
    }
    rows.sort_by_key(|row| row.start_ns);
    let mut last: FxHashMap<u32, u32> = FxHashMap::default();
    for (row, at) in rows.iter().zip(0..) {
        if let Some(call) = row.call {
            last.insert(call, at);
        }
    }
    (rows, last)
}

/// Returns a function that decides whether to keep a wait without a recorded call, given the wait's
/// correlation. HTA drops the last step. So a wait is kept only if the rank's work still contains
/// it.
fn kept_waits(rank: &RankTrace) -> impl Fn(Option<u64>) -> bool {
    let waits = rank.work.iter().filter(|work| work.kind == WorkKind::Wait);
    let numbers: FxHashSet<Option<u64>> = waits.map(|work| work.correlation.get()).collect();
    move |correlation| numbers.contains(&correlation)
}
