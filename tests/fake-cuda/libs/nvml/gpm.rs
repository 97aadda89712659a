//! The functions of NVML's stand-in that measure what the units of a device do (GPM), and the
//! counter of energy. A device goes through three phases again and again: it is idle, bound by its
//! memory, and bound by its tensor cores.

use super::*;
use std::sync::OnceLock;
use std::time::Instant;

/// Length of a phase, ns. It is no multiple of the time between two samples.
const PHASE_NS: u64 = 270_000_000;
/// Power in each phase, W. It differs from the power that the devices report.
const POWER: [f64; 3] = [100.0, 400.0, 650.0];
/// What the counter of energy says at the beginning, mJ: it counts since the driver was loaded.
const ENERGY_BEFORE: f64 = 7_654_321_000.0;
const METRICS_VERSION: c_uint = 1;
const SUPPORT_VERSION: c_uint = 1;

/// A metric: its number, the name of tprof's counter, by how much tprof multiplies the value, and the
/// value in each phase.
type FakeMetric = (c_uint, &'static str, f64, [f64; 3]);

const MIB: f64 = 1_048_576.0;
const METRICS: [FakeMetric; 15] = [
    (2, "gpu_sm_active", 0.01, [0.0, 90.0, 95.0]),
    (3, "gpu_sm_occupancy", 0.01, [0.0, 60.0, 25.0]),
    (4, "gpu_integer_active", 0.01, [0.0, 12.0, 8.0]),
    (5, "gpu_tensor_active", 0.01, [0.0, 0.0, 70.0]),
    (6, "gpu_tensor_dfma_active", 0.01, [0.0, 0.0, 0.0]),
    (7, "gpu_tensor_hmma_active", 0.01, [0.0, 0.0, 68.0]),
    (9, "gpu_tensor_imma_active", 0.01, [0.0, 0.0, 2.0]),
    (10, "gpu_dram_bandwidth_utilization", 0.01, [0.0, 85.0, 40.0]),
    (11, "gpu_fp64_active", 0.01, [0.0, 0.0, 1.0]),
    (12, "gpu_fp32_active", 0.01, [0.0, 22.0, 5.0]),
    (13, "gpu_fp16_active", 0.01, [0.0, 3.0, 4.0]),
    (20, "gpu_pcie_tx_bytes_per_second", MIB, [1.0, 100.0, 200.0]),
    (21, "gpu_pcie_rx_bytes_per_second", MIB, [2.0, 300.0, 50.0]),
    (60, "gpu_nvlink_rx_bytes_per_second", MIB, [0.0, 4000.0, 9000.0]),
    (61, "gpu_nvlink_tx_bytes_per_second", MIB, [0.0, 5000.0, 8000.0]),
];

/// Returns the time since the library was first asked, ns.
fn now_ns() -> u64 {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    BEGUN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Returns the sum of a quantity up to a time, if it has these values in the phases; by ns. A device's
/// phases begin later than those of the device before it.
fn sum(of: [f64; 3], device: u64, time_ns: u64) -> f64 {
    let shifted_ns = time_ns + (4 - device % 4) * 60_000_000;
    let (whole, rest) = (shifted_ns / PHASE_NS, shifted_ns % PHASE_NS);
    let of_rounds = (whole / 3) as f64 * of.iter().sum::<f64>();
    let of_round: f64 = of[..(whole % 3) as usize].iter().sum();
    (of_rounds + of_round) * PHASE_NS as f64 + of[(whole % 3) as usize] * rest as f64
}

/// NVML's `nvmlGpmSupport_t` structure.
#[repr(C)]
pub struct Support {
    version: c_uint,
    is_supported: c_uint,
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmQueryDeviceSupport(of: *mut c_void, to: *mut Support) -> c_int {
    // SAFETY: the caller passes a valid structure with its version set.
    if unsafe { (*to).version } != SUPPORT_VERSION {
        return ARGUMENT_VERSION_MISMATCH;
    }
    let is_supported = c_uint::from(fault("nogpm").is_none());
    answer(of, to, |_, _| Ok(Support { version: SUPPORT_VERSION, is_supported }))
}

/// A sample of a device.
pub struct Sample {
    /// The device's number and the time of the sample; `None` before it is taken.
    taken: Option<(u64, u64)>,
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleAlloc(to: *mut *mut Sample) -> c_int {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *to = Box::into_raw(Box::new(Sample { taken: None })) };
    SUCCESS
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleFree(sample: *mut Sample) -> c_int {
    // SAFETY: the caller passes a sample of `nvmlGpmSampleAlloc`, and never uses it again.
    drop(unsafe { Box::from_raw(sample) });
    SUCCESS
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleGet(of: *mut c_void, to: *mut Sample) -> c_int {
    let time_ns = now_ns();
    answer(of, to, |at, _| {
        let sums: Vec<String> = METRICS
            .iter()
            .map(|(_, name, factor, of)| format!("\"{name}\":{}", sum(*of, at, time_ns) * factor))
            .collect();
        write_line(&format!(
            "{{\"what\":\"nvml sample\",\"device\":{at},\"time_ns\":{time_ns},{}}}\n",
            sums.join(",")
        ));
        Ok(Sample { taken: Some((at, time_ns)) })
    })
}

/// NVML's `nvmlGpmMetric_t` structure.
#[repr(C)]
pub struct Metric {
    id: c_uint,
    status: c_int,
    value: f64,
    words: [*const c_char; 3],
}

/// The beginning of NVML's `nvmlGpmMetricsGet_t` structure. The metrics follow.
#[repr(C)]
pub struct MetricsGet {
    version: c_uint,
    count: c_uint,
    earlier: *const Sample,
    later: *const Sample,
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMetricsGet(get: *mut MetricsGet) -> c_int {
    // SAFETY: the caller passes a valid structure, with two samples of `nvmlGpmSampleAlloc`.
    let (version, count, earlier, later) =
        unsafe { ((*get).version, (*get).count, (*(*get).earlier).taken, (*(*get).later).taken) };
    if version != METRICS_VERSION {
        return ARGUMENT_VERSION_MISMATCH;
    }
    let (Some((device, from_ns)), Some((same, until_ns))) = (earlier, later) else {
        return INVALID_ARGUMENT;
    };
    if device != same || until_ns <= from_ns {
        return INVALID_ARGUMENT;
    }
    // SAFETY: behind the structure there are as many metrics as it says.
    let metrics =
        unsafe { std::slice::from_raw_parts_mut(get.add(1).cast::<Metric>(), count as usize) };
    for metric in metrics {
        let Some((_, name, factor, of)) = METRICS.iter().find(|known| known.0 == metric.id) else {
            metric.status = INVALID_ARGUMENT;
            continue;
        };
        if fault("nometric") == Some(metric.id.into()) {
            (metric.status, metric.value) = (NOT_SUPPORTED, 0.0);
            continue;
        }
        metric.status = SUCCESS;
        if fault("nan") == Some(metric.id.into()) {
            metric.value = f64::NAN;
            continue;
        }
        let grown = sum(*of, device, until_ns) - sum(*of, device, from_ns);
        metric.value = grown / (until_ns - from_ns) as f64;
        log(device as usize, name, metric.value * factor);
    }
    SUCCESS
}

/// Stands in for NVML's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTotalEnergyConsumption(
    of: *mut c_void,
    to: *mut u64,
) -> c_int {
    answer(of, to, |at, _| {
        if fault("noenergy").is_some() {
            return Err(NOT_SUPPORTED);
        }
        let millijoules = (ENERGY_BEFORE + sum(POWER, at, now_ns()) / 1e6) as u64;
        log(at as usize, "gpu_energy_joules", millijoules as f64 / 1e3);
        Ok(millijoules)
    })
}
