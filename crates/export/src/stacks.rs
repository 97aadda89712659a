//! Weights of allocations in a sampled recording.

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{MemoryRecording, ProcessIndex};

/// Returns the mean number of bytes between samples, for processes with sampled allocations.
pub(crate) fn intervals(trace: &TraceFile) -> FxHashMap<ProcessIndex, u64> {
    let sampled = trace.processes().iter().filter_map(|process| match process.memory {
        MemoryRecording::Sampled { interval } => Some((process.process, interval)),
        MemoryRecording::Exact | MemoryRecording::Off => None,
    });
    sampled.collect()
}

/// Returns the number of allocations that a recorded one stands for. An allocation of `s` bytes is
/// recorded with probability `1 - exp(-s / interval)`, and always from the interval on.
pub(crate) fn stands_for(size: u64, interval: Option<u64>) -> f64 {
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
    fn samples_stand_for_their_kind() {
        assert_eq!(stands_for(10, None), 1.0);
        assert_eq!(stands_for(512, Some(512)), 1.0);
        let p = 1.0 - (-0.5f64).exp();
        assert!((stands_for(256, Some(512)) - 1.0 / p).abs() < 1e-12);
    }
}
