//! Counts calls that prepare work which devices start by themselves. No record shows such work, so
//! the report can only say that it may be missing.

use tprof_wire::calls::{Effect, Function};

/// `cudaGraphInstantiateFlagDeviceLaunch`: kernels may launch the graph. The driver's flag has the
/// same value.
const DEVICE_LAUNCH: u64 = 4;

/// `cudaLimitDevRuntimeSyncDepth` and `cudaLimitDevRuntimePendingLaunchCount`, the limits for
/// kernels that launch kernels. The driver's limits have the same numbers.
const OF_NESTED_KERNELS: [u64; 2] = [3, 4];

/// Counts of what a device may launch or decide on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnseenLaunches {
    /// Executable graphs that kernels may launch.
    pub device_graphs: u64,
    /// Handles of conditions, which decide whether and how often nodes of a graph run.
    pub conditions: u64,
    /// Limits that were set for kernels that launch kernels.
    pub nested_limits: u64,
}

impl UnseenLaunches {
    /// Counts a successful call that prepares such work.
    pub fn called(&mut self, function: &Function, result: u32, detail: u64) {
        match function.does {
            _ if result != 0 => {}
            Effect::Instantiates { .. } if detail & DEVICE_LAUNCH != 0 => self.device_graphs += 1,
            Effect::Conditions => self.conditions += 1,
            Effect::Limits if OF_NESTED_KERNELS.contains(&detail) => self.nested_limits += 1,
            _ => {}
        }
    }

    /// Returns each kind of work that is not recorded, with the reason; empty if none was prepared.
    pub fn words(&self) -> Vec<(String, &'static str)> {
        let graphs = "launches of graphs by kernels";
        let nodes = "how often conditional nodes of graphs ran";
        let kernels = "kernels that kernels launch";
        let words = |count: u64, what: &str, of: &str| format!("{what} ({count} {of})");
        [
            (self.device_graphs, graphs, "graphs instantiated for it"),
            (self.conditions, nodes, "conditions made"),
            (self.nested_limits, kernels, "limits set for them"),
        ]
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, what, of)| {
            (words(count, what, of), "the device starts them; only the host's launch is recorded")
        })
        .collect()
    }
}
