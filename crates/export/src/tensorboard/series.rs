//! Reads the counters of a rank, and chooses the names of their curves.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tprof_facts::labels::{self, Ids};
use tprof_trace::model::{Counter, ProcessIndex, counter};

use super::analysis::CounterKey;
use crate::OpenRank;
use crate::gpus::Gpus;

/// Maximum number of characters of a name. A program may use a megabyte of text as a counter's
/// name.
const MOST_CHARACTERS: usize = 200;

/// Readings of a counter.
pub(super) struct Series {
    /// Name of the counter's curves, without their group.
    pub name: String,
    /// Name of the counter.
    pub counter: String,
    /// Times on the file's clock in ns, and values, in order of time.
    pub readings: Vec<(u64, f64)>,
    /// The counter's process, if it belongs to one.
    pub process: Option<ProcessIndex>,
}

impl Series {
    /// Whether the counter belongs to this process, or to no process.
    pub fn is_of(&self, process: Option<ProcessIndex>) -> bool {
        self.process.is_none() || self.process == process
    }
}

/// Returns all counters of a rank except the heap's, by key. If several processes have the same
/// counter, the process `primary` gets the plain name, unless `names` already contains another name
/// for it. New names are added to `names`.
pub(super) fn series(
    part: &OpenRank<'_>,
    primary: Option<ProcessIndex>,
    names: &mut HashMap<CounterKey, String>,
) -> BTreeMap<CounterKey, Series> {
    let (trace, gpus) = (&part.trace, Gpus::of(&part.trace));
    let pid = |process| trace.process(process).map(|row| row.pid);
    let mut read: BTreeMap<CounterKey, (Counter, Vec<(u64, f64)>)> = BTreeMap::new();
    for row in trace.counters().iter().filter(|row| part.window.holds(row.time_ns)) {
        let name = trace.name(row.name);
        if name == counter::HEAP_BYTES {
            continue; // `counters::heap` reads the heap from events or totals.
        }
        let pid = row.process.map(|process| pid(process).unwrap_or(process));
        let key = CounterKey { name: name.to_owned(), pid, device: row.device };
        read.entry(key).or_insert_with(|| (*row, Vec::new())).1.push((row.time_ns, row.value));
    }
    let mut pids: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for key in read.keys() {
        pids.entry(&key.name).or_default().extend(key.pid);
    }
    let primary = primary.and_then(pid);
    let plain: BTreeMap<String, Option<u32>> = (pids.iter())
        .map(|(name, pids)| {
            let plain = primary.filter(|pid| pids.contains(pid)).or(pids.first().copied());
            ((*name).to_owned(), plain)
        })
        .collect();
    let mut taken: HashSet<String> = names.values().cloned().collect();
    // Assign the plain names first.
    let mut read: Vec<_> = read.into_iter().collect();
    let is_plain = |key: &CounterKey| key.pid.is_none() || plain[&key.name] == key.pid;
    read.sort_by_key(|(key, _)| !is_plain(key));
    let named = |(key, (row, readings)): (CounterKey, (Counter, Vec<(u64, f64)>))| {
        if let Some(name) = names.get(&key) {
            let (name, counter) = (name.clone(), key.name.clone());
            return (key, Series { name, counter, readings, process: row.process });
        }
        let mut name = shorten_name(&key.name);
        if let Some(gpu) = gpus.gpu(&row) {
            name = format!("{name}/{}", gpu.label());
        }
        if let Some(process) = row.process.filter(|_| !is_plain(&key)) {
            name =
                format!("{name}/{}", shorten_name(&labels::process(trace, process, Ids::LeftOut)));
        }
        let name = unique_name(name, &mut taken);
        names.insert(key.clone(), name.clone());
        let counter = key.name.clone();
        (key, Series { name, counter, readings, process: row.process })
    };
    read.into_iter().map(named).collect()
}

/// Returns a name that no other curve has.
pub(super) fn unique_name(name: String, taken: &mut HashSet<String>) -> String {
    let mut free = name.clone();
    let mut number = 2;
    while !taken.insert(free.clone()) {
        free = format!("{name} {number}");
        number += 1;
    }
    free
}

/// Cuts a name to the maximum length.
pub(super) fn shorten_name(name: &str) -> String {
    match name.char_indices().nth(MOST_CHARACTERS) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}
