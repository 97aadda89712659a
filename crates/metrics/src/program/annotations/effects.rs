//! Defines the sums of the device work that the ranges of one name caused.

use std::collections::BTreeMap;

/// The device work that the ranges of one name caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeEffects {
    /// Number of ranges.
    pub runs: u64,
    /// Time in which at least one of the ranges was open on a host thread, ns.
    pub host_ns: u64,
    /// Number of kernels, copies and memsets that were launched within the ranges.
    pub kernels: u64,
    /// The part of `kernels` that another thread launched.
    pub kernels_of_other_threads: u64,
    /// Time in which at least one of these kernels, copies and memsets ran, ns.
    pub busy_ns: u64,
    /// Sum of their durations, ns.
    pub sum_ns: u64,
}

/// The device images of the ranges of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceImage {
    /// Duration of each image, ns.
    pub times_ns: Vec<u64>,
    /// Number of pieces of work for which one of these images is the shortest that overlaps the
    /// work on its stream.
    pub kernels: u64,
    /// Sum of the durations of that work, ns.
    pub kernel_ns: u64,
}

impl DeviceImage {
    pub(super) fn add(&mut self, mut other: DeviceImage) {
        self.times_ns.append(&mut other.times_ns);
        self.kernels += other.kernels;
        self.kernel_ns += other.kernel_ns;
    }
}

/// Effects by name of the range.
pub type EffectsByName = BTreeMap<String, RangeEffects>;
/// Images by name of the range.
pub type ImagesByName = BTreeMap<String, DeviceImage>;
