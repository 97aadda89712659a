//! Estimates how much time recording takes of each step that reports judge: the number of records
//! in a step times the cost of each. If some steps were left unrecorded for comparison (`--overhead
//! paired`), the cost is also measured.

mod counted;
mod notes;
mod paired;
mod sampled;
#[cfg(test)]
mod tests;

use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::reading::Reading;
use tprof_rank::base::stats::Spread;
use tprof_rank::run::job_overhead::NO_PRICE;
use tprof_rank::run::step_cost::{StepCost, StepPart};
use tprof_rank::run::unit_costs::Prices;
use tprof_rank::{Needs, RankTrace, Step, of_devices, steps_of_one_process};
use tprof_trace::TraceFile;
use tprof_trace::model::{HeapTotals, RecordingTotals, SpanKind};

use crate::program::steps::warm_up;
use counted::RisingTotals;
use sampled::StepSamples;

pub use notes::{is_judged_by, note, worst};

const NO_STEPS: &str = "steps were not found, of which recording could be a part";
const NO_ROWS: &str =
    "an older tprof recorded this run, and rows that its work is counted by were not read";
const NO_COUNT: &str = "it is measured as time";
const NO_DEVICE: &str = "devices did nothing in the steps";

/// Upper bound of the time of a job's threads that CUPTI takes for one record of a kernel or a
/// copy, ns. On an H200 with CUPTI 13.0, a record cost an eager job 3 us. Most of that time is
/// spent in the driver, where samples can't distinguish it from the launch's own work.
const MOST_OF_WORK_NS: f64 = 3000.0;
/// Upper bound for one record of a call, ns. On the same machine, such a record cost 0.2 to 0.44
/// us.
const MOST_OF_CALL_NS: f64 = 500.0;

/// Lower and upper bound of the cost of one part over all steps, ns; `high` is `None` if the unit
/// cost is unknown.
struct PartOfAll {
    part: &'static str,
    count: Option<f64>,
    low: f64,
    high: Option<f64>,
}

/// Returns the cost of recording per step of a rank. Steps must have been read.
pub fn of_rank(
    rank: &RankTrace<'_>,
    label: &str,
    prices: &Result<Prices, &'static str>,
) -> Reading<StepCost> {
    let prices = match prices {
        Ok(prices) => prices,
        Err(why) => return Reading::missing(*why),
    };
    let all = steps_of_one_process(rank);
    let times: Vec<u64> = all.iter().map(|step| step.time().length()).collect();
    let first = warm_up(&times).unwrap_or(0);
    let (steps, times) = (&all[first..], &times[first..]);
    let Some(spread) = Spread::of(times) else { return Reading::missing(NO_STEPS) };
    let each = |ns: f64| (ns / steps.len() as f64).round() as u64;
    let idle = idle_ns(rank, steps).map(|idle| each(idle as f64));
    let parts = parts_of(rank, steps, prices);
    let (ns_low, ns_high) = match &parts {
        Err(why) => (Reading::missing(*why), Reading::missing(*why)),
        Ok(parts) => {
            let low: f64 = parts.iter().map(|part| part.low).sum();
            let high: Option<f64> = parts.iter().map(|part| part.high).sum();
            // Recording does not make the work of devices longer, so it can cost a step at most the
            // devices' idle time.
            let hidden = |ns: u64| idle.map_or(ns, |idle| ns.min(idle));
            let high = high.map(|high| hidden(each(high)));
            (
                // Threads that work at the same time share the cost.
                Reading::Is(hidden(each(low / prices.parallel))),
                high.map_or(Reading::missing(NO_PRICE), Reading::Is),
            )
        }
    };
    let part = |part: PartOfAll| StepPart {
        part: part.part,
        count: part
            .count
            .map_or(Reading::missing(NO_COUNT), |count| Reading::Is(count / steps.len() as f64)),
        ns_low: each(part.low),
        ns_high: part.high.map_or(Reading::missing(NO_PRICE), |high| Reading::Is(each(high))),
    };
    let of = StepCost {
        rank: label.to_owned(),
        steps: steps.len() as u64,
        step_ns: spread.median.round() as u64,
        ns_low,
        ns_high,
        parts: parts.unwrap_or_default().into_iter().map(part).collect(),
        device_idle_ns: idle.map_or(Reading::missing(NO_DEVICE), Reading::Is),
        has_totals: rank.file.recording().iter().any(|row| row.process == steps[0].process),
        paired: paired::of_process(rank.file, steps[0].process),
        text: String::new(),
    };
    Reading::Is(of.worded())
}

/// Returns how long no device of the rank worked during these steps, ns; `None` if no device did
/// any work in them.
fn idle_ns(rank: &RankTrace<'_>, steps: &[Step]) -> Option<u64> {
    if rank.work.is_empty() || steps.iter().all(|step| step.on_device.is_none()) {
        return None;
    }
    let window = Cover::of(steps.iter().map(Step::time));
    Some(window.without(&of_devices(rank, |busy| &busy.any)).length())
}

/// Returns the cost of each part over all of these steps.
fn parts_of(
    rank: &RankTrace<'_>,
    steps: &[Step],
    prices: &Prices,
) -> Result<Vec<PartOfAll>, &'static str> {
    let process = steps[0].process;
    let on_host = Cover::of(steps.iter().map(|step| step.interval));
    let file = rank.file;
    let heap = file.totals().iter().filter(|row| row.process == process);
    let heap = RisingTotals::of(file, process, heap.map(|row: &HeapTotals| (row.time_ns, *row)));
    let recording = file.recording().iter().filter(|row| row.process == process);
    let recording =
        RisingTotals::of(file, process, recording.map(|row: &RecordingTotals| (row.time_ns, *row)));
    let work = match recording.is_empty() {
        false => StepWork::counted(&recording, &on_host),
        true => StepWork::of_rows(rank, &on_host, prices)?,
    };
    let of = |part, name: &str, count: f64| {
        let (low, high) = prices.cost_bounds(name, count);
        PartOfAll { part, count: Some(count), low, high }
    };
    let events = heap.within(&on_host, |row| row.allocations.saturating_add(row.frees));
    let sampled = StepSamples::of(file, process, &on_host);
    let heap = of("heap", "events", events);
    let calls = of("calls", "notes", work.notes);
    let operators = of("operators", "operators", work.operators);
    let stacks = PartOfAll {
        part: "stacks",
        count: None,
        low: work.stack_ns.0,
        high: Some(work.stack_ns.1),
    };
    // Other work in tprof's library: the time in the library according to samples, minus the price
    // of the work there that is already counted.
    let [_, of_library] = sampled.in_library.bounds_ns();
    let priced = heap.high.zip(calls.high).map(|(heap, calls)| {
        // The price of operators is up to six times the time in their callbacks, so only a sixth of
        // it is time in the library.
        heap + calls + stacks.high.unwrap_or(0.0) + operators.high.unwrap_or(0.0) / 6.0
    });
    let in_place = PartOfAll {
        part: "in_place",
        count: Some(sampled.in_library.count() as f64),
        low: 0.0,
        high: match sampled.in_library.is_known() {
            true => priced.map(|priced| (of_library - priced).max(0.0)),
            false => Some(0.0),
        },
    };
    let records = work.device_records + work.call_records;
    let [least, most] = sampled.in_cupti.bounds_ns();
    let cupti = PartOfAll {
        part: "cupti",
        count: Some(records),
        low: least,
        high: Some(
            most.max(work.device_records * MOST_OF_WORK_NS + work.call_records * MOST_OF_CALL_NS),
        ),
    };
    let mut samples = of("samples", "samples", sampled.samples as f64);
    let switches = prices.all("switches");
    let share = kept_share(file) * sampled.waits as f64 / sampled.all_waits.max(1) as f64;
    samples.low += switches.ns_low as f64 * share;
    samples.high = samples.high.zip(switches.ns_high).map(|(high, all)| high + all as f64 * share);
    let waits = PartOfAll { part: "waits", count: None, low: 0.0, high: Some(work.wait_ns) };
    let collector = PartOfAll {
        part: "collector",
        count: None,
        low: 0.0,
        high: prices.busy.map(|busy| busy * work.collector_ns),
    };
    let mut parts = vec![heap, stacks, operators, calls];
    parts.extend((records > 0.0).then_some(cupti));
    parts.extend([samples, in_place, waits, collector]);
    parts.retain(|part| part.count.is_some_and(|count| count > 0.0) || part.high != Some(0.0));
    Ok(parts)
}

/// Returns the share of the run's time that is kept, 1 unless the beginning was deleted. Context
/// switches, of which only the number in the whole run is known, are assumed to be even.
fn kept_share(file: &TraceFile) -> f64 {
    let Some(since_ns) = file.kept_since_ns() else { return 1.0 };
    let length = |from_ns: u64| file.last_ns().saturating_sub(from_ns) as f64;
    (length(since_ns) / length(file.header().start_ns).max(1.0)).min(1.0)
}

/// The work of recording in some steps.
struct StepWork {
    notes: f64,
    device_records: f64,
    call_records: f64,
    operators: f64,
    /// Lower and upper bound of the time in which stacks were taken, ns.
    stack_ns: (f64, f64),
    wait_ns: f64,
    collector_ns: f64,
}

impl StepWork {
    fn counted(series: &RisingTotals<RecordingTotals>, on_host: &Cover) -> StepWork {
        let within = |of: fn(&RecordingTotals) -> u64| series.within(on_host, of);
        let stack_ns = within(|row| row.stack_ns);
        StepWork {
            notes: within(|row| row.notes),
            device_records: within(|row| row.device_records),
            call_records: within(|row| row.call_records),
            operators: within(|row| row.operators),
            stack_ns: (stack_ns, stack_ns),
            wait_ns: within(|row| row.wait_ns),
            collector_ns: within(|row| row.collector_ns),
        }
    }

    /// Returns the work in a run without totals over time. Work of recording that leaves rows in
    /// the file is counted by these rows. All other work of the run may lie in the steps; only the
    /// collector's work is assumed to be spread evenly over the run.
    fn of_rows(
        rank: &RankTrace<'_>,
        on_host: &Cover,
        prices: &Prices,
    ) -> Result<StepWork, &'static str> {
        if !rank.needs.has(Needs::WORK | Needs::CALLS | Needs::OPERATORS) {
            return Err(NO_ROWS);
        }
        let holds = |at: u64| on_host.touches(Interval::new(at, at));
        let count = |rows: &[tprof_rank::HostSpan]| {
            rows.iter().filter(|row| holds(row.start_ns)).count() as f64
        };
        let calls = count(&rank.calls);
        let work = rank.work.iter().filter(|work| holds(work.start_ns)).count() as f64;
        let ranges = [SpanKind::Nvtx, SpanKind::Annotation].map(|kind| count(rank.spans(kind)));
        let (stacks, all) = (prices.all("stacks"), prices.wall_ns.max(1) as f64);
        Ok(StepWork {
            notes: calls + ranges.iter().sum::<f64>(),
            device_records: work,
            call_records: if work > 0.0 { calls } else { 0.0 },
            operators: count(rank.spans(SpanKind::Operator)),
            stack_ns: (0.0, stacks.ns_high.unwrap_or(stacks.ns_low) as f64),
            wait_ns: prices.wait_ns as f64,
            collector_ns: prices.collector_ns as f64 * on_host.length() as f64 / all,
        })
    }
}
