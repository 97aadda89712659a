//! What ranges of one name caused on devices.

use std::collections::BTreeMap;

/// What the ranges of one name caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeEffects {
    /// How many ranges.
    pub runs: u64,
    /// Time in which at least one was open on a host thread.
    pub host_ns: u64,
    /// Kernels, copies and memsets launched within.
    pub kernels: u64,
    /// Those that another thread launched.
    pub kernels_of_other_threads: u64,
    /// Time in which at least one of them ran.
    pub busy_ns: u64,
    /// Sum of their durations.
    pub sum_ns: u64,
}

/// Images on devices of the ranges of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceImage {
    /// How long each lasted.
    pub times_ns: Vec<u64>,
    /// Work to which one of them is the shortest that overlaps it on its stream.
    pub kernels: u64,
    /// Sum of its durations.
    pub kernel_ns: u64,
}

impl DeviceImage {
    pub(super) fn add(&mut self, mut other: DeviceImage) {
        self.times_ns.append(&mut other.times_ns);
        self.kernels += other.kernels;
        self.kernel_ns += other.kernel_ns;
    }
}

/// By name of the range.
pub type EffectsByName = BTreeMap<String, RangeEffects>;
/// By name of the range.
pub type ImagesByName = BTreeMap<String, DeviceImage>;
