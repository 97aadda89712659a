//! Judges kernels by hardware counters, if a range profiler recorded them.

use rustc_hash::FxHashMap;
use tprof_facts::units::percent;
use tprof_metrics::program::flops::{ModelledRun, RoofBound};
use tprof_rank::base::intervals::Cover;
use tprof_rank::{Class, Work};
use tprof_trace::model::{DeviceSpanKind, NameId};

use super::kernel_kinds::{KernelKind, kind};
use super::modelled;
use crate::scene::Scene;
use crate::severity::Severity;
use crate::verdict::Verdict;
use crate::words::{by_name, time, top};

/// A kernel that uses at least this percentage of a unit's peak is limited by that unit. Nsight
/// Compute's rule "SOL bottleneck" has the same threshold, and considers kernels below it limited
/// by latency.
const BOUND: f64 = 60.0;

/// A limit of the hardware that kernels may reach.
pub(super) struct HardwareLimit {
    /// Name of the counter that reports the use of the unit in percent of its peak.
    pub counter: &'static str,
    /// The unit that is at its limit, in words.
    pub unit: &'static str,
    /// The kinds of kernels that this limit may affect.
    pub kinds: &'static [KernelKind],
    /// The kernels that this limit may affect, in words for a sentence.
    pub they: &'static str,
    /// The same limit in the roofline model of operators.
    pub modelled: RoofBound,
    /// The problem, in a sentence without a full stop.
    pub what: &'static str,
    /// The advice: how to fix it.
    pub advice: &'static str,
    /// What that means in PyTorch; empty for nothing particular.
    pub in_pytorch: &'static str,
}

/// Judges kernels by the counter of a limit. If the counter was not recorded, judges them by the
/// roofline model of operators. If the model shows no such limit, says what the kernels' names
/// suggest.
pub(super) fn judge(scene: &Scene<'_>, limit: &HardwareLimit) -> Verdict {
    let measured = percentages(scene, limit.counter);
    if let Some(verdict) = scene.no_compute().filter(|_| measured.is_empty()) {
        return verdict;
    }
    if measured.is_empty() && scene.is_brief {
        return Verdict::unchecked("not measured", "");
    }
    if measured.is_empty() {
        if let Some(verdict) = by_model(scene, limit) {
            return verdict;
        }
        return Verdict::unchecked(
            by_kind(scene, limit),
            format!("a range profiler's counter {}, for each kernel", limit.counter),
        );
    }
    let bound: Vec<(&Work, u64)> = scene
        .work()
        .filter(|work| measured.get(scene.rank.name(work.name)).is_some_and(|at| *at >= BOUND))
        .map(|work| (work, work.duration_ns))
        .collect();
    if bound.is_empty() {
        let known = measured.len();
        return Verdict::no_problem(format!(
            "by the counters of {known}, no kernel {} uses {} for {BOUND} % or more of its peak",
            scene.place(),
            limit.unit
        ));
    }
    let cover = Cover::of(bound.iter().map(|(work, _)| work.interval()));
    let cover = cover.intersection(&scene.window);
    let names = by_name(scene, bound.iter().copied());
    let seen = format!(
        "Kernels that use {} for {BOUND} % or more of its peak take {}: {}.",
        limit.unit,
        time(scene, cover.length()),
        top(scene, &names, 3),
    );
    Verdict::Found(vec![
        scene
            .finding(limit.what)
            .seen(seen)
            .advice(limit.advice)
            .in_pytorch(limit.in_pytorch)
            .bound(cover.length())
            .at(bound.iter().map(|(work, _)| scene.work_place(work))),
    ])
}

/// Returns the verdict that follows from the sizes of operators' inputs and the device's peaks;
/// `None` if these show no such limit.
fn by_model(scene: &Scene<'_>, limit: &HardwareLimit) -> Option<Verdict> {
    let is_bound = |run: &ModelledRun| {
        let near = |least: f64| least >= BOUND / 100.0 * run.device_ns as f64;
        run.bound() == Some(limit.modelled)
            && run.device_ns >= run.host_ns
            && run.least_ns().is_some_and(near)
    };
    let work = modelled::work_of(scene, |_, run| run.device_ns > 0 && is_bound(run));
    if work.is_empty() {
        return None;
    }
    let cover = modelled::cover(scene, &work);
    let names = by_name(scene, work.iter().map(|work| (*work, work.duration_ns)));
    let seen = format!(
        "Modelled, not measured: by their sizes, operators that use {} for {BOUND} % or more of its peak \
         take {}: {}.",
        limit.unit,
        time(scene, cover.length()),
        top(scene, &names, 3),
    );
    let mut finding = scene
        .finding(limit.what)
        .seen(seen)
        .advice(limit.advice)
        .in_pytorch(limit.in_pytorch)
        .bound(cover.length())
        .at(work.iter().map(|work| scene.work_place(work)));
    finding.max_severity = Some(Severity::Low);
    Some(Verdict::Found(vec![finding]))
}

/// Returns the mean of a counter for each kernel name, weighted by the time of its ranges.
fn percentages(scene: &Scene<'_>, counter: &str) -> FxHashMap<String, f64> {
    let mut sums: FxHashMap<&str, (f64, f64)> = FxHashMap::default();
    let ranges = scene.rank.device_spans.iter().filter(|s| s.kind == DeviceSpanKind::Counters);
    for range in ranges {
        let args: serde_json::Value =
            serde_json::from_str(scene.rank.name(range.args)).unwrap_or_default();
        if let Some(value) = args.get(counter).and_then(serde_json::Value::as_f64) {
            let weight = range.duration_ns.max(1) as f64;
            let sum = sums.entry(scene.rank.name(range.name)).or_default();
            *sum = (sum.0 + value * weight, sum.1 + weight);
        }
    }
    let mean = |(name, (sum, weight)): (&str, (f64, f64))| (name.to_owned(), sum / weight);
    sums.into_iter().map(mean).collect()
}

/// Says which share of the compute time belongs to kernels that the limit may affect, judged by
/// their names.
fn by_kind(scene: &Scene<'_>, limit: &HardwareLimit) -> String {
    let work = scene.work().filter(|work| work.class == Class::Compute && work.is_kernel());
    let mut is_of_kind: FxHashMap<NameId, bool> = FxHashMap::default();
    let of_kind = |name| limit.kinds.contains(&kind(scene.rank.name(name)));
    let of_kind =
        work.filter(|work| *is_of_kind.entry(work.name).or_insert_with(|| of_kind(work.name)));
    let cover = Cover::of(of_kind.map(Work::interval)).intersection(&scene.window);
    let share = cover.length() as f64 / scene.compute.length().max(1) as f64;
    format!(
        "the use of {} was not measured; kernels that it may limit ({}) take {} of compute time, by \
         name",
        limit.unit,
        limit.they,
        percent(share),
    )
}
