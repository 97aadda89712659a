//! Tells which kernels were launched and have not ended, by stream, for `tprof where`.
//!
//! The hooks know kernel and stream of a launch, and CUPTI records the kernel once it has ended. So
//! launches without a record are in the queue of their stream, and the oldest one runs or waits for
//! another stream. Records come late, so recent launches tell nothing.

use super::target::Target;
use crate::gpu::by_order::LATE_NS;
use std::collections::{BTreeMap, VecDeque};
use tprof_hang::{LaunchState, StreamState};

/// Number of launches of a process whose kernels and streams are remembered. A device's queue holds
/// fewer.
const REMEMBERED: usize = 4096;
/// Largest difference between the hooks' clock and CUPTI's, ns.
const APART_NS: u64 = 1_000_000;
/// Number of launches that are compared with one of CUPTI's calls. So many can begin within
/// [`APART_NS`].
const NEAR: usize = 512;

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
    /// Adds the newest launch, in place of the oldest if there are too many.
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

    /// Returns the launches in order of time.
    fn by_time(&self) -> Vec<HookedLaunch> {
        let mut launches: Vec<HookedLaunch> = self.launches.iter().copied().collect();
        launches.sort_unstable_by_key(|of| of.start_ns);
        launches
    }
}

/// Returns the launch of a call that CUPTI has seen begin at this time, ns: the last that began
/// before. Launches are in order of time.
fn launch_at(launches: &[HookedLaunch], time_ns: u64) -> Option<&HookedLaunch> {
    let after = launches.partition_point(|of| of.start_ns <= time_ns + APART_NS);
    let near = launches[after.saturating_sub(NEAR)..after].iter();
    let is_it = |of: &&HookedLaunch| time_ns <= of.end_ns + APART_NS;
    near.filter(is_it).min_by_key(|of| of.start_ns.abs_diff(time_ns))
}

impl Target {
    /// Returns the streams with kernels that were launched a while ago and have not ended; `None` if
    /// CUPTI doesn't tell.
    pub(super) fn device_queue(&self, now_ns: u64) -> Option<Vec<StreamState>> {
        let mut waiting = self.gpu.launches_without_kernels(now_ns.saturating_sub(LATE_NS))?;
        waiting.sort_unstable();
        let launches = self.calls.launches.by_time();
        let mut streams: BTreeMap<Option<u64>, StreamState> = BTreeMap::new();
        for start_ns in waiting {
            let launch = launch_at(&launches, start_ns);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_found_by_the_time_at_which_cupti_saw_it_begin() {
        const MS: u64 = 1_000_000;
        let mut last = LastLaunches::default();
        // Those of another thread arrive later.
        for start_ms in (0..6000).step_by(20).chain((10..6000).step_by(20)) {
            let (start_ns, kernel) = (start_ms * MS, start_ms);
            let end_ns = start_ns + 5000;
            last.add(HookedLaunch { start_ns, end_ns, kernel, stream: 1 });
        }
        let launches = last.by_time();
        let kernel = |ns: u64| launch_at(&launches, ns).map(|of| of.kernel);
        assert_eq!(kernel(3000 * MS + 2000), Some(3000));
        assert_eq!(kernel(3010 * MS - 300), Some(3010), "by another clock");
        assert_eq!(kernel(3005 * MS), None, "not by a hooked function");
        (0..2 * REMEMBERED).for_each(|_| last.add(launches[0]));
        assert_eq!(last.by_time().len(), REMEMBERED);
    }
}
