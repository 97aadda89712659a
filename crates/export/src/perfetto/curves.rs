//! Writes data that is not an event of a thread or stream: curves, marks, losses, process
//! lifetimes.
//!
//! The data comes from small tables, or is computed. Its packets are in a separate sequence with
//! absolute times, so they may be written in any order.

use std::io::{self, Write};

use tprof_facts::counters::CounterUnit;
use tprof_facts::labels;
use tprof_trace::model::*;

use super::fields::{event, packet};
use super::packet_writer::PacketWriter;
use super::rank_writer::RankWriter;
use super::tracks::{CounterOwner, TrackRow, Unit};
use crate::counters::{self, Point};
use crate::device_busy::DeviceBusyTime;
use crate::gpus::Gpu;
use crate::moments;
use crate::proto::Proto;

/// Writes all rows of a rank that are not in its large tables. Returns their number.
pub(super) fn write<W: Write>(scene: &mut RankWriter<'_, '_, W>, sequence: u64) -> io::Result<u64> {
    lives(scene, sequence)?;
    moments(scene, sequence)?;
    memory(scene, sequence)
}

fn lives<W: Write>(scene: &mut RankWriter<'_, '_, W>, sequence: u64) -> io::Result<()> {
    let trace = &scene.part.trace;
    let last_ns = trace.extent_ns().map_or(0, |(_, last_ns)| last_ns);
    let mut images: Vec<&Process> = trace.processes().iter().collect();
    images.sort_by_key(|process| process.start_ns);
    for process in images {
        let (end_ns, how) = moments::end(trace, process.process);
        let end_ns = end_ns.unwrap_or(last_ns).max(process.start_ns);
        if !scene.part.window.touches(process.start_ns, end_ns) {
            continue;
        }
        let (from_ns, to_ns) = (scene.at(process.start_ns), scene.at(end_ns));
        let (shared, out) = (&mut *scene.shared, &mut scene.out);
        let times = (process.start_ns, end_ns);
        let track = scene.tracks.place(TrackRow::Life(process.process), times, shared, out)?;
        let program = labels::program(trace.name(process.command));
        let name = if program.is_empty() { "process" } else { program };
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

fn moments<W: Write>(scene: &mut RankWriter<'_, '_, W>, sequence: u64) -> io::Result<()> {
    let losses = moments::losses(scene.part).map(|(loss, _)| loss);
    for moment in moments::marks(scene.part).chain(losses) {
        let at_ns = scene.at(moment.time_ns);
        let (shared, out) = (&mut *scene.shared, &mut scene.out);
        let track = match moment.process {
            Some(process) => scene.tracks.process(process, shared, out)?.0,
            None => scene.tracks.host(shared, out)?,
        };
        absolute(out, sequence, at_ns, |fields| {
            fields.uint(event::TYPE, event::INSTANT);
            fields.uint(event::TRACK, track);
            fields.text(event::CATEGORY, moment.category);
            fields.text(event::NAME, &moment.name);
            annotate(fields, "why", moment.detail);
        })?;
    }
    Ok(())
}

/// Writes curves of bytes, which are downsampled, and all points of other quantities.
fn memory<W: Write>(scene: &mut RankWriter<'_, '_, W>, sequence: u64) -> io::Result<u64> {
    let thinned = |one: &Point<'_>, name| {
        (named(one.name).1 == Unit::Bytes).then_some((one.process, one.gpu, name))
    };
    counters::points(scene.part, thinned, |one| {
        let (name, unit) = named(one.name);
        curve(scene, sequence, (owner(one.process, one.gpu), name, unit), one.time_ns, one.value)
    })
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
        CounterUnit::Joules => Unit::Named("J"),
        CounterUnit::Celsius => Unit::Named("°C"),
        CounterUnit::BytesPerSecond => Unit::Named("B/s"),
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
        assert_eq!(named(counter::GPU_PCIE_SENT), (counter::GPU_PCIE_SENT, Unit::Named("B/s")));
        assert_eq!(named("loss"), ("loss", Unit::None));
    }
}
