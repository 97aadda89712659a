//! Chooses the metrics of a chip that one pass can collect. PM sampling has no second pass.

use super::cupti::{Cupti, CuptiError, MetricNames};
use crate::gpu_metrics::choice::{CHOICES, CounterChoice};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use tprof_cupti_sys::pm_sampling::*;

/// CUPTI's object that turns names of metrics into a configuration, and counters into values.
pub struct Host {
    cupti: &'static Cupti,
    object: *mut c_void,
}

impl Host {
    /// Makes an object for a chip. `available` says which counters the device has.
    fn new(cupti: &'static Cupti, chip: &CStr, available: &[u8]) -> Result<Host, CuptiError> {
        let mut params = HostInitialize {
            profilerType: PROFILER_TYPE_PM_SAMPLING,
            pChipName: chip.as_ptr(),
            pCounterAvailabilityImage: available.as_ptr(),
            ..HostInitialize::default()
        };
        cupti.call(c"cuptiProfilerHostInitialize", &mut params)?;
        Ok(Host { cupti, object: params.pHostObject })
    }

    /// Returns the configuration for these metrics and the number of passes that it needs.
    fn configure(&self, names: &MetricNames) -> Result<(Vec<u8>, usize), CuptiError> {
        self.cupti.call(
            c"cuptiProfilerHostConfigAddMetrics",
            &mut ConfigAddMetrics {
                pHostObject: self.object,
                ppMetricNames: names.as_ptr(),
                numMetrics: names.len(),
                ..ConfigAddMetrics::default()
            },
        )?;
        let mut size =
            GetConfigImageSize { pHostObject: self.object, ..GetConfigImageSize::default() };
        self.cupti.call(c"cuptiProfilerHostGetConfigImageSize", &mut size)?;
        let mut image = vec![0; size.configImageSize];
        self.cupti.call(
            c"cuptiProfilerHostGetConfigImage",
            &mut GetConfigImage {
                pHostObject: self.object,
                configImageSize: image.len(),
                pConfigImage: image.as_mut_ptr(),
                ..GetConfigImage::default()
            },
        )?;
        let mut passes = GetNumOfPasses {
            configImageSize: image.len(),
            pConfigImage: image.as_mut_ptr(),
            ..GetNumOfPasses::default()
        };
        self.cupti.call(c"cuptiProfilerHostGetNumOfPasses", &mut passes)?;
        Ok((image, passes.numOfPasses))
    }

    /// Computes the values of the metrics in a sample.
    pub fn evaluate(
        &self,
        image: &[u8],
        sample: usize,
        names: &MetricNames,
        values: &mut [f64],
    ) -> Result<(), CuptiError> {
        self.cupti.call(
            c"cuptiProfilerHostEvaluateToGpuValues",
            &mut EvaluateToGpuValues {
                pHostObject: self.object,
                pCounterDataImage: image.as_ptr(),
                counterDataImageSize: image.len(),
                rangeIndex: sample,
                ppMetricNames: names.as_ptr(),
                numMetrics: names.len(),
                pMetricValues: values.as_mut_ptr(),
                ..EvaluateToGpuValues::default()
            },
        )
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let mut params =
            HostDeinitialize { pHostObject: self.object, ..HostDeinitialize::default() };
        let _ = self.cupti.call(c"cuptiProfilerHostDeinitialize", &mut params);
    }
}

/// The counters that a device collects, and CUPTI's image of their configuration.
pub struct MetricsConfig {
    /// The object that computes the values.
    pub host: Host,
    /// The configuration of the one pass.
    pub image: Vec<u8>,
    /// The counters, each with its metric.
    pub chosen: Vec<(&'static CounterChoice, &'static str)>,
    /// The names of the metrics.
    pub names: MetricNames,
    /// The counters that are left out, each with the reason.
    pub missing: BTreeMap<String, String>,
}

/// Chooses the metrics for a chip, one counter after the other. An object of CUPTI's can't take a
/// metric back, so each attempt has its own.
pub fn choose(
    cupti: &'static Cupti,
    chip: &CStr,
    available: &[u8],
) -> Result<MetricsConfig, CuptiError> {
    const OTHER_PASS: &str = "it does not fit into one pass with the others";
    const NO_METRIC: &str = "CUPTI has no metric for it on this chip";
    let mut config: Option<MetricsConfig> = None;
    let mut chosen: Vec<(&'static CounterChoice, &'static str)> = Vec::new();
    let mut missing = BTreeMap::new();
    for choice in &CHOICES {
        let mut why = NO_METRIC;
        for metric in choice.metrics {
            let all: Vec<&str> = chosen.iter().map(|(_, name)| *name).chain([*metric]).collect();
            let names = MetricNames::new(&all);
            let host = Host::new(cupti, chip, available)?;
            match host.configure(&names) {
                Ok((image, 1)) => {
                    chosen.push((choice, *metric));
                    let (chosen, missing) = (chosen.clone(), BTreeMap::new());
                    config = Some(MetricsConfig { host, image, chosen, names, missing });
                    why = "";
                    break;
                }
                Ok(_) => why = OTHER_PASS,
                // The chip doesn't have this metric.
                Err(_) => {}
            }
        }
        if !why.is_empty() {
            missing.insert(choice.counter.to_owned(), why.to_owned());
        }
    }
    let config = config.map(|config| MetricsConfig { missing, ..config });
    config.ok_or_else(|| CuptiError {
        result: tprof_cupti_sys::CUPTI_ERROR_NOT_SUPPORTED,
        why: format!("CUPTI has none of the counters for the chip {}", chip.to_string_lossy()),
    })
}
