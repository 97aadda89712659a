//! Finds where a rank spends its own time before each meeting of its steps.

use rustc_hash::FxHashMap;
use tprof_rank::samples::Part;
use tprof_rank::{Class, RankTrace};
use tprof_trace::model::{NameId, Sample, SpanKind, StackId, ThreadState};

use super::OwnPlace;
use crate::host::Place;

/// Most places in the code that are kept for one place in a step.
const MOST_KEPT: usize = 8;

/// Returns for each place in a step the code in which the rank spent most of the time before the
/// meeting at that place, and its time over all steps, most first. `entries` has the entry to each meeting, ns, and its place,
/// in order of entry.
pub(super) fn own_places(rank: &RankTrace, entries: &[(u64, u32)]) -> Vec<Vec<(OwnPlace, u64)>> {
    let count = entries.iter().map(|(_, place)| *place as usize + 1).max().unwrap_or(0);
    let mut places = on_devices(rank, entries, count);
    if places.iter().any(FxHashMap::is_empty) {
        let on_host = on_host(rank, entries, count);
        for (place, on_host) in places.iter_mut().zip(on_host) {
            if place.is_empty() {
                *place = on_host;
            }
        }
    }
    let most = |sums: FxHashMap<OwnPlace, u64>| {
        let mut sums: Vec<(OwnPlace, u64)> = sums.into_iter().collect();
        sums.sort_unstable_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        sums.truncate(MOST_KEPT);
        sums
    };
    places.into_iter().map(most).collect()
}

/// Returns the place of the first meeting that a rank enters after a moment.
fn next_place(entries: &[(u64, u32)], time_ns: u64) -> Option<usize> {
    let at = entries.partition_point(|(entry_ns, _)| *entry_ns <= time_ns);
    entries.get(at).map(|(_, place)| *place as usize)
}

/// Sums up the time of devices by the operator of the work.
fn on_devices(
    rank: &RankTrace,
    entries: &[(u64, u32)],
    count: usize,
) -> Vec<FxHashMap<OwnPlace, u64>> {
    let mut sums: Vec<FxHashMap<NameId, u64>> = vec![FxHashMap::default(); count];
    let tree = (!rank.work.is_empty()).then(|| rank.operator_tree());
    for (at, work) in rank.work.iter().enumerate() {
        if work.class == Class::Communication {
            continue;
        }
        let Some(place) = next_place(entries, work.start_ns) else { break };
        let call = rank.launches.call_of(at);
        let operator = tree.zip(call).and_then(|(tree, call)| {
            let span = tree.innermost(tree.of_call(call)?, SpanKind::Operator)?;
            Some(tree.spans[span as usize].name)
        });
        *sums[place].entry(operator.unwrap_or(work.name)).or_default() += work.duration_ns;
    }
    let place = |(name, ns)| {
        let operator = rank.name(name).to_owned();
        (OwnPlace { operator, ..OwnPlace::default() }, ns)
    };
    sums.into_iter().map(|sums| sums.into_iter().map(place).collect()).collect()
}

/// Sums up the time of the main thread by line of code. Samples in collectives do not count.
fn on_host(
    rank: &RankTrace,
    entries: &[(u64, u32)],
    count: usize,
) -> Vec<FxHashMap<OwnPlace, u64>> {
    type Key = (u32, StackId, ThreadState);
    let mut sums: Vec<FxHashMap<Key, u64>> = vec![FxHashMap::default(); count];
    let is_main = |row: &Sample| {
        let thread = rank.file.thread(row.thread);
        let process = rank.file.process(row.process);
        thread.zip(process).is_some_and(|(thread, process)| thread.tid == process.pid)
    };
    for row in rank.file.blocks::<Sample>().flatten().filter(is_main) {
        let Some(place) = next_place(entries, row.time_ns) else { continue };
        let sum = sums[place].entry((row.process, row.stack, row.state)).or_default();
        *sum = sum.saturating_add(row.weight_ns);
    }
    let by_line = |sums: FxHashMap<Key, u64>| {
        let mut places: FxHashMap<OwnPlace, u64> = FxHashMap::default();
        for ((process, stack, state), ns) in sums {
            let part = rank.cpu.part(process, stack, state);
            let Some(part) = part.filter(|part| *part != Part::Collective) else { continue };
            let state = rank.cpu.state(process, stack, state);
            let Place { function, file, line, .. } =
                Place::of(part, state, rank.cpu.stack(process, stack), &rank.cpu.names);
            if !function.is_empty() {
                let place = OwnPlace { function, file, line, operator: String::new() };
                let sum = places.entry(place).or_default();
                *sum = sum.saturating_add(ns);
            }
        }
        places
    };
    sums.into_iter().map(by_line).collect()
}
