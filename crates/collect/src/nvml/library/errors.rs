//! The functions of NVML that report errors of devices: events, and counters of errors.

use super::{Device, Library, Number, Status};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::time::Duration;

/// The value of `nvmlEventTypeDoubleBitEccError`.
const DOUBLE_BIT_ECC: u64 = 0x2;
/// The value of `nvmlEventTypeXidCriticalError`.
const XID: u64 = 0x8;
/// The value of `NVML_ERROR_TIMEOUT`: no event came.
const TIMEOUT: Status = 10;
/// The value of `NVML_ERROR_INSUFFICIENT_SIZE`.
const INSUFFICIENT_SIZE: Status = 7;
/// The value of `NVML_NVLINK_MAX_LINKS`.
pub const NVLINKS: c_uint = 18;
/// The value of `NVML_VOLATILE_ECC`: errors since the driver was loaded.
const VOLATILE: c_int = 0;

/// A set of events of devices.
pub struct EventSet(*mut c_void);
// SAFETY: NVIDIA documents NVML as thread-safe, so any thread may use the handle.
unsafe impl Send for EventSet {}

/// The C struct `nvmlEventData_t`.
#[repr(C)]
struct EventData {
    device: *mut c_void,
    kind: u64,
    data: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}
const _: () = assert!(size_of::<EventData>() == 32);

/// An event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// An XID, with its number.
    Xid(u32),
    /// ECC found an error in memory that it could not correct.
    UncorrectedEcc,
    /// An event that was not asked for.
    Other,
}

/// The counters of a link of NVLink, with their values in `nvmlNvLinkErrorCounter_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum NvlinkErrors {
    /// Packets that were sent again.
    Replays = 0,
    /// Times that the link was trained again.
    Recoveries = 1,
    /// Flow control units with a wrong checksum.
    FlitCrc = 2,
    /// Data with a wrong checksum.
    DataCrc = 3,
}

impl Library {
    /// Asks for events about errors of these devices. Returns the set that they arrive in, and for
    /// each device that reports none the reason.
    pub fn watch(
        &self,
        devices: impl Iterator<Item = Device>,
    ) -> Result<(EventSet, Vec<Option<String>>), String> {
        type Create = unsafe extern "C" fn(*mut *mut c_void) -> Status;
        let mut set = ptr::null_mut();
        call!(self, c"nvmlEventSetCreate" as Create, (&raw mut set))?;
        let why = devices.map(|device| self.register(device, set).err()).collect();
        Ok((EventSet(set), why))
    }

    fn register(&self, of: Device, set: *mut c_void) -> Result<(), String> {
        type Supported = unsafe extern "C" fn(*mut c_void, *mut u64) -> Status;
        type Register = unsafe extern "C" fn(*mut c_void, u64, *mut c_void) -> Status;
        let mut kinds = 0;
        call!(self, c"nvmlDeviceGetSupportedEventTypes" as Supported, (of.0, &raw mut kinds))?;
        match kinds & (XID | DOUBLE_BIT_ECC) {
            0 => Err("the device reports no events about errors".to_owned()),
            kinds => call!(self, c"nvmlDeviceRegisterEvents" as Register, (of.0, kinds, set)),
        }
    }

    /// Waits for an event, at most for `time`; `None` if none came.
    pub fn wait(
        &self,
        set: &EventSet,
        time: Duration,
    ) -> Result<Option<(Device, DeviceEvent)>, String> {
        type Wait = unsafe extern "C" fn(*mut c_void, *mut EventData, c_uint) -> Status;
        let mut event = EventData {
            device: ptr::null_mut(),
            kind: 0,
            data: 0,
            gpu_instance: 0,
            compute_instance: 0,
        };
        let ms = c_uint::try_from(time.as_millis()).unwrap_or(c_uint::MAX);
        let status = status!(self, c"nvmlEventSetWait_v2" as Wait, (set.0, &raw mut event, ms))?;
        if status == TIMEOUT {
            return Ok(None);
        }
        self.result(status)?;
        let what = match event.kind {
            XID => DeviceEvent::Xid(u32::try_from(event.data).unwrap_or(u32::MAX)),
            DOUBLE_BIT_ECC => DeviceEvent::UncorrectedEcc,
            _ => DeviceEvent::Other,
        };
        Ok(Some((Device(event.device), what)))
    }

    /// Returns the errors of a device's memory that ECC found since the driver was loaded: those
    /// that it corrected, or those that it could not correct.
    pub fn ecc_errors(&self, of: Device, are_corrected: bool) -> Result<u64, String> {
        type Get = unsafe extern "C" fn(*mut c_void, c_int, c_int, *mut u64) -> Status;
        let (kind, mut count) = (c_int::from(!are_corrected), 0);
        call!(self, c"nvmlDeviceGetTotalEccErrors" as Get, (of.0, kind, VOLATILE, &raw mut count))?;
        Ok(count)
    }

    /// Returns the rows of memory that were remapped because of corrected and of uncorrected
    /// errors, and whether remapping has failed.
    pub fn remapped_rows(&self, of: Device) -> Result<(u32, u32, bool), String> {
        type Out = *mut c_uint;
        type Get = unsafe extern "C" fn(*mut c_void, Out, Out, Out, Out) -> Status;
        let [mut corrected, mut uncorrected, mut pending, mut failed] = [0; 4];
        call!(
            self,
            c"nvmlDeviceGetRemappedRows" as Get,
            (of.0, &raw mut corrected, &raw mut uncorrected, &raw mut pending, &raw mut failed)
        )?;
        Ok((corrected, uncorrected, failed != 0))
    }

    /// Returns the number of retired pages, on devices that don't remap rows.
    pub fn retired_pages(&self, of: Device) -> Result<u64, String> {
        type Get = unsafe extern "C" fn(*mut c_void, c_int, *mut c_uint, *mut u64) -> Status;
        let mut pages = 0;
        // The values of `nvmlPageRetirementCause_t`: several corrected errors, and one that could
        // not be corrected.
        for cause in [0, 1] {
            let (mut count, none) = (0, ptr::null_mut());
            let status = status!(
                self,
                c"nvmlDeviceGetRetiredPages" as Get,
                (of.0, cause, &raw mut count, none)
            )?;
            // Without room for addresses, the function returns how many there are.
            if status != INSUFFICIENT_SIZE {
                self.result(status)?;
            }
            pages += u64::from(count);
        }
        Ok(pages)
    }

    /// Returns the number of packets that the device's PCIe link has sent again.
    pub fn pcie_replays(&self, of: Device) -> Result<u32, String> {
        let mut count = 0;
        call!(self, c"nvmlDeviceGetPcieReplayCounter" as Number, (of.0, &raw mut count))?;
        Ok(count)
    }

    /// Whether a link of NVLink is up.
    pub fn nvlink_is_up(&self, of: Device, link: c_uint) -> Result<bool, String> {
        type Get = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_int) -> Status;
        let mut is_up = 0;
        call!(self, c"nvmlDeviceGetNvLinkState" as Get, (of.0, link, &raw mut is_up))?;
        Ok(is_up != 0)
    }

    /// Returns a counter of errors of a link of NVLink.
    pub fn nvlink_errors(
        &self,
        of: Device,
        link: c_uint,
        counter: NvlinkErrors,
    ) -> Result<u64, String> {
        type Get = unsafe extern "C" fn(*mut c_void, c_uint, c_int, *mut u64) -> Status;
        let (counter, mut count) = (counter as c_int, 0);
        call!(
            self,
            c"nvmlDeviceGetNvLinkErrorCounter" as Get,
            (of.0, link, counter, &raw mut count)
        )?;
        Ok(count)
    }
}
