//! Defines the costs of operators: their time on the host, and the work that they launched.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_rank::{HostSpan, RankTrace};
use tprof_trace::model::NameId;

use super::shapes::CostByShape;
use crate::program::flops::OperatorRate;
use crate::program::sequences::{WorkName, name_of};

/// The costs of one rank's operators.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperatorCosts {
    /// Costs by operator.
    pub costs: FxHashMap<String, Cost>,
    /// Launches by operator and by the kernels that one run of it launched, in order.
    pub sequences: FxHashMap<(String, String), Launched>,
    /// Number of kernels, copies and memsets whose launch call lies in no operator.
    pub unowned: u64,
    /// Number of kernels, copies and memsets without a recorded launch call; `unowned` doesn't
    /// include them.
    pub unlaunched: u64,
    /// Whether any device work was recorded.
    pub has_work: bool,
    /// Costs by operator and input sizes; empty unless they were asked for.
    pub shapes: CostByShape,
    /// Rates by operator, for operators whose floating-point operations are known.
    pub(crate) rates: BTreeMap<String, OperatorRate>,
}

/// The cost of one operator.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Number of runs.
    pub runs: u64,
    /// Host time, including the operators that this one called, ns.
    pub total_ns: u64,
    /// Host time without the operators that this one called, ns.
    pub own_ns: i64,
    /// Number of kernels, copies and memsets that the operator launched itself.
    pub kernels: u64,
    /// Sum of the durations of these kernels, copies and memsets, ns.
    pub device_ns: u64,
    /// Device time including the work that called operators launched, ns.
    pub device_total_ns: u64,
    /// The delays of the runs that launched work.
    pub launched: Launched,
}

/// Sums over the runs of an operator that launched work; only the first launch of each run counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Launched {
    /// Number of runs.
    pub runs: u64,
    /// Sum of the times from the operator's start to the start of its first launching call, ns.
    pub to_call_ns: u64,
    /// Sum of the times from that call's start to the start of its first kernel, ns. This may be
    /// negative, because the device's clock may be behind the host's.
    pub to_kernel_ns: i64,
}

impl Launched {
    pub(super) fn of(operator_start_ns: u64, call: &HostSpan, kernel_start_ns: u64) -> Launched {
        Launched {
            runs: 1,
            to_call_ns: call.start_ns.saturating_sub(operator_start_ns),
            to_kernel_ns: kernel_start_ns.wrapping_sub(call.start_ns) as i64,
        }
    }

    pub(super) fn add(&mut self, other: &Launched) {
        self.runs += other.runs;
        self.to_call_ns += other.to_call_ns;
        self.to_kernel_ns += other.to_kernel_ns;
    }

    /// Returns the mean time from the operator's start to its first launching call, ns.
    pub fn mean_to_call_ns(&self) -> Option<u64> {
        self.to_call_ns.checked_div(self.runs)
    }

    /// Returns the mean time from that call to its first kernel, ns.
    pub fn mean_to_kernel_ns(&self) -> Option<i64> {
        (self.runs > 0).then(|| self.to_kernel_ns / self.runs as i64)
    }
}

impl Cost {
    pub(super) fn add(&mut self, other: &Cost) {
        self.runs += other.runs;
        self.total_ns += other.total_ns;
        self.own_ns += other.own_ns;
        self.kernels += other.kernels;
        self.device_ns += other.device_ns;
        self.device_total_ns += other.device_total_ns;
        self.launched.add(&other.launched);
    }
}

impl OperatorCosts {
    pub(super) fn named(
        rank: &RankTrace,
        costs: FxHashMap<NameId, Cost>,
        sequences: FxHashMap<(NameId, Vec<WorkName>), Launched>,
        unowned: u64,
    ) -> OperatorCosts {
        let has_work = !rank.work.is_empty();
        let mut sums = OperatorCosts { unowned, has_work, ..OperatorCosts::default() };
        for (name, cost) in costs {
            sums.costs.entry(rank.name(name).to_owned()).or_default().add(&cost);
        }
        for ((name, kernels), run) in sequences {
            let kernels: Vec<Cow<str>> =
                kernels.iter().map(|&work_name| name_of(rank, work_name)).collect();
            let key = (rank.name(name).to_owned(), kernels.join(" -> "));
            sums.sequences.entry(key).or_default().add(&run);
        }
        let seen = |at: &usize| rank.launches.call_of(*at).is_some();
        sums.unlaunched = (0..rank.work.len()).filter(|at| !seen(at)).count() as u64;
        sums
    }

    pub(super) fn add(&mut self, other: &OperatorCosts) {
        for (name, cost) in &other.costs {
            self.costs.entry(name.clone()).or_default().add(cost);
        }
        for (key, run) in &other.sequences {
            self.sequences.entry(key.clone()).or_default().add(run);
        }
        for (name, rate) in &other.rates {
            self.rates
                .entry(name.clone())
                .and_modify(|known| known.add(rate))
                .or_insert_with(|| rate.clone());
        }
        self.unowned += other.unowned;
        self.has_work |= other.has_work;
        self.unlaunched += other.unlaunched;
    }
}
