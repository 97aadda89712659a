//! Work that programs let devices start by themselves, of which there are no records: it is counted
//! by the calls that prepare it.

use tprof_wire::calls::{Effect, Function};

/// `cudaGraphInstantiateFlagDeviceLaunch`, and the driver's flag.
const DEVICE_LAUNCH: u64 = 4;

/// `cudaLimitDevRuntimeSyncDepth` and `cudaLimitDevRuntimePendingLaunchCount`, and the driver's
/// limits of the same numbers: of kernels that launch kernels.
const OF_NESTED_KERNELS: [u64; 2] = [3, 4];

/// Counts of what a device may launch or decide on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnseenLaunches {
    /// Executable graphs that kernels may launch.
    pub device_graphs: u64,
    /// Handles of conditions, by which nodes of graphs run, or not, or again.
    pub conditions: u64,
    /// Limits that were set for kernels that launch kernels.
    pub nested_limits: u64,
}

impl UnseenLaunches {
    /// A call returned.
    pub fn called(&mut self, function: &Function, result: u32, detail: u64) {
        match function.does {
            _ if result != 0 => {}
            Effect::Instantiates { .. } if detail & DEVICE_LAUNCH != 0 => self.device_graphs += 1,
            Effect::Conditions => self.conditions += 1,
            Effect::Limits if OF_NESTED_KERNELS.contains(&detail) => self.nested_limits += 1,
            _ => {}
        }
    }

    /// Returns what is not recorded, and why; empty where there is nothing.
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
