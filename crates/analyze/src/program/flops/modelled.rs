//! The runs of a rank with their least times, for rules that judge them.

use rustc_hash::FxHashMap;
use tprof_facts::flops::peaks::Peaks;
use tprof_facts::flops::{self, ProductSizes, Work};

use super::joined::AutogradLinks;
use super::per_rank::{device, least_times, peaks};
use super::roof::{LeastTime, RoofBound};
use crate::base::intervals::Interval;
use crate::rank::RankTrace;

/// A run of an operator that counts.
#[derive(Clone, Debug)]
pub(crate) struct ModelledRun {
    /// Index of its thread.
    pub thread: u32,
    /// The time of the run on the host.
    pub interval: Interval,
    /// The work that it had to do.
    pub work: Work,
    /// Sizes of its product, if it is a product of matrices.
    pub sizes: Option<ProductSizes>,
    /// The last size of its first tensor.
    pub last_size: Option<u64>,
    /// Whether it belongs to a forward pass that is done again.
    pub recomputes: bool,
    /// Host time without that of other runs within it, ns.
    pub host_ns: u64,
    /// Time of the work that it launched, ns.
    pub device_ns: u64,
    /// Something of that crossed the bus.
    pub crosses: bool,
    least: LeastTime,
}

impl ModelledRun {
    /// The time that it takes at least on its device, ns.
    pub fn least_ns(&self) -> Option<f64> {
        self.least.both()
    }

    /// The time that its operations take at least, ns.
    pub fn compute_ns(&self) -> Option<f64> {
        self.least.compute_ns
    }

    /// The time that its bytes take at least, ns.
    pub fn memory_ns(&self) -> Option<f64> {
        self.least.memory_ns
    }

    /// The peak for its type: `tf32`; empty if unknown.
    pub fn peak(&self) -> &'static str {
        self.least.peak
    }

    /// The limit of the device that bounds the run.
    pub fn bound(&self) -> Option<RoofBound> {
        RoofBound::modelled(&self.least).filter(|_| !self.crosses)
    }
}

/// The runs of a rank.
#[derive(Debug, Default)]
pub(crate) struct Modelled {
    /// The runs, in order of threads and starts.
    pub runs: Vec<ModelledRun>,
    /// For each piece of the rank's work: its run.
    pub run_of_work: Vec<Option<u32>>,
    /// Peaks of the device, if they are known.
    pub peaks: Option<Peaks>,
}

impl Modelled {
    /// Models a rank with operators, calls and work.
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
