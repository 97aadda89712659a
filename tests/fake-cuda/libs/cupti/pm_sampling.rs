//! PM sampling and the profiler host interface, for a chip that has fewer metrics than GH100. Which
//! kernels ran is read from the log of all processes (`FAKE_CUDA_LOG`), and each kernel has known
//! values, so that what a sample must hold is known.
//!
//! As in the real library, sizes of other versions than the structures' own are refused (CUPTI 13.0
//! refuses the newer size of `cuptiProfilerHostInitialize`), and the object of a device is not made
//! twice.

use crate::{enter, faults, lock};
use std::ffi::{CStr, c_char, c_void};
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;
use tprof_cupti_sys::bindings::*;
use tprof_cupti_sys::pm_sampling::*;
use tprof_fake_cuda::engine;

/// Name of the chip.
const CHIP: &CStr = c"SIM100";
/// A sample is decoded so long after its end, when all of its kernels are in the log, ns.
const LAG_NS: u64 = 200_000_000;
/// Bytes of the buffer that a sample takes.
const RECORD_BYTES: usize = 16 << 10;
/// The first bytes of an image of counters, and of a configuration.
const MAGIC: u64 = 0x7370_6d61_735f_6d70;

/// A metric: its name, whether it needs a pass of its own, and its value while a kernel of each kind
/// of [`KERNELS`] runs.
type FakeMetric = (&'static str, bool, [f64; 4]);

macro_rules! share {
    ($name:literal) => {
        concat!($name, ".avg.pct_of_peak_sustained_elapsed")
    };
}

/// The kinds of kernels, by a part of their names: bound by tensor cores, by memory, by latency, and
/// one that only counts bytes.
const KERNELS: [&str; 4] = ["gemm", "softmax", "relu", "sgd"];
const METRICS: [FakeMetric; 17] = [
    (share!("TPC.TriageCompute.sm__cycles_active"), false, [95.0, 90.0, 10.0, 50.0]),
    ("dram__bytes_read.sum.per_second", false, [1e12, 2e12, 1e9, 1.5e12]),
    ("dram__bytes_write.sum.per_second", false, [2e11, 1e12, 0.0, 1.5e12]),
    (share!("dram__throughput"), false, [30.0, 90.0, 0.25, 75.0]),
    (share!("sm__pipe_tensor_cycles_active_realtime"), false, [70.0, 0.0, 0.0, 0.0]),
    (share!("tpc__warps_active_realtime"), false, [25.0, 60.0, 2.5, 40.0]),
    ("nvlrx__bytes.sum.per_second", false, [0.0, 0.0, 0.0, 0.0]),
    ("nvltx__bytes.sum.per_second", false, [0.0, 0.0, 0.0, 0.0]),
    ("pcie__read_bytes.sum.per_second", false, [1e6, 1e6, 1e6, 1e6]),
    ("pcie__write_bytes.sum.per_second", false, [2e6, 2e6, 2e6, 2e6]),
    (share!("sm__inst_executed_pipe_fma_realtime"), false, [5.0, 22.0, 1.0, 10.0]),
    (share!("sm__pipe_fp64_cycles_active"), false, [0.0, 0.5, 0.0, 0.0]),
    (share!("sm__inst_executed_pipe_alu_realtime"), false, [8.0, 12.0, 1.5, 6.0]),
    (share!("sm__inst_executed_pipe_fma_type_fp16"), true, [0.0, 0.0, 0.0, 0.0]),
    ("gpu__time_duration.sum", false, [0.0; 4]),
    ("pcie__cycles_active.sum", false, [0.0; 4]),
    ("dram__cycles_active.avg", true, [0.0; 4]),
];

/// The profiler host's object: the metrics that were added, by their places in [`METRICS`].
struct Host {
    metrics: Vec<u64>,
}

/// A device that is sampled.
struct Sampler {
    device: u32,
    interval_ns: u64,
    capacity: usize,
    /// Beginning of the next sample on CLOCK_MONOTONIC, ns; `None` while it is stopped.
    next_ns: Option<u64>,
    stopped_ns: Option<u64>,
    is_lost: bool,
    decodes: u64,
}

/// A kernel that ran.
#[derive(Clone, Copy)]
struct Ran {
    device: u32,
    kind: usize,
    start: u64,
    end: u64,
}

static ENABLED: AtomicU64 = AtomicU64::new(0);
static RAN: Mutex<Vec<Ran>> = Mutex::new(Vec::new());

/// Begins a call with parameters of this size.
///
/// # Safety
///
/// The pointer is to parameters that begin with their size.
unsafe fn begin<P: Params>(name: &str, params: *mut P) -> CUptiResult {
    // SAFETY: the caller's promise; every structure begins with its size.
    match unsafe { *params.cast::<usize>() } == P::BYTES {
        true => enter(name),
        false => CUPTI_ERROR_INVALID_PARAMETER,
    }
}

macro_rules! calls {
    ($($name:ident($params:ident: $type:ident) $body:block)*) => {$(
        /// Stands in for CUPTI's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(params: *mut $type) -> CUptiResult {
            // SAFETY: the caller passes valid parameters, as CUPTI demands.
            let begun = unsafe { begin(stringify!($name), params) };
            if begun != CUPTI_SUCCESS {
                return begun;
            }
            // SAFETY: as above.
            let $params = unsafe { &mut *params };
            let result: Result<(), CUptiResult> = $body;
            result.err().unwrap_or(CUPTI_SUCCESS)
        }
    )*};
}

/// Reads what is new in the logs of all processes.
fn read_logs() {
    static READ: Mutex<Vec<(PathBuf, u64)>> = Mutex::new(Vec::new());
    let Ok(folder) = std::env::var("FAKE_CUDA_LOG") else { return };
    let (mut read, mut ran) = (lock(&READ), lock(&RAN));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let at = match read.iter().position(|(known, _)| *known == path) {
            Some(at) => at,
            None => {
                read.push((path.clone(), 0));
                read.len() - 1
            }
        };
        let Ok(mut file) = fs::File::open(&path) else { continue };
        let mut text = String::new();
        if file.seek(SeekFrom::Start(read[at].1)).is_err()
            || file.read_to_string(&mut text).is_err()
        {
            continue;
        }
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        read[at].1 += whole as u64;
        ran.extend(text[..whole].lines().filter_map(kernel));
    }
    ran.sort_by_key(|ran| ran.start);
}

fn kernel(line: &str) -> Option<Ran> {
    let number = |key: &str| {
        let from = line.find(&format!("\"{key}\":"))? + key.len() + 3;
        let digits = line[from..].split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u64>().ok()
    };
    if !line.contains("\"what\":\"kernel\"") {
        return None;
    }
    let kind = KERNELS.iter().position(|part| line.contains(part))?;
    Some(Ran {
        device: number("device")? as u32,
        kind,
        start: number("start")?,
        end: number("end")?,
    })
}

/// Returns the value of a metric in a stretch of time: the mean by time.
fn value(metric: &FakeMetric, device: u32, from: u64, until: u64) -> f64 {
    let ran = lock(&RAN);
    let before = ran.partition_point(|ran| ran.start < until);
    let sum: f64 = ran[..before]
        .iter()
        .rev()
        .take(64)
        .filter(|ran| ran.device == device && ran.end > from)
        .map(|ran| (ran.end.min(until) - ran.start.max(from)) as f64 * metric.2[ran.kind])
        .sum();
    sum / (until - from) as f64
}

/// Returns the places of metrics in [`METRICS`].
///
/// # Safety
///
/// The pointer is to so many names.
unsafe fn places(names: *const *const c_char, count: usize) -> Result<Vec<u64>, CUptiResult> {
    // SAFETY: the caller's promise.
    let names = unsafe { std::slice::from_raw_parts(names, count) };
    let of = |name: &*const c_char| {
        // SAFETY: each name ends with a zero.
        let name = unsafe { CStr::from_ptr(*name) }.to_string_lossy();
        let place = METRICS.iter().position(|(known, ..)| *known == name);
        // The real library returns this, and not CUPTI_ERROR_INVALID_METRIC_NAME.
        place.map(|place| place as u64).ok_or(CUPTI_ERROR_INVALID_PARAMETER)
    };
    names.iter().map(of).collect()
}

/// Returns the words of an image.
///
/// # Safety
///
/// The pointer is to so many bytes.
unsafe fn words<'i>(image: *mut u8, bytes: usize) -> Result<&'i mut [[u8; 8]], CUptiResult> {
    if image.is_null() || bytes < 8 {
        return Err(CUPTI_ERROR_INVALID_PARAMETER);
    }
    // SAFETY: the caller's promise; bytes need no alignment.
    Ok(unsafe { std::slice::from_raw_parts_mut(image.cast(), bytes / 8) })
}

fn word(words: &[[u8; 8]], at: usize) -> u64 {
    words.get(at).map_or(0, |word| u64::from_le_bytes(*word))
}

/// Words before the first sample of an image: the magic number, the device, the number of samples.
const HEAD: usize = 3;
/// Words of a sample: its beginning and its end.
const EACH: usize = 2;

fn sampler<'s>(object: *mut c_void) -> Result<&'s mut Sampler, CUptiResult> {
    // SAFETY: CUPTI's clients pass objects of `cuptiPmSamplingEnable`, from one thread.
    unsafe { object.cast::<Sampler>().as_mut() }.ok_or(CUPTI_ERROR_INVALID_PARAMETER)
}

fn log(what: &str, device: u32) {
    let line = format!("{{\"what\":\"{what}\",\"on\":{device}}}");
    (engine().log)(line.as_ptr(), line.len());
}

calls! {
    cuptiProfilerInitialize(_params: ProfilerInitialize) { Ok(()) }

    cuptiDeviceGetChipName(params: GetChipName) {
        params.pChipName = CHIP.as_ptr();
        Ok(())
    }

    cuptiPmSamplingGetCounterAvailability(params: GetCounterAvailability) {
        if params.pCounterAvailabilityImage.is_null() {
            params.counterAvailabilityImageSize = 8;
        } else {
            // SAFETY: the client has made room for the size that it was told.
            let image = unsafe { words(params.pCounterAvailabilityImage, 8) };
            if let Ok(image) = image {
                image[0] = MAGIC.to_le_bytes();
            }
        }
        Ok(())
    }

    cuptiProfilerHostInitialize(params: HostInitialize) {
        // SAFETY: the client passes the chip's name, and the image that it was given.
        let is_right = unsafe {
            CStr::from_ptr(params.pChipName) == CHIP
                && words(params.pCounterAvailabilityImage.cast_mut(), 8)
                    .is_ok_and(|image| word(image, 0) == MAGIC)
        };
        match is_right && params.profilerType == PROFILER_TYPE_PM_SAMPLING {
            true => {
                params.pHostObject = Box::into_raw(Box::new(Host { metrics: Vec::new() })).cast();
                Ok(())
            }
            false => Err(CUPTI_ERROR_INVALID_PARAMETER),
        }
    }

    cuptiProfilerHostDeinitialize(params: HostDeinitialize) {
        // SAFETY: the client passes an object of `cuptiProfilerHostInitialize` and forgets it.
        drop(unsafe { Box::from_raw(params.pHostObject.cast::<Host>()) });
        Ok(())
    }

    cuptiProfilerHostConfigAddMetrics(params: ConfigAddMetrics) {
        // SAFETY: the client passes so many names.
        unsafe { places(params.ppMetricNames, params.numMetrics) }.map(|places| {
            // SAFETY: the client passes an object of `cuptiProfilerHostInitialize`.
            unsafe { &mut *params.pHostObject.cast::<Host>() }.metrics.extend(places);
        })
    }

    cuptiProfilerHostGetConfigImageSize(params: GetConfigImageSize) {
        // SAFETY: as above.
        let host = unsafe { &*params.pHostObject.cast::<Host>() };
        params.configImageSize = 8 + 8 * host.metrics.len();
        Ok(())
    }

    cuptiProfilerHostGetConfigImage(params: GetConfigImage) {
        // SAFETY: as above, and the client has made room for the image.
        unsafe {
            let host = &*params.pHostObject.cast::<Host>();
            words(params.pConfigImage, params.configImageSize).map(|image| {
                let all = [MAGIC].into_iter().chain(host.metrics.iter().copied());
                image.iter_mut().zip(all).for_each(|(to, word)| *to = word.to_le_bytes());
            })
        }
    }

    cuptiProfilerHostGetNumOfPasses(params: GetNumOfPasses) {
        // SAFETY: the client passes an image of `cuptiProfilerHostGetConfigImage`.
        unsafe { words(params.pConfigImage, params.configImageSize) }.map(|image| {
            let alone = |word: &&[u8; 8]| METRICS[u64::from_le_bytes(**word) as usize].1;
            params.numOfPasses = 1 + image[1..].iter().filter(alone).count();
        })
    }

    cuptiPmSamplingEnable(params: Enable) {
        let device = params.deviceIndex as u32;
        match ENABLED.fetch_or(1 << device, SeqCst) >> device & 1 {
            0 => {
                log("pm enable", device);
                let sampler = Sampler {
                    device,
                    interval_ns: 0,
                    capacity: 0,
                    next_ns: None,
                    stopped_ns: None,
                    is_lost: false,
                    decodes: 0,
                };
                params.pPmSamplingObject = Box::into_raw(Box::new(sampler)).cast();
                Ok(())
            }
            _ => Err(CUPTI_ERROR_INVALID_OPERATION),
        }
    }

    cuptiPmSamplingDisable(params: Disable) {
        sampler(params.pPmSamplingObject).map(|sampler| {
            log("pm disable", sampler.device);
            ENABLED.fetch_and(!(1 << sampler.device), SeqCst);
            // SAFETY: the client passes an object of `cuptiPmSamplingEnable` and forgets it.
            drop(unsafe { Box::from_raw(params.pPmSamplingObject.cast::<Sampler>()) });
        })
    }

    cuptiPmSamplingSetConfig(params: SetConfig) {
        sampler(params.pPmSamplingObject).and_then(|sampler| {
            sampler.interval_ns = params.samplingInterval;
            sampler.capacity = params.hardwareBufferSize / RECORD_BYTES;
            match params.triggerMode == TRIGGER_TIME_INTERVAL && params.samplingInterval > 0 {
                true => Ok(()),
                false => Err(CUPTI_ERROR_INVALID_PARAMETER),
            }
        })
    }

    cuptiPmSamplingGetCounterDataSize(params: GetCounterDataSize) {
        params.counterDataSize = 8 * (HEAD + EACH * params.maxSamples as usize);
        Ok(())
    }

    cuptiPmSamplingCounterDataImageInitialize(params: CounterDataImageInitialize) {
        // SAFETY: the client passes so many bytes.
        unsafe { words(params.pCounterData, params.counterDataSize) }.map(|image| {
            image.fill([0; 8]);
            image[0] = MAGIC.to_le_bytes();
        })
    }

    cuptiPmSamplingStart(params: Start) {
        sampler(params.pPmSamplingObject).and_then(|sampler| match sampler.next_ns {
            Some(_) if sampler.stopped_ns.is_none() => Err(CUPTI_ERROR_INVALID_OPERATION),
            _ => {
                sampler.next_ns = Some((engine().now)());
                (sampler.stopped_ns, sampler.is_lost) = (None, false);
                Ok(())
            }
        })
    }

    cuptiPmSamplingStop(params: Stop) {
        sampler(params.pPmSamplingObject).and_then(|sampler| match sampler.stopped_ns {
            Some(_) => Err(CUPTI_ERROR_INVALID_OPERATION),
            None => {
                sampler.stopped_ns = Some((engine().now)());
                if !sampler.is_lost {
                    std::thread::sleep(Duration::from_nanos(LAG_NS));
                }
                Ok(())
            }
        })
    }

    cuptiPmSamplingDecodeData(params: DecodeData) {
        // SAFETY: the client passes an image of so many bytes.
        let image = unsafe { words(params.pCounterDataImage, params.counterDataImageSize) };
        sampler(params.pPmSamplingObject).and_then(|sampler| {
            let image = image?;
            if word(image, 0) != MAGIC {
                return Err(CUPTI_ERROR_INVALID_PARAMETER);
            }
            read_logs();
            let until = sampler.stopped_ns.unwrap_or_else(|| (engine().now)() - LAG_NS);
            let Some(next) = &mut sampler.next_ns else { return Err(CUPTI_ERROR_INVALID_OPERATION) };
            let pending = until.saturating_sub(*next) / sampler.interval_ns;
            sampler.decodes += 1;
            static ABORT: AtomicU64 = AtomicU64::new(0);
            if faults::turn("pmabort", &ABORT) {
                std::process::abort();
            }
            static FULL: AtomicU64 = AtomicU64::new(0);
            if faults::turn("pmfull", &FULL) || pending as usize > sampler.capacity {
                (params.overflow, sampler.is_lost) = (1, true);
                return Err(CUPTI_ERROR_OUT_OF_MEMORY);
            }
            let room = (image.len() - HEAD) / EACH;
            let count = (pending as usize).min(room);
            for at in 0..count {
                image[HEAD + EACH * at] = next.to_le_bytes();
                *next += sampler.interval_ns;
                image[HEAD + EACH * at + 1] = next.to_le_bytes();
            }
            image[1] = u64::from(sampler.device).to_le_bytes();
            image[2] = (count as u64).to_le_bytes();
            params.overflow = 0;
            params.decodeStopReason =
                if count == room { STOPPED_FULL } else { STOPPED_AT_END };
            Ok(())
        })
    }

    cuptiPmSamplingGetCounterDataInfo(params: GetCounterDataInfo) {
        // SAFETY: the client passes an image of so many bytes.
        unsafe { words(params.pCounterDataImage.cast_mut(), params.counterDataImageSize) }.map(|image| {
            let count = word(image, 2) as usize;
            params.numTotalSamples = (image.len() - HEAD) / EACH;
            (params.numPopulatedSamples, params.numCompletedSamples) = (count, count);
        })
    }

    cuptiPmSamplingCounterDataGetSampleInfo(params: GetSampleInfo) {
        // SAFETY: the client passes an image of so many bytes.
        unsafe { words(params.pCounterDataImage.cast_mut(), params.counterDataImageSize) }.map(|image| {
            let at = HEAD + EACH * params.sampleIndex;
            let stamp = engine().stamp;
            params.startTimestamp = stamp(word(image, at));
            params.endTimestamp = stamp(word(image, at + 1));
        })
    }

    cuptiProfilerHostEvaluateToGpuValues(params: EvaluateToGpuValues) {
        // SAFETY: the client passes an image of so many bytes, and so many names.
        let (image, places) = unsafe {
            let bytes = params.counterDataImageSize;
            (words(params.pCounterDataImage.cast_mut(), bytes), places(params.ppMetricNames, params.numMetrics))
        };
        image.and_then(|image| {
            let at = HEAD + EACH * params.rangeIndex;
            let (from, until) = (word(image, at), word(image, at + 1));
            for (to, place) in places?.into_iter().enumerate() {
                let value = value(&METRICS[place as usize], word(image, 1) as u32, from, until);
                // SAFETY: there is room for a value of each metric.
                unsafe { *params.pMetricValues.add(to) = value };
            }
            Ok(())
        })
    }
}
