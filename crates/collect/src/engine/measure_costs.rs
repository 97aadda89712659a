//! Measures the cost of hooks and samples on this machine. The least cost of hooks is measured when
//! the run begins. The other measurements take longer, so a thread makes them beside the job once
//! the job has run for a while. If the job ends earlier, they are made at the end.

use crate::shared::calibrate::{self, Costs};
use std::sync::{Arc, OnceLock};
use tprof_sampler::cpu::{CpuSampler, SamplingCosts, SamplingOptions, measure_sampling};

/// The costs that take longer to measure than the least cost of hooks.
pub struct SlowCosts {
    /// The largest cost of hooks: with cold caches.
    pub cold: Costs,
    /// Cost of a sample and of a context switch; `None` if it could not be measured.
    pub sampling: Option<SamplingCosts>,
}

/// Measures the costs of recording on this machine.
pub struct CostEstimator {
    is_tsc: bool,
    wanted: Option<SamplingOptions>,
    /// The least cost of hooks: with hot caches.
    pub hot: Costs,
    slow: Arc<OnceLock<SlowCosts>>,
    begun: bool,
}

impl CostEstimator {
    /// Measures the least cost of hooks, which takes about 0.5 ms.
    pub fn new(is_tsc: bool, sampler: Option<&Arc<CpuSampler>>) -> CostEstimator {
        let wanted = sampler.map(|sampler| sampler.wanted.clone());
        let hot = calibrate::measure(is_tsc);
        CostEstimator { is_tsc, wanted, hot, slow: Arc::default(), begun: false }
    }

    /// Starts the thread that measures the slow costs, unless it was started before.
    pub fn begin(&mut self) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let (slow, is_tsc, wanted) = (Arc::clone(&self.slow), self.is_tsc, self.wanted.clone());
        let named = std::thread::Builder::new().name("tprof-prices".to_owned());
        // If no thread can be started, the slow costs are measured at the end.
        let _ = named.spawn(move || _ = slow.get_or_init(|| measured(is_tsc, wanted.as_ref())));
    }

    /// Returns the slow costs if they have been measured.
    pub fn slow(&self) -> Option<&SlowCosts> {
        self.slow.get()
    }

    /// Returns the slow costs. Measures them now, or waits for the thread that is measuring them.
    pub fn all(&self) -> &SlowCosts {
        self.slow.get_or_init(|| measured(self.is_tsc, self.wanted.as_ref()))
    }
}

fn measured(is_tsc: bool, wanted: Option<&SamplingOptions>) -> SlowCosts {
    let sampling = wanted.and_then(|wanted| measure_sampling(wanted).ok());
    SlowCosts { cold: calibrate::measure_cold(is_tsc), sampling }
}
