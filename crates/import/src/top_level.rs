//! Reads the members of a trace's top level: rank, devices, process groups, and all others.

use crate::cursor;
use crate::event::Event;
use crate::group::{Group, communicators};
use crate::losses::LossReason;
use crate::output::Output;
use crate::text;
use crate::threads::MAIN;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tprof_trace::model::{Device, NameId, Property};

/// Maximum size in bytes of a member that is stored, and of all stored metadata together.
const MAX_FACT_BYTES: usize = 256 << 10;
/// Maximum number of members that are stored.
const MAX_FACTS: usize = 1000;

/// The members of the top level that were read so far.
#[derive(Debug, Default)]
pub(crate) struct TopLevel {
    /// Base that is added to all times of the file, in nanoseconds since 1970.
    base_ns: i64,
    /// Offset that is subtracted from times, so that they count from the run's zero instead of
    /// 1970.
    pub offset_ns: i64,
    members: Vec<(String, String)>,
    /// Order and labels of processes and threads: kind, process or thread, and JSON.
    metadata: Vec<Value>,
    /// Index in `metadata` by kind, `pid` and `tid`.
    metadata_of: FxHashMap<Box<[u8]>, usize>,
    metadata_bytes: usize,
    /// Start of the file's first event, if that is a complete event. Holistic Trace Analysis
    /// mistakes this event for the launch of work that has no launch. With this time, reports can
    /// reproduce HTA's figures, and an export can write the event first again.
    pub first_event_ns: Option<u64>,
}

impl TopLevel {
    /// Returns the number to add to times: the base minus the offset. The base is 0 if the file has
    /// none before its events.
    #[inline(always)]
    pub fn base_ns(&self) -> i64 {
        self.base_ns.saturating_sub(self.offset_ns)
    }

    /// Reads a member of the top level.
    pub fn take(&mut self, key: &[u8], value: &[u8], output: &mut Output) {
        output.tally.count_losses(LossReason::OtherTrace, events_in(key, value));
        let mut json = Vec::new();
        if value.len() > MAX_FACT_BYTES
            || self.members.len() == MAX_FACTS
            || text::push_value(value, &mut json).is_err()
        {
            output.tally.count_loss(LossReason::FactTooLong);
            return;
        }
        let mut name = String::new();
        text::unescape(key, &mut name);
        let json = String::from_utf8_lossy(&json).into_owned();
        if name == "baseTimeNanoseconds" && !output.began {
            self.base_ns = json.parse().unwrap_or(0);
        }
        self.members.push((name, json));
    }

    /// Reads metadata that does not name a process or thread. Kineto repeats some of it; the last
    /// value counts.
    pub fn metadata(&mut self, kind: &[u8], event: &Event<'_>, output: &mut Output) {
        let fields = event.fields();
        let (pid, tid) = (event.text(fields.pid), event.text(fields.tid));
        let mut args = Vec::new();
        event.rest(&mut args);
        let id = |text: &[u8]| serde_json::from_slice(text).unwrap_or(Value::Null);
        let row = json!({
            "name": String::from_utf8_lossy(kind),
            "pid": id(pid),
            "tid": id(tid),
            "args": serde_json::from_slice(&args).unwrap_or(Value::Null),
        });
        let key = [kind, b"\0", pid, b"\0", tid].concat().into_boxed_slice();
        let known = self.metadata_of.get(&key).copied();
        if known.is_some_and(|at| self.metadata[at] == row) {
            return;
        }
        self.metadata_bytes += kind.len() + args.len() + 40;
        if self.metadata_bytes > MAX_FACT_BYTES / 2 {
            output.tally.count_loss(LossReason::MetadataTooLong);
            return;
        }
        match known {
            Some(at) => self.metadata[at] = row,
            None => {
                self.metadata_of.insert(key, self.metadata.len());
                self.metadata.push(row);
            }
        }
    }

    fn member(&self, key: &str) -> Option<Value> {
        let (_, json) = self.members.iter().rev().find(|(name, _)| name == key)?;
        let value = serde_json::from_str(json).ok()?;
        // Some versions of PyTorch write the object as a string.
        match value {
            Value::String(text) => serde_json::from_str(&text).ok(),
            value => Some(value),
        }
    }

    /// Returns the rank that the job assigned to the process.
    pub fn rank(&self) -> Option<u32> {
        let info = self.member("distributedInfo")?;
        let rank = info.get("rank")?;
        let rank = rank.as_u64().or_else(|| rank.as_str()?.parse().ok())?;
        u32::try_from(rank).ok()
    }

    /// Writes properties, devices and communicators.
    pub fn write(&self, groups: BTreeMap<u64, Group>, output: &mut Output) {
        for (key, value) in &self.members {
            property(key, value, output);
        }
        if !self.metadata.is_empty() {
            property("tprof.metadata", &Value::from(self.metadata.clone()).to_string(), output);
        }
        if let Some(start_ns) = self.first_event_ns {
            property("tprof.first_event_ns", &start_ns.to_string(), output);
        }
        for device in self.member("deviceProperties").iter().filter_map(Value::as_array).flatten() {
            self.device(device, output);
        }
        let info = self.member("distributedInfo").unwrap_or(Value::Null);
        for row in communicators(groups, &info, self.rank(), output) {
            output.writer.communicator(&row);
        }
    }

    fn device(&self, device: &Value, output: &mut Output) {
        let Some(mut rest) = device.as_object().cloned() else { return };
        let mut small = |key: &str| -> Option<u32> {
            let value = rest.get(key)?.as_u64().and_then(|value| u32::try_from(value).ok())?;
            rest.remove(key);
            Some(value)
        };
        let Some(number) = small("id") else { return };
        let processors = small("numSms");
        let (compute_major, compute_minor) = (small("computeMajor"), small("computeMinor"));
        let memory_bytes = take(&mut rest, "totalGlobalMem").and_then(|value| value.as_u64());
        let mut text = |key: &str| match take(&mut rest, key) {
            Some(Value::String(text)) => output.plain_name(&text),
            _ => NameId(0),
        };
        let (name, uuid) = (text("name"), text("uuid"));
        let row = Device {
            process: MAIN,
            device: number,
            name,
            uuid,
            memory_bytes,
            processors,
            compute_major,
            compute_minor,
            properties: match rest.is_empty() {
                true => NameId(0),
                false => output.json_name(Value::Object(rest).to_string().as_bytes()),
            },
        };
        output.writer.device(&row);
    }
}

/// Top-level texts that contain events in other formats than JSON: Chrome's traces of the kernel,
/// of power, and of devices.
const TEXTS: [&[u8]; 4] =
    [b"systemTraceEvents", b"powerTraceAsString", b"androidProcessDump", b"battorLogAsString"];

/// Counts the events of a top-level member that no report reads. These are the elements of a list
/// of objects, or the lines of a text. `deviceProperties` describes devices, so its elements don't
/// count.
fn events_in(key: &[u8], value: &[u8]) -> u64 {
    let is_text = TEXTS.contains(&key);
    match value {
        b"[]" | b"\"\"" => 0,
        _ if key == b"deviceProperties" => 0,
        [b'"', text @ .., b'"'] if is_text => {
            let breaks = text.windows(2).filter(|pair| pair == b"\\n").count() as u64;
            breaks + u64::from(!text.ends_with(b"\\n"))
        }
        [b'[', ..] => {
            let (mut count, mut at) = (0, 1);
            while let Ok(start) = cursor::space(value, at) {
                let Ok(end) = cursor::value(value, start) else { break };
                count += u64::from(is_text || matches!(value[start], b'{' | b'['));
                let Ok((true, next)) = cursor::next(value, end, b']') else { break };
                at = next;
            }
            count
        }
        _ => 0,
    }
}

fn take(map: &mut Map<String, Value>, key: &str) -> Option<Value> {
    map.remove(key)
}

/// Writes a property.
pub(crate) fn property(key: &str, value: &str, output: &mut Output) {
    let key = output.plain_name(key);
    let value = output.json_name(value.as_bytes());
    output.writer.property(Property { key, value });
}
