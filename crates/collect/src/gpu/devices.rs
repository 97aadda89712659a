//! Stores the devices that a process uses, their contexts and their streams. The records of these
//! may come in any order.
//!
//! CUPTI describes every device that is visible to a process. A process uses only the devices on
//! which it has a context: with eight ranks on eight devices, each rank uses one. A stream's device
//! is known from its context. The record of a stream may come before that of its context, because
//! the two may be in buffers of different threads.

use super::texts::Texts;
use super::thread_rows::ThreadRows;
use std::collections::{BTreeMap, HashMap, HashSet};
use tprof_trace::model::*;
use tprof_wire::gpu;

/// The devices, contexts and streams that a process uses.
#[derive(Default)]
pub struct UsedDevices {
    /// Device of each context.
    contexts: HashMap<u32, u32>,
    described: BTreeMap<u32, gpu::Device>,
    written: HashSet<u32>,
    /// Streams that wait for the record of their context.
    streams: Vec<gpu::Stream>,
    /// Context and device of the last work. The next work nearly always has the same.
    last: Option<(u32, u32)>,
}

impl UsedDevices {
    /// Returns the device of a context.
    pub fn of_context(&self, context: u32) -> Option<u32> {
        self.contexts.get(&context).copied()
    }

    /// Returns context and device, if the process has exactly one context.
    pub fn only_context(&self) -> Option<(u32, u32)> {
        let mut all = self.contexts.iter();
        let (context, device) = all.next()?;
        all.next().is_none().then_some((*context, *device))
    }

    /// Adds a description of a device. If the device already has one, the new one is ignored.
    pub fn describe(&mut self, device: gpu::Device) {
        self.described.entry(device.device).or_insert(device);
    }

    /// Adds a stream.
    pub fn stream(&mut self, stream: gpu::Stream) {
        self.streams.push(stream);
    }

    /// Notes that a context is on a device. Returns whether this is new.
    #[inline]
    pub fn context(&mut self, context: u32, device: u32) -> bool {
        if self.last == Some((context, device)) {
            return false;
        }
        self.last = Some((context, device));
        self.contexts.insert(context, device) != Some(device)
    }

    /// Writes the devices that are used and described, and the streams whose device is known.
    pub fn write(&mut self, process: ProcessIndex, texts: &mut Texts, place: &mut ThreadRows<'_>) {
        let used: HashSet<u32> = self.contexts.values().copied().collect();
        for (number, device) in &self.described {
            if used.contains(number) && self.written.insert(*number) {
                write_device(process, device, texts, place);
            }
        }
        let contexts = &self.contexts;
        self.streams.retain(|stream| match contexts.get(&stream.context) {
            None => true,
            Some(device) => {
                place.writer().stream(&Stream {
                    process,
                    device: *device,
                    context: stream.context,
                    stream: u64::from(stream.stream),
                    name: NameId::default(),
                    priority: Some(stream.priority.wrapping_add(1 << 31)),
                });
                false
            }
        });
    }

    /// Returns the number of streams that still wait for the record of their context.
    pub fn unplaced(&self) -> u64 {
        self.streams.len() as u64
    }
}

fn write_device(
    process: ProcessIndex,
    d: &gpu::Device,
    texts: &mut Texts,
    place: &mut ThreadRows<'_>,
) {
    let uuid = [d.uuid_low.to_le_bytes(), d.uuid_high.to_le_bytes()].concat();
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    let known = uuid.iter().any(|byte| *byte != 0);
    let uuid = if known { format!("GPU-{}", parts.join("-")) } else { String::new() };
    place.file.devices.insert(uuid.clone());
    // A value that the driver left out is 0.
    let some = |number: u32| (number != 0).then_some(number);
    let properties: serde_json::Map<_, _> = [
        ("regsPerBlock", u64::from(d.registers_block)),
        ("regsPerMultiprocessor", d.registers.into()),
        ("sharedMemPerBlock", d.shared_block.into()),
        ("sharedMemPerMultiprocessor", d.shared.into()),
        ("maxThreadsPerBlock", d.threads.into()),
        ("maxThreadsPerMultiprocessor", d.warps.saturating_mul(d.warp).into()),
        ("maxBlocksPerMultiprocessor", d.blocks.into()),
        ("warpSize", d.warp.into()),
        ("clockRateKHz", d.clock.into()),
        ("l2CacheBytes", d.cache.into()),
        ("memoryBandwidthKBps", d.bandwidth),
    ]
    .into_iter()
    .filter(|(_, value)| *value != 0)
    .map(|(key, value)| (key.to_owned(), value.into()))
    .collect();
    let name = texts.plain(d.name, place.writer()).unwrap_or_default();
    let row = Device {
        process,
        device: d.device,
        name,
        uuid: place.writer().name(&uuid),
        memory_bytes: (d.memory != 0).then_some(d.memory),
        processors: some(d.processors),
        compute_major: some(d.major),
        compute_minor: some(d.major).map(|_| d.minor),
        properties: place.writer().name(&serde_json::Value::from(properties).to_string()),
    };
    place.writer().device(&row);
}
