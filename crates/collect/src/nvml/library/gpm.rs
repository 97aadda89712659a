//! The functions of NVML that measure what the parts of a device do (GPM, from Hopper on), and the
//! counter of energy. A metric is a mean over the time between two samples.

use super::{Device, Library, Loaded, Mask, Status};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use tprof_trace::model::counter::*;

/// The value of `NVML_GPM_SUPPORT_VERSION`.
const SUPPORT_VERSION: c_uint = 1;
/// The value of `NVML_GPM_METRICS_GET_VERSION`.
const METRICS_VERSION: c_uint = 1;
/// The value of `NVML_GPM_METRIC_MAX` in the newest header, 333. It was 98 at first, and the version
/// stayed the same. A driver reads `numMetrics` entries; there is room for all, in case it touches
/// more.
const ENTRIES: usize = 333;

/// What turns NVML's percentages into shares.
const PERCENT: f64 = 0.01;
/// What turns NVML's rates, in MiB a second, into bytes a second.
const MIB: f64 = 1_048_576.0;

/// The metrics that are read: the value in `nvmlGpmMetricId_t`, the counter, and by how much its
/// value is multiplied.
const METRICS: [(c_uint, &str, f64); 15] = [
    (2, GPU_SM_ACTIVE, PERCENT),
    (3, GPU_SM_OCCUPANCY, PERCENT),
    (4, GPU_INTEGER_ACTIVE, PERCENT),
    (5, GPU_TENSOR_ACTIVE, PERCENT),
    (6, GPU_TENSOR_DFMA_ACTIVE, PERCENT),
    (7, GPU_TENSOR_HMMA_ACTIVE, PERCENT),
    (9, GPU_TENSOR_IMMA_ACTIVE, PERCENT),
    (10, GPU_DRAM_BANDWIDTH, PERCENT),
    (11, GPU_FP64_ACTIVE, PERCENT),
    (12, GPU_FP32_ACTIVE, PERCENT),
    (13, GPU_FP16_ACTIVE, PERCENT),
    (20, GPU_PCIE_SENT, MIB),
    (21, GPU_PCIE_RECEIVED, MIB),
    (60, GPU_NVLINK_RECEIVED, MIB),
    (61, GPU_NVLINK_SENT, MIB),
];
const _: () = assert!(METRICS.len() == GPU_MEANS.len());

/// The C struct `nvmlGpmSupport_t`.
#[repr(C)]
struct Support {
    version: c_uint,
    is_supported: c_uint,
}
const _: () = assert!(size_of::<Support>() == 8);

/// The C struct `nvmlGpmMetric_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Metric {
    id: c_uint,
    status: c_int,
    value: f64,
    /// Short name, long name and unit.
    words: [*const c_char; 3],
}
const _: () = assert!(size_of::<Metric>() == 40 && std::mem::offset_of!(Metric, value) == 8);

/// The C struct `nvmlGpmMetricsGet_t`.
#[repr(C)]
struct MetricsGet {
    version: c_uint,
    count: c_uint,
    earlier: *mut c_void,
    later: *mut c_void,
    metrics: [Metric; ENTRIES],
}
const _: () = assert!(std::mem::offset_of!(MetricsGet, metrics) == 24);
const _: () = assert!(size_of::<MetricsGet>() == 24 + ENTRIES * 40);

/// A buffer for a sample. It must be dropped before the [`Library`].
pub struct GpmSample {
    buffer: *mut c_void,
    loaded: &'static Loaded,
}
// SAFETY: NVIDIA documents NVML as thread-safe, so any thread may use the buffer's handle, one at a
// time: it is neither copied nor shared.
unsafe impl Send for GpmSample {}

impl Drop for GpmSample {
    fn drop(&mut self) {
        type Free = unsafe extern "C" fn(*mut c_void) -> Status;
        let _ = status!(self, c"nvmlGpmSampleFree" as Free, (self.buffer));
    }
}

/// The metrics of a device between two samples: each with its name in [`counter`], and its value or
/// why there is none.
///
/// [`counter`]: tprof_trace::model::counter
pub type GpmMetrics = Vec<(&'static str, Result<f64, String>)>;

impl Library {
    /// Returns an error that says why, if the device measures none of these metrics.
    pub fn gpm_support(&self, of: Device) -> Result<(), String> {
        type Query = unsafe extern "C" fn(*mut c_void, *mut Support) -> Status;
        let mut support = Support { version: SUPPORT_VERSION, is_supported: 0 };
        call!(self, c"nvmlGpmQueryDeviceSupport" as Query, (of.0, &raw mut support))?;
        match support.is_supported {
            0 => Err("the device has no GPM, which Hopper and newer devices have".to_owned()),
            _ => Ok(()),
        }
    }

    /// Allocates a buffer for a sample.
    pub fn gpm_sample(&self) -> Result<GpmSample, String> {
        type Alloc = unsafe extern "C" fn(*mut *mut c_void) -> Status;
        let mut buffer = ptr::null_mut();
        call!(self, c"nvmlGpmSampleAlloc" as Alloc, (&raw mut buffer))?;
        Ok(GpmSample { buffer, loaded: self.loaded })
    }

    /// Takes a sample of a device.
    pub fn gpm_read(&self, of: Device, into: &mut GpmSample) -> Result<(), String> {
        type Get = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status;
        call!(self, c"nvmlGpmSampleGet" as Get, (of.0, into.buffer))
    }

    /// Returns the metrics between two samples of one device.
    pub fn gpm_metrics(
        &self,
        earlier: &GpmSample,
        later: &GpmSample,
    ) -> Result<GpmMetrics, String> {
        type Get = unsafe extern "C" fn(*mut MetricsGet) -> Status;
        let none = Metric { id: 0, status: 0, value: f64::NAN, words: [ptr::null(); 3] };
        let mut get = MetricsGet {
            version: METRICS_VERSION,
            count: METRICS.len() as c_uint,
            earlier: earlier.buffer,
            later: later.buffer,
            metrics: [none; ENTRIES],
        };
        for (metric, (id, ..)) in get.metrics.iter_mut().zip(METRICS) {
            metric.id = id;
        }
        call!(self, c"nvmlGpmMetricsGet" as Get, (&raw mut get))?;
        let of_metric = |(metric, (_, name, factor)): (&Metric, (c_uint, &'static str, f64))| {
            let value = self.result(metric.status).and_then(|()| match metric.value {
                value if value.is_finite() && value >= 0.0 => Ok(value * factor),
                value => Err(format!("NVML's value is {value}")),
            });
            (name, value)
        };
        Ok(get.metrics.iter().zip(METRICS).map(of_metric).collect())
    }

    /// Returns the energy that a device has taken since the driver was loaded, mJ.
    pub fn energy(&self, of: Device) -> Result<u64, String> {
        let mut value = 0;
        call!(self, c"nvmlDeviceGetTotalEnergyConsumption" as Mask, (of.0, &raw mut value))?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mean_is_one_metric() {
        for name in GPU_MEANS {
            let found: Vec<_> = METRICS.iter().filter(|metric| metric.1 == name).collect();
            let [(_, _, factor)] = found[..] else { panic!("{name}: {found:?}") };
            assert_eq!(*factor == MIB, name.ends_with("_bytes_per_second"), "{name}");
        }
    }
}
