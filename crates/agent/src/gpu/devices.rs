//! Describes the devices that CUPTI does not describe. CUPTI writes its records of devices when
//! CUDA starts, which may be before those records are enabled. Once a process has a context on a
//! device without a record, the agent asks the driver for the device's name, UUID and size.
//!
//! Only the flush thread asks, when it flushes. It asks only after it has seen a context, so the
//! driver is running; the driver ends after the agent. The queries change no state.

use super::decode::Decoded;
use super::loader::function;
use super::texts;
use core::ffi::{CStr, c_char, c_int};
use tprof_inject::block::Thread;
use tprof_inject::{loaded, ring};
use tprof_wire::gpu;
use tprof_wire::record::ExtKind;
use tprof_wire::sync::{AtomicU64, Ordering::Relaxed};

/// Bit set of the devices that have a record, or for which the agent has tried to write one.
static DESCRIBED: AtomicU64 = AtomicU64::new(0);
/// Bit set of the devices on which the process has a context.
static USED: AtomicU64 = AtomicU64::new(0);

/// Called for each record of CUPTI's after it was decoded.
pub fn seen(decoded: &Decoded) {
    let (place, device) = match decoded.kind {
        ExtKind::Device => (&DESCRIBED, gpu::Device::unpack(decoded.payload()).map(|d| d.device)),
        ExtKind::Context => (&USED, gpu::Context::unpack(decoded.payload()).map(|c| c.device)),
        _ => return,
    };
    if let Some(device) = device.filter(|device| *device < u64::BITS) {
        place.fetch_or(1 << device, Relaxed);
    }
}

/// Tries once to describe each device that has a context and no record yet.
pub fn describe(thread: &Thread) {
    let missing = USED.load(Relaxed) & !DESCRIBED.load(Relaxed);
    if missing == 0 {
        return;
    }
    DESCRIBED.fetch_or(missing, Relaxed);
    let Some(driver) = DriverFunctions::find() else { return };
    for number in (0..u64::BITS).filter(|number| missing >> number & 1 != 0) {
        if let Some(device) = driver.device(thread, number) {
            ring::ext(thread, ExtKind::Device, 0, thread.clock(), &device.pack());
        }
    }
}

type GetDevice = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type GetUuid = unsafe extern "C" fn(*mut [u64; 2], c_int) -> c_int;
type GetName = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
type GetMemory = unsafe extern "C" fn(*mut usize, c_int) -> c_int;
type GetAttribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;

/// Maximum number of bytes of a device's name.
const NAME_MOST: usize = 128;

/// Values of `CUdevice_attribute`.
mod attribute {
    pub const THREADS_BLOCK: i32 = 1;
    pub const SHARED_BLOCK: i32 = 8;
    pub const WARP: i32 = 10;
    pub const REGISTERS_BLOCK: i32 = 12;
    pub const CLOCK: i32 = 13;
    pub const PROCESSORS: i32 = 16;
    pub const L2_CACHE: i32 = 38;
    pub const THREADS: i32 = 39;
    pub const MAJOR: i32 = 75;
    pub const MINOR: i32 = 76;
    pub const SHARED: i32 = 81;
    pub const REGISTERS: i32 = 82;
    pub const BLOCKS: i32 = 106;
}

/// The driver's functions that this module calls.
struct DriverFunctions {
    get: GetDevice,
    uuid: GetUuid,
    name: GetName,
    memory: GetMemory,
    attribute: GetAttribute,
}

impl DriverFunctions {
    fn find() -> Option<DriverFunctions> {
        let driver = loaded::named(b"libcuda.so")?;
        let at = |name: &CStr| driver.function(name);
        Some(DriverFunctions {
            get: function!(at(c"cuDeviceGet")?, GetDevice),
            uuid: function!(at(c"cuDeviceGetUuid_v2")?, GetUuid),
            name: function!(at(c"cuDeviceGetName")?, GetName),
            memory: function!(at(c"cuDeviceTotalMem_v2")?, GetMemory),
            attribute: function!(at(c"cuDeviceGetAttribute")?, GetAttribute),
        })
    }

    /// Asks the driver for a device's description; `None` if it does not tell the name, the UUID or the
    /// memory. Attributes that it does not report are 0.
    fn device(&self, thread: &Thread, number: u32) -> Option<gpu::Device> {
        let (mut device, mut uuid, mut memory) = (0, [0u64; 2], 0usize);
        let mut name = [0 as c_char; NAME_MOST];
        // SAFETY: the driver's functions have these types, and write to locals of the sizes that
        // they get.
        let known = unsafe {
            (self.get)(&raw mut device, number as c_int) == 0
                && (self.uuid)(&raw mut uuid, device) == 0
                && (self.name)(name.as_mut_ptr(), NAME_MOST as c_int - 1, device) == 0
                && (self.memory)(&raw mut memory, device) == 0
        };
        if !known {
            return None;
        }
        let of = |which: i32| {
            let mut value = 0;
            // SAFETY: `cuDeviceGetAttribute` has this type, and writes one number to the local.
            let known = unsafe { (self.attribute)(&raw mut value, which, device) } == 0;
            if known { value.max(0) as u32 } else { 0 }
        };
        let warp = of(attribute::WARP);
        // SAFETY: the array is longer than the driver may write, and its last byte is 0.
        let text = unsafe { CStr::from_ptr(name.as_ptr()) };
        Some(gpu::Device {
            memory: memory as u64,
            uuid_low: uuid.first().copied().unwrap_or(0),
            uuid_high: uuid.last().copied().unwrap_or(0),
            device: number,
            name: texts::id(thread, text.to_bytes()),
            processors: of(attribute::PROCESSORS),
            major: of(attribute::MAJOR),
            minor: of(attribute::MINOR),
            clock: of(attribute::CLOCK),
            cache: of(attribute::L2_CACHE),
            warp,
            threads: of(attribute::THREADS_BLOCK),
            warps: of(attribute::THREADS).checked_div(warp).unwrap_or(0),
            blocks: of(attribute::BLOCKS),
            shared: of(attribute::SHARED),
            shared_block: of(attribute::SHARED_BLOCK),
            registers: of(attribute::REGISTERS),
            registers_block: of(attribute::REGISTERS_BLOCK),
            ..gpu::Device::default()
        })
    }
}
