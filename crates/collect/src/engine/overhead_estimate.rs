//! Estimates what recording cost the job, from counts of records and the measured cost of each.

use super::measure_costs::CostEstimator;
use crate::targets::ending::RecordedWork;
use std::sync::atomic::Ordering::Relaxed;
use tprof_facts::sampled_time::SampledTime;
use tprof_os::sys;
use tprof_sampler::cpu::{CostSpread, Interruptions};
use tprof_trace::run::{OVERHEAD_VERSION, Overhead, OverheadPart};

/// A job must use this much CPU time for its overhead to be reported as a share.
const SHORTEST_CPU_NS: u64 = 50_000_000;

/// The parts of the overhead that arise in tprof's library, in the job's threads.
const LIBRARY_PARTS: [&str; 3] = ["events", "notes", "stacks"];

/// Least and largest cost of operators, as multiples of the time in tprof's callbacks. PyTorch
/// itself has additional work while callbacks are registered: 1.6 to 3.6 times the time in the
/// callbacks where it was measured (docs/operators.md). It is assumed to be 1 to 5 times that time,
/// and the callbacks add 1.
const OF_OPERATORS: [u64; 2] = [2, 6];

/// Whether a job used enough CPU time for its overhead to be reported as a share.
pub fn has_share(cpu_ns: u64) -> bool {
    cpu_ns >= SHORTEST_CPU_NS
}

/// Returns the parts of the overhead, one for each kind of recording.
pub fn parts(
    work: &RecordedWork,
    interruptions: Option<&Interruptions>,
    prices: &CostEstimator,
) -> Vec<OverheadPart> {
    let (hot, slow) = (prices.hot, prices.slow());
    let cold = slow.map(|slow| slow.cold);
    let hooks = |least: f64, most: Option<f64>| {
        // If another program ran during the measurement, the measured cost with cold caches may be
        // below the one with hot caches.
        (least, most.map(|most| most.max(least)))
    };
    let sampling = slow.and_then(|slow| slow.sampling);
    let spread = |of: Option<CostSpread>| (of.map_or(0.0, |s| s.low_ns), of.map(|s| s.high_ns));
    let load = |of: fn(&Interruptions) -> u64| interruptions.map_or(0, of);
    let priced = [
        ("events", work.counted, hooks(hot.counted_ns, cold.map(|c| c.counted_ns))),
        ("events", work.recorded, hooks(hot.recorded_ns, cold.map(|c| c.recorded_ns))),
        ("notes", work.noted, hooks(hot.noted_ns, cold.map(|c| c.noted_ns))),
        ("samples", load(|i| i.samples.load(Relaxed)), spread(sampling.map(|s| s.sample))),
        ("switches", load(|i| i.switches.load(Relaxed)), spread(sampling.map(|s| s.switch))),
    ];
    let part = |part: &str, count, ns_low, ns_high| OverheadPart {
        part: part.to_owned(),
        count,
        ns_low,
        ns_high,
    };
    let mut parts: Vec<OverheadPart> = priced
        .into_iter()
        .filter(|(_, count, _)| *count > 0)
        .map(|(name, count, (low, high))| {
            let times = |ns: f64| (count as f64 * ns) as u64;
            part(name, count, times(low), high.map(times))
        })
        .collect();
    if work.stack_ns > 0 {
        parts.push(part("stacks", 0, work.stack_ns, Some(work.stack_ns)));
    }
    if work.operators > 0 {
        let [low, high] = OF_OPERATORS.map(|times| work.operator_ns.saturating_mul(times));
        parts.push(part("operators", work.operators, low, Some(high)));
    }
    // The unit costs of hooks are measured in a small program of the collector. In a job they may be
    // higher: its data fills the caches, its branches fill the predictor, and it calls a hook only
    // now and then. In cc1, for example, hooks with unit costs of 1.7 to 6.3 ns take 12.6 ns per
    // event. Samples show an upper bound of that, but no lower one: a hook may be the first to touch
    // memory that the job touches next, and then the hook waits for that memory instead of the job.
    // In `malloc_mixed`, 26 % of the samples are in the hook of `free`, which reads the block's
    // header before the allocator does. Without tprof, however, the job takes only 9 % less CPU time.
    if load(|i| i.clocked.load(Relaxed)) > 0 {
        let in_library = |part: &&OverheadPart| LIBRARY_PARTS.contains(&&*part.part);
        let priced = parts.iter().filter(in_library).map(|part| part.ns_high).sum::<Option<u64>>();
        let priced = priced.map(|priced| priced.saturating_add(work.operator_ns));
        let found = interruptions.map(Interruptions::in_library).unwrap_or_default();
        let found = SampledTime::of(found);
        let [_, most] = found.bounds_ns();
        let beyond = priced.map(|priced| (most as u64).saturating_sub(priced));
        parts.push(part("in_place", found.count(), 0, beyond));
    }
    // Part of the start time is spent waiting for the collector's answer, which costs no CPU time,
    // so the low estimate is 0.
    parts.push(part("starts", work.starts, 0, Some(work.start_ns)));
    parts
}

pub fn overhead(work: &RecordedWork, cpu_ns: u64, parts: Vec<OverheadPart>) -> Overhead {
    let low: u64 = parts.iter().map(|part| part.ns_low).sum();
    let high: Option<u64> = parts.iter().map(|part| part.ns_high).sum();
    let middle = high.map(|high| low.midpoint(high));
    // The overhead's CPU time is divided by the job's CPU time; waiting counts in neither. The
    // kernel counts CPU time in steps of 10 ms, so no share is computed for a short job.
    let share = |ns: u64| has_share(cpu_ns).then(|| (ns as f64 / cpu_ns as f64).min(1.0));
    Overhead {
        version: OVERHEAD_VERSION,
        host_ns: middle,
        host_ns_low: Some(low),
        host_ns_high: high,
        parts,
        wait_ns: work.wait_ns,
        job_cpu_ns: (cpu_ns > 0).then_some(cpu_ns),
        fraction: middle.and_then(share),
        fraction_low: share(low),
        fraction_high: high.and_then(share),
        collector_cpu_ns: sys::cpu_ns(),
        estimate: true,
    }
}
