//! The functions of NVML's stand-in that report errors of devices.

use super::*;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const XID: u64 = 0x8;
const DOUBLE_BIT_ECC: u64 = 0x2;
/// Errors begin once a device's utilisation was read this often.
const READINGS_BEFORE: u64 = 4;
const LINKS: c_uint = 2;

/// The kinds of events that were asked for, by device.
static ASKED: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
static XID_TOLD: AtomicBool = AtomicBool::new(false);
static ECC_TOLD: AtomicBool = AtomicBool::new(false);

/// Whether this device has errors now.
fn is_faulty(at: u64, readings: u64) -> bool {
    at as usize + 1 == count() && readings >= READINGS_BEFORE
}

/// Returns a counter's value: what it had counted before the job, and what the fault adds.
fn counted(at: u64, readings: u64, before: u64, by_fault: u64) -> u64 {
    let is_higher = fault("errors").is_some() && is_faulty(at, readings);
    before + if is_higher { by_fault } else { 0 }
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(to: *mut *mut c_void) -> c_int {
    // SAFETY: the caller passes a valid pointer to write the answer to. The handle is never read.
    unsafe { *to = 0x5e7 as *mut c_void };
    SUCCESS
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetSupportedEventTypes(of: *mut c_void, to: *mut u64) -> c_int {
    answer(of, to, |_, _| match fault("noevents") {
        Some(_) => Err(NOT_SUPPORTED),
        None => Ok(XID | DOUBLE_BIT_ECC | 0x1 | 0x4),
    })
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(of: *mut c_void, kinds: u64, set: *mut c_void) -> c_int {
    match device(of) {
        Ok(at) if set as usize == 0x5e7 => {
            ASKED[at].store(kinds, Relaxed);
            SUCCESS
        }
        Ok(_) => INVALID_ARGUMENT,
        Err(result) => result,
    }
}

/// The C structure `nvmlEventData_t`, as NVML's header lays it out.
#[repr(C)]
pub struct EventData {
    device: *mut c_void,
    kind: u64,
    data: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(
    set: *mut c_void,
    to: *mut EventData,
    timeout_ms: c_uint,
) -> c_int {
    if set as usize != 0x5e7 {
        return INVALID_ARGUMENT;
    }
    let begun = Instant::now();
    loop {
        if let Some((kind, data)) = event() {
            let device = count() as *mut c_void;
            write_line(&format!("{{\"what\":\"nvml event\",\"kind\":{kind},\"data\":{data}}}\n"));
            let event = EventData { device, kind, data, gpu_instance: !0, compute_instance: !0 };
            // SAFETY: the caller passes a valid pointer to write the answer to.
            unsafe { *to = event };
            return SUCCESS;
        }
        if begun.elapsed() >= Duration::from_millis(timeout_ms.into()) {
            return TIMEOUT;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the next event that was asked for.
fn event() -> Option<(u64, u64)> {
    let last = count().checked_sub(1)?;
    if !is_faulty(last as u64, READINGS[last].load(Relaxed)) {
        return None;
    }
    let asked = ASKED[last].load(Relaxed);
    let xid = fault("xid").filter(|_| asked & XID != 0);
    if let Some(number) = xid.filter(|_| !XID_TOLD.swap(true, Relaxed)) {
        return Some((XID, number));
    }
    let has_ecc = fault("ecc").is_some() && asked & DOUBLE_BIT_ECC != 0;
    (has_ecc && !ECC_TOLD.swap(true, Relaxed)).then_some((DOUBLE_BIT_ECC, 0))
}

/// Like NVML's function: corrected errors have the kind 0, others 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    of: *mut c_void,
    kind: c_int,
    since: c_int,
    to: *mut u64,
) -> c_int {
    if since != 0 {
        return INVALID_ARGUMENT;
    }
    answer(of, to, |at, n| match kind {
        0 => Ok(counted(at, n, 70, 5)),
        1 => Ok(counted(at, n, 2, 1)),
        _ => Err(INVALID_ARGUMENT),
    })
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetRemappedRows(
    of: *mut c_void,
    corrected: *mut c_uint,
    uncorrected: *mut c_uint,
    pending: *mut c_uint,
    failed: *mut c_uint,
) -> c_int {
    for (to, before, by_fault) in
        [(corrected, 3, 0), (uncorrected, 1, 1), (pending, 0, 1), (failed, 0, 0)]
    {
        let result = answer(of, to, |at, n| Ok(counted(at, n, before, by_fault) as c_uint));
        if result != SUCCESS {
            return result;
        }
    }
    SUCCESS
}

/// Stands in for NVML's function of this name: these devices remap rows and retire no pages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetRetiredPages(
    _of: *mut c_void,
    _cause: c_int,
    _count: *mut c_uint,
    _addresses: *mut u64,
) -> c_int {
    NOT_SUPPORTED
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPcieReplayCounter(of: *mut c_void, to: *mut c_uint) -> c_int {
    answer(of, to, |at, n| Ok(counted(at, n, 11, 13) as c_uint))
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkState(
    of: *mut c_void,
    link: c_uint,
    to: *mut c_int,
) -> c_int {
    answer(of, to, |_, _| if link < LINKS { Ok(1) } else { Err(INVALID_ARGUMENT) })
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkErrorCounter(
    of: *mut c_void,
    link: c_uint,
    counter: c_int,
    to: *mut u64,
) -> c_int {
    answer(of, to, |at, n| match (link, counter) {
        // Replays, on the second link only.
        (1, 0) => Ok(counted(at, n, 20, 17)),
        (0..LINKS, 0..=2) => Ok(4),
        (0..LINKS, 3) => Err(NOT_SUPPORTED),
        _ => Err(INVALID_ARGUMENT),
    })
}
