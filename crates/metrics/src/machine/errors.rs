//! Reads the errors of the machine from a file. Every file of a host has all errors of that host.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tprof_facts::counters::is_error;
use tprof_facts::machine_errors::{ErrorPlace, MachineError};
use tprof_trace::TraceFile;
use tprof_trace::model::{MarkKind, counter, property};

/// A device of the host by NVML's number, or none, and the name of a counter.
pub type CounterKey = (Option<u32>, String);

/// Readings of a counter by time, ns: totals since the run began.
pub type Totals = BTreeMap<u64, f64>;

/// An error and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedError {
    /// Time of the error on the file's clock.
    pub time_ns: u64,
    /// Its kind, device and text.
    pub error: MachineError,
}

/// The errors of a host.
#[derive(Clone, Debug, Default)]
pub struct MachineErrors {
    /// Name of the host.
    pub host: String,
    /// What was watched beside the devices, as the collector wrote it; `None` if nothing was.
    pub machine: Option<Value>,
    /// NVML's facts about the devices.
    pub devices: Option<Value>,
    /// The errors in order of time, each once.
    pub errors: Vec<TimedError>,
    /// The counters that rose.
    pub counters: BTreeMap<CounterKey, Totals>,
    /// The UUIDs of the devices that processes of the file see.
    pub sees: BTreeSet<String>,
}

/// How much a counter rose between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rise {
    /// The reading before, ns.
    pub from_ns: u64,
    /// The reading that has the rise, ns.
    pub to_ns: u64,
    /// By how much the total rose.
    pub count: f64,
}

impl MachineErrors {
    /// Reads the errors of a file.
    pub fn of(file: &TraceFile) -> MachineErrors {
        let last = |key: &str| {
            let found = file.properties().filter(|(name, _)| *name == key).last();
            found.and_then(|(_, text)| serde_json::from_str(text).ok())
        };
        let marks = file.marks().iter().filter(|mark| mark.kind == MarkKind::MachineError);
        let errors = marks.filter_map(|mark| {
            let error = MachineError::parse(file.name(mark.name))?;
            Some(TimedError { time_ns: mark.time_ns, error })
        });
        let mut found = MachineErrors {
            host: file.header().host.clone(),
            machine: last(property::MACHINE),
            devices: last("nvml"),
            errors: errors.collect(),
            ..MachineErrors::default()
        };
        found.errors.sort_by_key(|one| one.time_ns);
        let of_host = file.counters().iter().filter(|row| row.process.is_none());
        for row in of_host.filter(|row| row.value.is_finite() && file.holds(row.time_ns)) {
            let name = file.name(row.name);
            if is_error(name) {
                let key = (row.device, name.to_owned());
                found.counters.entry(key).or_default().insert(row.time_ns, row.value);
            }
        }
        let uuids = file.devices().iter().map(|row| file.name(row.uuid).to_owned());
        found.sees = uuids.filter(|uuid| !uuid.is_empty()).collect();
        found
    }

    /// Adds what another file of the same host has.
    pub(super) fn join(&mut self, other: &MachineErrors) {
        self.machine = self.machine.take().or_else(|| other.machine.clone());
        self.devices = self.devices.take().or_else(|| other.devices.clone());
        let new = other.errors.iter().filter(|one| !self.errors.contains(one));
        let new: Vec<TimedError> = new.cloned().collect();
        self.errors.extend(new);
        self.errors.sort_by_key(|one| one.time_ns);
        for (key, totals) in &other.counters {
            self.counters.entry(key.clone()).or_default().extend(totals);
        }
    }

    /// Returns NVML's facts about each device.
    pub fn device_facts(&self) -> impl Iterator<Item = &Value> {
        self.devices.iter().flat_map(|facts| facts["devices"].as_array()).flatten()
    }

    /// Whether there was any error: one that was reported, or a counter of errors that rose.
    pub fn has_any(&self) -> bool {
        let rose = |(key, totals): (&CounterKey, &Totals)| {
            key.1 != counter::TCP_SENT && !MachineErrors::rises(totals).is_empty()
        };
        !self.errors.is_empty() || self.counters.iter().any(rose)
    }

    /// Whether anything was watched for errors. Readings of devices by an earlier version of tprof
    /// have none.
    pub fn were_watched(&self) -> bool {
        self.machine.is_some() || self.device_facts().any(|device| device["errors"].is_object())
    }

    /// Returns NVML's number of the device that an error is of, if it is known.
    pub fn gpu_of(&self, error: &MachineError) -> Option<u32> {
        let address = match error.place.as_ref()? {
            ErrorPlace::Gpu(index) => return Some(*index),
            ErrorPlace::Pci(address) => pci_address(address)?,
        };
        let is_it = |facts: &&Value| facts["pci"].as_str().and_then(pci_address) == Some(address);
        let facts = self.device_facts().find(is_it)?;
        facts["index"].as_u64().and_then(|index| index.try_into().ok())
    }

    /// Whether processes of the file see this device, or it isn't known which devices they see.
    pub fn sees_gpu(&self, index: u32) -> bool {
        let facts = self.device_facts().find(|facts| facts["index"] == index);
        let uuid = facts.and_then(|facts| facts["uuid"].as_str());
        self.sees.is_empty() || uuid.is_none_or(|uuid| self.sees.contains(uuid))
    }

    /// Returns the rises of a counter in order of time.
    pub fn rises(totals: &Totals) -> Vec<Rise> {
        let mut before: Option<(u64, f64)> = None;
        let mut rises = Vec::new();
        for (&time_ns, &total) in totals {
            // The first row of a file that was opened late has no row before it.
            let (from_ns, from) = before.unwrap_or((time_ns, 0.0));
            if total > from {
                rises.push(Rise { from_ns, to_ns: time_ns, count: total - from });
            }
            before = Some((time_ns, total));
        }
        rises
    }

    /// Returns the last total of a counter of the host.
    pub fn total(&self, name: &str) -> Option<f64> {
        let totals = self.counters.get(&(None, name.to_owned()))?;
        totals.values().last().copied()
    }

    /// Returns why something could not be watched, as sentences without a full stop.
    fn not_watched(&self) -> Vec<String> {
        let mut why = Vec::new();
        match &self.machine {
            None => why.push("neither the kernel's log nor the network was watched".to_owned()),
            Some(facts) => {
                for (key, what) in [("kernel_log", "the kernel's log"), ("network", "the network")]
                {
                    let missing = facts[key].as_str();
                    why.extend(
                        missing.map(|missing| format!("{what} was not readable: {missing}")),
                    );
                }
            }
        }
        for facts in self.device_facts() {
            let missing = facts["errors"]["no_events"].as_str();
            let index = &facts["index"];
            why.extend(missing.map(|missing| format!("GPU {index} reports no XIDs: {missing}")));
        }
        why
    }

    /// Says in one sentence without a full stop what was watched, and what could not be.
    pub fn watch(&self) -> String {
        let mut all = vec![match self.watched() {
            words if words.is_empty() => "tprof could watch nothing".to_owned(),
            words => format!("tprof watched {words}"),
        }];
        all.extend(self.not_watched());
        all.join("; ")
    }

    /// Returns what was watched, in a few words; empty if nothing was.
    pub fn watched(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        if let Some(facts) = &self.machine {
            for (key, what) in [("kernel_log", "the kernel's log"), ("network", "the network")] {
                words.extend(facts[key].is_null().then(|| what.to_owned()));
            }
        }
        let gpus = self.device_facts().filter(|device| device["errors"].is_object()).count();
        match gpus {
            0 => {}
            1 => words.push("1 GPU".to_owned()),
            gpus => words.push(format!("{gpus} GPUs")),
        }
        match words.pop() {
            Some(last) if !words.is_empty() => format!("{} and {last}", words.join(", ")),
            last => last.unwrap_or_default(),
        }
    }
}

/// Parses an address on the PCI bus into its domain, bus and device. The kernel writes the domain
/// with four digits, NVML with eight; the kernel's XIDs may lack the function.
fn pci_address(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split(':').map(|part| {
        let part = part.split('.').next().unwrap_or(part);
        u32::from_str_radix(part, 16).ok()
    });
    let address = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(address)
}

/// The counters of which every rise is an error that nothing corrected.
pub const UNCORRECTED: [&str; 4] = [
    counter::GPU_ECC_UNCORRECTED,
    counter::GPU_ROWS_UNCORRECTED,
    counter::GPU_ROW_REMAP_FAILED,
    counter::INFINIBAND_LINK_DOWN,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_kernel_and_of_nvml_are_the_same() {
        let nvml = pci_address("00000000:3B:00.0");
        assert_eq!(nvml, Some((0, 0x3b, 0)));
        assert_eq!(pci_address("0000:3b:00"), nvml);
        for text in ["", "3b:00", "0000:3b:00:00", "x:y:z", "0000:3b:"] {
            assert_eq!(pci_address(text), None, "{text}");
        }
    }

    #[test]
    fn a_rise_lies_between_two_readings() {
        let totals: Totals = [(10, 0.0), (20, 3.0), (50, 3.0), (60, 5.0)].into();
        let rises = MachineErrors::rises(&totals);
        let row = |from_ns, to_ns, count| Rise { from_ns, to_ns, count };
        assert_eq!(rises, [row(10, 20, 3.0), row(50, 60, 2.0)]);
        assert_eq!(MachineErrors::rises(&[(70, 4.0)].into()), [row(70, 70, 4.0)]);
    }
}
