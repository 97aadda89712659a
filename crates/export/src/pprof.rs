//! Exports samples and allocations of all ranks as one gzipped pprof profile, for `go tool pprof`
//! and all other readers of this format.
//!
//! Each stack has five values: samples, CPU time, time off a core, allocations, and allocated
//! bytes. Labels contain the rank, process and thread, so that `-tagfocus` can select by them.

use std::collections::BTreeMap;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustc_hash::FxHashMap;
use std::io::Write;
use tprof_facts::frames::{Frame, Frames};
use tprof_facts::labels::{self, Ids};
use tprof_trace::RunDir;
use tprof_trace::model::*;

use crate::output::Output;
use crate::proto::Proto;
use crate::stacks::{self, represented_allocations};
use crate::{ExportError, OpenRank, Options, Selection, Written, kineto_names, paths};

/// Numbers of fields, as `profile.proto` defines them.
mod field {
    pub const SAMPLE_TYPE: u32 = 1;
    pub const SAMPLE: u32 = 2;
    pub const MAPPING: u32 = 3;
    pub const LOCATION: u32 = 4;
    pub const FUNCTION: u32 = 5;
    pub const STRING: u32 = 6;
    pub const TIME_NANOS: u32 = 9;
    pub const DURATION_NANOS: u32 = 10;
    pub const COMMENT: u32 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Kinds of values and their units.
const VALUES: [(&str, &str); 5] = [
    ("samples", "count"),
    ("cpu", "nanoseconds"),
    ("off_cpu", "nanoseconds"),
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
];

/// Values of one stack, in the order of [`VALUES`].
type Sums = [f64; VALUES.len()];

/// Writes one file: `DIR/trace.pb.gz`, or the file that the options name.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    options.without_max_bytes("pprof")?;
    let selection = Selection::new(run, &options.slice, options.symbols)?;
    let path =
        options.output.clone().unwrap_or_else(|| paths::default_directory(run).join("trace.pb.gz"));
    Output::check(&path, options.force)?;
    let mut written = Written::default();
    let mut profile = Pprof::new();
    for file in &selection.files {
        let part = written.open(&selection, file)?;
        let before = written.events;
        rank(&part, &mut profile, &mut written);
        let all = part.trace.row_count::<Sample>() + part.trace.heap_event_count();
        written.left_out += all.saturating_sub(written.events - before);
    }
    if profile.samples == 0 {
        return Err(match options.slice.is_all_time() {
            true => ExportError::Nothing { format: "pprof", wants: "samples and host allocations" },
            false => ExportError::EmptySlice,
        });
    }
    paths::parent(&path)?;
    let output = Output::create(&path)?;
    let failed = |source| ExportError::Write { path: path.clone(), source };
    let mut gzip = GzEncoder::new(output, Compression::new(1));
    let bytes = profile.finish(selection.zero.unix_ns);
    let wrote = gzip.write_all(bytes.bytes()).and_then(|()| gzip.finish());
    written.paths.extend(wrote.map_err(failed)?.keep()?);
    Ok(written)
}

/// Key of a sample: a stack of a thread (for allocations, of a process), and the thread's state.
type LocationKey = (ProcessIndex, Option<ThreadIndex>, StackId, ThreadState);

fn rank(part: &OpenRank<'_>, profile: &mut Pprof, written: &mut Written) {
    let trace = &part.trace;
    let mut sums: BTreeMap<LocationKey, Sums> = BTreeMap::new();
    for sample in trace.in_order::<Sample>(part.window.from_ns, part.window.to_ns).flatten() {
        written.events += 1;
        let key = (sample.process, Some(sample.thread), sample.stack, sample.state);
        let sums = sums.entry(key).or_default();
        sums[0] += 1.0;
        let on_core = sample.state == ThreadState::Running;
        sums[if on_core { 1 } else { 2 }] += sample.weight_ns as f64;
    }
    let intervals = stacks::intervals(trace);
    for event in trace.heap_events().filter(|event| part.window.holds(event.time_ns)) {
        written.events += 1;
        if let HeapChange::Alloc { size, stack, .. } = event.what {
            let count = represented_allocations(size, intervals.get(&event.process).copied());
            let sums = sums.entry((event.process, None, stack, ThreadState::Running)).or_default();
            sums[3] += count;
            sums[4] += count * size as f64;
        }
    }
    if !intervals.is_empty() {
        written
            .notes
            .push(format!("{}: allocations are estimates from sampled ones", part.file.label));
    }
    let frames = Frames::new(trace);
    let mut stacks: FxHashMap<(ProcessIndex, StackId, ThreadState), Vec<u64>> =
        FxHashMap::default();
    for ((process, thread, stack, state), sums) in sums {
        let locations = stacks.entry((process, stack, state)).or_insert_with(|| {
            let waits = kineto_names::waiting(state).map(Frame::missing);
            let located = frames.of_stack(process, stack);
            waits.iter().chain(located.iter().rev()).map(|frame| profile.location(frame)).collect()
        });
        let mut labels = vec![("process", labels::process(trace, process, Ids::Shown))];
        if let Some(thread) = thread {
            labels.push(("thread", labels::thread(trace, thread, Ids::Shown)));
        }
        profile.sample(locations, &sums, part.file.rank, &labels);
    }
}

/// The profile that is being built.
struct Pprof {
    fields: Proto,
    strings: FxHashMap<String, u64>,
    order: Vec<String>,
    functions: FxHashMap<(u64, u64), u64>,
    locations: FxHashMap<(u64, u32, u64), u64>,
    samples: u64,
}

impl Pprof {
    fn new() -> Pprof {
        let mut profile = Pprof {
            fields: Proto::default(),
            strings: FxHashMap::default(),
            order: Vec::new(),
            functions: FxHashMap::default(),
            locations: FxHashMap::default(),
            samples: 0,
        };
        // The format requires that the first string is empty.
        profile.string("");
        for (kind, unit) in VALUES {
            let (kind, unit) = (profile.string(kind), profile.string(unit));
            let open = profile.fields.open(field::SAMPLE_TYPE);
            profile.fields.uint(1, kind);
            profile.fields.uint(2, unit);
            profile.fields.close(open);
        }
        // Names are already resolved, so one mapping serves all locations.
        let open = profile.fields.open(field::MAPPING);
        profile.fields.uint(1, 1);
        for has in 7..=10 {
            profile.fields.uint(has, 1);
        }
        profile.fields.close(open);
        profile
    }

    fn string(&mut self, text: &str) -> u64 {
        if let Some(number) = self.strings.get(text) {
            return *number;
        }
        let number = self.order.len() as u64;
        self.strings.insert(text.to_owned(), number);
        self.order.push(text.to_owned());
        number
    }

    fn location(&mut self, frame: &Frame<'_>) -> u64 {
        let (name, file) = (self.string(&frame.function), self.string(frame.file));
        let next = self.functions.len() as u64 + 1;
        let function = *self.functions.entry((name, file)).or_insert(next);
        if function == next {
            let open = self.fields.open(field::FUNCTION);
            self.fields.uint(1, function);
            self.fields.uint(2, name);
            self.fields.uint(4, file);
            self.fields.close(open);
        }
        let next = self.locations.len() as u64 + 1;
        let key = (function, frame.line, frame.relative);
        let location = *self.locations.entry(key).or_insert(next);
        if location == next {
            let open = self.fields.open(field::LOCATION);
            self.fields.uint(1, location);
            self.fields.uint(2, 1);
            self.fields.uint(3, frame.relative);
            let line = self.fields.open(4);
            self.fields.uint(1, function);
            self.fields.uint(2, frame.line.into());
            self.fields.close(line);
            self.fields.close(open);
        }
        location
    }

    fn sample(
        &mut self,
        locations: &[u64],
        sums: &Sums,
        rank: Option<u32>,
        labels: &[(&str, String)],
    ) {
        self.samples += 1;
        let labels: Vec<(u64, u64)> =
            labels.iter().map(|(key, text)| (self.string(key), self.string(text))).collect();
        let rank = rank.map(|rank| (self.string("rank"), rank));
        let open = self.fields.open(field::SAMPLE);
        for location in locations {
            self.fields.uint(1, *location);
        }
        for value in sums {
            self.fields.int(2, value.round() as i64);
        }
        for (key, text) in labels {
            let label = self.fields.open(3);
            self.fields.uint(1, key);
            self.fields.uint(2, text);
            self.fields.close(label);
        }
        if let Some((key, rank)) = rank {
            let label = self.fields.open(3);
            self.fields.uint(1, key);
            self.fields.uint(3, rank.into());
            self.fields.close(label);
        }
        self.fields.close(open);
    }

    fn finish(mut self, unix_ns: u64) -> Proto {
        let comment = self.string(&format!("written by tprof {}", env!("CARGO_PKG_VERSION")));
        let default = self.string(VALUES[1].0);
        self.fields.uint(field::COMMENT, comment);
        self.fields.uint(field::DEFAULT_SAMPLE_TYPE, default);
        self.fields.uint(field::TIME_NANOS, unix_ns);
        self.fields.uint(field::DURATION_NANOS, 0);
        for text in &self.order {
            self.fields.text(field::STRING, text);
        }
        self.fields
    }
}
