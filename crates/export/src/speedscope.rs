//! Exports one JSON file for <https://www.speedscope.app>, with several profiles per thread.
//!
//! Host spans are one profile per thread, in order of time. Samples are another profile per thread,
//! and host allocations are one per process. If a thread is not on a core, its stack ends in a
//! frame that says what the thread waits for.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use tprof_facts::frames::Frames;
use tprof_facts::labels::{self, Ids};
use tprof_trace::RunDir;
use tprof_trace::model::*;

use crate::lanes::NestedLanes;
use crate::output::Output;
use crate::stacks::{self, represented_allocations};
use crate::text::Text;
use crate::{ExportError, OpenRank, Options, Selection, Written, kineto_names, paths};

/// Writes one file: `DIR/trace.speedscope.json`, or the file that the options name.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    options.without_max_bytes("speedscope")?;
    let selection = Selection::new(run, &options.slice, options.symbols)?;
    let default = || paths::default_directory(run).join("trace.speedscope.json");
    let path = options.output.clone().unwrap_or_else(default);
    Output::check(&path, options.force)?;
    let mut written = Written::default();
    let mut document = Speedscope::default();
    for file in &selection.files {
        let part = written.open_spans(&selection, file)?;
        let label = file.label.to_string();
        let before = written.events;
        spans(&part, &label, &mut document, &mut written);
        samples(&part, &label, &mut document, &mut written);
        heap(&part, &label, &mut document, &mut written);
        let all = part.trace.row_count::<Span>()
            + part.trace.row_count::<Sample>()
            + part.trace.heap_event_count();
        written.left_out += all.saturating_sub(written.events - before);
    }
    if document.profiles.is_empty() {
        return Err(match options.slice.is_all_time() {
            true => ExportError::Nothing {
                format: "speedscope",
                wants: "host spans, samples and host allocations",
            },
            false => ExportError::EmptySlice,
        });
    }
    paths::parent(&path)?;
    let mut output = Output::create(&path)?;
    let failed = |source| ExportError::Write { path: path.clone(), source };
    document.write(&mut output).map_err(failed)?;
    written.paths.extend(output.keep()?);
    Ok(written)
}

/// Frames, and profiles that refer to them.
#[derive(Default)]
struct Speedscope {
    frames: Vec<Value>,
    numbers: FxHashMap<(String, String, u32), u64>,
    /// Profiles as JSON, without their outer braces.
    profiles: Vec<Text>,
}

impl Speedscope {
    fn frame(&mut self, name: &str, file: &str, line: u32) -> u64 {
        let next = self.frames.len() as u64;
        let key = (name.to_owned(), file.to_owned(), line);
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            let mut frame = json!({ "name": if name.is_empty() { "(no name)" } else { name } });
            if !file.is_empty() {
                frame["file"] = file.into();
                frame["line"] = line.into();
            }
            self.frames.push(frame);
        }
        number
    }

    fn stack(
        &mut self,
        frames: &Frames<'_>,
        process: ProcessIndex,
        stack: StackId,
        waits: Option<&str>,
    ) -> String {
        let located = frames.of_stack(process, stack);
        let mut numbers: Vec<String> = located
            .iter()
            .map(|found| self.frame(&found.function, found.file, found.line).to_string())
            .collect();
        if let Some(waits) = waits {
            numbers.push(self.frame(waits, "", 0).to_string());
        }
        numbers.join(",")
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",")?;
        write!(to, "\"exporter\":\"tprof {}\",", env!("CARGO_PKG_VERSION"))?;
        to.write_all(b"\"activeProfileIndex\":0,\"shared\":{\"frames\":")?;
        serde_json::to_writer(&mut *to, &self.frames)?;
        to.write_all(b"},\"profiles\":[")?;
        for (at, profile) in self.profiles.iter().enumerate() {
            to.write_all(if at > 0 { b",\n{" } else { b"\n{" })?;
            to.write_all(profile.bytes())?;
            to.write_all(b"}")?;
        }
        to.write_all(b"]}\n")
    }
}

/// Begins a profile's JSON with its name, unit and extent.
fn head(kind: &str, name: &str, unit: &str, (start, end): (u64, u64)) -> Text {
    let mut text = Text::default();
    text.raw(&format!("\"type\":\"{kind}\",\"name\":"));
    text.string(name);
    text.raw(&format!(",\"unit\":\"{unit}\",\"startValue\":{start},\"endValue\":{end}"));
    text
}

/// The spans of one lane, which become one profile.
#[derive(Default)]
struct ThreadLane {
    events: Text,
    open: Vec<(u64, u64)>,
    first_ns: Option<u64>,
    last_ns: u64,
}

impl ThreadLane {
    fn event(&mut self, kind: &str, frame: u64, at_ns: u64) {
        self.events.raw(if self.events.bytes().is_empty() {
            "{\"type\":\""
        } else {
            ",{\"type\":\""
        });
        self.events.raw(kind);
        self.events.raw("\",\"frame\":");
        self.events.uint(frame);
        self.events.raw(",\"at\":");
        self.events.uint(at_ns);
        self.events.raw("}");
        self.first_ns.get_or_insert(at_ns);
        self.last_ns = self.last_ns.max(at_ns);
    }

    fn close_until(&mut self, time_ns: u64) {
        while let Some((end_ns, frame)) = self.open.pop_if(|open| open.0 <= time_ns) {
            self.event("C", frame, end_ns);
        }
    }
}

fn spans(part: &OpenRank<'_>, label: &str, document: &mut Speedscope, written: &mut Written) {
    let trace = &part.trace;
    let mut lanes: BTreeMap<ThreadIndex, (NestedLanes, Vec<ThreadLane>)> = BTreeMap::new();
    for span in trace.in_order::<Span>(part.window.from_ns, part.window.to_ns).flatten() {
        written.events += 1;
        let start_ns = part.since_start(span.start_ns);
        let end_ns = part.since_start(span.start_ns.saturating_add(span.duration_ns));
        let (places, lanes) = lanes.entry(span.thread).or_default();
        let at = places.place(start_ns, end_ns);
        if at == lanes.len() {
            lanes.push(ThreadLane::default());
        }
        let frame = document.frame(trace.name(span.name), "", 0);
        lanes[at].close_until(start_ns);
        lanes[at].event("O", frame, start_ns);
        lanes[at].open.push((end_ns, frame));
    }
    for (thread, (_, lanes)) in lanes {
        for (at, mut lane) in lanes.into_iter().enumerate() {
            lane.close_until(u64::MAX);
            let extent = (lane.first_ns.unwrap_or(0), lane.last_ns);
            let further = if at > 0 { ", overlapping" } else { "" };
            let name = format!("{label}: {}{further}", labels::thread(trace, thread, Ids::Shown));
            let mut profile = head("evented", &name, "nanoseconds", extent);
            profile.raw(",\"events\":[");
            profile.append(&lane.events);
            profile.raw("]");
            document.profiles.push(profile);
        }
    }
}

/// The samples of a thread: a stack and a weight for each.
#[derive(Default)]
struct ThreadSamples {
    stacks: Text,
    weights: Text,
    sum: u64,
}

impl ThreadSamples {
    fn add(&mut self, stack: &str, weight: u64) {
        let comma = if self.stacks.bytes().is_empty() { "" } else { "," };
        self.stacks.raw(comma);
        self.stacks.raw("[");
        self.stacks.raw(stack);
        self.stacks.raw("]");
        self.weights.raw(comma);
        self.weights.uint(weight);
        self.sum = self.sum.saturating_add(weight);
    }

    fn into_profile(self, name: &str, unit: &str) -> Text {
        let mut profile = head("sampled", name, unit, (0, self.sum));
        profile.raw(",\"samples\":[");
        profile.append(&self.stacks);
        profile.raw("],\"weights\":[");
        profile.append(&self.weights);
        profile.raw("]");
        profile
    }
}

fn samples(part: &OpenRank<'_>, label: &str, document: &mut Speedscope, written: &mut Written) {
    let trace = &part.trace;
    let frames = Frames::new(trace);
    let mut stacks: FxHashMap<(ProcessIndex, StackId, ThreadState), String> = FxHashMap::default();
    let mut threads: BTreeMap<ThreadIndex, ThreadSamples> = BTreeMap::new();
    for sample in trace.in_order::<Sample>(part.window.from_ns, part.window.to_ns).flatten() {
        written.events += 1;
        let key = (sample.process, sample.stack, sample.state);
        let stack = stacks.entry(key).or_insert_with(|| {
            document.stack(
                &frames,
                sample.process,
                sample.stack,
                kineto_names::waiting(sample.state),
            )
        });
        threads.entry(sample.thread).or_default().add(stack, sample.weight_ns);
    }
    for (thread, sampled) in threads {
        let name = format!("{label}: {}, samples", labels::thread(trace, thread, Ids::Shown));
        document.profiles.push(sampled.into_profile(&name, "nanoseconds"));
    }
}

fn heap(part: &OpenRank<'_>, label: &str, document: &mut Speedscope, written: &mut Written) {
    let trace = &part.trace;
    let frames = Frames::new(trace);
    let intervals = stacks::intervals(trace);
    let mut sums: BTreeMap<(ProcessIndex, StackId), f64> = BTreeMap::new();
    for event in trace.heap_events().filter(|event| part.window.holds(event.time_ns)) {
        written.events += 1;
        if let HeapChange::Alloc { size, stack, .. } = event.what {
            let count = represented_allocations(size, intervals.get(&event.process).copied());
            *sums.entry((event.process, stack)).or_default() += count * size as f64;
        }
    }
    let mut processes: BTreeMap<ProcessIndex, ThreadSamples> = BTreeMap::new();
    for ((process, stack), bytes) in sums {
        let stack = document.stack(&frames, process, stack, None);
        processes.entry(process).or_default().add(&stack, bytes.round() as u64);
    }
    for (process, sampled) in processes {
        let estimate = if intervals.contains_key(&process) { " (estimate)" } else { "" };
        let process = labels::process(trace, process, Ids::Shown);
        let name = format!("{label}: {process}, allocated bytes{estimate}");
        document.profiles.push(sampled.into_profile(&name, "bytes"));
    }
}
