//! Writes rows of the large tables as events, with Kineto's keys.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use tprof_facts::copies;
use tprof_facts::frames::Frames;
use tprof_facts::labels::{self, Ids};
use tprof_trace::TraceFile;
use tprof_trace::model::*;

use super::occupancy::Multiprocessors;
use super::operators::OperatorIds;
use super::slice_tracks::SliceTracks;
use super::writer::Writer;
use crate::arrows::Arrows;
use crate::correlations::Correlations;
use crate::in_order::TimedRow;
use crate::text::Text;
use crate::{OpenRank, kineto_names};

/// An arrow from a launch has the correlation as its number, in the bits below this one. The bits
/// above contain the process index, because processes use the same correlations.
const PROCESS_SHIFT: u32 = 40;

/// Converts rows to events.
pub(super) struct Rows<'a> {
    trace: &'a TraceFile,
    imported: bool,
    frames: Frames<'a>,
    /// Call stacks that were written before, as text.
    stacks: FxHashMap<(ProcessIndex, StackId), Box<str>>,
    /// Correlations of work and waits in the slice. `launched` has those of launches that were
    /// written.
    work: Correlations,
    waits: Correlations,
    launched: Correlations,
    operators: OperatorIds,
    arrows: Arrows,
    places: SliceTracks,
    devices: FxHashMap<(ProcessIndex, u32), Multiprocessors>,
    objects: Objects,
}

impl<'a> Rows<'a> {
    pub fn new(part: &'a OpenRank<'_>, imported: bool) -> Rows<'a> {
        let trace = &part.trace;
        // An imported trace already has the values that its profiler computed for each kernel, or
        // has none. So compute no occupancy for it.
        let devices = trace.devices().iter().filter(|_| !imported);
        let devices = devices.filter_map(|device| {
            Some(((device.process, device.device), Multiprocessors::of(trace, device)?))
        });
        Rows {
            trace,
            imported,
            frames: Frames::new(trace),
            stacks: FxHashMap::default(),
            work: Correlations::of_work(trace, part.window),
            waits: Correlations::of_waits(trace, part.window),
            launched: Correlations::default(),
            operators: OperatorIds::of(trace, imported),
            arrows: Arrows::default(),
            places: SliceTracks::default(),
            devices: devices.collect(),
            objects: Objects::default(),
        }
    }

    /// Writes one row, and the arrow that begins or ends at it.
    pub fn write<W: Write>(
        &mut self,
        event: TimedRow<'_>,
        to: &mut Writer<'_, W>,
    ) -> io::Result<()> {
        match event {
            TimedRow::Span(row) => self.span(row, to),
            TimedRow::Kernel(row) => self.kernel(row, to),
            TimedRow::Copy(row) => self.copy(row, to),
            TimedRow::Synchronization(row) => self.synchronization(row, to),
            TimedRow::DeviceSpan(row) => self.device_span(row, to),
            TimedRow::Collective(row) => self.collective(row, to),
            TimedRow::Allocation(row) => self.allocation(row, to),
            TimedRow::Flow(row) => self.flow(row, to),
            TimedRow::Sample(_) => Ok(()),
        }
    }

    /// Returns the number of slices that cross another slice on their thread or stream.
    pub fn crossing(&self) -> u64 {
        self.places.crossing()
    }

    /// Chooses the track of a slice on a thread.
    fn on_thread<W: Write>(
        &mut self,
        place: Box<str>,
        thread: ThreadIndex,
        interval: (u64, u64),
        to: &mut Writer<'_, W>,
    ) -> io::Result<Box<str>> {
        let label = || labels::thread(self.trace, thread, Ids::Shown);
        self.places.of_slice(place, label, interval, to)
    }

    /// Chooses the track of a slice on a stream.
    fn on_stream<W: Write>(
        &mut self,
        device: u32,
        stream: Option<u64>,
        interval: (u64, u64),
        to: &mut Writer<'_, W>,
    ) -> io::Result<Box<str>> {
        let label = || match stream {
            Some(stream) => format!("stream {stream}"),
            None => "no stream".to_owned(),
        };
        self.places.of_slice(on_device(device, stream), label, interval, to)
    }

    /// Writes a span ahead of spans that begin earlier. The tracks forget the span, so it does not
    /// affect how later spans nest.
    pub fn write_out_of_order<W: Write>(
        &mut self,
        row: &Span,
        to: &mut Writer<'_, W>,
    ) -> io::Result<()> {
        self.span(row, to)?;
        self.places = SliceTracks::default();
        Ok(())
    }

    fn span<W: Write>(&mut self, row: &Span, to: &mut Writer<'_, W>) -> io::Result<()> {
        let trace = self.trace;
        let category = match (trace.name(row.category), kineto_names::of_span(row.kind)) {
            // The domain of an NVTX range is written as an argument, because it is not a category.
            (category, None) => category,
            ("", Some(implied)) => implied,
            (_, Some("nvtx")) => "nvtx",
            (category, Some(_)) => category,
        };
        let stack = self.stack(row);
        // A profiler's own spans belong to a made-up "process", and each to a made-up "thread" with
        // its name.
        let own = category == "Trace" && self.imported;
        let place = match own {
            true => {
                let thread = trace.thread_name(row.thread).unwrap_or("PyTorch Profiler");
                format!("\"pid\":\"Spans\",\"tid\":{}", serde_json::Value::from(thread)).into()
            }
            false => to.thread(row.thread),
        };
        let place = self.on_thread(place, row.thread, (row.start_ns, row.duration_ns), to)?;
        let (start_ns, name) = (to.at(row.start_ns), trace.name(row.name));
        let has_work = row.correlation.is_some_and(|correlation| {
            self.work.holds(row.process, correlation) || self.waits.holds(row.process, correlation)
        });
        let external = self.operators.span(row, has_work);
        to.event(|text| {
            complete(text, category, name, &place, (start_ns, row.duration_ns));
            let mut args = EventArgs::begin(text);
            args.number("External id", external);
            args.number("correlation", row.correlation);
            if row.kind == SpanKind::Python {
                args.number("Python id", row.id);
                args.number("Python parent id", row.parent);
            } else {
                args.number("Ev Idx", row.id);
            }
            args.number("Sequence number", row.sequence);
            args.number("Fwd thread id", row.forward_thread);
            args.number("status", row.status.filter(|status| *status != 0).map(u64::from));
            if row.kind == SpanKind::Nvtx {
                args.string("domain", trace.name(row.category));
            }
            args.string("Call stack", &stack);
            args.object(self.objects.inner(trace, row.args));
        })?;
        if let Some(correlation) = row.correlation.filter(|_| has_work) {
            self.launched.insert(row.process, correlation);
            arrow(to, "s", row.process, correlation, &place, start_ns)?;
        }
        Ok(())
    }

    /// Formats a stack as `file(line): function`, innermost first, as `with_stack=True` does.
    fn stack(&mut self, row: &Span) -> Box<str> {
        if row.stack == 0 {
            return "".into();
        }
        let frames = &self.frames;
        let known = self.stacks.entry((row.process, row.stack)).or_insert_with(|| {
            let located = frames.of_stack(row.process, row.stack);
            let lines = located.iter().rev().map(|frame| match frame.file {
                "" => frame.function.to_string(),
                file => format!("{file}({}): {}", frame.line, frame.function),
            });
            lines.collect::<Vec<_>>().join(";").into()
        });
        known.clone()
    }

    fn kernel<W: Write>(&mut self, row: &Kernel, to: &mut Writer<'_, W>) -> io::Result<()> {
        let trace = self.trace;
        let interval = (row.start_ns, row.duration_ns);
        let place = self.on_stream(row.device, Some(row.stream), interval, to)?;
        let (start_ns, name) = (to.at(row.start_ns), trace.name(row.name));
        let call = (row.correlation, row.external);
        let external = self.operators.work(row.process, call, row.graph.is_some());
        let load = self.devices.get(&(row.process, row.device)).and_then(|of| of.load(row));
        to.event(|text| {
            complete(text, "kernel", name, &place, (start_ns, row.duration_ns));
            let mut args = EventArgs::begin(text);
            args.number("External id", external);
            args.number("device", Some(row.device.into()));
            args.number("context", (row.context > 0).then_some(row.context.into()));
            args.number("stream", Some(row.stream));
            args.number("correlation", row.correlation);
            args.number("registers per thread", row.registers.map(u64::from));
            let shared = [row.shared_static_bytes, row.shared_dynamic_bytes];
            let known = shared.iter().any(Option::is_some);
            let sum = shared.into_iter().flatten().map(u64::from).sum();
            args.number("shared memory", known.then_some(sum));
            args.millionths("blocks per SM", load.map(|load| load.blocks));
            args.millionths("warps per SM", load.map(|load| load.warps));
            args.sizes("grid", row.grid);
            args.sizes("block", row.block);
            args.number("est. achieved occupancy %", load.and_then(|load| load.occupancy));
            args.number("graph id", row.graph.map(u64::from));
            args.number("graph node id", row.graph_node);
            args.object(self.objects.inner(trace, row.args));
        })?;
        self.arrive(row.process, row.correlation, &place, start_ns, to)
    }

    fn copy<W: Write>(&mut self, row: &MemoryCopy, to: &mut Writer<'_, W>) -> io::Result<()> {
        let trace = self.trace;
        let name = copies::name(trace, row);
        let interval = (row.start_ns, row.duration_ns);
        let place = self.on_stream(row.device, Some(row.stream), interval, to)?;
        let start_ns = to.at(row.start_ns);
        let call = (row.correlation, row.external);
        let external = self.operators.work(row.process, call, row.graph.is_some());
        to.event(|text| {
            complete(
                text,
                kineto_names::of_copy(row.kind),
                &name,
                &place,
                (start_ns, row.duration_ns),
            );
            let mut args = EventArgs::begin(text);
            args.number("External id", external);
            args.number("device", Some(row.device.into()));
            args.number("context", (row.context > 0).then_some(row.context.into()));
            args.number("stream", Some(row.stream));
            args.number("correlation", row.correlation);
            args.number("bytes", row.bytes);
            args.number("graph id", row.graph.map(u64::from));
            args.number("graph node id", row.graph_node);
            args.object(self.objects.inner(trace, row.args));
        })?;
        self.arrive(row.process, row.correlation, &place, start_ns, to)
    }

    fn synchronization<W: Write>(
        &mut self,
        row: &Synchronization,
        to: &mut Writer<'_, W>,
    ) -> io::Result<()> {
        let trace = self.trace;
        let name = match trace.name(row.name) {
            "" => kineto_names::sync_name(row.kind),
            name => name,
        };
        let interval = (row.start_ns, row.duration_ns);
        let place = self.on_stream(row.device.unwrap_or(0), row.stream, interval, to)?;
        let start_ns = to.at(row.start_ns);
        let external = self.operators.work(row.process, (row.correlation, row.external), false);
        to.event(|text| {
            complete(text, "cuda_sync", name, &place, (start_ns, row.duration_ns));
            let others = trace.name(row.args);
            let mut args = EventArgs::begin(text);
            if !others.contains("\"cuda_sync_kind\"") {
                args.string("cuda_sync_kind", name);
            }
            args.number("External id", external);
            args.number("device", row.device.map(u64::from));
            args.number("context", (row.context > 0).then_some(row.context.into()));
            args.number("stream", row.stream);
            args.number("correlation", row.correlation);
            args.number("wait_on_stream", row.event_stream);
            args.number("wait_on_cuda_event_id", row.event);
            args.number("wait_on_cuda_event_record_corr_id", row.event_correlation);
            args.object(self.objects.inner(trace, row.args));
        })?;
        self.arrive(row.process, row.correlation, &place, start_ns, to)
    }

    fn device_span<W: Write>(
        &mut self,
        row: &DeviceSpan,
        to: &mut Writer<'_, W>,
    ) -> io::Result<()> {
        let trace = self.trace;
        let category =
            kineto_names::of_device_span(row.kind).unwrap_or_else(|| trace.name(row.category));
        let interval = (row.start_ns, row.duration_ns);
        let place = self.on_stream(row.device, row.stream, interval, to)?;
        let (start_ns, name) = (to.at(row.start_ns), trace.name(row.name));
        to.event(|text| {
            complete(text, category, name, &place, (start_ns, row.duration_ns));
            let mut args = EventArgs::begin(text);
            args.number("External id", row.external);
            args.number("correlation", row.correlation);
            args.object(self.objects.inner(trace, row.args));
        })
    }

    /// Writes a collective's call as an operator. An imported trace already has the operator.
    fn collective<W: Write>(&mut self, row: &Collective, to: &mut Writer<'_, W>) -> io::Result<()> {
        let (Some(thread), Some(duration_ns), false) = (row.thread, row.duration_ns, self.imported)
        else {
            return Ok(());
        };
        let trace = self.trace;
        let interval = (row.start_ns, duration_ns);
        let place = self.on_thread(to.thread(thread), thread, interval, to)?;
        let start_ns = to.at(row.start_ns);
        let group = row.communicator.and_then(|of| trace.communicator(row.process, of));
        to.event(|text| {
            complete(text, "cpu_op", "record_param_comms", &place, (start_ns, duration_ns));
            let mut args = EventArgs::begin(text);
            args.string("Collective name", trace.name(row.name));
            args.string("dtype", trace.name(row.element_type));
            args.number("In msg nelems", row.elements_in);
            args.number("Out msg nelems", row.elements_out);
            args.number("Group size", row.group_size.map(u64::from));
            args.number("Seq", row.sequence);
            for (key, name) in [("Algorithm", row.algorithm), ("Protocol", row.protocol)] {
                if let Some(name) = name {
                    args.string(key, trace.name(name));
                }
            }
            args.number("Channels", row.channels.map(u64::from));
            if let Some(group) = group {
                args.string("Process Group Name", trace.name(group.name));
                args.string("Process Group Description", trace.name(group.description));
                let ranks = group.ranks.iter().map(u64::to_string).collect::<Vec<_>>();
                args.string("Process Group Ranks", &format!("[{}]", ranks.join(", ")));
            }
        })
    }

    fn allocation<W: Write>(
        &mut self,
        row: &DeviceAllocation,
        to: &mut Writer<'_, W>,
    ) -> io::Result<()> {
        let (place, time_ns) = (to.thread(row.thread), to.at(row.time_ns));
        let (category, name) = match (row.allocator, row.free) {
            (Allocator::Framework, _) => ("cpu_instant_event", "[memory]"),
            (Allocator::Library, false) => ("device_memory", "device allocation"),
            (Allocator::Library, true) if row.address == 0 => ("device_memory", "device reset"),
            (Allocator::Library, true) => ("device_memory", "device free"),
            (Allocator::Pool, false) => ("device_memory", "allocation from a pool"),
            (Allocator::Pool, true) => ("device_memory", "free to a pool"),
            (Allocator::Virtual, false) => ("device_memory", "physical memory created"),
            (Allocator::Virtual, true) => ("device_memory", "physical memory released"),
            (Allocator::Imported, false) => ("device_memory", "memory of another process opened"),
            (Allocator::Imported, true) => ("device_memory", "memory of another process closed"),
            (Allocator::Registered, false) => ("device_memory", "host memory pinned"),
            (Allocator::Registered, true) => ("device_memory", "host memory unpinned"),
        };
        to.event(|text| {
            text.raw("\"ph\":\"i\",\"s\":\"t\",\"cat\":\"");
            text.raw(category);
            text.raw("\",\"name\":\"");
            text.raw(name);
            text.raw("\",");
            text.raw(&place);
            text.raw(",\"ts\":");
            text.micros(time_ns);
            let mut args = EventArgs::begin(text);
            // PyTorch's device types: 0 is the host, 1 is CUDA.
            args.number("Device Type", Some(row.device.is_some().into()));
            match row.device {
                Some(device) => args.number("Device Id", Some(device.into())),
                None => args.raw("Device Id", "-1"),
            }
            args.number("Addr", row.is_placed().then_some(row.address));
            match row.bytes {
                Some(bytes) if row.free => args.raw("Bytes", &format!("-{bytes}")),
                bytes => args.number("Bytes", bytes),
            }
            args.number("Total Allocated", row.total_allocated_bytes);
            args.number("Total Reserved", row.total_reserved_bytes);
            args.number("External id", row.external);
        })
    }

    fn flow<W: Write>(&mut self, row: &FlowPoint, to: &mut Writer<'_, W>) -> io::Result<()> {
        let trace = self.trace;
        let place = match (row.thread, row.device) {
            (Some(thread), _) => to.thread(thread),
            (None, Some(device)) => on_device(device, row.stream),
            (None, None) => return Ok(()),
        };
        let place = self.places.of_point(place, row.time_ns);
        let time_ns = to.at(row.time_ns);
        // All ends of one start share its number, as the format requires. A later message with the
        // same id gets a number that a double can represent exactly.
        let lines = self.arrows.point(row);
        let id = match lines.message {
            0 => row.id,
            _ => lines.number(row.id, 0) >> 11,
        };
        to.event(|text| {
            text.raw(match row.end {
                FlowEnd::Start => "\"ph\":\"s\"",
                FlowEnd::Step => "\"ph\":\"t\"",
                FlowEnd::End => "\"ph\":\"f\",\"bp\":\"e\"",
            });
            text.raw(",\"id\":");
            text.uint(id);
            text.raw(",");
            text.raw(&place);
            text.raw(",\"ts\":");
            text.micros(time_ns);
            text.raw(",\"cat\":");
            text.string(trace.name(row.category));
            text.raw(",\"name\":");
            text.string(trace.name(row.name));
        })
    }

    /// Writes the end of the arrow from a launch, if the launch was written.
    fn arrive<W: Write>(
        &mut self,
        process: ProcessIndex,
        correlation: Option<u64>,
        place: &str,
        time_ns: u64,
        to: &mut Writer<'_, W>,
    ) -> io::Result<()> {
        match correlation {
            Some(correlation) if self.launched.holds(process, correlation) => {
                arrow(to, "f", process, correlation, place, time_ns)
            }
            _ => Ok(()),
        }
    }
}

/// Writes the beginning of a span, up to its arguments.
fn complete(
    text: &mut Text,
    category: &str,
    name: &str,
    place: &str,
    (start_ns, duration_ns): (u64, u64),
) {
    text.raw("\"ph\":\"X\",\"cat\":");
    text.string(category);
    text.raw(",\"name\":");
    text.string(name);
    text.raw(",");
    text.raw(place);
    text.raw(",\"ts\":");
    text.micros(start_ns);
    text.raw(",\"dur\":");
    text.micros(duration_ns);
}

/// Returns the place of a stream. As in Kineto's traces, the device is the `pid`, and the stream is
/// the `tid`, or -1 if there is no stream.
fn on_device(device: u32, stream: Option<u64>) -> Box<str> {
    match stream {
        Some(stream) => format!("\"pid\":{device},\"tid\":{stream}").into(),
        None => format!("\"pid\":{device},\"tid\":-1").into(),
    }
}

fn arrow<W: Write>(
    to: &mut Writer<'_, W>,
    phase: &str,
    process: ProcessIndex,
    correlation: u64,
    place: &str,
    time_ns: u64,
) -> io::Result<()> {
    to.event(|text| {
        text.raw("\"ph\":\"");
        text.raw(phase);
        text.raw("\",\"id\":");
        text.uint(correlation ^ u64::from(process) << PROCESS_SHIFT);
        text.raw(",");
        text.raw(place);
        text.raw(",\"ts\":");
        text.micros(time_ns);
        text.raw(",\"cat\":\"ac2g\",\"name\":\"ac2g\"");
        if phase == "f" {
            text.raw(",\"bp\":\"e\"");
        }
    })
}

/// Caches arguments that the trace stores as JSON objects. In a damaged file, they may be something
/// else.
#[derive(Default)]
struct Objects {
    sound: FxHashMap<NameId, bool>,
}

impl Objects {
    /// Returns the text between an object's braces; empty if it is not an object.
    fn inner<'t>(&mut self, trace: &'t TraceFile, object: NameId) -> &'t str {
        let json = trace.name(object);
        let Some(inner) = json.strip_prefix('{').and_then(|json| json.strip_suffix('}')) else {
            return "";
        };
        let is_sound = || serde_json::from_str::<serde::de::IgnoredAny>(json).is_ok();
        match *self.sound.entry(object).or_insert_with(is_sound) {
            true => inner.trim(),
            false => "",
        }
    }
}

/// Writes the arguments of an event one by one. Dropping this value writes the closing brace.
struct EventArgs<'t> {
    text: &'t mut Text,
    first: bool,
}

impl<'t> EventArgs<'t> {
    fn begin(text: &'t mut Text) -> EventArgs<'t> {
        text.raw(",\"args\":{");
        EventArgs { text, first: true }
    }

    fn key(&mut self, key: &str) {
        self.text.raw(if self.first { "\"" } else { ",\"" });
        self.first = false;
        self.text.raw(key);
        self.text.raw("\":");
    }

    fn number(&mut self, key: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.key(key);
            self.text.uint(value);
        }
    }

    /// Writes a number with at most six decimal places.
    fn millionths(&mut self, key: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.key(key);
            self.text.float((value * 1e6).round() / 1e6);
        }
    }

    fn raw(&mut self, key: &str, value: &str) {
        self.key(key);
        self.text.raw(value);
    }

    fn string(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.key(key);
            self.text.string(value);
        }
    }

    fn sizes(&mut self, key: &str, value: [u32; 3]) {
        if value != [0; 3] {
            let [x, y, z] = value;
            self.raw(key, &format!("[{x},{y},{z}]"));
        }
    }

    /// Writes the members of an object, which are already JSON.
    fn object(&mut self, members: &str) {
        if !members.is_empty() {
            self.text.raw(if self.first { "" } else { "," });
            self.first = false;
            self.text.raw(members);
        }
    }
}

impl Drop for EventArgs<'_> {
    fn drop(&mut self) {
        self.text.raw("}");
    }
}
