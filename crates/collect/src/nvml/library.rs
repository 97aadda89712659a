//! Calls NVIDIA's management library (NVML). It belongs to the driver, so it is loaded at run time,
//! and the few functions that are used are looked up by name.
//!
//! The library stays loaded until the process ends, because threads of the driver may run in it.
//! (The crate `nvml-wrapper` isn't used: it unloads the library when it is dropped, looks up all of
//! its 396 functions at the start, and takes 16 s of processor time to compile.)
#![allow(unsafe_code)] // a library with a C interface

use libloading::os::unix::{Library as Loaded, RTLD_NOW};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;

/// The status that the library's functions return; 0 is success.
pub type Status = c_int;
/// Handle of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Device(*mut c_void);
// SAFETY: NVIDIA documents NVML as thread-safe, so any thread may use a device's handle.
unsafe impl Send for Device {}

type Name = unsafe extern "C" fn(*mut c_void, *mut c_char, c_uint) -> Status;
type Number = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> Status;
type OfKind = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> Status;
type Mask = unsafe extern "C" fn(*mut c_void, *mut u64) -> Status;

/// Largest length of a text that the library returns, bytes.
const TEXT: usize = 96;
/// The value of `NVML_CLOCK_SM`.
pub const CLOCK_SM: c_uint = 1;
/// The value of `NVML_CLOCK_MEM`.
pub const CLOCK_MEMORY: c_uint = 2;

/// The C struct `nvmlUtilization_t`.
#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// The C struct `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct MemoryV1 {
    total: u64,
    free: u64,
    used: u64,
}

/// The C struct `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Default)]
struct MemoryV2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// The C struct `nvmlTemperature_v1_t`.
#[repr(C)]
#[derive(Default)]
struct TemperatureV1 {
    version: c_uint,
    sensor: c_uint,
    celsius: c_int,
}

/// Returns the `version` field of a structure: its size, with the structure's version in the
/// highest byte.
const fn version_of<T>(number: c_uint) -> c_uint {
    size_of::<T>() as c_uint | number << 24
}
const _: () = assert!(version_of::<MemoryV2>(2) == 0x0200_0028);
const _: () = assert!(version_of::<TemperatureV1>(1) == 0x0100_000c);

/// Memory of a device.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes in use by all processes.
    pub used: u64,
    /// Bytes in total.
    pub total: u64,
    /// Bytes that driver and firmware reserve. A driver before R510 doesn't report them: `used`
    /// includes them, and this is `None`.
    pub reserved: Option<u64>,
}

/// The C struct `nvmlPciInfo_t`.
#[repr(C)]
struct Pci {
    legacy: [c_char; 16],
    numbers: [c_uint; 5],
    id: [c_char; 32],
}
const _: () = assert!(size_of::<Pci>() == 68);

/// The loaded and initialized library.
pub struct Library {
    loaded: &'static Loaded,
}

/// Calls a function of the library by its name and type, and returns its status.
macro_rules! status {
    ($self:expr, $name:literal as $type:ty, ($($argument:expr),*)) => {
        // SAFETY: NVML's header declares the function of this name with this type, in every
        // version.
        match unsafe { $self.loaded.get::<$type>($name) } {
            // SAFETY: each use of this macro passes handles that this library returned, and
            // pointers to live variables of the types that the function writes.
            Ok(function) => Ok(unsafe { function($($argument),*) }),
            Err(_) => Err(format!("this driver has no {}", $name.to_string_lossy())),
        }
    };
}

/// Calls a function of the library by its name and type.
macro_rules! call {
    ($self:expr, $name:literal as $type:ty, $arguments:tt) => {
        status!($self, $name as $type, $arguments).and_then(|status| $self.result(status))
    };
}

mod errors;
mod gpm;

pub use errors::{DeviceEvent, EventSet, NVLINKS, NvlinkErrors};
pub use gpm::{GpmMetrics, GpmSample};

/// Returns why the library can't be loaded. A build for musl can't load any library at run time.
fn why_not() -> &'static str {
    match cfg!(target_feature = "crt-static") && Path::new("/proc/driver/nvidia").exists() {
        true => {
            "this tprof is static, for musl: it cannot load libnvidia-ml.so.1; the one for glibc can"
        }
        false => "no NVIDIA driver: the loader finds no libnvidia-ml.so.1",
    }
}

impl Library {
    /// Loads and initializes the library. The error says why that failed.
    pub fn open() -> Result<Library, String> {
        // SAFETY: loading runs the constructors of the driver's own library, which rely on nothing
        // in this process.
        let loaded = unsafe { Loaded::open(Some("libnvidia-ml.so.1"), RTLD_NOW) }
            .map_err(|_| why_not().to_owned())?;
        let library = Library { loaded: Box::leak(Box::new(loaded)) };
        call!(library, c"nvmlInit_v2" as unsafe extern "C" fn() -> Status, ())
            .map_err(|why| format!("NVML does not start: {why}"))?;
        Ok(library)
    }

    /// Converts a status to a result. The error is the library's description of the status.
    fn result(&self, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        type ErrorString = unsafe extern "C" fn(Status) -> *const c_char;
        // SAFETY: NVML's header declares `nvmlErrorString` with this type, and it accepts any
        // status.
        let text = unsafe {
            let describe = self.loaded.get::<ErrorString>(c"nvmlErrorString");
            describe.ok().map(|describe| describe(status)).filter(|text| !text.is_null())
        };
        // SAFETY: `nvmlErrorString` returns a pointer to a constant NUL-terminated string. Null was
        // filtered out above.
        let text = text.map(|text| unsafe { CStr::from_ptr(text) });
        Err(text.map_or_else(|| format!("error {status}"), |text| text.to_string_lossy().into()))
    }

    /// Returns the driver's version.
    pub fn driver(&self) -> Result<String, String> {
        type Get = unsafe extern "C" fn(*mut c_char, c_uint) -> Status;
        let mut text = [0; TEXT];
        call!(self, c"nvmlSystemGetDriverVersion" as Get, (text.as_mut_ptr(), TEXT as c_uint))?;
        Ok(text_of(&text))
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> Result<u32, String> {
        type Get = unsafe extern "C" fn(*mut c_uint) -> Status;
        let mut count = 0;
        call!(self, c"nvmlDeviceGetCount_v2" as Get, (&raw mut count))?;
        Ok(count)
    }

    /// Returns the device with this number.
    pub fn device(&self, index: u32) -> Result<Device, String> {
        type Get = unsafe extern "C" fn(c_uint, *mut *mut c_void) -> Status;
        let mut device = std::ptr::null_mut();
        call!(self, c"nvmlDeviceGetHandleByIndex_v2" as Get, (index, &raw mut device))?;
        Ok(Device(device))
    }

    /// Returns the name of a device.
    pub fn name(&self, of: Device) -> Result<String, String> {
        let mut text = [0; TEXT];
        call!(self, c"nvmlDeviceGetName" as Name, (of.0, text.as_mut_ptr(), TEXT as c_uint))?;
        Ok(text_of(&text))
    }

    /// Returns the UUID of a device, as `GPU-…`.
    pub fn uuid(&self, of: Device) -> Result<String, String> {
        let mut text = [0; TEXT];
        call!(self, c"nvmlDeviceGetUUID" as Name, (of.0, text.as_mut_ptr(), TEXT as c_uint))?;
        Ok(text_of(&text))
    }

    /// Returns the address of a device on the PCI bus.
    pub fn pci(&self, of: Device) -> Result<String, String> {
        type Get = unsafe extern "C" fn(*mut c_void, *mut Pci) -> Status;
        let mut pci = Pci { legacy: [0; 16], numbers: [0; 5], id: [0; 32] };
        call!(self, c"nvmlDeviceGetPciInfo_v3" as Get, (of.0, &raw mut pci))?;
        Ok(text_of(&pci.id))
    }

    /// Returns two percentages of the last sampling period: in which a kernel ran, and in which
    /// memory was read or written.
    pub fn utilization(&self, of: Device) -> Result<(u32, u32), String> {
        type Get = unsafe extern "C" fn(*mut c_void, *mut Utilization) -> Status;
        let mut rates = Utilization::default();
        call!(self, c"nvmlDeviceGetUtilizationRates" as Get, (of.0, &raw mut rates))?;
        Ok((rates.gpu, rates.memory))
    }

    /// Returns the memory of a device.
    pub fn memory(&self, of: Device) -> Result<Memory, String> {
        type Get<T> = unsafe extern "C" fn(*mut c_void, *mut T) -> Status;
        let mut v2 = MemoryV2 { version: version_of::<MemoryV2>(2), ..MemoryV2::default() };
        if call!(self, c"nvmlDeviceGetMemoryInfo_v2" as Get<MemoryV2>, (of.0, &raw mut v2)).is_ok()
        {
            return Ok(Memory { used: v2.used, total: v2.total, reserved: Some(v2.reserved) });
        }
        let mut v1 = MemoryV1::default();
        call!(self, c"nvmlDeviceGetMemoryInfo" as Get<MemoryV1>, (of.0, &raw mut v1))?;
        Ok(Memory { used: v1.used, total: v1.total, reserved: None })
    }

    /// Returns the present frequency of a clock, MHz.
    pub fn clock(&self, of: Device, kind: c_uint) -> Result<u32, String> {
        let mut value = 0;
        call!(self, c"nvmlDeviceGetClockInfo" as OfKind, (of.0, kind, &raw mut value))?;
        Ok(value)
    }

    /// Returns the highest frequency of a clock, MHz.
    pub fn highest_clock(&self, of: Device, kind: c_uint) -> Result<u32, String> {
        let mut value = 0;
        call!(self, c"nvmlDeviceGetMaxClockInfo" as OfKind, (of.0, kind, &raw mut value))?;
        Ok(value)
    }

    /// Returns the power draw of a device, mW.
    pub fn power(&self, of: Device) -> Result<u32, String> {
        let mut value = 0;
        call!(self, c"nvmlDeviceGetPowerUsage" as Number, (of.0, &raw mut value))?;
        Ok(value)
    }

    /// Returns the power limit that applies to a device, mW.
    pub fn power_limit(&self, of: Device) -> Result<u32, String> {
        let mut value = 0;
        call!(self, c"nvmlDeviceGetEnforcedPowerLimit" as Number, (of.0, &raw mut value))?;
        Ok(value)
    }

    /// Returns the temperature of the chip, degrees Celsius.
    pub fn temperature(&self, of: Device) -> Result<i32, String> {
        const CHIP: c_uint = 0;
        type Get = unsafe extern "C" fn(*mut c_void, *mut TemperatureV1) -> Status;
        let mut v1 = TemperatureV1 {
            version: version_of::<TemperatureV1>(1),
            sensor: CHIP,
            ..TemperatureV1::default()
        };
        if call!(self, c"nvmlDeviceGetTemperatureV" as Get, (of.0, &raw mut v1)).is_ok() {
            return Ok(v1.celsius);
        }
        // Older drivers have only this function, which CUDA 14 will remove.
        let mut value = 0;
        call!(self, c"nvmlDeviceGetTemperature" as OfKind, (of.0, CHIP, &raw mut value))?;
        Ok(value as i32)
    }

    /// Returns the reasons why clocks are lower than possible, as bits `nvmlClocksEventReason…`.
    pub fn clock_reasons(&self, of: Device) -> Result<u64, String> {
        let mut value = 0;
        if call!(self, c"nvmlDeviceGetCurrentClocksEventReasons" as Mask, (of.0, &raw mut value))
            .is_ok()
        {
            return Ok(value);
        }
        // Older drivers have this function only under this name, which CUDA 14 will remove.
        call!(self, c"nvmlDeviceGetCurrentClocksThrottleReasons" as Mask, (of.0, &raw mut value))?;
        Ok(value)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = call!(self, c"nvmlShutdown" as unsafe extern "C" fn() -> Status, ());
    }
}

/// Converts a NUL-terminated text.
fn text_of(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> =
        bytes.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
