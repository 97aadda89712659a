//! Imports a snapshot: reads its top level and writes the resulting rows.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde_json::json;
use tprof_facts::units::{bytes, counted};
use tprof_trace::model::{
    AllocatorEvent, DeviceAllocation, MemoryRecording, NameId, Process, Thread,
};
use tprof_trace::run::ProcessInfo;

use super::error::SnapshotError;
use super::json;
use super::stacks::SnapshotStacks;
use super::state::{EventNames, Reading};
use super::totals;
use crate::error::ImportError;
use crate::losses::{LossReason, Tally};
use crate::output::Output;
use crate::pickle::{self, Arena, Value};
use crate::run_period::{EventMoment, Times};
use crate::threads::MAIN;
use crate::top_level::property;

/// Largest JSON of a top-level member, in bytes.
const MAX_FACT_BYTES: usize = 256 << 10;
/// Rows in a block of the file.
const BLOCK_ROWS: usize = 1 << 14;

/// Result of reading a snapshot, apart from the rows in the file.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// First and last moment of the history, if its entries have times.
    pub extent: Option<(u64, u64)>,
    /// The process whose memory the snapshot describes.
    pub processes: Vec<ProcessInfo>,
    /// Summary for the run's properties.
    pub facts: serde_json::Value,
    /// Notes for people.
    pub notes: Vec<String>,
}

/// Reads a snapshot into a file. `rank` comes from the file's name.
///
/// # Errors
/// The pickle is damaged or refused, is not a snapshot, or the run cannot be written.
pub(crate) fn read(
    input: &[u8],
    rank: Option<u32>,
    output: &mut Output,
) -> Result<Snapshot, SnapshotError> {
    let (arena, root) = pickle::read(input)?;
    let words = EventNames::of(output);
    let mut reading = Reading {
        arena: &arena,
        words,
        stacks: SnapshotStacks::default(),
        held: BTreeMap::new(),
        next_segment: 0,
        segment_rows: Vec::new(),
        block_rows: Vec::new(),
        event_rows: Vec::new(),
        others: Vec::new(),
        names: FxHashMap::default(),
        rows_left: input.len(),
        json_left: (1 << 20) | (4 * input.len()),
        json: Vec::new(),
        output,
    };
    let members = top_level(&mut reading, root)?;
    finish(reading, members, rank)
}

/// Whether the file has keys for pinned host memory, and how many devices have a history. Also
/// whether the Python module `tprof` wrote the snapshot from the heap, and whether it contains
/// estimates.
#[derive(Clone, Copy, Debug, Default)]
struct Members {
    has_host: bool,
    devices: u64,
    heap: Option<IsEstimate>,
}

type IsEstimate = bool;

fn top_level(reading: &mut Reading<'_, '_>, root: Value) -> Result<Members, SnapshotError> {
    let arena = reading.arena;
    let mut members = Members::default();
    if let Value::List(_) = root {
        // `torch.cuda.memory_snapshot()` returns only the segments, without a history.
        let is_segment = |item: &Value| arena.get(*item, "blocks").is_some();
        if !arena.items(root).unwrap_or_default().iter().all(is_segment) {
            return Err(not_a_snapshot("a list of something else than segments"));
        }
        reading.segments(root, false)?;
        return Ok(members);
    }
    let Some(pairs) = arena.pairs(root) else {
        return Err(not_a_snapshot(&format!("a value of type {}", root.kind())));
    };
    if arena.get(root, "segments").is_none() && arena.get(root, "device_traces").is_none() {
        return Err(not_a_snapshot("a dict without `segments` and `device_traces`"));
    }
    for (key, value) in pairs {
        match arena.text(*key) {
            Some(b"segments") => reading.segments(list(arena, *value, "segments")?, false)?,
            Some(b"host_segments") => {
                members.has_host = true;
                reading.segments(list(arena, *value, "host_segments")?, true)?;
            }
            Some(b"host_traces") => {
                members.has_host = true;
                reading.entries(list(arena, *value, "host_traces")?, None)?;
            }
            Some(b"device_traces") => {
                let traces = list(arena, *value, "device_traces")?;
                for (device, entries) in (0..).zip(arena.items(traces).unwrap_or_default()) {
                    reading.count_rows(1)?;
                    let entries = list(arena, *entries, "device_traces")?;
                    reading.entries(entries, Some(device))?;
                    members.devices += 1;
                }
            }
            Some(key) => {
                if key == b"tprof" {
                    let estimate = arena.get(*value, "estimate");
                    members.heap = Some(matches!(estimate, Some(Value::Bool(true))));
                }
                fact(reading, key, *value);
            }
            None => reading.output.tally.count_loss(LossReason::SnapshotDetails),
        }
    }
    Ok(members)
}

fn list(arena: &Arena<'_>, value: Value, key: &str) -> Result<Value, SnapshotError> {
    match arena.items(value) {
        Some(_) => Ok(value),
        None => Err(not_a_snapshot(&format!("`{key}` is a {}, no list", value.kind()))),
    }
}

fn not_a_snapshot(what: &str) -> SnapshotError {
    SnapshotError::Content(format!("the pickle is not a memory snapshot of PyTorch: {what}"))
}

/// Stores a top-level member that has no table, such as allocator settings or annotations, as a
/// property.
fn fact(reading: &mut Reading<'_, '_>, key: &[u8], value: Value) {
    let mut text = Vec::new();
    let limit = MAX_FACT_BYTES.min(reading.json_left);
    let whole = json::push(reading.arena, value, limit, &mut text);
    reading.json_left = reading.json_left.saturating_sub(text.len());
    match (whole, std::str::from_utf8(&text)) {
        (true, Ok(text)) => {
            let key = format!("torch.memory_snapshot.{}", String::from_utf8_lossy(key));
            property(&key, text, reading.output);
        }
        _ => reading.output.tally.count_loss(LossReason::FactTooLong),
    }
}

/// Replaces an impossible time of an entry by the time of the previous entry. This keeps the order
/// of the entries, which is certain.
fn repair_times(events: &mut [AllocatorEvent], tally: &mut Tally) {
    let mut times = Times::default();
    let moment = |time_ns| EventMoment { time_ns, is_zero: time_ns == 0 };
    events.iter().filter_map(|event| event.time_ns).for_each(|time_ns| times.add(moment(time_ns)));
    let Some(run_period) = times.run_period() else { return };
    let is_outside =
        |time_ns: Option<u64>| time_ns.is_some_and(|ns| run_period.outside(moment(ns)).is_some());
    let mut last_ns =
        events.iter().filter_map(|event| event.time_ns).find(|ns| !is_outside(Some(*ns)));
    for event in events {
        if is_outside(event.time_ns) {
            tally.count_loss(LossReason::SnapshotTime);
            event.time_ns = last_ns;
        }
        last_ns = event.time_ns.or(last_ns);
    }
}

fn finish(
    mut reading: Reading<'_, '_>,
    members: Members,
    rank: Option<u32>,
) -> Result<Snapshot, SnapshotError> {
    let mut snapshot = Snapshot::default();
    let mut events = std::mem::take(&mut reading.event_rows);
    repair_times(&mut events, &mut reading.output.tally);
    let timed = !events.is_empty() && events.iter().all(|event| event.time_ns.is_some());
    if timed {
        let times = || events.iter().filter_map(|event| event.time_ns);
        snapshot.extent = times().min().zip(times().max());
    }
    let mut allocations: Vec<DeviceAllocation> = Vec::new();
    let mut unmatched = Vec::new();
    for of_device in events.chunk_by(|one, next| one.device == next.device) {
        let device = of_device[0].device;
        let held = reading.held.get(&device).copied();
        let (rows, has_totals) = totals::allocations(of_device, held, &reading.words, timed);
        if !has_totals {
            unmatched.push(device.map_or("the host".to_owned(), |one| format!("device {one}")));
        }
        allocations.extend(rows);
    }
    allocations.sort_by_key(|row| row.time_ns);
    process(&mut reading, snapshot.extent, rank, &mut snapshot.processes);
    notes(&reading, &events, timed, &unmatched, &mut snapshot.notes);
    if let Some(is_estimate) = members.heap {
        // A snapshot of the host's heap never has a history, so advice to switch it on would
        // mislead.
        snapshot.notes.retain(|note| !note.starts_with(NO_HISTORY));
        let estimate = if is_estimate { "; sizes are estimates from samples" } else { "" };
        snapshot.notes.push(format!(
            "the snapshot is the host's heap, by tprof.snapshot(): its device 0 is no device, and \
             addresses are places in a list{estimate}"
        ));
    }
    snapshot.facts = json!({
        "segments": reading.segment_rows.len(),
        "blocks": reading.block_rows.len(),
        "entries": events.len(),
        "timed": timed,
        "devices": members.devices,
        "host": members.has_host,
        "without_totals": unmatched,
    });
    property("torch.memory_snapshot", &snapshot.facts.to_string(), reading.output);
    write(&mut reading, events, allocations)?;
    reading.output.write_losses(snapshot.extent.map_or(0, |extent| extent.0));
    Ok(snapshot)
}

fn write(
    reading: &mut Reading<'_, '_>,
    events: Vec<AllocatorEvent>,
    allocations: Vec<DeviceAllocation>,
) -> Result<(), ImportError> {
    let (segments, blocks) = (&reading.segment_rows, &reading.block_rows);
    let rows = segments.len() + blocks.len() + events.len() + allocations.len();
    reading.output.tally.kept += rows as u64;
    let writer = &mut reading.output.writer;
    for rows in segments.chunks(BLOCK_ROWS) {
        writer.write(&mut rows.to_vec())?;
    }
    for rows in blocks.chunks(BLOCK_ROWS) {
        writer.write(&mut rows.to_vec())?;
    }
    for rows in events.chunks(BLOCK_ROWS) {
        writer.write(&mut rows.to_vec())?;
    }
    for rows in allocations.chunks(BLOCK_ROWS) {
        writer.write(&mut rows.to_vec())?;
    }
    Ok(())
}

/// Adds the process with made-up values, because a snapshot does not contain its pid, its name or
/// its threads.
fn process(
    reading: &mut Reading<'_, '_>,
    extent: Option<(u64, u64)>,
    rank: Option<u32>,
    processes: &mut Vec<ProcessInfo>,
) {
    let (start_ns, end_ns) = extent.unzip();
    let start_ns = start_ns.unwrap_or(0);
    let command = reading.output.plain_name("(a memory snapshot names no process)");
    reading.output.writer.process(&Process {
        process: MAIN,
        pid: 0,
        parent: 0,
        rank,
        command,
        exe: NameId(0),
        start_ns,
        memory: MemoryRecording::Off,
    });
    reading.output.writer.thread(&Thread { thread: 0, process: MAIN, tid: 0, start_ns });
    let thread = reading.output.plain_name("(a memory snapshot names no thread)");
    reading.output.writer.thread_name(0, start_ns, thread);
    processes.push(ProcessInfo {
        rank,
        command: "(a memory snapshot names no process)".to_owned(),
        ended_by: "unknown".to_owned(),
        start_ns,
        end_ns,
        ..ProcessInfo::default()
    });
}

const NO_HISTORY: &str = "the snapshot has no history";

fn notes(
    reading: &Reading<'_, '_>,
    events: &[AllocatorEvent],
    timed: bool,
    unmatched: &[String],
    notes: &mut Vec<String>,
) {
    let (segments, blocks) = (reading.segment_rows.len() as u64, reading.block_rows.len() as u64);
    if segments == 0 && events.is_empty() {
        notes.push(
            "the snapshot is empty: PyTorch used no GPU in that process, or its allocator held \
             nothing and recorded no history"
                .to_owned(),
        );
        return;
    }
    let held: u64 = reading.segment_rows.iter().map(|row| row.bytes).fold(0, u64::saturating_add);
    notes.push(format!(
        "memory snapshot: {} with {} ({}), {} of history",
        counted(segments, "segment", "segments"),
        counted(blocks, "block", "blocks"),
        bytes(held),
        counted(events.len() as u64, "entry", "entries"),
    ));
    if events.is_empty() {
        notes.push(format!(
            "{NO_HISTORY}; torch.cuda.memory._record_memory_history() before the program's work \
             records it"
        ));
    } else if !timed {
        notes.push(
            "the history has no times (an older PyTorch): places in its order stand for them, 1 ns \
             an entry"
                .to_owned(),
        );
    }
    if !unmatched.is_empty() {
        notes.push(format!(
            "history and segments of {} do not belong together: totals of the allocator unknown",
            unmatched.join(", ")
        ));
    }
}
