//! Writes the parts of a file apart from its events: rank, devices, names of processes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde_json::{Map, Value, json};
use tprof_facts::{Clock, labels};
use tprof_trace::TraceFile;
use tprof_trace::model::{Device, Process};

use super::writer::Writer;
use crate::counters;
use crate::gpus::{Gpu, Gpus};
use crate::text::Text;
use crate::{OpenRank, Window};

/// Returns a made-up process id for a device that no process of the file uses. Such a device has no
/// CUDA number.
pub(super) fn unused_device_pid(device: u32) -> u64 {
    1_000 + u64::from(device)
}

/// Added to a device's sort index, so that viewers draw devices below processes, as with Kineto's
/// traces.
const DEVICE_SORT_INDEX: u64 = 5_000_000;
const BASE: &str = "baseTimeNanoseconds";

/// The members of the JSON object around the list of events.
pub(super) struct Envelope<'a> {
    part: &'a OpenRank<'a>,
    /// Whether the trace was imported from this format and has a top level of its own.
    pub imported: bool,
    /// Converts times to the file's clock: the run's clock if the trace was imported, otherwise the
    /// host's.
    pub clock: Clock,
    /// Base time of the file, if the file has one, and whether it is written before the events.
    base: Option<u64>,
    base_first: bool,
    last_rank: Option<u32>,
}

impl<'a> Envelope<'a> {
    pub fn of(part: &'a OpenRank<'a>, unix_ns: u64, last_rank: Option<u32>) -> Envelope<'a> {
        let trace = &part.trace;
        let imported = trace.property("tprof.import").is_some();
        let about = Envelope {
            part,
            imported,
            clock: part.clock,
            base: (unix_ns > 0).then_some(unix_ns),
            base_first: true,
            last_rank,
        };
        if !imported {
            return about;
        }
        // If the base comes before the events, tprof's importer adds it to all times, so the times
        // must be relative to it. Kineto writes the base after the events, and the importer then
        // leaves the times unchanged.
        let base: Option<u64> = trace.property(BASE).and_then(|text| text.parse().ok());
        let (first_ns, _) = trace.extent_ns().unwrap_or((0, 0));
        let from = |start_ns| Clock { start_ns, ..Clock::default() };
        match base.filter(|base| *base > 0 && *base <= first_ns) {
            Some(base) => Envelope { clock: from(base), base: Some(base), ..about },
            None => Envelope { clock: from(0), base, base_first: false, ..about },
        }
    }

    /// Writes the members before the events.
    pub fn begin(&self, text: &mut Text) {
        if !self.imported {
            text.raw("\"schemaVersion\":1,");
        }
        if let (Some(base), true) = (self.base, self.base_first) {
            text.raw("\"baseTimeNanoseconds\":");
            text.uint(base);
            text.raw(",");
        }
        if self.imported {
            return;
        }
        text.raw("\"deviceProperties\":");
        text.raw(&Value::from(devices(&self.part.trace)).to_string());
        text.raw(",\"distributedInfo\":");
        text.raw(&self.distributed().to_string());
        text.raw(",");
    }

    /// Returns the rank and other facts about the distributed job.
    fn distributed(&self) -> Value {
        let trace = &self.part.trace;
        let mut info = Map::new();
        info.insert("rank".to_owned(), json!(self.part.file.rank));
        if let Some(last) = self.last_rank {
            info.insert("world_size".to_owned(), json!(last + 1));
        }
        let backends: BTreeSet<&str> =
            trace.communicators().iter().map(|group| trace.name(group.backend)).collect();
        if let Some(backend) = backends.into_iter().find(|backend| !backend.is_empty()) {
            info.insert("backend".to_owned(), json!(backend));
        }
        info.into()
    }

    /// Writes the names of processes, threads, devices and streams.
    pub fn metadata<W: Write>(&self, to: &mut Writer<'_, W>) -> io::Result<()> {
        let trace = &self.part.trace;
        let mut last: BTreeMap<Box<str>, &Process> = BTreeMap::new();
        for process in trace.processes() {
            last.insert(to.pid(process.process), process);
        }
        let brought = trace
            .property("tprof.metadata")
            .and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
        let label = match self.imported {
            true => "CPU".to_owned(),
            false => labels::rank(self.part.file),
        };
        let rank = self.part.file.rank.map_or(u64::from(u32::MAX >> 1), u64::from);
        for (pid, process) in last {
            let command = trace.name(process.command);
            if !command.is_empty() || !self.imported {
                let name = if command.is_empty() { "(unknown)" } else { command };
                metadata(to, "process_name", &pid, &pid, &json!({ "name": name }))?;
            }
            if brought.is_none() {
                metadata(to, "process_labels", &pid, &pid, &json!({ "labels": label }))?;
                metadata(to, "process_sort_index", &pid, &pid, &json!({ "sort_index": rank }))?;
            }
        }
        for thread in trace.threads() {
            let name = trace.thread_name(thread.thread).filter(|name| !name.is_empty());
            if let (Some(name), true) = (name, thread.tid > 0) {
                let pid = to.pid(thread.process);
                let tid = thread.tid.to_string();
                metadata(to, "thread_name", &pid, &tid, &json!({ "name": name }))?;
            }
        }
        match brought {
            Some(rows) => {
                for row in rows {
                    let id = |key: &str| row.get(key).unwrap_or(&Value::Null).to_string();
                    let name = row.get("name").and_then(Value::as_str).unwrap_or_default();
                    let args = row.get("args").unwrap_or(&Value::Null);
                    metadata(to, name, &id("pid"), &id("tid"), args)?;
                }
                Ok(())
            }
            None => {
                self.streams(to)?;
                self.devices_of_host(to)
            }
        }
    }

    /// Writes labels of devices that have counters but that no process of the file uses.
    fn devices_of_host<W: Write>(&self, to: &mut Writer<'_, W>) -> io::Result<()> {
        let trace = &self.part.trace;
        let gpus = Gpus::of(trace);
        let all: BTreeSet<Gpu> = trace.counters().iter().filter_map(|row| gpus.gpu(row)).collect();
        for gpu in all {
            let Gpu::OfHost(device) = gpu else { continue };
            let (pid, sort) = (
                unused_device_pid(device).to_string(),
                DEVICE_SORT_INDEX + unused_device_pid(device),
            );
            metadata(to, "process_name", &pid, "0", &json!({ "name": gpu.label() }))?;
            metadata(to, "process_sort_index", &pid, "0", &json!({ "sort_index": sort }))?;
        }
        Ok(())
    }

    /// Writes labels of devices, and the names of named streams.
    fn streams<W: Write>(&self, to: &mut Writer<'_, W>) -> io::Result<()> {
        let trace = &self.part.trace;
        let devices: BTreeSet<u32> = trace.devices().iter().map(|device| device.device).collect();
        for device in devices {
            let (pid, sort) = (device.to_string(), DEVICE_SORT_INDEX + u64::from(device));
            let label = labels::device(device);
            metadata(to, "process_name", &pid, "0", &json!({ "name": label }))?;
            metadata(to, "process_labels", &pid, "0", &json!({ "labels": label }))?;
            metadata(to, "process_sort_index", &pid, "0", &json!({ "sort_index": sort }))?;
        }
        for stream in trace.streams().iter().filter(|stream| stream.name.0 > 0) {
            let name = labels::stream(trace, stream.process, stream.device, stream.stream);
            let (pid, tid) = (stream.device.to_string(), stream.stream.to_string());
            metadata(to, "thread_name", &pid, &tid, &json!({ "name": name }))?;
        }
        Ok(())
    }

    /// Writes the members after the events.
    pub fn end<W: Write>(&self, to: Writer<'_, W>, cut_ns: Option<u64>) -> io::Result<W> {
        let trace = &self.part.trace;
        to.end(|text| {
            for (key, value) in trace.properties() {
                let own = key.starts_with("tprof.") || key == "traceEvents";
                if own || key == BASE && self.base_first {
                    continue;
                }
                // A property is valid JSON, unless the file is damaged.
                if serde_json::from_str::<serde::de::IgnoredAny>(value).is_ok() {
                    text.raw(",\n");
                    text.string(key);
                    text.raw(":");
                    text.raw(value);
                }
            }
            if !self.imported {
                text.raw(",\n\"displayTimeUnit\":\"ms\"");
            }
            let facts = self.facts(cut_ns);
            if !facts.is_empty() && trace.property("otherData").is_none() {
                text.raw(",\n\"otherData\":");
                text.raw(&Value::from(facts).to_string());
            }
        })
    }

    /// Returns facts that a person who reads the file should know.
    fn facts(&self, cut_ns: Option<u64>) -> Map<String, Value> {
        let trace = &self.part.trace;
        let mut facts = Map::new();
        let mut add = |key: &str, value: Value| facts.insert(key.to_owned(), value);
        if !self.imported {
            let (first_ns, last_ns) = trace.extent_ns().unwrap_or_default();
            let stretch_ns = counters::stretch_ns(last_ns.saturating_sub(first_ns));
            add("tprof", env!("CARGO_PKG_VERSION").into());
            add("recorded_by", trace.header().tprof.clone().into());
            add("host", trace.header().host.clone().into());
            add("rank", json!(self.part.file.rank));
            add("counters", format!("the maximum of each {} us", stretch_ns / 1000).into());
        }
        let Window { from_ns, to_ns } = self.part.window;
        if from_ns > 0 {
            add("slice_from_ns", self.part.since_start(from_ns).into());
        }
        if to_ns < u64::MAX {
            add("slice_to_ns", self.part.since_start(to_ns).into());
        }
        if let Some(cut_ns) = cut_ns {
            add("cut_at_ns", cut_ns.into());
        }
        facts
    }
}

fn metadata<W: Write>(
    to: &mut Writer<'_, W>,
    what: &str,
    pid: &str,
    tid: &str,
    args: &Value,
) -> io::Result<()> {
    to.event(|text| {
        text.raw("\"ph\":\"M\",\"name\":");
        text.string(what);
        text.raw(",\"pid\":");
        text.raw(pid);
        text.raw(",\"tid\":");
        text.raw(tid);
        text.raw(",\"ts\":0,\"args\":");
        text.raw(&args.to_string());
    })
}

/// Returns devices with Kineto's keys.
fn devices(trace: &TraceFile) -> Vec<Value> {
    let one = |row: &Device| {
        let mut keys = Map::new();
        keys.insert("id".to_owned(), row.device.into());
        let mut known = |key: &str, value: Option<u64>| {
            if let Some(value) = value {
                keys.insert(key.to_owned(), value.into());
            }
        };
        known("totalGlobalMem", row.memory_bytes);
        known("computeMajor", row.compute_major.map(u64::from));
        known("computeMinor", row.compute_minor.map(u64::from));
        known("numSms", row.processors.map(u64::from));
        for (key, name) in [("name", row.name), ("uuid", row.uuid)] {
            if !trace.name(name).is_empty() {
                keys.insert(key.to_owned(), trace.name(name).into());
            }
        }
        if let Ok(Value::Object(rest)) = serde_json::from_str(trace.name(row.properties)) {
            keys.extend(rest);
        }
        Value::from(keys)
    };
    trace.devices().iter().map(one).collect()
}
