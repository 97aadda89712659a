//! Finds where a rank spends its own time before each meeting of its steps.

use rustc_hash::FxHashMap;
use tprof_rank::samples::Part;
use tprof_rank::{Class, RankTrace};
use tprof_trace::model::{NameId, Sample, SpanKind, StackId, ThreadState};

use super::OwnPlace;
use crate::host::Place;

/// Returns for each place in a step the code in which the rank spent most of the time before the
/// meeting at that place, over all steps. `entries` has the entry to each meeting, ns, and its place,
/// in order of entry.
pub(super) fn own_places(rank: &RankTrace, entries: &[(u64, u32)]) -> Vec<Option<OwnPlace>> {
    let count = entries.iter().map(|(_, place)| *place as usize + 1).max().unwrap_or(0);
    let mut places = on_devices(rank, entries, count);
    if places.iter().any(Option::is_none) {
        let on_host = on_host(rank, entries, count);
        for (place, on_host) in places.iter_mut().zip(on_host) {
            *place = place.take().or(on_host);
        }
    }
    places
}

/// Returns the place of the first meeting that a rank enters after a moment.
fn next_place(entries: &[(u64, u32)], time_ns: u64) -> Option<usize> {
    let at = entries.partition_point(|(entry_ns, _)| *entry_ns <= time_ns);
    entries.get(at).map(|(_, place)| *place as usize)
}

/// Finds the operator whose work took most time of a device.
fn on_devices(rank: &RankTrace, entries: &[(u64, u32)], count: usize) -> Vec<Option<OwnPlace>> {
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
    let most = |sums: FxHashMap<NameId, u64>| {
        let (name, _) = sums.into_iter().max_by_key(|(name, ns)| (*ns, *name))?;
        let operator = rank.name(name).to_owned();
        Some(OwnPlace { operator, ..OwnPlace::default() })
    };
    sums.into_iter().map(most).collect()
}

/// Finds the line of code in which the main thread spent most time. Samples in collectives do not
/// count.
fn on_host(rank: &RankTrace, entries: &[(u64, u32)], count: usize) -> Vec<Option<OwnPlace>> {
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
    let most = |sums: FxHashMap<Key, u64>| {
        let mut places: FxHashMap<OwnPlace, u64> = FxHashMap::default();
        for ((process, stack, state), ns) in sums {
            let part = rank.cpu.part(process, stack, state)?;
            if part == Part::Collective {
                continue;
            }
            let state = rank.cpu.state(process, stack, state);
            let Place { function, file, line, .. } =
                Place::of(part, state, rank.cpu.stack(process, stack), &rank.cpu.names);
            if !function.is_empty() {
                let place = OwnPlace { function, file, line, operator: String::new() };
                *places.entry(place).or_default() += ns;
            }
        }
        places.into_iter().max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0))).map(|(place, _)| place)
    };
    sums.into_iter().map(most).collect()
}
