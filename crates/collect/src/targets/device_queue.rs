//! Tells which kernels were launched and have not ended, by stream, for `tprof where`.
//!
//! The hooks know kernel and stream of a launch, and CUPTI records the kernel once it has ended. So
//! launches without a record are in the queue of their stream, and the oldest one runs or waits for
//! another stream. Records come late, so recent launches tell nothing.

use super::target::Target;
use std::collections::{BTreeMap, VecDeque};
use tprof_hang::{LaunchState, StreamState};

/// CUPTI's record of a kernel that has ended arrives at most this much later, ns. Its buffers are
/// flushed once a second.
const LATE_NS: u64 = 2_500_000_000;
/// Number of launches of a process whose kernels and streams are remembered. A device's queue holds
/// fewer.
const REMEMBERED: usize = 4096;
/// Largest difference between the hooks' clock and CUPTI's, ns.
const APART_NS: u64 = 1_000_000;

/// A launch that a hook recorded.
#[derive(Clone, Copy, Debug)]
pub struct HookedLaunch {
    /// Time when the call began, ns.
    pub start_ns: u64,
    /// Time when the call returned, ns.
    pub end_ns: u64,
    /// The kernel's stub or handle.
    pub kernel: u64,
    /// Handle of the stream.
    pub stream: u64,
}

/// The last launches of a process.
#[derive(Debug, Default)]
pub struct LastLaunches {
    launches: VecDeque<HookedLaunch>,
}

impl LastLaunches {
    /// Adds a launch.
    pub fn add(&mut self, launch: HookedLaunch) {
        if self.launches.len() == REMEMBERED {
            self.launches.pop_front();
        }
        self.launches.push_back(launch);
    }

    /// Returns the last launch.
    pub fn last(&self) -> Option<&HookedLaunch> {
        self.launches.back()
    }

    /// Returns the launch of a call that CUPTI has seen begin at this time, ns.
    fn at(&self, time_ns: u64) -> Option<&HookedLaunch> {
        let is_it = |of: &&HookedLaunch| {
            (of.start_ns.saturating_sub(APART_NS)..=of.end_ns + APART_NS).contains(&time_ns)
        };
        let distance = |of: &&HookedLaunch| of.start_ns.abs_diff(time_ns);
        self.launches.iter().filter(is_it).min_by_key(distance)
    }
}

impl Target {
    /// Returns the streams with kernels that were launched a while ago and have not ended; `None` if
    /// CUPTI doesn't tell.
    pub(super) fn device_queue(&self, now_ns: u64) -> Option<Vec<StreamState>> {
        let mut waiting = self.gpu.launches_without_kernels(now_ns.saturating_sub(LATE_NS))?;
        waiting.sort_unstable();
        let mut streams: BTreeMap<Option<u64>, StreamState> = BTreeMap::new();
        for start_ns in waiting {
            let launch = self.calls.launches.at(start_ns);
            let stream = streams.entry(launch.map(|of| of.stream)).or_insert_with(|| {
                let kernel = launch.map(|of| self.calls.kernel_name(of.kernel).to_owned());
                let age_ns = now_ns.saturating_sub(start_ns);
                StreamState {
                    stream: launch.map(|of| of.stream),
                    kernels: 0,
                    oldest: LaunchState { kernel: kernel.unwrap_or_default(), age_ns },
                }
            });
            stream.kernels += 1;
        }
        let mut streams: Vec<StreamState> = streams.into_values().collect();
        streams.sort_by_key(|of| std::cmp::Reverse(of.oldest.age_ns));
        Some(streams)
    }
}
