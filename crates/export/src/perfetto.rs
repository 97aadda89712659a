//! Exports Perfetto's own protobuf format for <https://ui.perfetto.dev> and `trace_processor`: one
//! file with all ranks on one clock.
//!
//! Processes, threads, streams and communicators are tracks. Spans, kernels, copies, waits and
//! collectives are slices on these tracks. Arrows join launches to the work that they started, and
//! collectives to the same collective on other ranks. Memory, queue length and utilisation are
//! curves. Samples are call stacks. `fields` defines only those messages of Perfetto's schema that
//! are written here.
//!
//! Memory contains one rank at a time, and only one block of each of its tables.

mod args;
mod curves;
mod fields;
mod interned;
mod packet_writer;
mod rank_writer;
mod tracks;

use std::collections::hash_map::Entry;
use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustc_hash::{FxHashMap, FxHashSet};
use tprof_trace::RunDir;
use tprof_trace::model::{Allocator, DeviceAllocation, ProcessIndex};

use crate::device_busy::DeviceBusyTime;
use crate::in_order::{self, TimedRow};
use crate::output::Output;
use crate::{ExportError, OpenRank, Options, Selection, Written, collectives, paths};
use packet_writer::{Clock, PacketWriter};
use rank_writer::RankWriter;
use tracks::{CounterOwner, Shared, Unit};

/// Compression level. Level 6 takes three times the CPU time for little gain.
const LEVEL: u32 = 1;
/// Smallest size limit per rank. A rank's names need some bytes even if no event fits.
const LEAST_BYTES: u64 = 256 << 10;
/// Bytes reserved for the ends of open slices and the last curves.
const REST_BYTES: u64 = 64 << 10;

/// Writes one file: `trace.pftrace.gz`, or the file that the options name. The file is compressed
/// if its name ends in `.gz`.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    let selection = Selection::new(run, &options.slice, options.symbols)?;
    let path = match &options.output {
        Some(path) => path.clone(),
        None => paths::default_directory(run).join("trace.pftrace.gz"),
    };
    Output::check(&path, options.force)?;
    let ranks = selection.files.len() as u64;
    if let Some(max_bytes) = options.max_bytes
        && max_bytes < ranks * LEAST_BYTES
    {
        return Err(ExportError::TooSmall { max_bytes, least_bytes: ranks * LEAST_BYTES });
    }
    paths::parent(&path)?;
    let output = Output::create(&path)?;
    let failed = |source| ExportError::Write { path: path.clone(), source };
    let mut written = Written::default();
    let finished = match is_gz(&path) {
        true => {
            let gzip = GzEncoder::new(output, Compression::new(LEVEL));
            let bytes = |gzip: &GzEncoder<Output>| gzip.get_ref().bytes();
            let gzip = write(&selection, gzip, bytes, options.max_bytes, &path, &mut written)?;
            gzip.finish().map_err(failed)?
        }
        false => {
            let bytes = Output::bytes;
            write(&selection, output, bytes, options.max_bytes, &path, &mut written)?
        }
    };
    if written.events == 0 && !options.slice.is_all_time() {
        return Err(ExportError::EmptySlice);
    }
    written.paths.extend(finished.keep()?);
    Ok(written)
}

fn is_gz(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// Writes all ranks, each up to its share of `max_bytes`.
fn write<W: Write>(
    selection: &Selection<'_>,
    to: W,
    bytes: impl Fn(&W) -> u64,
    max_bytes: Option<u64>,
    path: &Path,
    written: &mut Written,
) -> Result<W, ExportError> {
    let failed = |source| ExportError::Write { path: path.to_path_buf(), source };
    let mut shared = Shared::new();
    let mut out = PacketWriter::new(to);
    let count = selection.files.len() as u64;
    for (at, file) in selection.files.iter().enumerate() {
        let part = written.open_spans(selection, file)?;
        let label = file.label.to_string();
        let limit = max_bytes.map(|max| {
            let share = max / count;
            share * (at as u64 + 1) - share / 16 - REST_BYTES
        });
        // A rank has two sequences: one for events in order of time, and one for everything else.
        let ids = (2 * at as u64 + 1, Clock::new(selection.zero.unix_ns));
        let name = (label.clone(), file.rank.map_or(u64::from(u32::MAX), u64::from));
        let scene = RankWriter::new(&part, out, &mut shared, name, ids).map_err(failed)?;
        let full = |scene: &RankWriter<'_, '_, W>| {
            limit.is_some_and(|limit| bytes(scene.out.inner()) + scene.out.buffered() >= limit)
        };
        let before = written.events;
        let (back, cut_ns) = rank(scene, ids.0 + 1, full, written).map_err(failed)?;
        out = back;
        let all = in_order::count(&part.trace) + part.trace.counters().len() as u64;
        written.left_out += all.saturating_sub(written.events - before);
        if let Some(cut_ns) = cut_ns {
            let seconds = part.since_start(cut_ns) as f64 / 1e9;
            written.notes.push(format!(
                "{label} is cut at {seconds:.3} s, where the file reached --max-size"
            ));
        }
    }
    out.finish().map_err(failed)
}

/// Writes one rank. If its share of the size became full, returns the time at which the rank was
/// cut.
fn rank<W: Write>(
    mut scene: RankWriter<'_, '_, W>,
    second: u64,
    full: impl Fn(&RankWriter<'_, '_, W>) -> bool,
    written: &mut Written,
) -> io::Result<(PacketWriter<W>, Option<u64>)> {
    let part: &OpenRank<'_> = scene.part;
    written.events += curves::write(&mut scene, second)?;
    let (first_ns, last_ns) = part.trace.extent_ns().unwrap_or_default();
    let mut busy =
        DeviceBusyTime::new(first_ns.max(part.window.from_ns), last_ns.min(part.window.to_ns));
    let collectives = collectives::timed_collectives(&part.trace, part.window);
    let mut collectives = collectives.iter().peekable();
    let mut queue = Queue::default();
    let mut cut_ns = None;
    in_order::each(&part.trace, part.window, |event| {
        let time_ns = event.time_ns();
        while let Some(next) = collectives.next_if(|next| next.start_ns <= time_ns) {
            scene.collective(next)?;
            written.events += 1;
        }
        match event {
            TimedRow::Span(row) => {
                scene.span(row)?;
                if let Some(correlation) = scene.starts_work(row) {
                    queue.launch(&mut scene, row.process, correlation, time_ns)?;
                }
            }
            TimedRow::Kernel(row) => {
                busy.kernel(row);
                scene.kernel(row)?;
                queue.start(&mut scene, row.process, row.correlation, time_ns)?;
            }
            TimedRow::Copy(row) => {
                scene.copy(row)?;
                queue.start(&mut scene, row.process, row.correlation, time_ns)?;
            }
            TimedRow::Synchronization(row) => scene.synchronization(row)?,
            TimedRow::DeviceSpan(row) => scene.device_span(row)?,
            TimedRow::Allocation(row) => allocation(&mut scene, row)?,
            TimedRow::Sample(row) => scene.sample(row)?,
            TimedRow::Flow(row) => scene.flow_point(row)?,
            TimedRow::Collective(_) => return Ok(true), // They were written above.
        }
        written.events += 1;
        if written.events.is_multiple_of(256) && full(&scene) {
            cut_ns = Some(time_ns);
        }
        Ok::<bool, io::Error>(cut_ns.is_none())
    })?;
    if cut_ns.is_none() {
        for rest in collectives {
            scene.collective(rest)?;
            written.events += 1;
        }
    }
    curves::utilisation(&mut scene, second, busy)?;
    Ok((scene.finish()?, cut_ns))
}

/// Counts launches whose work has not started yet, as a curve for each process.
#[derive(Default)]
struct Queue {
    waiting: FxHashSet<(ProcessIndex, u64)>,
    /// Track and last value of each process's curve.
    depths: FxHashMap<ProcessIndex, (u64, i64)>,
}

impl Queue {
    fn launch<W: Write>(
        &mut self,
        scene: &mut RankWriter<'_, '_, W>,
        process: ProcessIndex,
        correlation: u64,
        time_ns: u64,
    ) -> io::Result<()> {
        if self.waiting.insert((process, correlation)) {
            self.point(scene, process, 1, time_ns)?;
        }
        Ok(())
    }

    fn start<W: Write>(
        &mut self,
        scene: &mut RankWriter<'_, '_, W>,
        process: ProcessIndex,
        correlation: Option<u64>,
        time_ns: u64,
    ) -> io::Result<()> {
        if correlation.is_some_and(|correlation| self.waiting.remove(&(process, correlation))) {
            self.point(scene, process, -1, time_ns)?;
        }
        Ok(())
    }

    fn point<W: Write>(
        &mut self,
        scene: &mut RankWriter<'_, '_, W>,
        process: ProcessIndex,
        change: i64,
        time_ns: u64,
    ) -> io::Result<()> {
        let (track, depth) = match self.depths.entry(process) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let (owner, name) = (CounterOwner::Process(process), "launches that wait");
                let (shared, out) = (&mut *scene.shared, &mut scene.out);
                new.insert((scene.tracks.counter(owner, name, Unit::Count, shared, out)?, 0))
            }
        };
        *depth += change;
        scene.point(*track, time_ns, *depth)
    }
}

/// Writes the totals that an allocator counted itself.
fn allocation<W: Write>(
    scene: &mut RankWriter<'_, '_, W>,
    row: &DeviceAllocation,
) -> io::Result<()> {
    let owner = match row.device {
        Some(device) => CounterOwner::Device(row.process, device),
        None => CounterOwner::Process(row.process),
    };
    let (allocated, reserved) = match row.allocator {
        Allocator::Framework => ("allocated by the framework", "reserved by the framework"),
        Allocator::Library => ("allocated", "reserved"),
        Allocator::Pool => ("allocated from pools", "reserved by pools"),
        // These allocators do not count totals.
        Allocator::Virtual | Allocator::Imported | Allocator::Registered => return Ok(()),
    };
    for (name, bytes) in
        [(allocated, row.total_allocated_bytes), (reserved, row.total_reserved_bytes)]
    {
        if let Some(bytes) = bytes {
            let (shared, out) = (&mut *scene.shared, &mut scene.out);
            let track = scene.tracks.counter(owner, name, Unit::Bytes, shared, out)?;
            scene.point(track, row.time_ns, i64::try_from(bytes).unwrap_or(i64::MAX))?;
        }
    }
    Ok(())
}
