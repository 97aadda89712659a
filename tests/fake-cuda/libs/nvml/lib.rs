//! Stands in for NVML, NVIDIA's management library: devices whose values follow a series. Each
//! reading is logged. `FAKE_NVML_FAULTS` chooses faults, with words separated by commas:
//!
//! | word | what happens |
//! |---|---|
//! | `init=N` | NVML does not start, and returns this result |
//! | `none` | there is no device |
//! | `nopower` | devices do not report their power |
//! | `old` | an older driver: no second version of memory, no `…EventReasons`, no `…TemperatureV` |
//! | `lost=N` | a device is lost from the Nth reading of its utilisation on |
//! | `xid=N` | at the fourth reading of its utilisation, the last device has the XID N |
//! | `ecc` | at the same time, the last device has an ECC error that could not be corrected |
//! | `errors` | from then on, counters of errors of the last device are higher |
//! | `noevents` | devices report no events |
//! | `nogpm` | no device has GPM |
//! | `nometric=N` | GPM does not support the metric N |
//! | `nan=N` | GPM has no number for the metric N |
//! | `noenergy` | devices do not count their energy |
//!
//! The counters of errors begin with errors from before the job. A device has two links of NVLink.
//! `build.sh` also makes a library without GPM's functions, as drivers before R520 have it.
#![allow(unsafe_code, non_snake_case, clippy::missing_safety_doc)]

mod errors;
mod gpm;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tprof_fake_cuda::number;

const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const DRIVER_NOT_LOADED: c_int = 9;
const INSUFFICIENT_SIZE: c_int = 7;
const TIMEOUT: c_int = 10;
const FUNCTION_NOT_FOUND: c_int = 13;
const GPU_IS_LOST: c_int = 15;
const ARGUMENT_VERSION_MISMATCH: c_int = 25;
/// Bytes that the driver and the firmware reserve. The first version of the memory function counts
/// them as used.
const RESERVED: u64 = 613 << 20;
/// Device handles are numbered from 1, so that no handle is a null pointer.
const MOST: usize = 16;

/// Readings of utilisation so far, by device.
static READINGS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

fn fault(name: &str) -> Option<u64> {
    let text = std::env::var("FAKE_NVML_FAULTS").ok()?;
    let word = text.split(',').find(|word| word.split('=').next() == Some(name))?;
    Some(word.split_once('=').and_then(|(_, value)| value.parse().ok()).unwrap_or(0))
}

fn count() -> usize {
    match fault("none") {
        Some(_) => 0,
        None => (number("FAKE_CUDA_DEVICES", 1) as usize).min(MOST),
    }
}

/// Returns the device's number, if the device exists and is not lost.
fn device(handle: *mut c_void) -> Result<usize, c_int> {
    let at = (handle as usize).wrapping_sub(1);
    let Some(readings) = READINGS.get(at).filter(|_| at < count()) else {
        return Err(INVALID_ARGUMENT);
    };
    match fault("lost") {
        Some(after) if readings.load(Relaxed) >= after => Err(GPU_IS_LOST),
        _ => Ok(at),
    }
}

fn log(device: usize, key: &str, value: f64) {
    write_line(&format!(
        "{{\"what\":\"nvml\",\"device\":{device},\"key\":\"{key}\",\"value\":{value}}}\n"
    ));
}

fn write_line(line: &str) {
    let Ok(folder) = std::env::var("FAKE_CUDA_LOG") else { return };
    let path = format!("{folder}/nvml.jsonl");
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
        let _ = file.write_all(line.as_bytes());
    }
}

/// Writes a value of a device. `of` makes the value from the device's number and the number of
/// readings.
fn answer<T>(
    handle: *mut c_void,
    to: *mut T,
    of: impl FnOnce(u64, u64) -> Result<T, c_int>,
) -> c_int {
    let value = device(handle).and_then(|at| of(at as u64, READINGS[at].load(Relaxed)));
    match value {
        Ok(value) => {
            // SAFETY: the caller passes a valid pointer to write the answer to.
            unsafe { *to = value };
            SUCCESS
        }
        Err(result) => result,
    }
}

unsafe fn text(handle: *mut c_void, to: *mut c_char, bytes: c_uint, text: &str) -> c_int {
    if let Err(result) = device(handle) {
        return result;
    }
    // SAFETY: the caller passes room for `bytes` bytes.
    unsafe { write(to, bytes as usize, text) }
}

unsafe fn write(to: *mut c_char, bytes: usize, text: &str) -> c_int {
    if text.len() >= bytes {
        return INVALID_ARGUMENT;
    }
    for (at, byte) in text.bytes().chain([0]).enumerate() {
        // SAFETY: `at` is below the number of bytes that the caller passed.
        unsafe { *to.add(at) = byte as c_char };
    }
    SUCCESS
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    write_line("{\"what\":\"nvml began\"}\n");
    fault("init").map_or(SUCCESS, |result| result as c_int)
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_int {
    SUCCESS
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: c_int) -> *const c_char {
    match result {
        SUCCESS => c"Success",
        INVALID_ARGUMENT => c"Invalid Argument",
        NOT_SUPPORTED => c"Not Supported",
        DRIVER_NOT_LOADED => c"Driver Not Loaded",
        INSUFFICIENT_SIZE => c"Insufficient Size",
        TIMEOUT => c"Timeout",
        GPU_IS_LOST => c"GPU is lost",
        _ => c"Unknown Error",
    }
    .as_ptr()
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(to: *mut c_char, bytes: c_uint) -> c_int {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { write(to, bytes as usize, "999.0 (simulated)") }
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(to: *mut c_uint) -> c_int {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *to = count() as c_uint };
    SUCCESS
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    to: *mut *mut c_void,
) -> c_int {
    if index as usize >= count() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *to = (index as usize + 1) as *mut c_void };
    SUCCESS
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(of: *mut c_void, to: *mut c_char, n: c_uint) -> c_int {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { text(of, to, n, "Simulated GPU") }
}

/// Like NVML's function: it returns the same UUID as CUPTI's stand-in for this device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(of: *mut c_void, to: *mut c_char, n: c_uint) -> c_int {
    let bytes = tprof_fake_cuda::uuid(of as u32 - 1);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { text(of, to, n, &format!("GPU-{}", parts.join("-"))) }
}

/// NVML's `nvmlPciInfo_t` structure.
#[repr(C)]
pub struct Pci {
    legacy: [c_char; 16],
    numbers: [c_uint; 5],
    id: [c_char; 32],
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(of: *mut c_void, to: *mut Pci) -> c_int {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe {
        text(of, (&raw mut (*to).id).cast(), 32, &format!("00000000:{:02X}:00.0", of as usize))
    }
}

/// NVML's `nvmlUtilization_t` structure.
#[repr(C)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// Like NVML's function. It also begins a round of readings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    of: *mut c_void,
    to: *mut Utilization,
) -> c_int {
    answer(of, to, |at, _| {
        let n = READINGS[at as usize].fetch_add(1, Relaxed) + 1;
        let (gpu, memory) = ((n * 37 + at) % 101, (n * 11) % 101);
        log(at as usize, "gpu_utilization", gpu as f64 / 100.0);
        log(at as usize, "gpu_memory_utilization", memory as f64 / 100.0);
        Ok(Utilization { gpu: gpu as c_uint, memory: memory as c_uint })
    })
}

/// NVML's `nvmlMemory_t` structure.
#[repr(C)]
pub struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// NVML's `nvmlMemory_v2_t` structure.
#[repr(C)]
pub struct MemoryV2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// Returns the `version` that a structure must have: its size, with its number in the highest byte.
const fn version_of<T>(number: c_uint) -> c_uint {
    size_of::<T>() as c_uint | number << 24
}

/// Returns the bytes in use by programs, at a reading.
fn used(at: u64, n: u64, with_reserve: bool) -> u64 {
    let used = ((1 + n) << 30) + if with_reserve { RESERVED } else { 0 };
    if n > 0 {
        log(at as usize, "gpu_memory_used_bytes", used as f64);
    }
    used
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(of: *mut c_void, to: *mut Memory) -> c_int {
    answer(of, to, |at, n| {
        let (total, used) = (80 << 30, used(at, n, true));
        Ok(Memory { total, free: total - used, used })
    })
}

/// Like NVML's function from R510 on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(of: *mut c_void, to: *mut MemoryV2) -> c_int {
    if fault("old").is_some() {
        return FUNCTION_NOT_FOUND;
    }
    // SAFETY: the caller passes a valid structure with its version set.
    let version = unsafe { (*to).version };
    if version != version_of::<MemoryV2>(2) {
        return ARGUMENT_VERSION_MISMATCH;
    }
    answer(of, to, |at, n| {
        let (total, used) = (80 << 30, used(at, n, false));
        Ok(MemoryV2 { version, total, reserved: RESERVED, free: total - used - RESERVED, used })
    })
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(
    of: *mut c_void,
    kind: c_uint,
    to: *mut c_uint,
) -> c_int {
    answer(of, to, |at, n| {
        let (key, mhz) = match kind {
            1 => ("gpu_sm_clock_hz", 1980 - n % 3 * 100),
            2 => ("gpu_memory_clock_hz", 2619),
            _ => return Err(INVALID_ARGUMENT),
        };
        log(at as usize, key, mhz as f64 * 1e6);
        Ok(mhz as c_uint)
    })
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(
    of: *mut c_void,
    _kind: c_uint,
    to: *mut c_uint,
) -> c_int {
    answer(of, to, |_, _| Ok(1980))
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(of: *mut c_void, to: *mut c_uint) -> c_int {
    answer(of, to, |at, n| {
        if fault("nopower").is_some() {
            return Err(NOT_SUPPORTED);
        }
        let milliwatts = 300_500 + n * 1000;
        log(at as usize, "gpu_power_watts", milliwatts as f64 / 1000.0);
        Ok(milliwatts as c_uint)
    })
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetEnforcedPowerLimit(
    of: *mut c_void,
    to: *mut c_uint,
) -> c_int {
    answer(of, to, |_, _| Ok(700_000))
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(
    of: *mut c_void,
    _sensor: c_uint,
    to: *mut c_uint,
) -> c_int {
    answer(of, to, |at, n| {
        log(at as usize, "gpu_temperature_celsius", (40 + n % 20) as f64);
        Ok((40 + n % 20) as c_uint)
    })
}

/// NVML's `nvmlTemperature_v1_t` structure.
#[repr(C)]
pub struct Temperature {
    version: c_uint,
    sensor: c_uint,
    celsius: c_int,
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperatureV(of: *mut c_void, to: *mut Temperature) -> c_int {
    if fault("old").is_some() {
        return FUNCTION_NOT_FOUND;
    }
    // SAFETY: the caller passes a valid structure with its version and sensor set.
    let (version, sensor) = unsafe { ((*to).version, (*to).sensor) };
    if version != version_of::<Temperature>(1) {
        return ARGUMENT_VERSION_MISMATCH;
    }
    let mut celsius = 0;
    // SAFETY: `celsius` is a valid local variable to write to.
    let result = unsafe { nvmlDeviceGetTemperature(of, sensor, &raw mut celsius) };
    if result == SUCCESS {
        // SAFETY: the caller passes a valid pointer to the structure.
        unsafe { (*to).celsius = celsius as c_int };
    }
    result
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrentClocksEventReasons(
    of: *mut c_void,
    to: *mut u64,
) -> c_int {
    match fault("old") {
        Some(_) => FUNCTION_NOT_FOUND,
        None => reasons(of, to),
    }
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    of: *mut c_void,
    to: *mut u64,
) -> c_int {
    reasons(of, to)
}

/// Writes the reasons for low clocks: at first none, then the power limit, then heat too.
fn reasons(of: *mut c_void, to: *mut u64) -> c_int {
    answer(of, to, |at, n| {
        let reasons = [0, 0x4, 0x44][n as usize % 3];
        log(at as usize, "gpu_throttle_reasons", reasons as f64);
        Ok(reasons)
    })
}
