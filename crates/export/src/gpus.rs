//! Finds the device that a host counter belongs to. NVML numbers all devices of the host, while
//! CUDA numbers the devices that a process may use. Their UUIDs join the two numberings.

use std::collections::BTreeMap;

use serde_json::Value;
use tprof_facts::labels;
use tprof_trace::TraceFile;
use tprof_trace::model::{Counter, ProcessIndex};

/// Maps host device numbers to the numbers used by processes of the file.
pub(crate) struct Gpus {
    sampled: bool,
    seen: BTreeMap<u32, (ProcessIndex, u32)>,
}

/// The device of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Gpu {
    /// The number that the file's processes use, and one process that uses it.
    Seen(Option<ProcessIndex>, u32),
    /// The number on the host, if no process of the file is known to use the device.
    OfHost(u32),
}

impl Gpus {
    pub fn of(trace: &TraceFile) -> Gpus {
        // If the property occurs twice, the last row counts.
        let facts = trace.properties().filter(|(key, _)| *key == "nvml").last();
        let facts = facts.and_then(|(_, text)| serde_json::from_str::<Value>(text).ok());
        let mut seen = BTreeMap::new();
        let devices = facts.as_ref().and_then(|facts| facts["devices"].as_array());
        for device in devices.into_iter().flatten() {
            let (Some(index), Some(uuid)) = (device["index"].as_u64(), device["uuid"].as_str())
            else {
                continue;
            };
            let mut rows = trace.devices().iter();
            let same = rows.find(|row| !uuid.is_empty() && trace.name(row.uuid) == uuid);
            if let Some(row) = same {
                seen.insert(index as u32, (row.process, row.device));
            }
        }
        Gpus { sampled: facts.is_some(), seen }
    }

    /// Returns the device that a counter belongs to, if any.
    pub fn gpu(&self, row: &Counter) -> Option<Gpu> {
        let device = row.device?;
        if row.process.is_some() || !self.sampled {
            return Some(Gpu::Seen(row.process, device));
        }
        Some(match self.seen.get(&device) {
            Some((process, number)) => Gpu::Seen(Some(*process), *number),
            None => Gpu::OfHost(device),
        })
    }
}

impl Gpu {
    /// Returns a label for people.
    pub fn label(self) -> String {
        match self {
            Gpu::Seen(_, device) => labels::device(device),
            Gpu::OfHost(device) => format!("{} of the host", labels::device(device)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::model::{Device, Property};
    use tprof_trace::{TraceHeader, TraceWriter};

    #[test]
    fn devices_of_the_host_are_matched_by_uuid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let uuid = writer.name("GPU-b");
        writer.device(&Device { process: 4, device: 0, uuid, ..Device::default() });
        let key = writer.name("nvml");
        let value = writer.name(
            r#"{"devices":[{"index":0,"uuid":"GPU-a"},{"index":1,"uuid":"GPU-b"},{"index":2}]}"#,
        );
        writer.property(Property { key, value });
        writer.finish().unwrap();
        let gpus = Gpus::of(&TraceFile::open(&path).unwrap());
        let row = |process, device| Counter {
            time_ns: 1,
            process,
            device,
            name: Default::default(),
            value: 0.0,
        };
        assert_eq!(gpus.gpu(&row(None, Some(1))), Some(Gpu::Seen(Some(4), 0)));
        assert_eq!(gpus.gpu(&row(None, Some(0))), Some(Gpu::OfHost(0)));
        assert_eq!(gpus.gpu(&row(None, Some(2))), Some(Gpu::OfHost(2)));
        assert_eq!(gpus.gpu(&row(Some(4), Some(0))), Some(Gpu::Seen(Some(4), 0)));
        assert_eq!(gpus.gpu(&row(None, None)), None);
    }
}
