//! MemoryBound: kernels wait for the device's memory.

use tprof_metrics::program::flops::RoofBound;

use super::counters::{HardwareLimit, judge};
use super::kernel_kinds::KernelKind;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The rule that judges kernels near the peak bandwidth of the device's memory.
pub(super) struct MemoryBound;

const LIMIT: HardwareLimit = HardwareLimit {
    counter: "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    unit: "the device's memory",
    kinds: &[KernelKind::Elementwise, KernelKind::Reduction],
    they: "elementwise, copying, reducing and gathering kernels",
    modelled: RoofBound::Memory,
    what: "kernels are bound by the device's memory",
    advice: "Move fewer bytes: fuse operators, use bf16, recompute what is cheap, avoid copies that \
             only change the layout.",
    in_pytorch: "torch.compile, a fused optimizer.",
};

impl Rule for MemoryBound {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "MemoryBound",
            found_if: "kernels with a mean `dram__throughput.avg.pct_of_peak_sustained_elapsed` of 60 % \
                 or more",
            gain: "time in these kernels",
            needs: "that counter; without it the share by kernel names is given",
            remedy: "fuse operators, use bf16, recompute what is cheap",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        judge(scene, &LIMIT)
    }
}
