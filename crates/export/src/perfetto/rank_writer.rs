//! Writes the events of one rank as packets, in order of time.
//!
//! A slice is written as a beginning and an end. Ends wait in a heap until their time, so that
//! times in a sequence never decrease and their differences stay small. Beginnings wait until all
//! rows of their moment have been read, so that an arrow's end at that moment can be added to them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;
use tprof_facts::copies;
use tprof_trace::hash::joined;
use tprof_trace::model::*;

use super::args::{self, Args};
use super::fields::{event, interned, packet, sample};
use super::interned::Interned;
use super::packet_writer::{Clock, PacketWriter, Sequence};
use super::tracks::{Shared, TrackRow, Tracks};
use crate::arrows::Arrows;
use crate::collectives::{TimedCollective, shared_id};
use crate::correlations::Correlations;
use crate::proto::Proto;
use crate::{OpenRank, kineto_names};

/// Number of low bits of an arrow's id that contain its own number. The bits above contain the base
/// of its kind.
const FLOW_BITS: u32 = 40;

/// Kinds of arrows. Each kind is numbered separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FlowKind {
    /// Arrows from the launches of a process to their work.
    Launches(ProcessIndex),
    /// Arrows that the trace contains, by category and name.
    Category(NameId, NameId),
}

/// A slice or an instant that begins at the current moment.
#[derive(Default)]
struct OpenEvent {
    track: u64,
    /// Whether the event ends when it begins.
    is_empty: bool,
    fields: Proto,
}

/// State while one rank is written into the trace.
pub(super) struct RankWriter<'a, 's, W: Write> {
    pub part: &'a OpenRank<'a>,
    clock: Clock,
    pub out: PacketWriter<W>,
    pub shared: &'s mut Shared,
    pub tracks: Tracks<'a>,
    names: Interned<'a>,
    sequence: Sequence,
    args: Args,
    /// Slices that begin at the current moment. Only the first `count` are valid; the others are
    /// kept to reuse their memory.
    begun: Vec<OpenEvent>,
    count: usize,
    now_ns: u64,
    ends: BinaryHeap<Reverse<(u64, u64)>>,
    /// Correlations of work on devices. `waits` has those of waits for devices, and `launched`
    /// those of launches that were written.
    work: Correlations,
    waits: Correlations,
    launched: Correlations,
    /// For launches with several pieces of work, the number of arrows that have ended.
    arrived: FxHashMap<(ProcessIndex, u64), u64>,
    /// The base number of each kind of arrow.
    bases: FxHashMap<FlowKind, u64>,
    arrows: Arrows,
}

impl<'a, 's, W: Write> RankWriter<'a, 's, W> {
    pub fn new(
        part: &'a OpenRank<'a>,
        mut out: PacketWriter<W>,
        shared: &'s mut Shared,
        (label, sort): (String, u64),
        (id, clock): (u64, Clock),
    ) -> io::Result<RankWriter<'a, 's, W>> {
        let sequence = Sequence::begin(id, clock, &mut out)?;
        Ok(RankWriter {
            part,
            clock,
            out,
            shared,
            tracks: Tracks::new(&part.trace, label, sort),
            names: Interned::new(&part.trace),
            sequence,
            args: Args::default(),
            begun: Vec::new(),
            count: 0,
            now_ns: 0,
            ends: BinaryHeap::new(),
            work: Correlations::of_work(&part.trace, part.window),
            waits: Correlations::of_waits(&part.trace, part.window),
            launched: Correlations::default(),
            arrived: FxHashMap::default(),
            bases: FxHashMap::default(),
            arrows: Arrows::of(&part.trace, part.window),
        })
    }

    /// Returns a time on the trace's clock.
    pub fn at(&self, time_ns: u64) -> u64 {
        let since_start_ns = self.part.clock.signed_since_start(time_ns);
        since_start_ns.saturating_add_unsigned(self.clock.zero_ns).max(0) as u64
    }

    pub fn span(&mut self, row: &Span) -> io::Result<()> {
        let trace = &self.part.trace;
        let category = match kineto_names::of_span(row.kind) {
            Some(category) => Some(self.names.fixed(interned::CATEGORIES, category)),
            None => self.names.category(row.category),
        };
        let name = self.names.event(row.name, "(no name)");
        let place = TrackRow::Thread(row.thread);
        let (names, to) = self.begin(place, row.start_ns, row.duration_ns, name, category)?;
        args::number("correlation", row.correlation, names, to);
        args::number("external id", row.external, names, to);
        args::number("sequence number", row.sequence, names, to);
        args::number("forward thread", row.forward_thread, names, to);
        args::number("status", row.status.filter(|s| *s != 0).map(u64::from), names, to);
        if row.kind == SpanKind::Nvtx {
            args::text("domain", trace.name(row.category), names, to);
        }
        self.args(row.args);
        if let Some(correlation) = row.correlation
            && (self.work.holds(row.process, correlation)
                || self.waits.holds(row.process, correlation))
        {
            // The first call with a correlation begins an arrow to each piece of its work, because
            // a launched graph has several. A second call with the same correlation begins only one
            // arrow.
            let is_first = !self.launched.holds(row.process, correlation);
            let pieces = self.pieces(row.process, correlation);
            self.launched.insert(row.process, correlation);
            for line in 0..if is_first { pieces } else { 1 } {
                self.flow(row.process, correlation, line);
            }
        }
        Ok(())
    }

    /// Returns the span's correlation if the span started work on a device that is in the slice.
    pub fn starts_work(&self, row: &Span) -> Option<u64> {
        row.correlation.filter(|correlation| self.work.holds(row.process, *correlation))
    }

    pub fn kernel(&mut self, row: &Kernel) -> io::Result<()> {
        let category = Some(self.names.fixed(interned::CATEGORIES, "kernel"));
        let name = self.names.event(row.name, "(no name)");
        let place = TrackRow::Stream(row.process, row.device, row.stream);
        let (names, to) = self.begin(place, row.start_ns, row.duration_ns, name, category)?;
        args::number("correlation", row.correlation, names, to);
        args::number("external id", row.external, names, to);
        args::sizes("grid", row.grid, names, to);
        args::sizes("block", row.block, names, to);
        args::number("registers per thread", row.registers.map(u64::from), names, to);
        let memory = [row.shared_static_bytes, row.shared_dynamic_bytes];
        args::number("static shared memory", memory[0].map(u64::from), names, to);
        args::number("dynamic shared memory", memory[1].map(u64::from), names, to);
        args::number("graph", row.graph.map(u64::from), names, to);
        args::number("graph node", row.graph_node, names, to);
        self.args(row.args);
        self.arrive(row.process, row.correlation);
        Ok(())
    }

    pub fn copy(&mut self, row: &MemoryCopy) -> io::Result<()> {
        let category =
            Some(self.names.fixed(interned::CATEGORIES, kineto_names::of_copy(row.kind)));
        let name = match row.name.0 {
            0 => self.names.text(interned::EVENT_NAMES, &copies::name(&self.part.trace, row)),
            _ => self.names.event(row.name, "(no name)"),
        };
        let place = TrackRow::Stream(row.process, row.device, row.stream);
        let (names, to) = self.begin(place, row.start_ns, row.duration_ns, name, category)?;
        args::number("bytes", row.bytes, names, to);
        args::number("correlation", row.correlation, names, to);
        args::number("external id", row.external, names, to);
        args::number("peer", row.peer.map(u64::from), names, to);
        args::number("graph", row.graph.map(u64::from), names, to);
        args::number("graph node", row.graph_node, names, to);
        self.args(row.args);
        self.arrive(row.process, row.correlation);
        Ok(())
    }

    pub fn synchronization(&mut self, row: &Synchronization) -> io::Result<()> {
        let category = Some(self.names.fixed(interned::CATEGORIES, "cuda_sync"));
        let name = self.names.event(row.name, kineto_names::sync_name(row.kind));
        let place = TrackRow::Waits(row.process, row.device, row.stream);
        let (names, to) = self.begin(place, row.start_ns, row.duration_ns, name, category)?;
        args::number("correlation", row.correlation, names, to);
        args::number("external id", row.external, names, to);
        args::number("event", row.event, names, to);
        args::number("event stream", row.event_stream, names, to);
        args::number("event correlation", row.event_correlation, names, to);
        self.args(row.args);
        self.arrive(row.process, row.correlation);
        Ok(())
    }

    pub fn device_span(&mut self, row: &DeviceSpan) -> io::Result<()> {
        let category = match kineto_names::of_device_span(row.kind) {
            Some(category) => Some(self.names.fixed(interned::CATEGORIES, category)),
            None => self.names.category(row.category),
        };
        let name = self.names.event(row.name, "(no name)");
        let place = TrackRow::Ranges(row.process, row.device, row.stream);
        let (names, to) = self.begin(place, row.start_ns, row.duration_ns, name, category)?;
        args::number("external id", row.external, names, to);
        args::number("correlation", row.correlation, names, to);
        self.args(row.args);
        Ok(())
    }

    /// Writes a collective as a slice over the time of its kernel.
    pub fn collective(&mut self, found: &TimedCollective) -> io::Result<()> {
        let TimedCollective { row, start_ns, end_ns } = *found;
        let trace = &self.part.trace;
        let category = Some(self.names.fixed(interned::CATEGORIES, "collective"));
        let name = self.names.event(row.name, "collective");
        let place = TrackRow::Communicator(row.process, row.communicator);
        let (names, to) = self.begin(place, start_ns, end_ns - start_ns, name, category)?;
        args::number("sequence", row.sequence, names, to);
        args::number("bytes", row.bytes, names, to);
        args::number("elements in", row.elements_in, names, to);
        args::number("elements out", row.elements_out, names, to);
        args::text("element type", trace.name(row.element_type), names, to);
        args::number("group size", row.group_size.map(u64::from), names, to);
        args::number("peer", row.peer.map(u64::from), names, to);
        args::number("stream", row.stream, names, to);
        args::number("correlation", row.correlation, names, to);
        for (key, name) in [("algorithm", row.algorithm), ("protocol", row.protocol)] {
            args::text(key, name.map_or("", |name| trace.name(name)), names, to);
        }
        args::number("channels", row.channels.map(u64::from), names, to);
        if let Some(id) = shared_id(trace, &row) {
            self.begun[self.count - 1].fields.fixed64(event::FLOW, id);
        }
        Ok(())
    }

    /// Writes one end of an arrow. It is added to the innermost slice that begins at its moment. If
    /// none begins there, a mark is written for it.
    pub fn flow_point(&mut self, row: &FlowPoint) -> io::Result<()> {
        let Some(place) = place_of(row) else { return Ok(()) };
        let time_ns = self.at(row.time_ns);
        if time_ns != self.now_ns {
            self.moment(time_ns)?;
        }
        let track = self.tracks.place(place, (time_ns, time_ns), self.shared, &mut self.out)?;
        let found = self.begun[..self.count].iter().rposition(|begun| begun.track == track);
        let at = match found {
            Some(at) => at,
            None => {
                let name = self.names.event(row.name, "arrow");
                self.start(track, event::INSTANT, name, None);
                self.count - 1
            }
        };
        let lines = self.arrows.point(row);
        for line in lines.lines.clone() {
            let id = self
                .flow_id(FlowKind::Category(row.category, row.name), lines.number(row.id, line));
            self.begun[at].fields.fixed64(event::FLOW, id);
        }
        Ok(())
    }

    pub fn sample(&mut self, row: &Sample) -> io::Result<()> {
        let time_ns = self.at(row.time_ns);
        if time_ns != self.now_ns {
            self.moment(time_ns)?;
        }
        let trace = &self.part.trace;
        let stack = self.names.stack(row.process, row.stack, row.state);
        let tid = trace.thread(row.thread).map_or(0, |thread| thread.tid);
        let (_, pid) = self.tracks.process(row.process, self.shared, &mut self.out)?;
        self.names()?;
        let sequence = &mut self.sequence;
        self.out.packet(|fields| {
            sequence.at(time_ns, fields);
            let open = fields.open(packet::PERF_SAMPLE);
            if let Some(cpu) = row.cpu {
                fields.uint(sample::CPU, cpu.into());
            }
            fields.uint(sample::PID, pid.into());
            fields.uint(sample::TID, tid.into());
            fields.uint(sample::MODE, sample::USER);
            fields.uint(sample::COUNT, row.weight_ns);
            if let Some(stack) = stack {
                fields.uint(sample::STACK, stack);
            }
            fields.close(open);
        })
    }

    /// Writes a point of a curve in the sequence of events, so its time must not be earlier than
    /// theirs.
    pub fn point(&mut self, track: u64, time_ns: u64, value: i64) -> io::Result<()> {
        let time_ns = self.at(time_ns);
        if time_ns != self.now_ns {
            self.moment(time_ns)?;
        }
        let sequence = &mut self.sequence;
        self.out.packet(|fields| {
            sequence.at(time_ns, fields);
            let open = fields.open(packet::TRACK_EVENT);
            fields.uint(event::TYPE, event::POINT);
            fields.uint(event::TRACK, track);
            fields.int(event::COUNTER, value);
            fields.close(open);
        })
    }

    /// Writes all pending events, because the rank has ended.
    pub fn finish(mut self) -> io::Result<PacketWriter<W>> {
        self.moment(u64::MAX)?;
        Ok(self.out)
    }

    /// Begins a slice. Returns the fields to which the caller adds arguments.
    fn begin(
        &mut self,
        row: TrackRow,
        start_ns: u64,
        duration_ns: u64,
        name: u64,
        category: Option<u64>,
    ) -> io::Result<(&mut Interned<'a>, &mut Proto)> {
        let end_ns = self.at(start_ns.saturating_add(duration_ns));
        let start_ns = self.at(start_ns);
        if start_ns != self.now_ns {
            self.moment(start_ns)?;
        }
        let track = self.tracks.place(row, (start_ns, end_ns), self.shared, &mut self.out)?;
        self.start(track, event::BEGIN, name, category);
        if end_ns > start_ns {
            self.ends.push(Reverse((end_ns, track)));
        } else {
            self.begun[self.count - 1].is_empty = true;
        }
        Ok((&mut self.names, &mut self.begun[self.count - 1].fields))
    }

    fn start(&mut self, track: u64, kind: u64, name: u64, category: Option<u64>) {
        if self.count == self.begun.len() {
            self.begun.push(OpenEvent::default());
        }
        let begun = &mut self.begun[self.count];
        self.count += 1;
        begun.track = track;
        begun.is_empty = false;
        let fields = &mut begun.fields;
        fields.clear();
        fields.uint(event::TYPE, kind);
        fields.uint(event::TRACK, track);
        fields.uint(event::NAME_IID, name);
        if let Some(category) = category {
            fields.uint(event::CATEGORY_IID, category);
        }
    }

    fn args(&mut self, object: NameId) {
        let text = self.part.trace.name(object);
        let to = &mut self.begun[self.count - 1].fields;
        self.args.object(object, text, &mut self.names, to);
    }

    /// Adds the end of an arrow to the slice that was begun last, if the launch was written.
    fn arrive(&mut self, process: ProcessIndex, correlation: Option<u64>) {
        if let Some(correlation) = correlation
            && self.launched.holds(process, correlation)
        {
            let line = match self.pieces(process, correlation) {
                1 => 0,
                _ => {
                    let arrived = self.arrived.entry((process, correlation)).or_default();
                    *arrived += 1;
                    *arrived - 1
                }
            };
            self.flow(process, correlation, line);
        }
    }

    /// Returns the number of pieces of work and waits that a launch has.
    fn pieces(&self, process: ProcessIndex, correlation: u64) -> u64 {
        self.work.count(process, correlation) + self.waits.count(process, correlation)
    }

    fn flow(&mut self, process: ProcessIndex, correlation: u64, line: u64) {
        let number = match line {
            0 => correlation,
            _ => joined(&[correlation, line]),
        };
        let id = self.flow_id(FlowKind::Launches(process), number);
        self.begun[self.count - 1].fields.fixed64(event::FLOW, id);
    }

    fn flow_id(&mut self, of: FlowKind, number: u64) -> u64 {
        let shared = &mut *self.shared;
        let base = *self.bases.entry(of).or_insert_with(|| shared.flow_base());
        match number >> FLOW_BITS {
            0 => base << FLOW_BITS | number,
            _ => joined(&[base, number]) >> 1,
        }
    }

    /// Advances to the next moment. Writes the slices that begin at the current moment, and then
    /// all ends up to the next moment.
    fn moment(&mut self, next_ns: u64) -> io::Result<()> {
        self.names()?;
        let (sequence, now_ns) = (&mut self.sequence, self.now_ns);
        for begun in &self.begun[..self.count] {
            self.out.packet(|packet| {
                sequence.at(now_ns, packet);
                packet.blob(packet::TRACK_EVENT, begun.fields.bytes());
            })?;
            if begun.is_empty {
                end(now_ns, begun.track, sequence, &mut self.out)?;
            }
        }
        self.count = 0;
        while let Some(Reverse((end_ns, track))) = self.ends.peek().copied() {
            if end_ns > next_ns {
                break;
            }
            self.ends.pop();
            end(end_ns, track, sequence, &mut self.out)?;
        }
        self.now_ns = next_ns.max(now_ns);
        Ok(())
    }

    /// Writes the definitions of names that the sequence has not written yet.
    fn names(&mut self) -> io::Result<()> {
        if self.names.new.bytes().is_empty() {
            return Ok(());
        }
        let (sequence, new) = (&self.sequence, &self.names.new);
        self.out.packet(|packet| {
            sequence.of(packet);
            packet.blob(packet::INTERNED_DATA, new.bytes());
        })?;
        self.names.new.clear();
        Ok(())
    }
}

fn end<W: Write>(
    time_ns: u64,
    track: u64,
    sequence: &mut Sequence,
    out: &mut PacketWriter<W>,
) -> io::Result<()> {
    out.packet(|packet| {
        sequence.at(time_ns, packet);
        let open = packet.open(packet::TRACK_EVENT);
        packet.uint(event::TYPE, event::END);
        packet.uint(event::TRACK, track);
        packet.close(open);
    })
}

/// Returns the row of tracks that an end of an arrow lies on.
fn place_of(row: &FlowPoint) -> Option<TrackRow> {
    match (row.thread, row.device, row.stream) {
        (Some(thread), ..) => Some(TrackRow::Thread(thread)),
        (None, Some(device), Some(stream)) => Some(TrackRow::Stream(row.process, device, stream)),
        _ => None,
    }
}
