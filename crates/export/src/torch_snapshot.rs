//! Exports memory snapshots of PyTorch, one pickle per rank, for <https://pytorch.org/memory_viz>
//! and `python -m torch.cuda._memory_viz`.
//!
//! The format needs the allocator's segments and blocks. A run that was imported from a snapshot has
//! them. For a recorded run, they follow from the changes of memory (`of_run`).

mod of_run;

use std::collections::BTreeMap;
use std::io::Write;

use rustc_hash::FxHashMap;
use serde_json::{Map, Value};
use tprof_facts::frames::Frames;
use tprof_trace::RunDir;
use tprof_trace::TraceFile;
use tprof_trace::model::*;

use crate::output::{Output, not_stdout};
use crate::pickle::{Memo, Pickle};
use crate::{ExportError, Options, Selection, Written, paths};

/// Property that marks a file as imported from a snapshot. The properties for members of the
/// snapshot's top level have this name, a dot and the member's name.
const SNAPSHOT: &str = "torch.memory_snapshot";

/// Writes one file per rank.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    options.without_max_bytes("torch-memory-snapshot")?;
    let selection = Selection::new(run, &options.slice, options.symbols)?;
    let (files, output) = (&selection.files, options.output.as_deref());
    not_stdout(output, "torch-memory-snapshot")?;
    let suffix = ".memory.pickle";
    let paths = paths::per_rank(run, files, output, suffix, &[".pickle"])?;
    for path in &paths {
        Output::check(path, options.force)?;
    }
    match output.is_some_and(|output| paths.first().is_some_and(|path| path == output)) {
        true => paths::parent(&paths[0])?,
        false => paths::create_directory_of(&paths)?,
    }
    let (mut written, mut outputs) = (Written::default(), Vec::new());
    for (file, path) in files.iter().zip(&paths) {
        let part = written.open(&selection, file)?;
        let rows = match facts(&part.trace) {
            Some(facts) => SnapshotRows::of_snapshot(&part.trace, &facts),
            None => match of_run::rows(&part.trace, &mut written) {
                Some(rows) => rows,
                None => continue,
            },
        };
        let bytes = document(&part.trace, &rows, &mut written);
        let failed = |source| ExportError::Write { path: path.clone(), source };
        let mut output = Output::create(path)?;
        output.write_all(&bytes).map_err(failed)?;
        outputs.push(output);
    }
    if outputs.is_empty() {
        let wants = "blocks of PyTorch's allocator, or an imported memory snapshot of PyTorch";
        return Err(ExportError::Nothing { format: "torch-memory-snapshot", wants });
    }
    for output in outputs {
        written.paths.extend(output.keep()?);
    }
    Ok(written)
}

fn facts(trace: &TraceFile) -> Option<Value> {
    let text = trace.properties().filter(|(key, _)| *key == SNAPSHOT).last()?.1;
    serde_json::from_str(text).ok()
}

/// A row, and the framework's word for what it is: the kind of a segment, the state of a block, or
/// the action of an event.
struct Named<'t, R> {
    row: R,
    word: &'t str,
}

/// The rows of a snapshot.
#[derive(Default)]
struct SnapshotRows<'t> {
    segments: Vec<Named<'t, AllocatorSegment>>,
    /// Blocks by the number of their segment.
    blocks: FxHashMap<u64, Vec<Named<'t, AllocatorBlock>>>,
    events: BTreeMap<Option<u32>, Vec<Named<'t, AllocatorEvent>>>,
    /// Number of devices; more if an event has a higher one.
    devices: u64,
    /// Whether pinned host memory belongs to the snapshot.
    host: bool,
}

impl<'t> SnapshotRows<'t> {
    fn of_snapshot(trace: &'t TraceFile, facts: &Value) -> SnapshotRows<'t> {
        let mut rows = SnapshotRows {
            devices: facts["devices"].as_u64().unwrap_or(0),
            host: facts["host"] == true,
            ..SnapshotRows::default()
        };
        for row in trace.blocks::<AllocatorSegment>().flatten() {
            rows.segments.push(Named { row, word: trace.name(row.kind) });
        }
        rows.segments.sort_by_key(|named| named.row.segment);
        for row in trace.blocks::<AllocatorBlock>().flatten() {
            let named = Named { row, word: trace.name(row.state) };
            rows.blocks.entry(row.segment).or_default().push(named);
        }
        for row in trace.blocks::<AllocatorEvent>().flatten() {
            let named = Named { row, word: trace.name(row.action) };
            rows.events.entry(row.device).or_default().push(named);
        }
        rows
    }

    fn count(&self) -> u64 {
        let rows = self.segments.len()
            + self.blocks.values().map(Vec::len).sum::<usize>()
            + self.events.values().map(Vec::len).sum::<usize>();
        rows as u64
    }
}

fn document(trace: &TraceFile, rows: &SnapshotRows<'_>, written: &mut Written) -> Vec<u8> {
    let mut document = SnapshotDocument {
        trace,
        frames: Frames::new(trace),
        pickle: Pickle::new(),
        stacks: FxHashMap::default(),
        frame_memos: FxHashMap::default(),
    };
    let SnapshotRows { segments, blocks, events, .. } = rows;
    written.events += rows.count();
    document.pickle.begin_dict();
    document.pickle.text("segments");
    document.segments(segments.iter().filter(|named| named.row.device.is_some()), blocks);
    document.pickle.text("device_traces");
    document.pickle.begin_list();
    let last = events.keys().flatten().max().map_or(0, |device| u64::from(*device) + 1);
    for device in 0..u32::try_from(rows.devices.max(last)).unwrap_or(0) {
        document.entries(events.get(&Some(device)).map_or(&[], Vec::as_slice));
    }
    document.pickle.end_list();
    if rows.host {
        document.pickle.text("host_segments");
        document.segments(segments.iter().filter(|named| named.row.device.is_none()), blocks);
        document.pickle.text("host_traces");
        document.entries(events.get(&None).map_or(&[], Vec::as_slice));
    }
    let prefix = format!("{SNAPSHOT}.");
    for (key, value) in trace.properties() {
        if let Some(key) = key.strip_prefix(&prefix)
            && let Ok(value) = serde_json::from_str(value)
        {
            document.pickle.text(key);
            document.pickle.json(&value);
        }
    }
    document.pickle.end_dict();
    document.pickle.finish()
}

struct SnapshotDocument<'t> {
    trace: &'t TraceFile,
    frames: Frames<'t>,
    pickle: Pickle,
    stacks: FxHashMap<(ProcessIndex, StackId), Memo>,
    frame_memos: FxHashMap<(String, String, u32), Memo>,
}

impl SnapshotDocument<'_> {
    fn segments<'r>(
        &mut self,
        rows: impl Iterator<Item = &'r Named<'r, AllocatorSegment>>,
        blocks: &FxHashMap<u64, Vec<Named<'_, AllocatorBlock>>>,
    ) {
        self.pickle.begin_list();
        for (count, Named { row, word }) in (1..).zip(rows) {
            self.pickle.begin_dict();
            if let Some(device) = row.device {
                self.number("device", device.into());
            }
            self.number("address", row.address);
            self.number("total_size", row.bytes);
            self.number("stream", row.stream);
            if !word.is_empty() {
                self.pickle.text("segment_type");
                self.pickle.text(word);
            }
            if let (Some(major), Some(minor)) = (row.pool_major, row.pool_minor) {
                self.pickle.text("segment_pool_id");
                self.pickle.pair(major, minor);
            }
            if let Some(flag) = row.expandable {
                self.pickle.text("is_expandable");
                self.pickle.flag(flag);
            }
            self.rest(row.process, row.stack, row.args);
            if let Some(blocks) = blocks.get(&row.segment) {
                self.pickle.text("blocks");
                self.pickle.begin_list();
                for (count, block) in (1..).zip(blocks) {
                    self.block(block);
                    self.pickle.end_item(count);
                }
                self.pickle.end_list();
            } else if row.device.is_some() {
                self.pickle.text("blocks");
                self.pickle.begin_list();
                self.pickle.end_list();
            }
            self.pickle.end_dict();
            self.pickle.end_item(count);
        }
        self.pickle.end_list();
    }

    fn block(&mut self, Named { row, word }: &Named<'_, AllocatorBlock>) {
        self.pickle.begin_dict();
        self.number("address", row.address);
        self.number("size", row.bytes);
        if let Some(bytes) = row.requested_bytes {
            self.number("requested_size", bytes);
        }
        self.pickle.text("state");
        self.pickle.text(word);
        self.rest(row.process, row.stack, row.args);
        self.pickle.end_dict();
    }

    fn entries(&mut self, rows: &[Named<'_, AllocatorEvent>]) {
        self.pickle.begin_list();
        for (count, Named { row, word }) in (1..).zip(rows) {
            self.pickle.begin_dict();
            self.pickle.text("action");
            self.pickle.text(word);
            if let Some(address) = row.address {
                self.number("addr", address);
            }
            if let Some(bytes) = row.device_free_bytes {
                self.number("device_free", bytes);
            }
            self.number("size", row.bytes);
            if let Some(stream) = row.stream {
                self.number("stream", stream);
            }
            if let Some(time_ns) = row.time_ns {
                self.number("time_us", time_ns / 1000);
            }
            self.rest(row.process, row.stack, row.args);
            self.pickle.end_dict();
            self.pickle.end_item(count);
        }
        self.pickle.end_list();
    }

    fn number(&mut self, key: &str, number: u64) {
        self.pickle.text(key);
        self.pickle.integer(number.into());
    }

    /// Adds the stack, and the members that have no column.
    fn rest(&mut self, process: ProcessIndex, stack: StackId, args: NameId) {
        self.pickle.text("frames");
        self.stack(process, stack);
        let args: Map<String, Value> =
            serde_json::from_str(self.trace.name(args)).unwrap_or_default();
        for (key, value) in &args {
            self.pickle.text(key);
            // The value of this key is a tuple. JSON has no tuples, so it was imported as a list.
            let pair = value.as_array().and_then(|items| match &items[..] {
                [first, second] => first.as_u64().zip(second.as_u64()),
                _ => None,
            });
            match pair.filter(|_| key.ends_with("pool_id")) {
                Some((first, second)) => self.pickle.pair(first, second),
                None => self.pickle.json(value),
            }
        }
    }

    /// Writes a list of frames, innermost first. Each list and each frame is written once, and
    /// later only referred to.
    fn stack(&mut self, process: ProcessIndex, stack: StackId) {
        if let Some(memo) = self.stacks.get(&(process, stack)) {
            return self.pickle.write_memoized(*memo);
        }
        let mut frames = match stack {
            0 => Vec::new(),
            _ => self.frames.of_stack(process, stack),
        };
        frames.reverse();
        self.pickle.begin_list();
        for frame in &frames {
            let key = (frame.function.to_string(), frame.file.to_owned(), frame.line);
            if let Some(memo) = self.frame_memos.get(&key) {
                self.pickle.write_memoized(*memo);
                continue;
            }
            self.pickle.begin_dict();
            self.pickle.text("name");
            self.pickle.text(&frame.function);
            self.pickle.text("filename");
            self.pickle.text(frame.file);
            self.number("line", frame.line.into());
            self.pickle.end_dict();
            let memo = self.pickle.memoize();
            self.frame_memos.insert(key, memo);
        }
        self.pickle.end_list();
        let memo = self.pickle.memoize();
        self.stacks.insert((process, stack), memo);
    }
}
