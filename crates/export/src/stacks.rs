//! Computes how many allocations a recorded allocation stands for, if allocations were sampled.

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{MemoryRecording, ProcessIndex};

/// Returns the mean number of bytes between samples, for each process whose allocations were
/// sampled.
pub(crate) fn intervals(trace: &TraceFile) -> FxHashMap<ProcessIndex, u64> {
    let sampled = trace.processes().iter().filter_map(|process| match process.memory {
        MemoryRecording::Sampled { interval } => Some((process.process, interval)),
        MemoryRecording::Exact | MemoryRecording::Off => None,
    });
    sampled.collect()
}

/// Returns the number of allocations that a recorded one stands for. An allocation of `s` bytes is
/// recorded with the probability `1 - exp(-s / interval)`; from the interval on, it is always
/// recorded.
pub(crate) fn represented_allocations(size: u64, interval: Option<u64>) -> f64 {
    match interval {
        Some(interval) if size < interval => {
            -1.0 / (-(size.max(1) as f64) / interval as f64).exp_m1()
        }
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sampled_allocation_stands_for_similar_unsampled_ones() {
        assert_eq!(represented_allocations(10, None), 1.0);
        assert_eq!(represented_allocations(512, Some(512)), 1.0);
        let p = 1.0 - (-0.5f64).exp();
        assert!((represented_allocations(256, Some(512)) - 1.0 / p).abs() < 1e-12);
    }
}
