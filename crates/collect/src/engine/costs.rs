//! Measures what hooks and samples cost on this machine. The least cost of hooks is measured as the
//! run begins. The rest takes longer: it is measured beside the job once that has run for a while,
//! or at the end of a job that was over before.

use crate::cpu::{CpuSampler, SamplingCosts, SamplingOptions, measure_sampling};
use crate::shared::calibrate::{self, Costs};
use std::sync::{Arc, OnceLock};

/// The costs that take longer to measure.
pub struct SlowCosts {
    /// The most that hooks cost.
    pub cold: Costs,
    /// Cost of samples and switches; `None` where it could not be measured.
    pub sampling: Option<SamplingCosts>,
}

/// See the module.
pub struct CostEstimator {
    is_tsc: bool,
    wanted: Option<SamplingOptions>,
    /// The least that hooks cost.
    pub hot: Costs,
    slow: Arc<OnceLock<SlowCosts>>,
    begun: bool,
}

impl CostEstimator {
    /// Measures the least that hooks cost; takes about 0.5 ms.
    pub fn new(is_tsc: bool, sampler: Option<&Arc<CpuSampler>>) -> CostEstimator {
        let wanted = sampler.map(|sampler| sampler.wanted.clone());
        let hot = calibrate::measure(is_tsc);
        CostEstimator { is_tsc, wanted, hot, slow: Arc::default(), begun: false }
    }

    /// Begins to measure the rest, on a separate thread, unless that has begun.
    pub fn begin(&mut self) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let (slow, is_tsc, wanted) = (Arc::clone(&self.slow), self.is_tsc, self.wanted.clone());
        let named = std::thread::Builder::new().name("tprof-prices".to_owned());
        // Refused where no thread may be started: the end measures it.
        let _ = named.spawn(move || _ = slow.get_or_init(|| measured(is_tsc, wanted.as_ref())));
    }

    /// Returns the time between two samples, ns; 0 where none are taken.
    pub fn period_ns(&self) -> u64 {
        self.wanted.as_ref().map_or(0, SamplingOptions::period_ns)
    }

    /// The rest, if it was measured.
    pub fn slow(&self) -> Option<&SlowCosts> {
        self.slow.get()
    }

    /// The rest, measured now if it was not; waits for it if it is being measured.
    pub fn all(&self) -> &SlowCosts {
        self.slow.get_or_init(|| measured(self.is_tsc, self.wanted.as_ref()))
    }
}

fn measured(is_tsc: bool, wanted: Option<&SamplingOptions>) -> SlowCosts {
    let sampling = wanted.and_then(|wanted| measure_sampling(wanted).ok());
    SlowCosts { cold: calibrate::measure_cold(is_tsc), sampling }
}
