//! Creates the tracks of one rank: processes, threads, streams, communicators, counters.
//!
//! A track gets its number, and its descriptor is written, when it is first needed.

use std::collections::HashSet;
use std::io::{self, Write};

use rustc_hash::FxHashMap;
use tprof_facts::labels;
use tprof_trace::TraceFile;
use tprof_trace::model::{Communicator, ProcessIndex, ThreadIndex};

use super::fields::{counter, descriptor, packet, process, thread};
use super::packet_writer::PacketWriter;
use crate::gpus::Gpu;
use crate::lanes::NestedLanes;
use crate::proto::Proto;

/// The first made-up process id. No kernel assigns a pid this high.
const MADE_UP_PID: u32 = 10_000_000;

/// State that the ranks of one trace share.
pub(super) struct Shared {
    last_track: u64,
    last_flow: u64,
    pids: HashSet<u32>,
    next_pid: u32,
}

impl Shared {
    pub fn new() -> Shared {
        Shared { last_track: 0, last_flow: 0, pids: HashSet::new(), next_pid: MADE_UP_PID }
    }

    /// Returns a new base for numbers of arrows, which no other kind of arrow uses.
    pub fn flow_base(&mut self) -> u64 {
        self.last_flow += 1;
        self.last_flow
    }

    fn track(&mut self) -> u64 {
        self.last_track += 1;
        self.last_track
    }

    /// Returns the pid itself, or another number if a process of another rank has the same pid.
    /// Processes on different hosts or in different containers may have equal pids, and Perfetto
    /// would join them.
    fn pid(&mut self, pid: u32) -> u32 {
        if self.pids.insert(pid) {
            return pid;
        }
        self.next_pid += 1;
        self.pids.insert(self.next_pid);
        self.next_pid
    }
}

/// A row of a rank that has tracks for intervals. If its intervals cross, it has several tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum TrackRow {
    Thread(ThreadIndex),
    /// Kernels and copies of a stream.
    Stream(ProcessIndex, u32, u64),
    /// Annotations, and other intervals on a stream that are not work.
    Ranges(ProcessIndex, u32, Option<u64>),
    /// Waits that a stream makes, or waits for a stream.
    Waits(ProcessIndex, Option<u32>, Option<u64>),
    Communicator(ProcessIndex, Option<u64>),
    /// The program images of a process.
    Life(ProcessIndex),
}

/// The process, device or host that a counter's curve belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CounterOwner {
    Process(ProcessIndex),
    Device(ProcessIndex, u32),
    /// A device, if no process is known to use it.
    Gpu(Gpu),
    /// The host, or its cgroup.
    Host,
}

/// Unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Bytes,
    Count,
    Named(&'static str),
    None,
}

struct TrackLanes {
    lanes: NestedLanes,
    tracks: Vec<u64>,
}

/// Tracks of one rank.
pub(super) struct Tracks<'a> {
    file: &'a TraceFile,
    label: String,
    sort: u64,
    /// The last program image of each pid.
    last_of_pid: FxHashMap<u32, ProcessIndex>,
    processes: FxHashMap<ProcessIndex, (u64, u32)>,
    by_pid: FxHashMap<u32, (u64, u32)>,
    devices: FxHashMap<(ProcessIndex, u32), u64>,
    rows: FxHashMap<TrackRow, TrackLanes>,
    counters: FxHashMap<(CounterOwner, Box<str>), u64>,
    host: Option<u64>,
}

impl<'a> Tracks<'a> {
    /// Creates the tracks of a rank. `label` is the rank's name.
    pub fn new(file: &'a TraceFile, label: String, sort: u64) -> Tracks<'a> {
        Tracks {
            file,
            label,
            sort,
            last_of_pid: file.processes().iter().map(|row| (row.pid, row.process)).collect(),
            processes: FxHashMap::default(),
            by_pid: FxHashMap::default(),
            devices: FxHashMap::default(),
            rows: FxHashMap::default(),
            counters: FxHashMap::default(),
            host: None,
        }
    }

    /// Returns the track on which an interval of a row is drawn.
    pub fn place<W: Write>(
        &mut self,
        row: TrackRow,
        (start_ns, end_ns): (u64, u64),
        shared: &mut Shared,
        out: &mut PacketWriter<W>,
    ) -> io::Result<u64> {
        let found = self.rows.entry(row);
        let lane = found
            .or_insert_with(|| TrackLanes { lanes: NestedLanes::default(), tracks: Vec::new() });
        let at = lane.lanes.place(start_ns, end_ns);
        if let Some(track) = lane.tracks.get(at) {
            return Ok(*track);
        }
        let track = self.lane(row, at > 0, shared, out)?;
        if let Some(lane) = self.rows.get_mut(&row) {
            lane.tracks.push(track);
        }
        Ok(track)
    }

    /// Returns the track of a process, and the process's id in this trace.
    pub fn process<W: Write>(
        &mut self,
        index: ProcessIndex,
        shared: &mut Shared,
        out: &mut PacketWriter<W>,
    ) -> io::Result<(u64, u32)> {
        if let Some(found) = self.processes.get(&index) {
            return Ok(*found);
        }
        let row = self.file.process(index);
        let real = row.map_or(0, |process| process.pid);
        // An `exec` starts another image of the same process. The process gets the name of its last
        // image.
        if let Some(found) = self.by_pid.get(&real).copied().filter(|_| row.is_some()) {
            self.processes.insert(index, found);
            return Ok(found);
        }
        let last = self.last_of_pid.get(&real).and_then(|index| self.file.process(*index)).or(row);
        let (track, pid) = (shared.track(), shared.pid(real));
        let command = last.map_or("", |process| self.file.name(process.command));
        let base = labels::program(command);
        let (label, sort) = (&self.label, self.sort);
        out.packet(|fields| {
            describe(fields, track, None, |fields| {
                let open = fields.open(descriptor::PROCESS);
                fields.uint(process::PID, pid.into());
                if !command.is_empty() {
                    fields.text(process::CMDLINE, command);
                }
                let space = if base.is_empty() || label.is_empty() { "" } else { " " };
                fields.text(process::NAME, &format!("{label}{space}{base}"));
                fields.text(process::LABELS, label);
                if pid != real {
                    fields.text(process::LABELS, &format!("pid {real}"));
                }
                fields.close(open);
                fields.uint(descriptor::RANK, sort);
                if pid != real {
                    let what = format!(
                        "process {real} on its host; another process of the run has \
                                        that id"
                    );
                    fields.text(descriptor::DESCRIPTION, &what);
                }
            });
        })?;
        self.by_pid.insert(real, (track, pid));
        self.processes.insert(index, (track, pid));
        Ok((track, pid))
    }

    fn lane<W: Write>(
        &mut self,
        row: TrackRow,
        further: bool,
        shared: &mut Shared,
        out: &mut PacketWriter<W>,
    ) -> io::Result<u64> {
        let file = self.file;
        let (parent, name, sort) = match row {
            TrackRow::Thread(index) => return self.thread(index, further, shared, out),
            TrackRow::Stream(process, device, stream) => {
                let name = labels::stream(file, process, device, stream);
                (self.device(process, device, shared, out)?, name, 10 + 4 * stream)
            }
            TrackRow::Ranges(process, device, stream) => {
                let (name, sort) = match stream {
                    Some(stream) => (format!("stream {stream} ranges"), 9 + 4 * stream),
                    None => ("ranges".to_owned(), 5),
                };
                (self.device(process, device, shared, out)?, name, sort)
            }
            TrackRow::Waits(process, device, stream) => {
                let (name, sort) = match stream {
                    Some(stream) => (format!("stream {stream} waits"), 11 + 4 * stream),
                    None => ("waits".to_owned(), 6),
                };
                let parent = match device {
                    Some(device) => self.device(process, device, shared, out)?,
                    None => self.process(process, shared, out)?.0,
                };
                (parent, name, sort)
            }
            TrackRow::Communicator(process, communicator) => {
                let named = communicator.and_then(|of| file.communicator(process, of));
                let name = named.map_or_else(
                    || "collectives".to_owned(),
                    |named| communicator_name(file, named),
                );
                (self.process(process, shared, out)?.0, name, 4)
            }
            TrackRow::Life(process) => {
                (self.process(process, shared, out)?.0, "life".to_owned(), 1)
            }
        };
        self.named(parent, &name, sort, shared, out)
    }

    fn thread<W: Write>(
        &mut self,
        index: ThreadIndex,
        further: bool,
        shared: &mut Shared,
        out: &mut PacketWriter<W>,
    ) -> io::Result<u64> {
        let row = self.file.thread(index);
        let (tid, owner) = row.map_or((0, 0), |thread| (thread.tid, thread.process));
        let (parent, pid) = self.process(owner, shared, out)?;
        let name = self.file.thread_name(index).unwrap_or_default();
        if further {
            // The extra track is for spans that overlap spans on the thread's own track.
            let space = if name.is_empty() { "" } else { " " };
            return self.named(
                parent,
                &format!("{name}{space}{tid} (overlapping)"),
                3,
                shared,
                out,
            );
        }
        let track = shared.track();
        out.packet(|fields| {
            describe(fields, track, Some(parent), |fields| {
                let open = fields.open(descriptor::THREAD);
                fields.uint(thread::PID, pid.into());
                fields.uint(thread::TID, tid.into());
                if !name.is_empty() {
                    fields.text(thread::NAME, name);
                }
                fields.close(open);
            });
        })?;
        Ok(track)
    }

    /// Returns the parent track of a device's streams.
    fn device<W: Write>(
        &mut self,
        process: ProcessIndex,
        device: u32,
        shared: &mut Shared,
        out: &mut PacketWriter<W>,
    ) -> io::Result<u64> {
        if let Some(track) = self.devices.get(&(process, device)) {
            return Ok(*track);
        }
        let (parent, _) = self.process(process, shared, out)?;
        let found = (self.file.devices().iter())
            .find(|row| (row.process, row.device) == (process, device))
            .map_or("", |row| self.file.name(row.name));
        let space = if found.is_empty() { "" } else { " " };
        let name = format!("GPU {device}{space}{found}");
        let track = self.named(parent, &name, 2, shared, out)?;
        self.devices.insert((process, device), track);
        Ok(track)
    }

    /// Returns the track of a curve.
    pub fn counter<W: Write>(
        &mut self,
        owner: CounterOwner,
        name: &str,
        unit: Unit,
        shared: &mut Shared,
        out: &mut PacketWriter<W>,
    ) -> io::Result<u64> {
        if let Some(track) = self.counters.get(&(owner, name.into())) {
            return Ok(*track);
        }
        let parent = match owner {
            CounterOwner::Process(process) => Some(self.process(process, shared, out)?.0),
            CounterOwner::Device(process, device) => {
                Some(self.device(process, device, shared, out)?)
            }
            CounterOwner::Host | CounterOwner::Gpu(_) => None,
        };
        let track = shared.track();
        let of = match owner {
            CounterOwner::Gpu(gpu) => format!("{}: {name}", gpu.label()),
            _ => name.to_owned(),
        };
        let title = match (parent, self.label.as_str()) {
            (None, label) if !label.is_empty() => format!("{label}: {of}"),
            _ => of,
        };
        out.packet(|fields| {
            describe(fields, track, parent, |fields| {
                fields.text(descriptor::NAME, &title);
                let open = fields.open(descriptor::COUNTER);
                match unit {
                    Unit::Bytes => fields.uint(counter::UNIT, counter::SIZE_BYTES),
                    Unit::Count => fields.uint(counter::UNIT, counter::COUNT),
                    Unit::Named(name) => fields.text(counter::UNIT_NAME, name),
                    Unit::None => {}
                }
                fields.close(open);
            });
        })?;
        self.counters.insert((owner, name.into()), track);
        Ok(track)
    }

    /// Returns the track for marks and losses that have no process.
    pub fn host<W: Write>(
        &mut self,
        shared: &mut Shared,
        out: &mut PacketWriter<W>,
    ) -> io::Result<u64> {
        if let Some(track) = self.host {
            return Ok(track);
        }
        let track = shared.track();
        let name = format!("{} marks", self.label);
        out.packet(|fields| {
            describe(fields, track, None, |fields| {
                fields.text(descriptor::NAME, name.trim_start());
            });
        })?;
        self.host = Some(track);
        Ok(track)
    }

    fn named<W: Write>(
        &mut self,
        parent: u64,
        name: &str,
        sort: u64,
        shared: &mut Shared,
        out: &mut PacketWriter<W>,
    ) -> io::Result<u64> {
        let track = shared.track();
        out.packet(|fields| {
            describe(fields, track, Some(parent), |fields| {
                fields.text(descriptor::NAME, name);
                fields.uint(descriptor::RANK, sort.min(i32::MAX as u64));
                fields.uint(descriptor::CHILD_ORDERING, descriptor::EXPLICIT);
            });
        })?;
        Ok(track)
    }
}

fn describe(fields: &mut Proto, track: u64, parent: Option<u64>, more: impl FnOnce(&mut Proto)) {
    let open = fields.open(packet::TRACK_DESCRIPTOR);
    fields.uint(descriptor::UUID, track);
    if let Some(parent) = parent {
        fields.uint(descriptor::PARENT, parent);
    }
    more(fields);
    fields.close(open);
}

/// Returns a name such as `nccl default_pg`, from the parts that the trace contains.
fn communicator_name(file: &TraceFile, row: &Communicator) -> String {
    let words = [row.backend, row.name, row.description].map(|name| file.name(name));
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    match words.is_empty() {
        true => format!("communicator {:#x}", row.communicator),
        false => words.join(" "),
    }
}
