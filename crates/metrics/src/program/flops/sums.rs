//! Defines the sums over one rank's operators.

use std::collections::BTreeMap;

use tprof_facts::flops::peaks::Peaks;
use tprof_facts::flops::{WhyUncounted, Work};

use super::count::{CountedRun, Uncounted};
use super::roof::{LeastTime, RoofBound};
use crate::gpu::measured::RankMeasured;

/// Sums of floating-point operations, and of the times with which rates and utilizations are
/// computed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FlopSums {
    /// Operations as PyTorch counts them.
    pub flops: u64,
    /// Operations that the results need.
    pub needed: u64,
    /// The part of `needed` that belongs to recomputed forward passes.
    pub recomputed: u64,
    /// Least time of all matrix products, recomputed ones included, ns; `None` if a peak is
    /// unknown.
    pub products_ns: Option<f64>,
    /// Least time of the recomputed products, ns; `None` if a peak is unknown.
    pub recomputed_ns: Option<f64>,
    /// Number of counted runs.
    pub runs: u64,
    /// Time on devices, ns.
    pub device_ns: u64,
    /// Host time of these runs without other counted runs within them, ns.
    pub host_ns: u64,
}

impl FlopSums {
    /// Returns the sums of no runs.
    pub fn none() -> FlopSums {
        FlopSums { products_ns: Some(0.0), recomputed_ns: Some(0.0), ..FlopSums::default() }
    }

    /// Returns the utilization of the model, which excludes recomputed work, and that of the
    /// hardware, which includes it. Each is the least time of products as a share of `wall_ns` on
    /// this many devices.
    pub fn utilizations(&self, devices: u64, wall_ns: u64) -> [Option<f64>; 2] {
        let of_model = self.products_ns.zip(self.recomputed_ns).map(|(all, again)| all - again);
        let wall = wall_ns as f64 * devices.max(1) as f64;
        [of_model, self.products_ns].map(|ns| ns.filter(|_| wall > 0.0).map(|ns| ns / wall))
    }

    /// Returns the sum of the two.
    pub fn plus(self, other: &FlopSums) -> FlopSums {
        let both = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b);
        FlopSums {
            flops: self.flops.saturating_add(other.flops),
            needed: self.needed.saturating_add(other.needed),
            recomputed: self.recomputed.saturating_add(other.recomputed),
            products_ns: both(self.products_ns, other.products_ns),
            recomputed_ns: both(self.recomputed_ns, other.recomputed_ns),
            runs: self.runs + other.runs,
            device_ns: self.device_ns + other.device_ns,
            host_ns: self.host_ns + other.host_ns,
        }
    }

    /// Adds one run.
    pub fn add(&mut self, run: &CountedRun, work: &Work, least: &LeastTime, recomputes: bool) {
        let again = |value: u64| if recomputes { value } else { 0 };
        self.flops = self.flops.saturating_add(work.flops);
        self.needed = self.needed.saturating_add(work.needed);
        self.recomputed = self.recomputed.saturating_add(again(work.needed));
        if work.is_product() {
            let more = |sum: Option<f64>, on: bool| match on {
                true => Some(sum? + least.compute_ns?),
                false => sum,
            };
            self.products_ns = more(self.products_ns, true);
            self.recomputed_ns = more(self.recomputed_ns, recomputes);
        }
        self.runs += 1;
        self.device_ns += run.device_ns;
        self.host_ns += run.host_ns;
    }
}

/// The key of an operator's runs with inputs of the same sizes and types.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SizesKey {
    pub operator: String,
    /// The sizes as JSON.
    pub dims: String,
    /// The types as JSON; empty if the trace has none.
    pub types: String,
    /// Input values, as JSON, on which the number of operations depends besides the sizes.
    pub values: String,
}

/// The sums over runs of one operator with inputs of the same sizes and types.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub work: Work,
    pub runs: u64,
    /// Number of runs that belong to recomputed forward passes.
    pub recomputed: u64,
    /// Number of runs that launched work.
    pub launched: u64,
    pub device_ns: u64,
    pub host_ns: u64,
    /// Own host time of the runs that launched work, ns.
    pub launching_ns: u64,
    pub kernels: u64,
    /// The longest kernel: its duration in ns, and its name.
    pub longest: Option<(u64, String)>,
    pub crosses: bool,
    /// Least time of the runs that launched work, or of all runs if none did.
    pub least: LeastTime,
    /// The longest run of the operator: its beginning, in ns since the recording began, and its
    /// time, ns. The time is that on the device, or on the host if the run launched nothing.
    pub slowest: (u64, u64),
}

impl Row {
    pub fn add(&mut self, other: &Row) {
        self.runs += other.runs;
        self.recomputed += other.recomputed;
        self.launched += other.launched;
        self.device_ns += other.device_ns;
        self.host_ns += other.host_ns;
        self.launching_ns += other.launching_ns;
        self.kernels += other.kernels;
        self.longest = self.longest.take().max(other.longest.clone());
        self.crosses |= other.crosses;
        self.least = self.least.plus(other.least);
        if other.slowest.1 > self.slowest.1 {
            self.slowest = other.slowest;
        }
    }

    /// Returns the limit that bounds the runs, if it is known.
    pub fn bound(&self) -> Option<RoofBound> {
        match self {
            _ if self.crosses => Some(RoofBound::Bus),
            _ if self.launched > 0 && self.launching_ns > self.device_ns => Some(RoofBound::Launch),
            _ => RoofBound::modelled(&self.least),
        }
    }

    /// Returns the time that is compared with the least time, and the number of runs that took it.
    /// It is the device time of the runs that launched work, or the host time of all runs if none
    /// did.
    pub fn timed(&self) -> (u64, u64) {
        if self.launched > 0 { (self.device_ns, self.launched) } else { (self.host_ns, self.runs) }
    }
}

/// The sums over runs whose longest kernel has the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct KernelSums {
    pub runs: u64,
    pub needed: u64,
    /// Bytes of the runs; `None` if they are unknown for any run.
    pub bytes: Option<u64>,
    /// Total time of all kernels of these runs, ns.
    pub device_ns: u64,
    pub least_ns: Option<f64>,
}

/// The sums of a training step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepSums {
    pub number: u64,
    pub wall_ns: u64,
    pub sums: FlopSums,
}

/// The sums of a module, identified by its path and class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ModuleSums {
    /// Sums over the operators in the module and in modules within it.
    pub total: FlopSums,
    /// Sums over the operators in the module itself, without modules within it.
    pub own: FlopSums,
    /// The part of the operations of `total` that belongs to backward passes.
    pub backward: u64,
}

/// The sums over collectives with the same operation, type, size and group size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CollectiveSums {
    pub runs: u64,
    pub time_ns: u64,
    /// Least time at the peak of the links between devices, ns, or the reason why it is unknown.
    pub least_ns: Result<f64, &'static str>,
}

impl Default for CollectiveSums {
    fn default() -> CollectiveSums {
        CollectiveSums { runs: 0, time_ns: 0, least_ns: Ok(0.0) }
    }
}

impl CollectiveSums {
    pub fn add(&mut self, other: &CollectiveSums) {
        self.runs += other.runs;
        self.time_ns += other.time_ns;
        self.least_ns = self.least_ns.and_then(|sum| Ok(sum + other.least_ns?));
    }
}

/// The figures of a rank's operators.
#[derive(Clone, Debug, Default)]
pub struct RankFlops {
    pub(super) rows: Vec<(SizesKey, Row)>,
    pub(super) uncounted: BTreeMap<(String, Option<WhyUncounted>), Uncounted>,
    pub(super) unowned: (u64, u64),
    pub(super) operators: u64,
    /// Whether the sizes of any operator's inputs were recorded.
    pub(super) has_sizes: bool,
    pub(super) steps: Vec<StepSums>,
    pub(super) modules: BTreeMap<(String, String), ModuleSums>,
    pub(super) kernels: BTreeMap<String, KernelSums>,
    /// What samples of the devices' counters tell of the kernels.
    pub(super) measured: RankMeasured,
    /// Collectives by operation, type of elements, bytes, and number of ranks.
    pub(super) collectives: BTreeMap<(String, String, Option<u64>, Option<u32>), CollectiveSums>,
    pub(super) all: FlopSums,
    /// Sums over the operators that began in steps; without steps, over all operators.
    pub(super) in_window: FlopSums,
    /// Length of the steps as devices ran them, ns; without steps, from the first to the last
    /// moment of counted runs and device work.
    pub(super) window_ns: u64,
    /// Name of the device that worked most; empty if unknown.
    pub(super) device: String,
    pub(super) devices: u64,
    pub(super) peaks: Option<Peaks>,
    pub(super) has_work: bool,
}

/// Adds a row to the row with the same work, or appends it. All rows have the same key.
pub(super) fn join(rows: &mut Vec<Row>, row: &Row) {
    match rows.iter_mut().find(|known| known.work == row.work) {
        Some(known) => known.add(row),
        None => rows.push(row.clone()),
    }
}
