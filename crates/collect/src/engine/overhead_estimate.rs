//! Estimates what recording cost the job, from counts of records and the measured cost of each.

use super::in_place;
use super::measure_costs::CostEstimator;
use crate::targets::ending::RecordedWork;
use std::sync::atomic::Ordering::Relaxed;
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
    if load(|i| i.clocked.load(Relaxed)) > 0 {
        let in_library = |part: &&OverheadPart| LIBRARY_PARTS.contains(&&*part.part);
        let priced = parts.iter().filter(in_library).map(|part| part.ns_high).sum::<Option<u64>>();
        let priced = priced.map(|priced| priced.saturating_add(work.operator_ns));
        let found = load(|i| i.in_library.load(Relaxed));
        let (found_ns, period_ns) =
            (load(|i| i.in_library_ns.load(Relaxed)), load(|i| i.longest_period_ns.load(Relaxed)));
        let most = in_place::at_most(found_ns, period_ns);
        let beyond = priced.map(|priced| most.saturating_sub(priced));
        parts.push(part("in_place", found, 0, beyond));
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
