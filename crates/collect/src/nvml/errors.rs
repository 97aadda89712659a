//! Reads the counters of errors of devices, and waits for events about errors.

use super::library::{Device, DeviceEvent, EventSet, Library, NVLINKS, NvlinkErrors};
use super::{KnownDevice, NvmlMessage};
use crate::machine::{Changes, ErrorCounter, MachineMessage};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tprof_facts::machine_errors::MachineError;
use tprof_os::sys;
use tprof_trace::model::counter;

/// Least time between two readings of the counters of errors.
const PAUSE_NS: u64 = 1_000_000_000;
/// Readings of these counters may take at most one part in this many of the time. A device has up to
/// 18 links with four counters each.
const SHARE: u64 = 200;
/// Longest wait in the driver, so that the thread ends soon after the run.
const MOST_WAIT: Duration = Duration::from_millis(500);
/// Most events that are told between two readings of the devices. A broken link may report
/// thousands.
const MOST_EVENTS: usize = 20;
/// The driver's waits count in milliseconds.
const LEAST_WAIT: Duration = Duration::from_millis(1);

const NVLINK: [(NvlinkErrors, &str); 4] = [
    (NvlinkErrors::Replays, counter::GPU_NVLINK_REPLAYS),
    (NvlinkErrors::Recoveries, counter::GPU_NVLINK_RECOVERIES),
    (NvlinkErrors::FlitCrc, counter::GPU_NVLINK_FLIT_ERRORS),
    (NvlinkErrors::DataCrc, counter::GPU_NVLINK_DATA_ERRORS),
];

/// The errors of one device.
#[derive(Debug, Default)]
pub(super) struct DeviceErrors {
    changes: Changes,
    /// The quantities that were read at the last reading.
    watched: Vec<&'static str>,
    /// The quantities that were not, with the reasons.
    missing: BTreeMap<&'static str, String>,
    /// The reason why the device reports no events; `None` if it does.
    no_events: Option<String>,
}

impl DeviceErrors {
    /// Describes what is watched.
    pub(super) fn facts(&self) -> Value {
        json!({ "watched": self.watched, "missing": self.missing, "no_events": self.no_events })
    }

    /// Reads the counters of a device. Returns whether other quantities are watched than before.
    fn read(
        &mut self,
        library: &Library,
        known: (u32, Device),
        send: &dyn Fn(NvmlMessage),
    ) -> bool {
        let (index, device) = known;
        let now = sys::monotonic_ns();
        let (mut values, mut watched, mut missing) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let mut take = |name: &'static str, value: Result<u64, String>| match value {
            Ok(value) => {
                values.insert(name.to_owned(), value);
                watched.push(name);
            }
            Err(why) => drop(missing.insert(name, why)),
        };
        take(counter::GPU_ECC_CORRECTED, library.ecc_errors(device, true));
        take(counter::GPU_ECC_UNCORRECTED, library.ecc_errors(device, false));
        let rows = library.remapped_rows(device);
        take(counter::GPU_ROWS_CORRECTED, rows.clone().map(|rows| rows.0.into()));
        take(counter::GPU_ROWS_UNCORRECTED, rows.clone().map(|rows| rows.1.into()));
        take(counter::GPU_ROW_REMAP_FAILED, rows.map(|rows| rows.2.into()));
        take(counter::GPU_RETIRED_PAGES, library.retired_pages(device));
        take(counter::GPU_PCIE_REPLAYS, library.pcie_replays(device).map(u64::from));
        let links = links(library, device);
        for (kind, name) in NVLINK {
            let of_link = |link: &u32| {
                let count = library.nvlink_errors(device, *link, kind)?;
                Ok((format!("{name}{}{link}", counter::PLACE), count))
            };
            let read = links.clone().and_then(|links| links.iter().map(of_link).collect());
            match read {
                Ok(counts) => {
                    let counts: Vec<(String, u64)> = counts;
                    values.extend(counts);
                    watched.push(name);
                }
                Err(why) => drop(missing.insert(name, why)),
            }
        }
        for at in self.changes.take(now, values) {
            let row = ErrorCounter::of(at, Some(index));
            send(NvmlMessage::Machine(MachineMessage::Counter(row)));
        }
        let is_new = (&self.watched, &self.missing) != (&watched, &missing);
        (self.watched, self.missing) = (watched, missing);
        is_new
    }
}

/// Returns the links of NVLink that are up, or why there are none.
fn links(library: &Library, device: Device) -> Result<Vec<u32>, String> {
    let first = library.nvlink_is_up(device, 0)?;
    // The numbers of links that a device doesn't have are refused.
    let others = (1..NVLINKS).filter(|link| library.nvlink_is_up(device, *link) == Ok(true));
    let up: Vec<u32> = first.then_some(0).into_iter().chain(others).collect();
    if up.is_empty() { Err("no link of NVLink is up".to_owned()) } else { Ok(up) }
}

/// The errors of all devices.
pub(super) struct ErrorWatch {
    events: Option<EventSet>,
    due_ns: u64,
}

impl ErrorWatch {
    /// Asks for events of the devices.
    pub(super) fn begin(library: &Library, devices: &mut [KnownDevice]) -> ErrorWatch {
        let events = match library.watch(devices.iter().map(|device| device.device)) {
            Ok((events, why)) => {
                for (device, why) in devices.iter_mut().zip(why) {
                    device.errors.no_events = why;
                }
                let any = devices.iter().any(|device| device.errors.no_events.is_none());
                any.then_some(events)
            }
            Err(why) => {
                no_events(devices, &why);
                None
            }
        };
        ErrorWatch { events, due_ns: 0 }
    }

    /// Reads the counters of all devices, if they are due. Returns whether the facts have changed.
    pub(super) fn read(
        &mut self,
        library: &Library,
        devices: &mut [KnownDevice],
        send: &dyn Fn(NvmlMessage),
    ) -> bool {
        let now = sys::monotonic_ns();
        if now < self.due_ns {
            return false;
        }
        let mut news = false;
        for device in devices {
            news |= device.errors.read(library, (device.index, device.device), send);
        }
        let took_ns = sys::monotonic_ns().saturating_sub(now);
        self.due_ns = now + PAUSE_NS.max(took_ns.saturating_mul(SHARE));
        news
    }

    /// Waits until `until`, and tells of each event that comes meanwhile. Returns whether the facts
    /// have changed.
    pub(super) fn wait(
        &mut self,
        library: &Library,
        devices: &mut [KnownDevice],
        until: Instant,
        stop: &AtomicBool,
        send: &dyn Fn(NvmlMessage),
    ) -> bool {
        let mut told = 0;
        let mut news = false;
        while !stop.load(Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let events = self.events.as_ref().filter(|_| left >= LEAST_WAIT && told < MOST_EVENTS);
            let Some(events) = events else {
                std::thread::park_timeout(left);
                continue;
            };
            match library.wait(events, left.min(MOST_WAIT)) {
                Ok(None) => {}
                Ok(Some((of, event))) => {
                    told += 1;
                    let known = devices.iter().find(|device| device.device == of);
                    let index = known.map(|device| device.index).or_else(|| {
                        let uuid = library.uuid(of).ok()?;
                        devices.iter().find(|known| known.uuid == uuid).map(|known| known.index)
                    });
                    let Some(index) = index else { continue };
                    let error = match event {
                        DeviceEvent::Xid(number) => MachineError::xid(number, index),
                        DeviceEvent::UncorrectedEcc => MachineError::uncorrected_ecc(index),
                        DeviceEvent::Other => continue,
                    };
                    let (time_ns, text) = (sys::monotonic_ns(), error.to_string());
                    send(NvmlMessage::Machine(MachineMessage::Error { time_ns, text }));
                }
                // Further waits would fail at once.
                Err(why) => {
                    no_events(devices, &why);
                    self.events = None;
                    news = true;
                }
            }
        }
        news
    }
}

fn no_events(devices: &mut [KnownDevice], why: &str) {
    for device in devices {
        device.errors.no_events = Some(why.to_owned());
    }
}
