//! Stands in for the PC Sampling API in continuous mode. `FAKE_CUPTI_STALLS` says what each run of a
//! kernel adds, in entries separated by semicolons:
//!
//! ```text
//! FUNCTION:OFFSET:REASON=SAMPLES;…
//! ```
//!
//! with the mangled name, the offset in bytes, and the end of a reason's name in [`REASONS`]
//! (`long_scoreboard`, `selected_not_issued`). Runs in a context that isn't sampled add nothing. The
//! log has a line for each run that was sampled, and for each call of the API.
//!
//! `FAKE_CUPTI_CUBIN` names a file that stands for the code of the one module. It is "loaded" with
//! the first kernel.
//!
//! The API demands sizes of its structures, and that a client leaves room where it says so. This
//! stand-in checks them and complains.

use crate::{complain, enter, faults, lock};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Mutex, OnceLock};
use tprof_cupti_sys::bindings::*;
use tprof_fake_cuda::engine;

/// Reasons, as CUPTI names them on Hopper. Each has a second name for the samples in whose cycle no
/// warp issued an instruction.
const REASONS: [&str; 20] = [
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instructions",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
    "warpgroup_arrive",
];
const PREFIX: &str = "smsp__pcsamp_warps_issue_stalled_";
const NOT_ISSUED: &str = "_not_issued";
/// Bytes of a name: `CUPTI_STALL_REASON_STRING_SIZE`.
const NAME_BYTES: usize = 128;
/// The number of a module's code if no client computes it.
const CRC: u64 = 0x00c0_ffee;
/// Size of a place in CUDA 12.0, and now.
const PLACE_SIZES: [usize; 2] =
    [offset_of!(CUpti_PCSamplingPCData, correlationId), size_of::<CUpti_PCSamplingPCData>()];

/// The names and numbers of all reasons. Numbers of a real device have gaps, too.
fn reasons() -> impl Iterator<Item = (u32, String)> {
    let names = REASONS.iter().flat_map(|name| {
        let of = |end: &str| format!("{PREFIX}{name}{end}");
        [of(""), of(NOT_ISSUED)]
    });
    names.enumerate().map(|(at, name)| (at as u32 * 3 + 5, name))
}

struct Entry {
    function: String,
    offset: u64,
    reason: u32,
    samples: u32,
}

fn entries() -> &'static [Entry] {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    ENTRIES.get_or_init(|| {
        let text = std::env::var("FAKE_CUPTI_STALLS").unwrap_or_default();
        let parsed = text.split(';').filter(|part| !part.is_empty()).map(|part| {
            let (place, samples) = part.split_once('=')?;
            let mut words = place.split(':');
            let (function, offset, name) = (words.next()?, words.next()?, words.next()?);
            let name = format!("{PREFIX}{name}");
            Some(Entry {
                function: function.to_owned(),
                offset: offset.parse().ok()?,
                reason: reasons().find(|reason| reason.1 == name)?.0,
                samples: samples.parse().ok()?,
            })
        });
        parsed.map(|entry| entry.expect("FAKE_CUPTI_STALLS has entries of its form")).collect()
    })
}

/// Samples by function, offset and reason.
type Sums = BTreeMap<(String, u64), BTreeMap<u32, u32>>;

#[derive(Default)]
struct Sampled {
    is_configured: bool,
    /// Address of the buffer that gets the samples which are left at the end.
    kept: usize,
    sums: Sums,
    runs: u64,
}

static CONTEXTS: Mutex<BTreeMap<usize, Sampled>> = Mutex::new(BTreeMap::new());
static NUMBERS: AtomicUsize = AtomicUsize::new(0);
static MODULE: AtomicU64 = AtomicU64::new(CRC);
static IS_LOADED: AtomicBool = AtomicBool::new(false);

fn log(call: &str, context: CUcontext, result: CUptiResult) -> CUptiResult {
    let context = context as usize;
    let line = format!(
        "{{\"what\":\"pc sampling\",\"call\":\"{call}\",\"context\":{context},\"result\":{result}}}"
    );
    (engine().log)(line.as_ptr(), line.len());
    result
}

/// Begins a call: checks the size of its parameters.
fn begin(call: &str, size: usize, wanted: usize) -> CUptiResult {
    if size != wanted {
        complain(&format!("{call} with parameters of {size} bytes"));
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    enter(call)
}

macro_rules! up_to {
    ($type:ty, $last:ident: $of:ty) => {
        offset_of!($type, $last) + size_of::<$of>()
    };
}

/// Called when a kernel has run.
pub fn ran(context: u32, name: &CStr) {
    if !IS_LOADED.swap(true, SeqCst) {
        load();
    }
    let name = name.to_string_lossy();
    let mut contexts = lock(&CONTEXTS);
    let sampled = contexts.get_mut(&(context as usize)).filter(|sampled| sampled.is_configured);
    let Some(sampled) = sampled else { return };
    sampled.runs += 1;
    for entry in entries().iter().filter(|entry| entry.function == name) {
        let place = sampled.sums.entry((entry.function.clone(), entry.offset)).or_default();
        *place.entry(entry.reason).or_insert(0) += entry.samples;
    }
    let line = format!("{{\"what\":\"sampled\",\"name\":\"{name}\",\"context\":{context}}}");
    (engine().log)(line.as_ptr(), line.len());
}

/// Asks the client for the number of the one module.
fn load() {
    let Ok(path) = std::env::var("FAKE_CUPTI_CUBIN") else { return };
    let code = std::fs::read(path).expect("the file that stands for a module can be read");
    let call = NUMBERS.load(SeqCst);
    if call != 0 {
        let mut number = 0;
        // SAFETY: the client registered a function of this type, and the code lives during the call.
        unsafe {
            type Number = unsafe extern "C" fn(*const c_void, usize, *mut u64);
            std::mem::transmute::<usize, Number>(call)(
                code.as_ptr().cast(),
                code.len(),
                &raw mut number,
            );
        }
        MODULE.store(number, SeqCst);
    }
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiRegisterComputeCrcCallback(
    number: CUpti_ComputeCrcCallbackFunc,
) -> CUptiResult {
    let result = enter("cuptiRegisterComputeCrcCallback");
    if result == CUPTI_SUCCESS {
        NUMBERS.store(number.map_or(0, |call| call as usize), SeqCst);
    }
    log("cuptiRegisterComputeCrcCallback", std::ptr::null_mut(), result)
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingEnable(
    parameters: *mut CUpti_PCSamplingEnableParams,
) -> CUptiResult {
    // SAFETY: the caller passes valid parameters.
    let (size, context) = unsafe { ((*parameters).size, (*parameters).ctx) };
    let wanted = up_to!(CUpti_PCSamplingEnableParams, ctx: CUcontext);
    let mut result = begin("cuptiPCSamplingEnable", size, wanted);
    if result == CUPTI_SUCCESS {
        let mut contexts = lock(&CONTEXTS);
        match contexts.contains_key(&(context as usize)) || context.is_null() {
            true => result = CUPTI_ERROR_INVALID_OPERATION,
            false => drop(contexts.insert(context as usize, Sampled::default())),
        }
    }
    log("cuptiPCSamplingEnable", context, result)
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingDisable(
    parameters: *mut CUpti_PCSamplingDisableParams,
) -> CUptiResult {
    // SAFETY: the caller passes valid parameters.
    let (size, context) = unsafe { ((*parameters).size, (*parameters).ctx) };
    let wanted = up_to!(CUpti_PCSamplingDisableParams, ctx: CUcontext);
    let mut result = begin("cuptiPCSamplingDisable", size, wanted);
    if result == CUPTI_SUCCESS {
        match lock(&CONTEXTS).remove(&(context as usize)) {
            None => result = CUPTI_ERROR_INVALID_OPERATION,
            Some(mut sampled) if sampled.kept != 0 => {
                // SAFETY: the client named this buffer when it configured the context, and keeps it
                // until this call returns.
                unsafe { fill(sampled.kept as *mut CUpti_PCSamplingData, &mut sampled) };
            }
            Some(_) => {}
        }
    }
    log("cuptiPCSamplingDisable", context, result)
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingGetNumStallReasons(
    parameters: *mut CUpti_PCSamplingGetNumStallReasonsParams,
) -> CUptiResult {
    // SAFETY: the caller passes valid parameters, with a valid pointer to write the answer to.
    unsafe {
        let wanted = up_to!(CUpti_PCSamplingGetNumStallReasonsParams, numStallReasons: *mut usize);
        let result = begin("cuptiPCSamplingGetNumStallReasons", (*parameters).size, wanted);
        if result == CUPTI_SUCCESS {
            *(*parameters).numStallReasons = reasons().count();
        }
        log("cuptiPCSamplingGetNumStallReasons", (*parameters).ctx, result)
    }
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingGetStallReasons(
    parameters: *mut CUpti_PCSamplingGetStallReasonsParams,
) -> CUptiResult {
    // SAFETY: the caller passes valid parameters, with room for as many reasons as it says.
    unsafe {
        let wanted = up_to!(CUpti_PCSamplingGetStallReasonsParams, stallReasons: *mut *mut c_char);
        let result = begin("cuptiPCSamplingGetStallReasons", (*parameters).size, wanted);
        if result == CUPTI_SUCCESS {
            for (at, (number, name)) in reasons().enumerate().take((*parameters).numStallReasons) {
                let bytes = CString::new(name).unwrap_or_default();
                let length = bytes.as_bytes_with_nul().len().min(NAME_BYTES);
                *(*parameters).stallReasonIndex.add(at) = number;
                let to = *(*parameters).stallReasons.add(at);
                to.copy_from_nonoverlapping(bytes.as_ptr(), length);
            }
        }
        log("cuptiPCSamplingGetStallReasons", (*parameters).ctx, result)
    }
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingSetConfigurationAttribute(
    parameters: *mut CUpti_PCSamplingConfigurationInfoParams,
) -> CUptiResult {
    const CALL: &str = "cuptiPCSamplingSetConfigurationAttribute";
    // SAFETY: the caller passes valid parameters, with as many attributes as it says.
    let (size, context, attributes) = unsafe {
        let count = (*parameters).numAttributes;
        let first = (*parameters).pPCSamplingConfigurationInfo;
        let attributes = std::slice::from_raw_parts_mut(first, count);
        ((*parameters).size, (*parameters).ctx, attributes)
    };
    let wanted = up_to!(
        CUpti_PCSamplingConfigurationInfoParams,
        pPCSamplingConfigurationInfo: *mut CUpti_PCSamplingConfigurationInfo
    );
    let mut result = begin(CALL, size, wanted);
    let mut contexts = lock(&CONTEXTS);
    let Some(sampled) = contexts.get_mut(&(context as usize)) else {
        return log(CALL, context, CUPTI_ERROR_INVALID_OPERATION);
    };
    let attributes = if result == CUPTI_SUCCESS { attributes } else { &mut [] };
    for attribute in attributes {
        // SAFETY: the kind of the attribute says which member is set.
        let is_valid = unsafe {
            let data = &attribute.attributeData;
            match attribute.attributeType {
                CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_PERIOD => {
                    let period = data.samplingPeriodData.samplingPeriod;
                    let line = format!("{{\"what\":\"sampling period\",\"power\":{period}}}");
                    (engine().log)(line.as_ptr(), line.len());
                    (5..=31).contains(&period)
                }
                CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_COLLECTION_MODE => {
                    data.collectionModeData.collectionMode
                        == CUPTI_PC_SAMPLING_COLLECTION_MODE_CONTINUOUS
                }
                CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_DATA_BUFFER => {
                    sampled.kept = data.samplingDataBufferData.samplingDataBuffer as usize;
                    sampled.kept != 0
                }
                CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_STALL_REASON => {
                    data.stallReasonData.stallReasonCount == reasons().count()
                }
                CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_HARDWARE_BUFFER_SIZE => {
                    data.hardwareBufferSizeData.hardwareBufferSize > 0
                }
                _ => false,
            }
        };
        attribute.attributeStatus =
            if is_valid { CUPTI_SUCCESS } else { CUPTI_ERROR_INVALID_OPERATION };
        if !is_valid {
            result = CUPTI_ERROR_INVALID_OPERATION;
        }
    }
    sampled.is_configured = result == CUPTI_SUCCESS;
    drop(contexts);
    log(CALL, context, result)
}

/// Stands in for CUPTI's function of this name. With the fault `rest`, samples come only at the end;
/// with `full`, the first answer says that the device's buffer was full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingGetData(
    parameters: *mut CUpti_PCSamplingGetDataParams,
) -> CUptiResult {
    static FULL: AtomicBool = AtomicBool::new(false);
    // SAFETY: the caller passes valid parameters.
    let (size, context, data) = unsafe {
        let data = (*parameters).pcSamplingData.cast::<CUpti_PCSamplingData>();
        ((*parameters).size, (*parameters).ctx, data)
    };
    let wanted = up_to!(CUpti_PCSamplingGetDataParams, pcSamplingData: *mut c_void);
    let mut result = begin("cuptiPCSamplingGetData", size, wanted);
    let mut contexts = lock(&CONTEXTS);
    match contexts.get_mut(&(context as usize)).filter(|sampled| sampled.is_configured) {
        Some(_) if result != CUPTI_SUCCESS => {}
        None => result = CUPTI_ERROR_INVALID_OPERATION,
        Some(_) if faults::is_set("full") && !FULL.swap(true, SeqCst) => {
            // SAFETY: the caller passes a valid structure for the answer.
            unsafe { (*data).hardwareBufferFull = 1 };
            result = CUPTI_ERROR_OUT_OF_MEMORY;
        }
        Some(_) if faults::is_set("rest") => {}
        // SAFETY: the caller passes a structure with as much room as it says.
        Some(sampled) => unsafe { fill(data, sampled) },
    }
    drop(contexts);
    log("cuptiPCSamplingGetData", context, result)
}

/// Moves samples into an answer, as far as it has room, or as the fault `places=N` lets it.
///
/// # Safety
/// `data` has room for as many places as it says, each with room for all reasons.
unsafe fn fill(data: *mut CUpti_PCSamplingData, sampled: &mut Sampled) {
    // SAFETY: the caller guarantees a valid structure.
    let (size, first, room) =
        unsafe { ((*data).size, (*data).pPcData.cast::<u8>(), (*data).collectNumPcs) };
    if size != size_of::<CUpti_PCSamplingData>() {
        complain(&format!("samples for a structure of {size} bytes"));
    }
    let most = faults::value("places").unwrap_or(u64::MAX) as usize;
    let (mut places, mut total) = (0, 0);
    while places < room.min(most) {
        let Some(((function, offset), found)) = sampled.sums.pop_first() else { break };
        // SAFETY: places lie behind each other, each of the size that the first one says.
        unsafe {
            let stride = *first.cast::<usize>();
            if !PLACE_SIZES.contains(&stride) {
                complain(&format!("a place of {stride} bytes"));
                return;
            }
            let place = first.add(places * stride).cast::<CUpti_PCSamplingPCData>();
            (*place).cubinCrc = MODULE.load(SeqCst);
            (*place).pcOffset = offset;
            (*place).functionName = CString::new(function).unwrap_or_default().into_raw();
            (*place).stallReasonCount = found.len();
            let reasons = (*place).stallReason;
            for (at, (reason, samples)) in found.into_iter().enumerate() {
                reasons.add(at).write(CUpti_PCSamplingStallReason {
                    pcSamplingStallReasonIndex: reason,
                    samples,
                });
                total += u64::from(samples);
            }
        }
        places += 1;
    }
    let runs = std::mem::take(&mut sampled.runs);
    let dropped = faults::value("lose").unwrap_or(0) * runs;
    let other = faults::value("foreign").unwrap_or(0) * runs;
    // SAFETY: the caller guarantees a valid structure.
    unsafe {
        (*data).totalNumPcs = places;
        (*data).remainingNumPcs = sampled.sums.len();
        (*data).totalSamples = total + dropped + other;
        (*data).droppedSamples = dropped;
        (*data).nonUsrKernelsTotalSamples = other;
    }
}
