//! Adds lanes of device streams: kernels, copies, annotations above them, and waits.

use std::collections::BTreeMap;
use std::fmt::Write;

use rustc_hash::FxHashMap;
use tprof_facts::communication::Communication;
use tprof_facts::{copies, labels};
use tprof_trace::model::{
    Collective, CopyKind, DeviceSpan, Kernel, MemoryCopy, MemoryKind, ProcessIndex, Synchronization,
};

use super::events::{Event, EventKind, Lane, LaneKind, Lanes};
use super::graphs::{GraphRuns, graph_name};
use super::processes::Processes;
use crate::collectives::shared_id;
use crate::kineto_names::sync_name;
use crate::rows::wanted;
use crate::{OpenRank, Written};

type LaneKey = (ProcessIndex, Option<u32>, LaneKind, Option<u64>);

/// Description of a collective, and a number that the collective has on all its ranks.
#[derive(Default)]
struct Description {
    text: String,
    kin: u64,
}

/// Adds the device work of a file. `sources` has the source lines of some kernels by name.
pub(crate) fn streams(
    part: &OpenRank<'_>,
    sources: &FxHashMap<&str, String>,
    written: &mut Written,
    processes: &mut Processes,
    lanes: &mut Lanes,
) {
    let collectives = collectives(part, written);
    let mut communication = Communication::read(&part.trace);
    let mut streams: BTreeMap<LaneKey, Vec<Event>> = BTreeMap::new();
    let mut graphs: BTreeMap<LaneKey, GraphRuns> = BTreeMap::new();
    for row in wanted::<Kernel>(part, written) {
        let name = part.trace.name(row.name);
        let described = row.correlation.and_then(|number| collectives.get(&(row.process, number)));
        let collective = communication.holds(row.process, row.correlation, row.name);
        let mut detail = described.map(|described| described.text.clone()).unwrap_or_default();
        kernel_detail(&row, name, sources.get(name).map(String::as_str), &mut detail);
        let event = Event {
            start_ns: part.since_start(row.start_ns),
            duration_ns: row.duration_ns,
            name: lanes.names.of(name),
            kind: if collective { EventKind::Collective } else { EventKind::Kernel },
            detail: lanes.details.of(&detail),
            correlation: row.correlation,
            kin: described.map_or(0, |described| described.kin),
        };
        let key = (row.process, Some(row.device), LaneKind::Stream, Some(row.stream));
        graphs.entry(key).or_default().node(&event, row.graph, row.graph_node);
        streams.entry(key).or_default().push(event);
    }
    for row in wanted::<MemoryCopy>(part, written) {
        let kind = if row.kind == CopyKind::Memset { EventKind::Memset } else { EventKind::Copy };
        let event = Event {
            start_ns: part.since_start(row.start_ns),
            duration_ns: row.duration_ns,
            name: lanes.names.of(&copies::name(&part.trace, &row)),
            kind,
            detail: lanes.details.of(&copy_detail(&row)),
            correlation: row.correlation,
            kin: 0,
        };
        let key = (row.process, Some(row.device), LaneKind::Stream, Some(row.stream));
        graphs.entry(key).or_default().node(&event, row.graph, row.graph_node);
        streams.entry(key).or_default().push(event);
    }
    for row in wanted::<DeviceSpan>(part, written) {
        let event = Event {
            start_ns: part.since_start(row.start_ns),
            duration_ns: row.duration_ns,
            name: lanes.names.of(part.trace.name(row.name)),
            kind: EventKind::DeviceRange,
            detail: lanes.details.of(part.trace.name(row.category)),
            correlation: None,
            kin: 0,
        };
        let key = (row.process, Some(row.device), LaneKind::Ranges, row.stream);
        streams.entry(key).or_default().push(event);
    }
    for row in wanted::<Synchronization>(part, written) {
        let name = match part.trace.name(row.name) {
            "" => sync_name(row.kind),
            name => name,
        };
        let detail = match (row.event, row.event_stream) {
            (Some(event), Some(stream)) => format!("event {event} of stream {stream}"),
            (Some(event), None) => format!("event {event}"),
            _ => String::new(),
        };
        let event = Event {
            start_ns: part.since_start(row.start_ns),
            duration_ns: row.duration_ns,
            name: lanes.names.of(name),
            kind: EventKind::Synchronization,
            detail: lanes.details.of(&detail),
            correlation: row.correlation,
            kin: 0,
        };
        let key = (row.process, row.device, LaneKind::Waits, row.stream);
        streams.entry(key).or_default().push(event);
    }
    for (key, runs) in graphs {
        streams.entry(key).or_default().extend(runs.events(lanes));
    }
    for ((process, device, kind, stream), events) in streams {
        let name = stream_name(part, process, device, stream);
        let process = processes.index(part, process);
        lanes.lanes.push(Lane { kind, process, name, thread: None, device, events });
    }
}

fn stream_name(
    part: &OpenRank<'_>,
    process: ProcessIndex,
    device: Option<u32>,
    stream: Option<u64>,
) -> String {
    let Some(device) = device else { return "Host".to_owned() };
    let gpu = labels::device(device);
    match stream {
        Some(stream) => format!("{gpu} {}", labels::stream(&part.trace, process, device, stream)),
        None => gpu,
    }
}

/// Describes each collective. The key is the correlation of its kernel.
fn collectives(
    part: &OpenRank<'_>,
    written: &mut Written,
) -> FxHashMap<(ProcessIndex, u64), Description> {
    let mut known: FxHashMap<(ProcessIndex, u64), Description> = FxHashMap::default();
    for row in wanted::<Collective>(part, written) {
        let Some(correlation) = row.correlation else { continue };
        let described = known.entry((row.process, correlation)).or_default();
        if let Some(shared_id) = shared_id(&part.trace, &row) {
            described.kin = shared_id;
        }
        let text = &mut described.text;
        if !text.is_empty() {
            // Operations that were grouped share a kernel, so list all of them.
            text.push_str("; ");
        }
        text.push_str(part.trace.name(row.name));
        if let Some(bytes) = row.bytes {
            let _ = write!(text, " of {bytes} bytes");
        }
        match part.trace.name(row.element_type) {
            "" => {}
            element => {
                let _ = write!(text, " {element}");
            }
        }
        if let Some(size) = row.group_size {
            let _ = write!(text, " among {size} ranks");
        }
        if let Some(algorithm) = row.algorithm {
            let protocol = row.protocol.map_or("", |protocol| part.trace.name(protocol));
            let _ = write!(text, ", {} {protocol}", part.trace.name(algorithm));
        }
    }
    known
}

fn kernel_detail(row: &Kernel, name: &str, source: Option<&str>, text: &mut String) {
    let mut part = |words: std::fmt::Arguments<'_>| {
        if !text.is_empty() {
            text.push_str(" · ");
        }
        let _ = text.write_fmt(words);
    };
    let ([gx, gy, gz], [bx, by, bz]) = (row.grid, row.block);
    if row.grid != [0; 3] || row.block != [0; 3] {
        part(format_args!("grid {gx}×{gy}×{gz}, block {bx}×{by}×{bz}"));
    }
    if let Some(registers) = row.registers {
        part(format_args!("{registers} registers"));
    }
    let shared = [row.shared_static_bytes, row.shared_dynamic_bytes];
    if shared.iter().any(|bytes| bytes.is_some_and(|bytes| bytes > 0)) {
        let bytes: u64 = shared.iter().flatten().map(|&bytes| u64::from(bytes)).sum();
        part(format_args!("{bytes} bytes shared"));
    }
    match row.graph {
        // By default, a graph is recorded as one run, not as nodes.
        Some(graph) if name == graph_name(graph) => {
            part(format_args!("its nodes were not recorded: --cuda-graphs node"));
        }
        Some(graph) => part(format_args!("graph {graph}")),
        None => {}
    }
    if let Some(source) = source {
        part(format_args!("{source}"));
    }
}

fn copy_detail(row: &MemoryCopy) -> String {
    let mut text = match row.bytes {
        Some(bytes) => format!("{bytes} bytes"),
        None => String::new(),
    };
    let ends = [row.from, row.to].map(memory_name);
    if row.kind != CopyKind::Memset && ends.iter().any(|end| *end != "?") {
        let _ = write!(text, " {} → {}", ends[0], ends[1]);
    }
    text.trim().to_owned()
}

fn memory_name(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Unknown => "?",
        MemoryKind::Pageable => "pageable",
        MemoryKind::Pinned => "pinned",
        MemoryKind::Device => "device",
        MemoryKind::Array => "array",
        MemoryKind::Managed => "managed",
        MemoryKind::DeviceStatic => "device static",
        MemoryKind::ManagedStatic => "managed static",
    }
}
