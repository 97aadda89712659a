//! Adds samples of GPU instructions to a tree: reasons below places below kernels.

use super::labels::Labels;
use super::profile::{Measure, Profile};
use super::tree::{FrameKind, FrameTable};
use crate::{OpenRank, Written, stalls};

pub(crate) const MEASURES: [Measure; 2] = [
    Measure {
        label: "Samples",
        unit: "count",
        about: "samples of warps, each one warp at one moment (tprof run --gpu-stalls)",
    },
    Measure {
        label: "Stalled samples",
        unit: "count",
        about: "samples of warps that could not issue an instruction",
    },
];

/// Adds the samples of a file.
pub(crate) fn collect(
    part: &OpenRank<'_>,
    written: &mut Written,
    labels: &mut Labels<'_>,
    table: &mut FrameTable,
    profile: &mut Profile,
) {
    stalls::each(part, written, |stack| {
        let above = labels.above(stack.process, None, table).to_vec();
        let kind = if stack.source.is_empty() { FrameKind::Unknown } else { FrameKind::Native };
        let frames = [
            table.frame(FrameKind::Kernel, stack.kernel, ""),
            table.frame(kind, &stack.place, &stack.source),
            table.frame(FrameKind::Range, &stack.shown_reason(), ""),
        ];
        let node = profile.node(&above, &frames);
        profile.add(node, 0, stack.samples as f64);
        if stack.reason.group.is_stall() {
            profile.add(node, 1, stack.samples as f64);
        }
    });
}
