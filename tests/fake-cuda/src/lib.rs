//! Simulates CUDA's libraries for tests, and defines the interface between the stand-ins for them.
//!
//! This is a simulation for tests. It computes nothing: a kernel is a span of time on a thread that represents its
//! stream. But everything that a profiler observes is real: calls take time, copies copy, streams run at the same time.
//! A separate log lists what truly ran, so that a recording can be compared with it record by record.
//!
//! | library | stands for | role here |
//! |---|---|---|
//! | `libcuda.so.1` | the driver | contains the [`Engine`]: streams, the clock, the log; loads `CUDA_INJECTION64_PATH` |
//! | `libcudart.so.12`, `.13` | the runtime | CUDA's calls, by way of the engine |
//! | `libcupti.so.12`, `.13` | CUPTI | writes records of what the engine reports to it, with the same bytes as that version |
//! | `libcublas.so.12`, `.13` | cuBLAS | multiplications: one or two kernels each, launched without the runtime's stand-in |
//! | `libcublasLt.so.12`, `.13` | cuBLASLt | the same, by descriptors and layouts |
//! | `libnvidia-ml.so.1` | NVML | reports made-up utilisation, memory, clocks, power, energy, temperature and activity of units |
//! | `libnccl.so.2` | NCCL | collectives as kernels that wait for the other ranks |
//!
//! `libcuda.so.1` is not a whole driver: it has only the functions that `tprof doctor --run-kernel` calls. The kernel
//! of that program is the only one that computes something. It is implemented in Rust and chosen by its name; the PTX
//! is not read.
//!
//! These variables change the simulation:
//! - `FAKE_CUDA_LOG` names a folder for the logs.
//! - `FAKE_CUDA_DEVICES` is the number of devices (1).
//! - `FAKE_CUDA_BLOCK_NS` is the time that one block of a kernel takes (1,000).
//! - `FAKE_CUDA_DRIVER_CALLS` makes CUPTI record launches as driver calls, too.
//! - `FAKE_CUDA_INIT_NS` is the time that `cuInit` takes.
//! - `FAKE_CUDA_WRONG` makes the one kernel that computes leave its numbers unchanged.
//! - `FAKE_CUPTI_FAULTS` chooses faults (`libs/cupti/faults.rs`).
//! - `FAKE_CUPTI_OFFSET_NS`, `FAKE_CUPTI_DRIFT_PPM` and `FAKE_CUPTI_STEP_NS` make CUPTI's clock
//!   differ from the host's.
//! - `FAKE_CUPTI_REPLAY` names a recording of a real CUPTI that replaces the simulation of CUPTI
//!   (`libs/cupti/replay.rs`).
#![allow(unsafe_code)] // libraries with a C interface

pub mod feed;
pub mod gemm;

pub use feed::*;

/// Bytes of memory that a device has at most: the variable `FAKE_CUDA_DEVICE_BYTES`.
pub fn device_limit() -> Option<u64> {
    std::env::var("FAKE_CUDA_DEVICE_BYTES").ok()?.parse().ok()
}

/// Bytes of memory that a device says it has.
pub fn device_bytes() -> u64 {
    device_limit().unwrap_or(80 << 30)
}

/// The UUID of a device, which CUPTI and NVML both report.
pub fn uuid(device: u32) -> [u8; 16] {
    let mut bytes = *b"simulated device";
    bytes[15] = device as u8;
    bytes
}
