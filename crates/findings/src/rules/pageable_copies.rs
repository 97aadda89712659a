//! PageableCopies: asynchronous copies from or to pageable host memory, which makes the copies
//! synchronous. This is the rule "CUDA async memcpy with pageable memory" of Nsight Systems.

use tprof_trace::model::{CopyKind, MemoryKind};

use super::copies::{CopyProblem, finding};
use crate::absent::SearchTarget;
use crate::finding::Finding;
use crate::rule::{Rule, RuleAbout};
use crate::scene::{Copy, Scene};
use crate::verdict::Verdict;

/// The rule that judges asynchronous copies from and to pageable memory.
pub(super) struct PageableCopies;

const TO_DEVICE: CopyProblem = CopyProblem {
    what: "copies to the device come from pageable memory",
    sort: ", from pageable memory",
    things: "asynchronous copies",
    subject: "to the device",
    advice: "Pin the host's memory and copy asynchronously. Create small arrays on the device.",
    in_pytorch: "pin_memory=True in the DataLoader or tensor.pin_memory(), and non_blocking=True.",
};
const TO_HOST: CopyProblem = CopyProblem {
    what: "copies from the device go to pageable memory",
    sort: ", to pageable memory",
    things: "asynchronous copies",
    subject: "to the host",
    advice: "Each copy waits for all earlier device work. Keep results on the device, or copy them \
             asynchronously into a pinned buffer and read it a step later.",
    in_pytorch: ".item() and .cpu() are such copies; non_blocking=True into a pinned tensor is not.",
};

const COPY: SearchTarget = SearchTarget::new("copy between host and device");

impl Rule for PageableCopies {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "PageableCopies",
            found_if: "asynchronous copies between device and pageable host memory",
            gain: "min(time in copies and their calls, late time + time with only these copies on \
                   the devices)",
            needs: "the kind of memory",
            remedy: "pin the host's memory (`pin_memory=True`)",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_device() {
            return verdict;
        }
        let across =
            |copy: &Copy| matches!(copy.row.kind, CopyKind::HostToDevice | CopyKind::DeviceToHost);
        let copies = scene.copies(across);
        if copies.is_empty() {
            return Verdict::nothing_to_judge(scene.none(&COPY, scene.has_copies(across)));
        }
        let host_side = |copy: &Copy| match copy.row.kind {
            CopyKind::HostToDevice => copy.row.from,
            _ => copy.row.to,
        };
        if copies.iter().all(|copy| host_side(copy) == MemoryKind::Unknown) {
            return Verdict::unchecked(
                format!(
                    "no copy {} has a record of whether the host's memory is pinned",
                    scene.place()
                ),
                "the kind of memory of each copy, which CUPTI records and ROCm does not",
            );
        }
        let pageable = |copy: &Copy| {
            host_side(copy) == MemoryKind::Pageable
                && copy.is_asynchronous(scene.rank) != Some(false)
        };
        let found = |kind: CopyKind, words: &CopyProblem| -> Option<Finding> {
            let of_kind = copies.iter().filter(|copy| copy.row.kind == kind && pageable(copy));
            let of_kind: Vec<Copy> = of_kind.copied().collect();
            (!of_kind.is_empty()).then(|| finding(scene, &of_kind, words))
        };
        let found: Vec<Finding> =
            [found(CopyKind::HostToDevice, &TO_DEVICE), found(CopyKind::DeviceToHost, &TO_HOST)]
                .into_iter()
                .flatten()
                .collect();
        match found.is_empty() {
            true => Verdict::no_problem(format!(
                "all copies between host and device {} use pinned memory",
                scene.place()
            )),
            false => Verdict::Found(found),
        }
    }
}
