//! Writes rows of the small tables as events: process lifetimes, marks, losses and curves.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};

use serde_json::{Value, json};
use tprof_facts::labels;
use tprof_trace::model::{Process, ProcessEnd, ProcessIndex, Thread, counter};

use super::envelope;
use super::writer::Writer;
use crate::counters::{self, Point};
use crate::gpus::Gpu;
use crate::moments::{self, Moment};

/// Lifetime of a process or thread, as a span on one track.
struct Life<'a> {
    start_ns: u64,
    end_ns: u64,
    category: &'static str,
    name: String,
    args: Value,
    process: &'a Process,
}

/// Writes the lifetime of each process as a span on its first thread, and of each further thread on
/// that thread.
pub(super) fn lives<W: Write>(to: &mut Writer<'_, W>) -> io::Result<()> {
    let (trace, window) = (&to.part.trace, to.part.window);
    let last_ns = trace.extent_ns().map_or(0, |(_, last_ns)| last_ns);
    let processes: HashMap<ProcessIndex, &Process> =
        trace.processes().iter().map(|process| (process.process, process)).collect();
    let mut firsts: HashMap<ProcessIndex, &Thread> = HashMap::new();
    for thread in trace.threads() {
        firsts.entry(thread.process).or_insert(thread);
    }
    let mut tracks: BTreeMap<(u32, u32), Vec<Life>> = BTreeMap::new();
    for process in trace.processes() {
        let tid = firsts.get(&process.process).map_or(process.pid, |thread| thread.tid);
        tracks.entry((process.pid, tid)).or_default().push(life(to, process, last_ns));
    }
    for thread in trace.threads() {
        let Some(&process) = processes.get(&thread.process) else { continue };
        if firsts.get(&thread.process).is_some_and(|first| first.thread != thread.thread) {
            let process_end = trace.process_end(process.process).map(|(end_ns, _)| end_ns);
            let end_ns = trace.thread_end(thread.thread).or(process_end).unwrap_or(last_ns);
            let name = trace.thread_name(thread.thread).filter(|name| !name.is_empty());
            let name = name.unwrap_or("thread").to_owned();
            let (start_ns, args) = (thread.start_ns, json!({}));
            let one = Life { start_ns, end_ns, category: "thread", name, args, process };
            tracks.entry((process.pid, thread.tid)).or_default().push(one);
        }
    }
    for ((_, tid), mut lives) in tracks {
        lives.sort_by_key(|life| life.start_ns);
        // Pids and tids are reused, but spans on one track must not overlap.
        for i in 1..lives.len() {
            lives[i - 1].end_ns = lives[i - 1].end_ns.min(lives[i].start_ns);
        }
        for life in lives.iter().filter(|life| window.touches(life.start_ns, life.end_ns)) {
            let pid = to.pid(life.process.process);
            let start_ns = to.at(life.start_ns);
            to.event(|text| {
                text.raw("\"ph\":\"X\",\"cat\":");
                text.string(life.category);
                text.raw(",\"name\":");
                text.string(&life.name);
                text.raw(&format!(",\"pid\":{pid},\"tid\":{tid},\"ts\":"));
                text.micros(start_ns);
                text.raw(",\"dur\":");
                text.micros(life.end_ns.saturating_sub(life.start_ns));
                text.raw(",\"args\":");
                text.raw(&life.args.to_string());
            })?;
        }
    }
    Ok(())
}

fn life<'a, W: Write>(to: &Writer<'a, W>, process: &'a Process, last_ns: u64) -> Life<'a> {
    let trace = &to.part.trace;
    let (end_ns, how) = moments::end(trace, process.process);
    let command = trace.name(process.command);
    Life {
        start_ns: process.start_ns,
        end_ns: end_ns.unwrap_or(last_ns),
        category: "process",
        name: labels::program(command).to_owned(),
        args: json!({
            "command": command, "exe": trace.name(process.exe), "parent": process.parent,
            "end": how,
        }),
        process,
    }
}

/// Writes marks. A mark without a process is drawn over all processes.
pub(super) fn marks<W: Write>(to: &mut Writer<'_, W>) -> io::Result<()> {
    for mark in moments::marks(to.part) {
        let values = serde_json::from_str(mark.detail).unwrap_or_else(|_| json!({}));
        instant(to, &mark, &values)?;
    }
    Ok(())
}

/// Writes losses at the time when they were noticed.
pub(super) fn losses<W: Write>(to: &mut Writer<'_, W>) -> io::Result<()> {
    // Losses of an import are about the imported trace, not about the job, so leave them out.
    if to.part.trace.property("tprof.import").is_some() {
        return Ok(());
    }
    for (loss, count) in moments::losses(to.part) {
        instant(to, &loss, &json!({ "count": count, "why": loss.detail }))?;
    }
    Ok(())
}

fn instant<W: Write>(to: &mut Writer<'_, W>, moment: &Moment<'_>, args: &Value) -> io::Result<()> {
    let owner = moment.process.and_then(|process| to.part.trace.process(process));
    // Kineto uses this name as the process of events that belong to no process.
    let (scope, place) = match owner {
        Some(process) => ("p", to.main_thread(process)),
        None => ("g", "\"pid\":\"Traces\",\"tid\":\"Trace\"".into()),
    };
    let (time_ns, category) = (to.at(moment.time_ns), moment.category);
    to.event(|text| {
        text.raw(&format!("\"ph\":\"i\",\"s\":\"{scope}\",\"cat\":\"{category}\",\"name\":"));
        text.string(&moment.name);
        text.raw(",");
        text.raw(&place);
        text.raw(",\"ts\":");
        text.micros(time_ns);
        if args.as_object().is_some_and(|args| !args.is_empty()) {
            text.raw(",\"args\":");
            text.raw(&args.to_string());
        }
    })
}

/// Writes curves. Memory curves that tprof recorded are downsampled, and all other curves are
/// written completely. Returns the number of rows.
pub(super) fn memory<W: Write>(to: &mut Writer<'_, W>) -> io::Result<u64> {
    let mut drawn: HashSet<(ProcessIndex, &str)> = HashSet::new();
    let rows = counters::points(
        to.part,
        |one, _| is_own(one.name).then_some((one.process, one.name)),
        |one| {
            if let Some(process) = one.process {
                drawn.insert((process, one.name));
            }
            point(to, one)
        },
    )?;
    ends(to, &drawn)?;
    Ok(rows)
}

/// Whether tprof measures this quantity itself, in bytes.
fn is_own(name: &str) -> bool {
    let own =
        [counter::RSS_BYTES, counter::PSS_BYTES, counter::MAPPED_BYTES, counter::CGROUP_BYTES];
    own.contains(&name)
}

/// Ends the memory curves of a process at its end, with the value 0.
fn ends<W: Write>(to: &mut Writer<'_, W>, drawn: &HashSet<(ProcessIndex, &str)>) -> io::Result<()> {
    let (trace, window) = (&to.part.trace, to.part.window);
    for process in trace.processes() {
        let Some((end_ns, how)) = trace.process_end(process.process) else { continue };
        let names: &[&str] = match how {
            ProcessEnd::Exec => &[counter::HEAP_BYTES],
            _ => &[
                counter::HEAP_BYTES,
                counter::RSS_BYTES,
                counter::PSS_BYTES,
                counter::MAPPED_BYTES,
            ],
        };
        let end_ns = end_ns.saturating_add(1);
        for name in names.iter().filter(|name| drawn.contains(&(process.process, **name))) {
            if window.holds(end_ns) {
                let process = Some(process.process);
                point(to, Point { process, gpu: None, name, time_ns: end_ns, value: 0.0 })?;
            }
        }
    }
    Ok(())
}

fn point<W: Write>(to: &mut Writer<'_, W>, point: Point<'_>) -> io::Result<()> {
    let Point { process, gpu, name, time_ns, value } = point;
    let first = to.part.trace.processes().first().map_or(0, |process| process.process);
    let pid = match gpu {
        Some(Gpu::Seen(_, device)) => device.to_string().into(),
        Some(Gpu::OfHost(device)) => envelope::unused_device_pid(device).to_string().into(),
        None => to.pid(process.unwrap_or(first)),
    };
    // Viewers show the name and the key, so write the unit as the key: `heap` with `bytes`.
    let own = is_own(name) || name == counter::HEAP_BYTES;
    let (name, unit) = match name.strip_suffix("_bytes").filter(|_| own) {
        Some(quantity) => (quantity, "bytes"),
        None => (name, "value"),
    };
    let time_ns = to.at(time_ns);
    to.event(|text| {
        text.raw("\"ph\":\"C\",");
        if gpu.is_some() {
            text.raw("\"cat\":\"gpu_counters\",");
        }
        text.raw("\"name\":");
        text.string(name);
        text.raw(",\"pid\":");
        text.raw(&pid);
        text.raw(",\"ts\":");
        text.micros(time_ns);
        text.raw(",\"args\":{\"");
        text.raw(unit);
        text.raw("\":");
        text.float(value);
        text.raw("}");
    })
}
