//! A rank's collectives, as it is compared with the other ranks by them.

use super::scene::Scene;
use crate::gpu::stragglers::Meetings;
use crate::rank::collectives::operations;

/// A rank's collectives, for the comparison.
#[derive(Clone, Debug, Default)]
pub(super) struct Company {
    /// Those that ran a kernel and make all ranks wait.
    pub meetings: Meetings,
    /// Ranks of the job, or of its largest group, where the trace has it.
    pub ranks: Option<u32>,
    /// Operations that ran a kernel, of any sort.
    pub operations: usize,
    /// Collectives without a recorded kernel.
    pub without_kernel: u64,
}

/// Reads a rank's collectives.
pub(super) fn company(scene: &Scene<'_>) -> Company {
    let steps = scene.rank.steps();
    let (operations, without_kernel) = operations(scene.rank);
    let steps_of_work = scene.rank.steps_of_work(&steps);
    let group = operations.iter().filter_map(|operation| operation.group_size).max();
    Company {
        meetings: Meetings::of(scene.rank, &operations, &steps, &steps_of_work),
        ranks: group.max(world_size(scene)),
        operations: operations.len(),
        without_kernel,
    }
}

/// Ranks of the job, from an imported trace.
fn world_size(scene: &Scene<'_>) -> Option<u32> {
    let info = scene.rank.file.property("distributedInfo")?;
    let info: serde_json::Value = serde_json::from_str(info).ok()?;
    info.get("world_size")?.as_u64()?.try_into().ok()
}
