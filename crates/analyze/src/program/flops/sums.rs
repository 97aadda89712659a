//! Figures of one rank's operators, while they are added up.

use std::collections::BTreeMap;

use tprof_facts::flops::peaks::Peaks;
use tprof_facts::flops::{WhyUncounted, Work};

use super::count::{CountedRun, Uncounted};
use super::roof::{LeastTime, RoofBound};

/// Operations and the time that they are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FlopSums {
    /// Operations as torch counts them.
    pub flops: u64,
    /// Operations that the results need.
    pub needed: u64,
    /// The part of `needed` in forward passes that are done again.
    pub recomputed: u64,
    /// Least time of the products in `needed` and `recomputed`, ns; `None` if a peak is unknown.
    pub products_ns: Option<f64>,
    /// Least time of recomputed products, ns.
    pub recomputed_ns: Option<f64>,
    /// Runs of operators that count.
    pub runs: u64,
    /// Time on devices, ns.
    pub device_ns: u64,
    /// Host time of these runs without that of other runs within them, ns.
    pub host_ns: u64,
}

impl FlopSums {
    /// The sums of no runs.
    pub fn none() -> FlopSums {
        FlopSums { products_ns: Some(0.0), recomputed_ns: Some(0.0), ..FlopSums::default() }
    }

    /// Utilization of model and hardware, without and with recomputed work: the least time of
    /// products as a share of this time on so many devices.
    pub fn utilizations(&self, devices: u64, wall_ns: u64) -> [Option<f64>; 2] {
        let of_model = self.products_ns.zip(self.recomputed_ns).map(|(all, again)| all - again);
        let wall = wall_ns as f64 * devices.max(1) as f64;
        [of_model, self.products_ns].map(|ns| ns.filter(|_| wall > 0.0).map(|ns| ns / wall))
    }

    /// The sum with others.
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

/// An operator with inputs of one size and type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SizesKey {
    pub operator: String,
    /// The sizes as JSON.
    pub dims: String,
    /// The types as JSON; empty if the trace has none.
    pub types: String,
    /// Values with which others of the same sizes have another count, as JSON.
    pub values: String,
}

/// Runs of one operator with inputs of one size and type.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub work: Work,
    pub runs: u64,
    /// The number of runs in forward passes that are done again.
    pub recomputed: u64,
    /// Runs that launched something.
    pub launched: u64,
    pub device_ns: u64,
    pub host_ns: u64,
    /// Own host time of the runs that launched something.
    pub launching_ns: u64,
    pub kernels: u64,
    /// The longest, and how long.
    pub longest: Option<(u64, String)>,
    pub crosses: bool,
    /// Least time of the runs that launched something, or of all if no rank has device work.
    pub least: LeastTime,
    /// The longest run: its beginning, since the run began, and its time on a device, or on the
    /// host if it used none.
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

    /// The limit that bounds its runs, if it is known.
    pub fn bound(&self) -> Option<RoofBound> {
        match self {
            _ if self.crosses => Some(RoofBound::Bus),
            _ if self.launched > 0 && self.launching_ns > self.device_ns => Some(RoofBound::Launch),
            _ => RoofBound::modelled(&self.least),
        }
    }

    /// The time to compare with, and the number of runs that took it: on devices, or on the host if
    /// there is no device time.
    pub fn timed(&self) -> (u64, u64) {
        if self.launched > 0 { (self.device_ns, self.launched) } else { (self.host_ns, self.runs) }
    }
}

/// Runs whose longest kernel has one name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct KernelSums {
    pub runs: u64,
    pub needed: u64,
    /// Bytes of the runs; `None` if they are unknown for a run.
    pub bytes: Option<u64>,
    /// Time of all kernels of these runs, ns.
    pub device_ns: u64,
    pub least_ns: Option<f64>,
}

/// Sums of a training step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepSums {
    pub number: u64,
    pub wall_ns: u64,
    pub sums: FlopSums,
}

/// A module, by path and class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ModuleSums {
    /// Sums of operators in the module and in modules within it.
    pub total: FlopSums,
    /// Sums of operators in the module and in no module within it.
    pub own: FlopSums,
    /// The part of `total` in backward passes.
    pub backward: u64,
}

/// Collectives of one kind and size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CollectiveSums {
    pub runs: u64,
    pub time_ns: u64,
    /// Least time at the peak of the links between devices, ns; or why it is unknown.
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

/// The work of a rank's operators.
#[derive(Clone, Debug, Default)]
pub struct RankFlops {
    pub(super) rows: Vec<(SizesKey, Row)>,
    pub(super) uncounted: BTreeMap<(String, Option<WhyUncounted>), Uncounted>,
    pub(super) unowned: (u64, u64),
    pub(super) operators: u64,
    /// Whether any operator has sizes of its inputs.
    pub(super) has_sizes: bool,
    pub(super) steps: Vec<StepSums>,
    pub(super) modules: BTreeMap<(String, String), ModuleSums>,
    pub(super) kernels: BTreeMap<String, KernelSums>,
    /// Collectives by operation, type of elements, bytes, ranks.
    pub(super) collectives: BTreeMap<(String, String, Option<u64>, Option<u32>), CollectiveSums>,
    pub(super) all: FlopSums,
    /// Sums of the operators that began in steps; without steps, of all.
    pub(super) in_window: FlopSums,
    /// The steps, as devices did them; without steps, from the first to the last moment of work that counts.
    pub(super) window_ns: u64,
    /// Name of the device that worked most; empty if unknown.
    pub(super) device: String,
    pub(super) devices: u64,
    pub(super) peaks: Option<Peaks>,
    pub(super) has_work: bool,
}

/// Adds a row to the one of its key with the same work.
pub(super) fn join(rows: &mut Vec<Row>, row: &Row) {
    match rows.iter_mut().find(|known| known.work == row.work) {
        Some(known) => known.add(row),
        None => rows.push(row.clone()),
    }
}
