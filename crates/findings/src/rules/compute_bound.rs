//! ComputeBound: kernels use the device's arithmetic units to the full.

use tprof_metrics::program::flops::RoofBound;

use super::counters::{HardwareLimit, judge};
use super::kernel_kinds::KernelKind;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The rule that judges kernels near the peak of the device's multiprocessors.
pub(super) struct ComputeBound;

const LIMIT: HardwareLimit = HardwareLimit {
    counter: "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    unit: "the multiprocessors",
    kinds: &[KernelKind::Matrix],
    they: "matrix kernels",
    modelled: RoofBound::Compute,
    what: "kernels are bound by the device's arithmetic",
    advice: "Compute less or cheaper: bf16, fp16 or fp8 on tensor cores, TF32 in place of fp32, \
             fewer operations for the same result; or use more devices.",
    in_pytorch: "",
};

impl Rule for ComputeBound {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "ComputeBound",
            found_if: "kernels with a mean `sm__throughput.avg.pct_of_peak_sustained_elapsed` of 60 % or \
                 more",
            gain: "time in these kernels",
            needs: "that counter; without it the share by kernel names is given",
            remedy: "lower precision with matrix units, fewer operations",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        judge(scene, &LIMIT)
    }
}
