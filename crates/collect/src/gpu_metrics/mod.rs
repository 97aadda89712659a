//! Samples the counters of devices at a fixed interval of 10 us and more (`--gpu-metrics`): CUPTI's PM
//! sampling, of CUDA 12.6 and newer.
//!
//! The counters are those of a whole device, so nothing of this runs in the job. A process of tprof's
//! own ([`sampler`]) loads CUPTI and the driver, so that their faults end neither the job nor the
//! collector. It needs `cuInit` and no context. It samples the devices that the job uses, and only
//! those: another program's device stays as it is. The collector starts it when the job's first
//! device is known (`link`), and writes what it sends to the files (`rows`).
//!
//! The series are those of NVML's means ([`counter::GPU_MEANS`]) at a finer interval, which take
//! their place while a device is sampled, and the bytes of the device's memory.
//!
//! [`counter::GPU_MEANS`]: tprof_trace::model::counter::GPU_MEANS

mod choice;
mod frames;
mod link;
mod rows;
pub mod sampler;

pub use frames::DeviceNews;
pub use link::{MetricsLink, MetricsMessage, prospect};
pub use rows::MetricsRows;

/// Name of the hidden command that samples.
pub const COMMAND: &str = "__gpu-metrics";
