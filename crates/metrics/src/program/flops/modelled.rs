//! Computes for each run of an operator the least time that the device needs for it. The rules that
//! find slow operators compare runs with this time.

use rustc_hash::FxHashMap;
use tprof_facts::flops::peaks::Peaks;
use tprof_facts::flops::{self, ProductSizes, Work};
use tprof_rank::RankTrace;
use tprof_rank::base::intervals::Interval;

use super::joined::AutogradLinks;
use super::per_rank::{device, least_times, peaks};
use super::roof::{LeastTime, RoofBound};

/// A run of an operator that counts.
#[derive(Clone, Debug)]
pub struct ModelledRun {
    /// Index of its thread.
    pub thread: u32,
    /// The time of the run on the host.
    pub interval: Interval,
    /// The work that it had to do.
    pub work: Work,
    /// Sizes of the matrix product, if the operator is one.
    pub sizes: Option<ProductSizes>,
    /// The last dimension of the operator's first tensor.
    pub last_size: Option<u64>,
    /// Whether the run belongs to a forward pass that is recomputed.
    pub recomputes: bool,
    /// Host time of the run without other counted runs within it, ns.
    pub host_ns: u64,
    /// Total duration of the work that the run launched, ns.
    pub device_ns: u64,
    /// Whether any of this work crossed the bus between host and device.
    pub crosses: bool,
    least: LeastTime,
}

impl ModelledRun {
    /// Returns the least time that the run takes on its device, ns.
    pub fn least_ns(&self) -> Option<f64> {
        self.least.both()
    }

    /// Returns the least time that the run's operations take, ns.
    pub fn compute_ns(&self) -> Option<f64> {
        self.least.compute_ns
    }

    /// Returns the least time that moving the run's bytes takes, ns.
    pub fn memory_ns(&self) -> Option<f64> {
        self.least.memory_ns
    }

    /// Returns the name of the peak for the run's type, such as `tf32`; empty if unknown.
    pub fn peak(&self) -> &'static str {
        self.least.peak
    }

    /// Returns the limit of the device that bounds the run.
    pub fn bound(&self) -> Option<RoofBound> {
        RoofBound::modelled(&self.least).filter(|_| !self.crosses)
    }
}

/// The counted runs of a rank.
#[derive(Debug, Default)]
pub struct Modelled {
    /// The runs, in order of threads and starts.
    pub runs: Vec<ModelledRun>,
    /// For each piece of the rank's work, the index of the run that launched it.
    pub run_of_work: Vec<Option<u32>>,
    /// Peaks of the device, if they are known.
    pub peaks: Option<Peaks>,
}

impl Modelled {
    /// Models the runs of a rank with operators, calls and work.
    pub fn of(rank: &RankTrace<'_>) -> Modelled {
        let tree = rank.operator_tree();
        let counted = super::count::of(rank, tree);
        let device = device(rank, &counted);
        let peaks = peaks(device.as_ref(), &counted, None);
        let least_times = least_times(rank, &counted, peaks.as_ref());
        let joined = AutogradLinks::of(rank, tree);
        let mut sizes: FxHashMap<u32, (Option<ProductSizes>, Option<u64>)> = FxHashMap::default();
        let one = |run: &super::count::CountedRun| {
            let shape = &counted.shapes[run.shape as usize];
            let (sizes, last_size) = *sizes.entry(run.shape).or_insert_with(|| {
                let (name, args) = (rank.name(shape.name), rank.name(shape.args));
                (flops::product_sizes(name, args), flops::last_size(args))
            });
            let span = &tree.spans[run.at as usize];
            ModelledRun {
                thread: span.thread,
                interval: Interval::new(span.start_ns, span.end_ns()),
                work: shape.work,
                sizes,
                last_size,
                recomputes: joined.recomputes(run.at),
                host_ns: run.host_ns,
                device_ns: run.device_ns,
                crosses: run.crosses,
                least: least_times[run.shape as usize],
            }
        };
        let runs = counted.runs.iter().map(one).collect();
        Modelled { runs, run_of_work: counted.run_of_work.clone(), peaks }
    }
}
