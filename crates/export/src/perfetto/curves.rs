//! Writes data that is not an event of a thread or stream: curves, marks, losses, process
//! lifetimes.
//!
//! The data comes from small tables, or is computed. Its packets are in a separate sequence with
//! absolute times, so they may be written in any order.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;
use tprof_facts::counters::CounterUnit;
use tprof_facts::{histograms, labels};
use tprof_trace::model::*;

use super::fields::{event, packet};
use super::packet_writer::PacketWriter;
use super::rank_writer::RankWriter;
use super::tracks::{CounterOwner, TrackRow, Unit};
use crate::counters::{self, Downsampler};
use crate::device_busy::DeviceBusyTime;
use crate::gpus::{Gpu, Gpus};
use crate::proto::Proto;

/// Writes all rows of a rank that are not in its large tables. Returns their number.
pub(super) fn write<W: Write>(scene: &mut RankWriter<'_, '_, W>, sequence: u64) -> io::Result<u64> {
    lives(scene, sequence)?;
    marks(scene, sequence)?;
    losses(scene, sequence)?;
    memory(scene, sequence)
}

fn lives<W: Write>(scene: &mut RankWriter<'_, '_, W>, sequence: u64) -> io::Result<()> {
    let trace = &scene.part.trace;
    let last_ns = trace.extent_ns().map_or(0, |(_, last_ns)| last_ns);
    let mut images: Vec<&Process> = trace.processes().iter().collect();
    images.sort_by_key(|process| process.start_ns);
    for process in images {
        let end = trace.process_end(process.process);
        let end_ns = end.map_or(last_ns, |(end_ns, _)| end_ns).max(process.start_ns);
        if !scene.part.window.touches(process.start_ns, end_ns) {
            continue;
        }
        let (from_ns, to_ns) = (scene.at(process.start_ns), scene.at(end_ns));
        let (shared, out) = (&mut *scene.shared, &mut scene.out);
        let times = (process.start_ns, end_ns);
        let track = scene.tracks.place(TrackRow::Life(process.process), times, shared, out)?;
        let program = labels::program(trace.name(process.command));
        let name = if program.is_empty() { "process" } else { program };
        let how = match end {
            Some((_, ProcessEnd::Exited(status))) => format!("exit status {status}"),
            Some((_, ProcessEnd::Signal(signal))) => format!("killed by signal {signal}"),
            Some((_, ProcessEnd::Exec)) => "exec".to_owned(),
            Some((_, ProcessEnd::Unknown)) => "unknown".to_owned(),
            None => "not recorded".to_owned(),
        };
        absolute(out, sequence, from_ns, |fields| {
            fields.uint(event::TYPE, event::BEGIN);
            fields.uint(event::TRACK, track);
            fields.text(event::CATEGORY, "process");
            fields.text(event::NAME, name);
            annotate(fields, "command", trace.name(process.command));
            annotate(fields, "end", &how);
        })?;
        absolute(out, sequence, to_ns, |fields| {
            fields.uint(event::TYPE, event::END);
            fields.uint(event::TRACK, track);
        })?;
    }
    Ok(())
}

fn marks<W: Write>(scene: &mut RankWriter<'_, '_, W>, sequence: u64) -> io::Result<()> {
    let trace = &scene.part.trace;
    for mark in trace.marks().iter().filter(|mark| scene.part.window.holds(mark.time_ns)) {
        let (category, name, detail) = match mark.kind {
            MarkKind::Mark => ("mark", trace.name(mark.name), ""),
            MarkKind::Step => ("step", trace.name(mark.name), ""),
            MarkKind::RecordingOn => ("recording", "recording on", ""),
            MarkKind::RecordingOff => ("recording", "recording off", ""),
            MarkKind::Histogram => {
                let (name, values) = histograms::split(trace.name(mark.name));
                ("histogram", name, values)
            }
        };
        instant(scene, sequence, (mark.time_ns, mark.process), (category, name), detail)?;
    }
    Ok(())
}

fn losses<W: Write>(scene: &mut RankWriter<'_, '_, W>, sequence: u64) -> io::Result<()> {
    let trace = &scene.part.trace;
    for loss in trace.losses().iter().filter(|loss| scene.part.window.holds(loss.time_ns)) {
        let what = trace.name(loss.what);
        let name = match loss.count {
            0 => format!("lost {what}"),
            count => format!("lost {count} {what}"),
        };
        let at = (loss.time_ns, loss.process);
        instant(scene, sequence, at, ("loss", &name), trace.name(loss.why))?;
    }
    Ok(())
}

fn instant<W: Write>(
    scene: &mut RankWriter<'_, '_, W>,
    sequence: u64,
    (time_ns, process): (u64, Option<ProcessIndex>),
    (category, name): (&str, &str),
    why: &str,
) -> io::Result<()> {
    let at_ns = scene.at(time_ns);
    let (shared, out) = (&mut *scene.shared, &mut scene.out);
    let track = match process {
        Some(process) => scene.tracks.process(process, shared, out)?.0,
        None => scene.tracks.host(shared, out)?,
    };
    absolute(out, sequence, at_ns, |fields| {
        fields.uint(event::TYPE, event::INSTANT);
        fields.uint(event::TRACK, track);
        fields.text(event::CATEGORY, category);
        fields.text(event::NAME, if name.is_empty() { category } else { name });
        annotate(fields, "why", why);
    })
}

/// Writes heap curves, which are downsampled, and all points of measured quantities.
fn memory<W: Write>(scene: &mut RankWriter<'_, '_, W>, sequence: u64) -> io::Result<u64> {
    let (trace, window) = (&scene.part.trace, scene.part.window);
    let (first_ns, last_ns) = trace.extent_ns().unwrap_or_default();
    let stretch_ns = counters::stretch_ns(last_ns.saturating_sub(first_ns));
    let mut last: FxHashMap<ProcessIndex, u64> = FxHashMap::default();
    counters::heap(trace, stretch_ns, |process, time_ns, bytes| {
        if !window.holds(time_ns) {
            return Ok(());
        }
        last.insert(process, time_ns);
        let owner = CounterOwner::Process(process);
        curve(scene, sequence, (owner, "heap", Unit::Bytes), time_ns, bytes as f64)
    })?;
    let (mut rows, gpus) = (0, Gpus::of(trace));
    let mut curves: BTreeMap<(Option<ProcessIndex>, Option<Gpu>, NameId), Downsampler> =
        BTreeMap::new();
    for row in trace.counters().iter().filter(|row| window.holds(row.time_ns)) {
        rows += 1;
        let name = trace.name(row.name);
        if name == counter::HEAP_BYTES {
            continue; // `counters::heap` draws the heap from events or totals.
        }
        let owner = owner(row.process, gpus.gpu(row));
        let (name, unit) = named(name);
        if unit != Unit::Bytes || row.value < 0.0 {
            curve(scene, sequence, (owner, name, unit), row.time_ns, row.value)?;
            continue;
        }
        let thin = curves.entry((row.process, gpus.gpu(row), row.name));
        let thin = thin.or_insert_with(|| Downsampler::new(stretch_ns));
        if let Some((time_ns, bytes)) = thin.point(row.time_ns, row.value as u64) {
            curve(scene, sequence, (owner, name, unit), time_ns, bytes as f64)?;
        }
    }
    for ((process, gpu, name), thin) in curves {
        let owner = owner(process, gpu);
        let (name, unit) = named(trace.name(name));
        for (time_ns, bytes) in thin.rest() {
            curve(scene, sequence, (owner, name, unit), time_ns, bytes as f64)?;
        }
    }
    Ok(rows)
}

/// Returns the process, device or host that a curve's track belongs to.
fn owner(process: Option<ProcessIndex>, gpu: Option<Gpu>) -> CounterOwner {
    match (process, gpu) {
        (_, Some(Gpu::Seen(Some(process), device))) => CounterOwner::Device(process, device),
        (_, Some(gpu)) => CounterOwner::Gpu(gpu),
        (Some(process), None) => CounterOwner::Process(process),
        (None, None) => CounterOwner::Host,
    }
}

/// Returns the name and unit of a quantity. The ending of the name becomes the unit.
fn named(name: &str) -> (&str, Unit) {
    let unit = match CounterUnit::of(name) {
        CounterUnit::Bytes => Unit::Bytes,
        CounterUnit::Nanoseconds => Unit::Named("ns"),
        CounterUnit::Hertz => Unit::Named("Hz"),
        CounterUnit::Watts => Unit::Named("W"),
        CounterUnit::Celsius => Unit::Named("°C"),
        CounterUnit::Share | CounterUnit::Count => Unit::None,
    };
    (name.strip_suffix("_bytes").unwrap_or(name), unit)
}

/// Writes how busy each device was: the share of each stretch of time in which a kernel ran.
pub(super) fn utilisation<W: Write>(
    scene: &mut RankWriter<'_, '_, W>,
    sequence: u64,
    busy: DeviceBusyTime,
) -> io::Result<()> {
    for (process, device, time_ns, fraction) in busy.points() {
        let what = (CounterOwner::Device(process, device), "kernels running", Unit::Named("%"));
        curve(scene, sequence, what, time_ns, 100.0 * fraction)?;
    }
    Ok(())
}

fn curve<W: Write>(
    scene: &mut RankWriter<'_, '_, W>,
    sequence: u64,
    (owner, name, unit): (CounterOwner, &str, Unit),
    time_ns: u64,
    value: f64,
) -> io::Result<()> {
    if !value.is_finite() {
        return Ok(()); // A viewer cannot draw NaN or infinity.
    }
    let at_ns = scene.at(time_ns);
    let (shared, out) = (&mut *scene.shared, &mut scene.out);
    let track = scene.tracks.counter(owner, name, unit, shared, out)?;
    absolute(out, sequence, at_ns, |fields| {
        fields.uint(event::TYPE, event::POINT);
        fields.uint(event::TRACK, track);
        if value.fract() == 0.0 && value.abs() < 9e15 {
            fields.int(event::COUNTER, value as i64);
        } else {
            fields.double(event::DOUBLE_COUNTER, value);
        }
    })
}

fn annotate(fields: &mut Proto, name: &str, value: &str) {
    use super::fields::annotation;
    if !value.is_empty() {
        let open = fields.open(event::ANNOTATION);
        fields.text(annotation::NAME, name);
        fields.text(annotation::STRING, value);
        fields.close(open);
    }
}

fn absolute<W: Write>(
    out: &mut PacketWriter<W>,
    sequence: u64,
    time_ns: u64,
    event: impl FnOnce(&mut Proto),
) -> io::Result<()> {
    out.packet(|fields| {
        fields.uint(packet::TIMESTAMP, time_ns);
        fields.uint(packet::SEQUENCE, sequence);
        let open = fields.open(packet::TRACK_EVENT);
        event(fields);
        fields.close(open);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_the_unit_that_their_name_ends_in() {
        assert_eq!(named(counter::RSS_BYTES), ("rss", Unit::Bytes));
        assert_eq!(named(counter::GPU_SM_CLOCK), (counter::GPU_SM_CLOCK, Unit::Named("Hz")));
        assert_eq!(named(counter::GPU_POWER), (counter::GPU_POWER, Unit::Named("W")));
        assert_eq!(named("loss"), ("loss", Unit::None));
    }
}
