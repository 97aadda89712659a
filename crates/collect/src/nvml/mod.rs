//! Reads the state of devices from outside the job: utilization, memory, clocks, power, energy,
//! temperature, why clocks are low, what their units do, and errors. A call to the driver's management library may take
//! milliseconds. Therefore a thread of the collector makes the calls, and no thread of the job
//! waits for them.
//!
//! If a device doesn't report a quantity, the quantity has no rows, and the reason is stored under
//! its name.

mod errors;
mod library;
mod means;

use crate::machine::MachineMessage;
use crate::output::files::{Files, OpenFile};
use errors::{DeviceErrors, ErrorWatch};
use library::{CLOCK_MEMORY, CLOCK_SM, Device, Library};
use means::DeviceMeans;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use tprof_os::sys;
use tprof_trace::model::{Counter, Property, counter};

/// A message of the thread that reads devices.
#[derive(Debug)]
pub enum NvmlMessage {
    /// A JSON object that describes the devices, or says why there are none. It replaces the
    /// previous one.
    Facts(Value),
    /// What a device reported at one time.
    Read(Reading),
    /// An error of a device, or a counter of its errors.
    Machine(MachineMessage),
}

/// What a device reported at one time.
#[derive(Debug)]
pub struct Reading {
    /// Time of the reading on CLOCK_MONOTONIC, ns.
    time_ns: u64,
    /// NVML's number of the device.
    index: u32,
    /// The device's UUID, as `GPU-…`; empty if it is unknown.
    uuid: String,
    /// The values, each with its name in [`counter`].
    values: Values,
}

type Values = Vec<(&'static str, f64)>;

/// Stops the thread that reads devices when it is dropped.
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Thread,
}

impl Sampler {
    /// Starts a thread that reads all devices once per `every` and passes the results to `deliver`.
    /// It must be started after the job's command, because the job must not inherit descriptors
    /// that the driver's library opens.
    pub fn start(
        every: Duration,
        deliver: impl Fn(NvmlMessage) + Send + 'static,
    ) -> Option<Sampler> {
        let stop = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&stop);
        let run = move || sample(every, &own, &deliver);
        // The thread is never joined, because a call to a driver that has lost its device may not
        // return.
        let thread: JoinHandle<()> =
            std::thread::Builder::new().name("tprof-nvml".to_owned()).spawn(run).ok()?;
        Some(Sampler { stop, thread: thread.thread().clone() })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.thread.unpark();
    }
}

/// A device, and the reasons why it doesn't report some quantities.
struct KnownDevice {
    index: u32,
    device: Device,
    uuid: String,
    facts: Map<String, Value>,
    missing: BTreeMap<&'static str, String>,
    means: DeviceMeans,
    errors: DeviceErrors,
}

fn sample(every: Duration, stop: &AtomicBool, send: &dyn Fn(NvmlMessage)) {
    let missing = |why: String| NvmlMessage::Facts(json!({ "missing": why }));
    let library = match Library::open() {
        Ok(library) => library,
        Err(why) => return send(missing(why)),
    };
    let mut devices = match devices(&library) {
        Ok(devices) if devices.is_empty() => {
            return send(missing("the NVIDIA driver has no device".to_owned()));
        }
        Ok(devices) => devices,
        Err(why) => return send(missing(format!("NVML lists no devices: {why}"))),
    };
    let driver = library.driver().unwrap_or_default();
    let mut errors = ErrorWatch::begin(&library, &mut devices);
    let mut news = true;
    let often = means::every(every);
    let mut due = Instant::now();
    while !stop.load(Relaxed) {
        let all = Instant::now() >= due;
        for device in &mut devices {
            news |= device.means.read(&library, device.device, &mut |time_ns, values| {
                let (index, uuid) = (device.index, device.uuid.clone());
                send(NvmlMessage::Read(Reading { time_ns, index, uuid, values }));
            });
            if all {
                let time_ns = sys::monotonic_ns();
                let (values, missing) = read(&library, device.device);
                news |= missing != device.missing;
                device.missing = missing;
                let (index, uuid) = (device.index, device.uuid.clone());
                send(NvmlMessage::Read(Reading { time_ns, index, uuid, values }));
            }
        }
        if all {
            due = Instant::now() + every;
        }
        news |= errors.read(&library, &mut devices, send);
        if news {
            send(NvmlMessage::Facts(facts(every, &driver, &devices)));
        }
        let until = Instant::now() + often;
        news = errors.wait(&library, &mut devices, until, stop, send);
    }
}

/// A device of this machine, and whether it tells what its units do.
#[derive(Debug)]
pub struct GpmSupport {
    /// NVML's number of the device.
    pub index: u32,
    /// Name of the device.
    pub name: String,
    /// Why it doesn't tell it; `None` if it does.
    pub why_not: Option<String>,
}

/// Returns which devices of this machine tell what their units do.
pub fn gpm_support() -> Result<Vec<GpmSupport>, String> {
    let library = Library::open()?;
    let of_device = |index: u32| {
        let device = library.device(index).ok()?;
        let name = library.name(device).unwrap_or_default();
        Some(GpmSupport { index, name, why_not: library.gpm_support(device).err() })
    };
    Ok((0..library.devices()?).filter_map(of_device).collect())
}

fn devices(library: &Library) -> Result<Vec<KnownDevice>, String> {
    let mut known = Vec::new();
    for index in 0..library.devices()? {
        // A device that this user may not use is skipped. The other devices keep their numbers.
        let Ok(device) = library.device(index) else { continue };
        let uuid = library.uuid(device).unwrap_or_default();
        let mut facts = Map::new();
        let mut fact = |key: &str, value: Result<Value, String>| {
            if let Ok(value) = value {
                facts.insert(key.to_owned(), value);
            }
        };
        fact("name", library.name(device).map(Value::from));
        fact("pci", library.pci(device).map(Value::from));
        let memory = library.memory(device);
        fact("memory_bytes", memory.clone().map(|memory| memory.total.into()));
        fact("memory_reserved_bytes", memory.clone().map(|memory| memory.reserved.into()));
        fact("used_includes_reserved", memory.map(|memory| memory.reserved.is_none().into()));
        fact(
            "power_limit_watts",
            library.power_limit(device).map(|mw| (f64::from(mw) / 1e3).into()),
        );
        let highest = library.highest_clock(device, CLOCK_SM);
        fact("highest_sm_clock_hz", highest.map(|mhz| (u64::from(mhz) * 1_000_000).into()));
        let means = DeviceMeans::of(library, device);
        let (missing, errors) = (BTreeMap::new(), DeviceErrors::default());
        known.push(KnownDevice { index, device, uuid, facts, missing, means, errors });
    }
    Ok(known)
}

fn facts(every: Duration, driver: &str, devices: &[KnownDevice]) -> Value {
    let of_device = |device: &KnownDevice| {
        let mut facts = device.facts.clone();
        facts.insert("index".to_owned(), device.index.into());
        facts.insert("uuid".to_owned(), device.uuid.as_str().into());
        let missing: BTreeMap<_, _> = device.missing.iter().chain(device.means.missing()).collect();
        facts.insert("missing".to_owned(), json!(missing));
        facts.insert("no_means".to_owned(), json!(device.means.none()));
        facts.insert("errors".to_owned(), device.errors.facts());
        Value::from(facts)
    };
    json!({
        "driver": driver,
        "every_ms": every.as_millis() as u64,
        "means_every_ms": means::every(every).as_millis() as u64,
        "devices": devices.iter().map(of_device).collect::<Vec<_>>(),
    })
}

/// Reads what a device reports now. Also returns the reasons for quantities that are missing.
fn read(library: &Library, device: Device) -> (Values, BTreeMap<&'static str, String>) {
    let (mut values, mut missing) = (Values::new(), BTreeMap::new());
    let mut take = |name: &'static str, value: Result<f64, String>| match value {
        Ok(value) => values.push((name, value)),
        Err(why) => drop(missing.insert(name, why)),
    };
    let hertz = |mhz: u32| f64::from(mhz) * 1e6;
    let rates = library.utilization(device);
    take(counter::GPU_UTILIZATION, rates.clone().map(|rates| f64::from(rates.0) / 100.0));
    take(counter::GPU_MEMORY_UTILIZATION, rates.map(|rates| f64::from(rates.1) / 100.0));
    take(counter::GPU_MEMORY_BYTES, library.memory(device).map(|memory| memory.used as f64));
    take(counter::GPU_SM_CLOCK, library.clock(device, CLOCK_SM).map(hertz));
    take(counter::GPU_MEMORY_CLOCK, library.clock(device, CLOCK_MEMORY).map(hertz));
    take(counter::GPU_POWER, library.power(device).map(|mw| f64::from(mw) / 1e3));
    take(counter::GPU_TEMPERATURE, library.temperature(device).map(f64::from));
    take(counter::GPU_THROTTLE, library.clock_reasons(device).map(|bits| bits as f64));
    (values, missing)
}

/// Number of readings that may wait until a file exists. If there are more, the newest are dropped.
/// Eight devices have about 180 a second.
const WAITING: usize = 8192;

/// Readings that are not written to files yet.
#[derive(Debug, Default)]
pub struct Devices {
    facts: Option<Value>,
    /// For each file, the number of facts that had arrived when the file last got them.
    written: Vec<u64>,
    /// Number of facts that have arrived.
    received: u64,
    waiting: Vec<Reading>,
}

impl Devices {
    /// Handles a message of the thread that reads devices. Returns false if a reading had to be
    /// dropped.
    #[must_use]
    pub fn take(&mut self, message: NvmlMessage, recording: bool) -> bool {
        match message {
            NvmlMessage::Facts(facts) => {
                self.received += 1;
                self.facts = Some(facts);
            }
            NvmlMessage::Read(reading) if recording && self.waiting.len() < WAITING => {
                self.waiting.push(reading);
            }
            NvmlMessage::Read(_) => return !recording,
            // The engine takes these: they belong to all files, and are recorded all the time.
            NvmlMessage::Machine(_) => {}
        }
        true
    }

    /// Returns the number of readings that wait for a file.
    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Returns the number of the device with this UUID.
    pub fn index_of(&self, uuid: &str) -> Option<u32> {
        let known = self.facts.as_ref()?["devices"].as_array()?;
        let found = known.iter().find(|facts| facts["uuid"] == uuid)?;
        found["index"].as_u64().map(|index| index as u32)
    }

    /// Writes the waiting readings once a file exists. A reading is written to the files whose
    /// processes use the device, or to the first file if no process is known to use it.
    /// `is_replaced` says of which counters of a device something else tells the value at a time.
    pub fn write(&mut self, files: &mut Files, is_replaced: impl Fn(&str, &str, u64) -> bool) {
        if files.open.is_empty() {
            return;
        }
        for Reading { time_ns, index, uuid, mut values } in self.waiting.drain(..) {
            values.retain(|(name, _)| !is_replaced(&uuid, name, time_ns));
            let sees = |file: &OpenFile| file.devices.contains(&uuid);
            let nobody = !files.open.iter().any(sees);
            for (at, file) in files.open.iter_mut().enumerate() {
                if !(sees(file) || nobody && at == 0) {
                    continue;
                }
                for &(name, value) in &values {
                    let (name, device) = (file.writer.name(name), Some(index));
                    file.counter(Counter { time_ns, process: None, device, name, value });
                }
            }
        }
        self.write_facts(files);
    }

    /// Writes the newest facts to the files that don't have them yet.
    fn write_facts(&mut self, files: &mut Files) {
        let Some(facts) = &self.facts else { return };
        self.written.resize(files.open.len(), 0);
        for (file, written) in files.open.iter_mut().zip(&mut self.written) {
            if *written < self.received {
                *written = self.received;
                let key = file.writer.name("nvml");
                let value = file.writer.name(&facts.to_string());
                file.writer.property(Property { key, value });
            }
        }
    }
}
