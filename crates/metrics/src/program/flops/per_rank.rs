//! Sums the work of one rank's operators by size, kernel, step and module.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde_json::Value;
use tprof_document::{Options, RankContext};
use tprof_facts::flops::peaks::{Peaks, is_tf32};
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::names::Names;
use tprof_rank::collectives::operations;
use tprof_rank::{CallTree, RankTrace};
use tprof_trace::model::NameId;

use super::count::{CountedRun, CountedRuns, SizedOperator};
use super::joined::AutogradLinks;
use super::parts::{modules, steps};
use super::roof::LeastTime;
use super::sums::{CollectiveSums, FlopSums, KernelSums, RankFlops, Row, SizesKey, join};
use crate::gpu::comm::Links;
use crate::gpu::measured;

/// Adds up the work of a rank's operators.
pub(super) fn of_rank(rank: &RankTrace<'_>, at: &RankContext, options: &Options) -> RankFlops {
    let tree = rank.operator_tree();
    let counted = super::count::of(rank, tree);
    let device = device(rank, &counted);
    let peaks = peaks(device.as_ref(), &counted, options.peaks);
    let mut sums = RankFlops {
        operators: counted.operators,
        has_sizes: counted.has_sizes,
        unowned: counted.unowned,
        devices: counted.devices.len() as u64,
        device: device.map_or(String::new(), |(name, _)| name),
        peaks,
        has_work: !rank.work.is_empty(),
        measured: measured::of_rank(rank, &Names::default()),
        all: FlopSums::none(),
        ..RankFlops::default()
    };
    for (&(name, why), runs) in &counted.uncounted {
        let sum = sums.uncounted.entry((rank.name(name).to_owned(), why)).or_default();
        sum.runs += runs.runs;
        sum.host_ns += runs.host_ns;
        sum.device_ns += runs.device_ns;
    }
    let is_given = options.peaks.is_some_and(|given| given.link.is_some());
    let links = Links::of(rank, peaks.and_then(|peaks| peaks.link), is_given);
    collectives(rank, &links, &mut sums);
    let joined = AutogradLinks::of(rank, tree);
    let least_times = least_times(rank, &counted, peaks.as_ref());
    let of_run = |run: &CountedRun| {
        let shape = run.shape as usize;
        (&counted.shapes[shape].work, least_times[shape], joined.recomputes(run.at))
    };
    for run in &counted.runs {
        let (work, least, recomputes) = of_run(run);
        sums.all.add(run, work, &least, recomputes);
    }
    sums.rows = rows(rank, at, tree, &counted, &least_times, &joined);
    sums.kernels = kernels(rank, &counted, &least_times);
    sums.steps = steps(rank, tree, &counted, of_run);
    sums.modules = modules(rank, tree, &counted, &joined, of_run);
    let times = counted.runs.iter().map(|run| {
        let span = &tree.spans[run.at as usize];
        Interval::new(span.start_ns, span.end_ns())
    });
    let hosts = Interval::hull(times);
    let devices = Interval::hull(rank.work.iter().map(|work| work.interval()));
    let window = Interval::hull(hosts.into_iter().chain(devices.filter(|_| hosts.is_some())));
    (sums.in_window, sums.window_ns) = (sums.all, window.map_or(0, Interval::length));
    let in_steps = || sums.steps.iter().fold(FlopSums::none(), |all, step| all.plus(&step.sums));
    let steps = Cover::of(rank.steps().iter().map(|step| step.time()));
    if sums.steps.iter().any(|step| step.sums.runs > 0) {
        (sums.in_window, sums.window_ns) = (in_steps(), steps.length());
    }
    sums
}

/// Returns name and memory of the device on which most of the work ran.
pub(super) fn device(rank: &RankTrace<'_>, counted: &CountedRuns) -> Option<(String, Option<u64>)> {
    let most = counted.devices.iter().max_by_key(|(device, time)| (**time, Reverse(**device)))?;
    let device = rank.file.devices().iter().find(|device| device.device == *most.0)?;
    Some((rank.name(device.name).to_owned(), device.memory_bytes))
}

/// Returns the known peaks of the device, replaced by those that the user gave. A host has only
/// peaks that the user gave.
pub(super) fn peaks(
    device: Option<&(String, Option<u64>)>,
    counted: &CountedRuns,
    given: Option<Peaks>,
) -> Option<Peaks> {
    let known = device.and_then(|(name, memory)| Peaks::of(name, *memory));
    match (known.filter(|_| !counted.devices.is_empty()), given) {
        (Some(known), Some(given)) => Some(known.with(&given)),
        (known, given) => known.or(given),
    }
}

/// Returns the least time of one run of each shape. It is unknown if no run of the shape launched
/// anything although the rank has device work.
pub(super) fn least_times(
    rank: &RankTrace<'_>,
    counted: &CountedRuns,
    peaks: Option<&Peaks>,
) -> Vec<LeastTime> {
    let Some(peaks) = peaks else { return vec![LeastTime::default(); counted.shapes.len()] };
    let mut longest: Vec<Option<(u64, NameId)>> = vec![None; counted.shapes.len()];
    for run in &counted.runs {
        let known = &mut longest[run.shape as usize];
        *known = (*known).max(run.longest);
    }
    let one = |(shape, longest): (&SizedOperator, Option<(u64, NameId)>)| match longest {
        None if !rank.work.is_empty() => LeastTime::default(),
        longest => {
            let tf32 = longest.is_some_and(|(_, kernel)| is_tf32(rank.name(kernel)));
            LeastTime::of(&shape.work, peaks, tf32)
        }
    };
    counted.shapes.iter().zip(longest).map(one).collect()
}

pub(super) fn rows(
    rank: &RankTrace<'_>,
    at: &RankContext,
    tree: &CallTree,
    counted: &CountedRuns,
    least_times: &[LeastTime],
    joined: &AutogradLinks,
) -> Vec<(SizesKey, Row)> {
    let mut rows: Vec<Option<Row>> = vec![None; counted.shapes.len()];
    for run in &counted.runs {
        let shape = run.shape as usize;
        let span = &tree.spans[run.at as usize];
        let launched = run.launched > 0;
        let longest = run.longest;
        let row = rows[shape].get_or_insert_with(|| Row {
            work: counted.shapes[shape].work,
            runs: 0,
            recomputed: 0,
            launched: 0,
            device_ns: 0,
            host_ns: 0,
            launching_ns: 0,
            kernels: 0,
            longest: None,
            crosses: false,
            least: least_times[shape].times(0),
            slowest: (0, 0),
        });
        row.runs += 1;
        row.recomputed += u64::from(joined.recomputes(run.at));
        row.launched += u64::from(launched);
        row.device_ns += run.device_ns;
        row.host_ns += run.host_ns;
        row.launching_ns += if launched { run.host_ns } else { 0 };
        row.kernels += u64::from(run.launched);
        row.crosses |= run.crosses;
        if longest.is_some_and(|(time, _)| row.longest.as_ref().is_none_or(|known| time > known.0))
        {
            row.longest = longest.map(|(time, name)| (time, rank.name(name).to_owned()));
        }
        let time = if launched { run.device_ns } else { run.host_ns };
        if time >= row.slowest.1 {
            row.slowest = (at.clock.since_start(span.start_ns), time);
        }
    }
    let shapes = counted.shapes.iter().zip(rows).zip(least_times);
    let named = shapes.filter_map(|((shape, row), least)| {
        let mut row = row?;
        row.least = least.times(row.timed().1);
        Some((key(rank, shape), row))
    });
    // Argument texts may differ in more than sizes, types and values, so several can have one key.
    let mut all: BTreeMap<SizesKey, Vec<Row>> = BTreeMap::new();
    for (key, row) in named {
        join(all.entry(key).or_default(), &row);
    }
    all.into_iter()
        .flat_map(|(key, rows)| rows.into_iter().map(move |row| (key.clone(), row)))
        .collect()
}

pub(super) fn key(rank: &RankTrace<'_>, shape: &SizedOperator) -> SizesKey {
    let args: Value = serde_json::from_str(rank.name(shape.args)).unwrap_or_default();
    let text = |key: &str| args.get(key).map(Value::to_string).unwrap_or_default();
    let operator = rank.name(shape.name).to_owned();
    SizesKey {
        operator,
        dims: text("Input Dims"),
        types: text("Input type"),
        values: text("Concrete Inputs"),
    }
}

fn kernels(
    rank: &RankTrace<'_>,
    counted: &CountedRuns,
    least_times: &[LeastTime],
) -> BTreeMap<String, KernelSums> {
    let mut by_name: FxHashMap<NameId, KernelSums> = FxHashMap::default();
    for run in &counted.runs {
        let Some((_, kernel)) = run.longest.filter(|_| !run.crosses) else { continue };
        let work = &counted.shapes[run.shape as usize].work;
        let none = KernelSums { bytes: Some(0), least_ns: Some(0.0), ..KernelSums::default() };
        let sum = by_name.entry(kernel).or_insert(none);
        sum.runs += 1;
        sum.needed = sum.needed.saturating_add(work.needed);
        sum.bytes = sum.bytes.zip(work.bytes()).and_then(|(a, b)| a.checked_add(b));
        sum.device_ns += run.device_ns;
        sum.least_ns = sum.least_ns.zip(least_times[run.shape as usize].both()).map(|(a, b)| a + b);
    }
    let named = |(name, sum): (NameId, KernelSums)| (rank.name(name).to_owned(), sum);
    by_name.into_iter().map(named).filter(|(name, _)| !name.is_empty()).collect()
}

fn collectives(rank: &RankTrace<'_>, links: &Links<'_>, sums: &mut RankFlops) {
    for one in operations(rank).0 {
        let least_ns = links.least_ns(&one);
        let key = (one.name, one.element_type, one.bytes, one.group_size);
        let run = CollectiveSums { runs: 1, time_ns: one.added_ns, least_ns };
        sums.collectives.entry(key).or_default().add(&run);
    }
}
