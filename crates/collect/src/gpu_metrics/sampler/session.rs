//! Samples one device.

#![allow(unsafe_code)] // libraries with a C interface

use super::clock::CuptiClock;
use super::config::{MetricsConfig, choose};
use super::cupti::{Cupti, CuptiError};
use crate::gpu_metrics::choice::CounterChoice;
use crate::gpu_metrics::frames::{DeviceNews, MetricsSample};
use std::ffi::{CStr, CString, c_void};
use tprof_cupti_sys::bindings::{CUPTI_ERROR_OUT_OF_MEMORY, CUPTI_SUCCESS};
use tprof_cupti_sys::pm_sampling::*;

/// Bytes of the device's buffer for each sample. NVIDIA states no number.
const SAMPLE_BYTES: u64 = 32 << 10;
/// The buffer holds the samples of so much time, ns: at least four times that between two readings.
const BUFFERED_NS: u64 = 500_000_000;
const LEAST_BUFFER: u64 = 16 << 20;
const MOST_BUFFER: u64 = 256 << 20;
/// Most samples that are decoded at once. CUPTI's image of them has some 20 KiB for each sample of
/// four metrics (PyTorch's `pm_sampling.py`).
const MOST_SAMPLES: u64 = 1024;
/// Calls of decode in one reading, after which the next reading goes on.
const MOST_DECODES: u32 = 64;
/// Chips that sample by their clock alone, says CUPTI's header. Their clock is taken for 1 GHz:
/// samples are shorter if it is faster, and carry their true times.
const BY_CLOCK: [&str; 7] = ["TU102", "TU104", "TU106", "TU116", "TU117", "TU11X", "GA100"];

/// A device that is sampled.
pub struct Session {
    cupti: &'static Cupti,
    config: MetricsConfig,
    object: *mut c_void,
    /// CUPTI's image of decoded samples.
    image: Vec<u8>,
    news: DeviceNews,
    is_started: bool,
}

impl Session {
    /// Begins to sample a device.
    pub fn begin(
        cupti: &'static Cupti,
        device: &str,
        index: u32,
        interval_ns: u64,
    ) -> Result<Session, String> {
        let (config, mut news) = prepare(cupti, device, index)?;
        let mut enable = Enable { deviceIndex: index as usize, ..Enable::default() };
        cupti.call(c"cuptiPmSamplingEnable", &mut enable)?;
        news.buffer_bytes = (BUFFERED_NS / interval_ns.max(1) * SAMPLE_BYTES)
            .next_power_of_two()
            .clamp(LEAST_BUFFER, MOST_BUFFER);
        let object = enable.pPmSamplingObject;
        let mut session =
            Session { cupti, config, object, image: Vec::new(), news, is_started: false };
        session.set_config(interval_ns)?;
        session.make_image(interval_ns)?;
        session.start()?;
        Ok(session)
    }

    fn set_config(&mut self, interval_ns: u64) -> Result<(), CuptiError> {
        let by_clock = BY_CLOCK.contains(&self.news.chip.as_str());
        let mut params = SetConfig {
            pPmSamplingObject: self.object,
            configSize: self.config.image.len(),
            pConfig: self.config.image.as_ptr(),
            hardwareBufferSize: self.news.buffer_bytes as usize,
            samplingInterval: interval_ns,
            triggerMode: if by_clock { TRIGGER_SYSCLK_INTERVAL } else { TRIGGER_TIME_INTERVAL },
            hwBufferAppendMode: KEEP_OLDEST,
            ..SetConfig::default()
        };
        self.cupti.call(c"cuptiPmSamplingSetConfig", &mut params)
    }

    fn make_image(&mut self, interval_ns: u64) -> Result<(), CuptiError> {
        let most = (BUFFERED_NS / interval_ns.max(1)).clamp(64, MOST_SAMPLES) as u32;
        let mut size = GetCounterDataSize {
            pPmSamplingObject: self.object,
            pMetricNames: self.config.names.as_ptr(),
            numMetrics: self.config.names.len(),
            maxSamples: most,
            ..GetCounterDataSize::default()
        };
        self.cupti.call(c"cuptiPmSamplingGetCounterDataSize", &mut size)?;
        self.image = vec![0; size.counterDataSize];
        self.clear_image()
    }

    fn clear_image(&mut self) -> Result<(), CuptiError> {
        let mut params = CounterDataImageInitialize {
            pPmSamplingObject: self.object,
            counterDataSize: self.image.len(),
            pCounterData: self.image.as_mut_ptr(),
            ..CounterDataImageInitialize::default()
        };
        self.cupti.call(c"cuptiPmSamplingCounterDataImageInitialize", &mut params)
    }

    fn start(&mut self) -> Result<(), CuptiError> {
        let mut params = Start { pPmSamplingObject: self.object, ..Start::default() };
        self.cupti.call(c"cuptiPmSamplingStart", &mut params)?;
        self.is_started = true;
        Ok(())
    }

    fn stop(&mut self) -> Result<(), CuptiError> {
        let mut params = Stop { pPmSamplingObject: self.object, ..Stop::default() };
        self.is_started = false;
        self.cupti.call(c"cuptiPmSamplingStop", &mut params)
    }

    /// What is known of the device.
    pub fn news(&self) -> &DeviceNews {
        &self.news
    }

    /// Whether the device is sampled.
    pub fn is_alive(&self) -> bool {
        self.is_started
    }

    /// Returns the samples since the last reading. `is_last` stops the device first.
    pub fn read(&mut self, clock: &mut CuptiClock, is_last: bool) -> Vec<MetricsSample> {
        let mut samples = Vec::new();
        let stopped = if is_last { self.stop() } else { Ok(()) };
        let read =
            stopped.map_err(String::from).and_then(|()| self.decode_all(clock, &mut samples));
        if let Err(why) = read {
            self.news.why_not = Some(why);
            if self.is_started {
                let _ = self.stop();
            }
        }
        samples
    }

    fn decode_all(
        &mut self,
        clock: &mut CuptiClock,
        samples: &mut Vec<MetricsSample>,
    ) -> Result<(), String> {
        for _ in 0..MOST_DECODES {
            let mut decode = DecodeData {
                pPmSamplingObject: self.object,
                pCounterDataImage: self.image.as_mut_ptr(),
                counterDataImageSize: self.image.len(),
                ..DecodeData::default()
            };
            let result = self.cupti.call(c"cuptiPmSamplingDecodeData", &mut decode);
            let is_full = matches!(&result, Err(e) if e.result == CUPTI_ERROR_OUT_OF_MEMORY);
            if result.is_err() && !is_full {
                return result.map_err(String::from);
            }
            self.news.clock_width_ns = clock.read(self.cupti)?;
            self.news.overflows += u64::from(is_full || decode.overflow != 0);
            let taken = self.take(clock, samples);
            self.clear_image()?;
            if is_full {
                // The buffer takes no more records until it is started anew.
                if self.is_started {
                    self.stop()?;
                    self.start()?;
                }
                return Ok(());
            }
            let count = taken?;
            if decode.decodeStopReason == STOPPED_AT_END || count == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes the decoded samples out of the image. Returns how many there were.
    fn take(
        &mut self,
        clock: &CuptiClock,
        samples: &mut Vec<MetricsSample>,
    ) -> Result<usize, String> {
        let mut info = GetCounterDataInfo {
            pCounterDataImage: self.image.as_ptr(),
            counterDataImageSize: self.image.len(),
            ..GetCounterDataInfo::default()
        };
        self.cupti.call(c"cuptiPmSamplingGetCounterDataInfo", &mut info)?;
        for at in 0..info.numCompletedSamples {
            match self.sample(clock, at) {
                Some(sample) => samples.push(sample),
                None => self.news.unusable += 1,
            }
        }
        Ok(info.numCompletedSamples)
    }

    fn sample(&self, clock: &CuptiClock, at: usize) -> Option<MetricsSample> {
        let mut info = GetSampleInfo {
            pPmSamplingObject: self.object,
            pCounterDataImage: self.image.as_ptr(),
            counterDataImageSize: self.image.len(),
            sampleIndex: at,
            ..GetSampleInfo::default()
        };
        self.cupti.call(c"cuptiPmSamplingCounterDataGetSampleInfo", &mut info).ok()?;
        let (start_ns, end_ns) =
            (clock.own_ns(info.startTimestamp)?, clock.own_ns(info.endTimestamp)?);
        let mut values = vec![f64::NAN; self.config.chosen.len()];
        let MetricsConfig { host, names, chosen, .. } = &self.config;
        host.evaluate(&self.image, at, names, &mut values).ok()?;
        for (value, (choice, _)) in values.iter_mut().zip(chosen) {
            *value *= choice.factor;
        }
        (end_ns > start_ns).then_some(MetricsSample { start_ns, end_ns, values })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_started {
            let _ = self.stop();
        }
        let mut params = Disable { pPmSamplingObject: self.object, ..Disable::default() };
        let _ = self.cupti.call(c"cuptiPmSamplingDisable", &mut params);
    }
}

/// Chooses what to collect of a device. This asks the device which counters it has, and changes
/// nothing.
fn prepare(
    cupti: &'static Cupti,
    device: &str,
    index: u32,
) -> Result<(MetricsConfig, DeviceNews), String> {
    cupti.call(c"cuptiProfilerInitialize", &mut ProfilerInitialize::default())?;
    let chip = chip_name(cupti, index)?;
    let config = choose(cupti, &chip, &available(cupti, index)?)?;
    let metric = |(choice, metric): &(&CounterChoice, &str)| {
        (choice.counter.to_owned(), (*metric).to_owned())
    };
    let news = DeviceNews {
        device: device.to_owned(),
        index,
        cupti: cupti.version(),
        metrics: config.chosen.iter().map(metric).collect(),
        missing: config.missing.clone(),
        chip: chip.to_string_lossy().into_owned(),
        ..DeviceNews::default()
    };
    Ok((config, news))
}

/// Tells what could be sampled of a device, and changes nothing.
pub fn prospect(cupti: &'static Cupti, device: &str, index: u32) -> Result<DeviceNews, String> {
    prepare(cupti, device, index).map(|(_, news)| news)
}

fn chip_name(cupti: &Cupti, index: u32) -> Result<CString, CuptiError> {
    let mut params = GetChipName { deviceIndex: index as usize, ..GetChipName::default() };
    cupti.call(c"cuptiDeviceGetChipName", &mut params)?;
    if params.pChipName.is_null() {
        return Err(CuptiError {
            result: CUPTI_SUCCESS,
            why: "CUPTI does not know the device's chip".to_owned(),
        });
    }
    // SAFETY: after its success the call's parameter is a text that CUPTI keeps.
    Ok(unsafe { CStr::from_ptr(params.pChipName) }.to_owned())
}

/// Returns CUPTI's image of the counters that a device has.
fn available(cupti: &Cupti, index: u32) -> Result<Vec<u8>, CuptiError> {
    const CALL: &CStr = c"cuptiPmSamplingGetCounterAvailability";
    let mut params =
        GetCounterAvailability { deviceIndex: index as usize, ..GetCounterAvailability::default() };
    cupti.call(CALL, &mut params)?;
    let mut image = vec![0; params.counterAvailabilityImageSize];
    params.pCounterAvailabilityImage = image.as_mut_ptr();
    cupti.call(CALL, &mut params)?;
    Ok(image)
}
