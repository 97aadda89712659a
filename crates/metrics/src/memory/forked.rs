//! Measures the memory that forked workers copied. A worker shares its parent's pages until one of
//! the two writes to a page, which copies the page.
//!
//! The proportional set sizes (PSS) of a process and its forked children add up to the pages that
//! they have together. Before the fork, this sum was the parent's RSS; since then it has grown by
//! allocations and by copies.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_trace::TraceFile;
use tprof_trace::model::{Process, ProcessIndex, counter, property};

use super::gauges::{Sample, process_samples};

/// Memory of a process and its forked workers, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkedMemory {
    /// Number of forked children that were alive at the time of `pss`.
    pub workers: u64,
    /// RSS of the parent before the first fork.
    pub before: u64,
    /// Highest sum of the PSS of the parent and its children.
    pub pss: u64,
    /// Sum of their RSS at the time of `pss`.
    pub rss: u64,
    /// Growth of the live heap since the fork; `None` if no heap was recorded.
    pub own: Option<u64>,
    /// The rest of the growth of PSS since the fork: copies, and unused memory of allocators.
    pub copied: u64,
}

/// Measures the process with the most forked children that were read together with it; `None` if no
/// process has such children.
///
/// # Errors
///
/// Returns the reason why there is no PSS.
pub fn copies(file: &TraceFile) -> Result<Option<ForkedMemory>, String> {
    let Some((parent, children)) = family(file) else { return Ok(None) };
    let members: FxHashSet<ProcessIndex> =
        children.iter().chain([&parent]).map(|one| one.process).collect();
    let mut rounds: FxHashMap<u64, Vec<Sample>> = FxHashMap::default();
    for sample in process_samples(file, counter::PSS_BYTES) {
        if members.contains(&sample.1) {
            rounds.entry(sample.0).or_default().push(sample);
        }
    }
    // If only some processes were read, the PSS of the others is missing from the sum. So only
    // readings of the parent together with children count.
    let of_all =
        |round: &[Sample]| round.len() > 1 && round.iter().any(|sample| sample.1 == parent.process);
    rounds.retain(|_, round| of_all(round));
    let sum = |round: &[Sample]| round.iter().map(|sample| sample.2).sum::<u64>();
    let most = rounds.iter().max_by_key(|(time_ns, round)| (sum(round), **time_ns));
    let Some((&at_ns, round)) = most else {
        let why = file.property(property::NO_PSS);
        let why = why.and_then(|json| serde_json::from_str::<String>(json).ok());
        return match why {
            Some(why) => Err(format!("no PSS was read: {why}")),
            None => Err("no worker was read together with its parent".to_owned()),
        };
    };
    let fork_ns = children.iter().map(|child| child.start_ns).min().unwrap_or(at_ns);
    let rss = process_samples(file, counter::RSS_BYTES);
    let Some(before) = latest_of_all(&rss, fork_ns).get(&parent.process).copied() else {
        return Err("the parent's RSS before the fork was not read".to_owned());
    };
    let read: Vec<ProcessIndex> = round.iter().map(|sample| sample.1).collect();
    let latest_rss = latest_of_all(&rss, at_ns);
    let rss_then: u64 = read.iter().filter_map(|process| latest_rss.get(process)).sum();
    let own = own(file, parent.process, &read, fork_ns, at_ns);
    let pss = sum(round);
    let copied = pss.saturating_sub(before).saturating_sub(own.unwrap_or(0));
    let workers = read.len() as u64 - 1;
    Ok(Some(ForkedMemory { workers, before, pss, rss: rss_then, own, copied }))
}

/// Parts of the command lines of processes that start others to compile or to track something, and
/// do not load data: Inductor's pool of compilers, and helpers of Python's `multiprocessing`.
const HELPERS: [&str; 4] = [
    "compile_worker",
    "async_compile",
    "multiprocessing.forkserver",
    "multiprocessing.resource_tracker",
];

/// Children that live for a shorter time are not workers: a shell forks one for each command.
const LEAST_LIFE_NS: u64 = 1_000_000_000;

/// Returns the process with the most workers, which are children that run the same program, so they
/// were forked and did not call `exec`.
fn family(file: &TraceFile) -> Option<(&Process, Vec<&Process>)> {
    let is_helper =
        |one: &Process| HELPERS.iter().any(|part| file.name(one.command).contains(part));
    let lived_on = |one: &Process| {
        file.process_end(one.process)
            .is_none_or(|(end_ns, _)| end_ns.saturating_sub(one.start_ns) >= LEAST_LIFE_NS)
    };
    let images = Images::of(file.processes());
    let mut families: FxHashMap<ProcessIndex, (&Process, Vec<&Process>)> = FxHashMap::default();
    for one in
        file.processes().iter().filter(|one| images.of_pid(one.pid).len() == 1 && lived_on(one))
    {
        for parent in images.parents(one).filter(|parent| !is_helper(parent)) {
            let family = families.entry(parent.process).or_insert_with(|| (parent, Vec::new()));
            family.1.push(one);
        }
    }
    let families = families.into_values();
    families.max_by_key(|(parent, children)| (children.len(), std::cmp::Reverse(parent.process)))
}

/// The images of a file, by pid.
pub(super) struct Images<'a> {
    of_pid: FxHashMap<u32, Vec<&'a Process>>,
}

impl<'a> Images<'a> {
    /// Collects the images of a file.
    pub(super) fn of(all: &'a [Process]) -> Images<'a> {
        let mut of_pid: FxHashMap<u32, Vec<&Process>> = FxHashMap::default();
        all.iter().for_each(|one| of_pid.entry(one.pid).or_default().push(one));
        Images { of_pid }
    }

    fn of_pid(&self, pid: u32) -> &[&'a Process] {
        self.of_pid.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// The images that `one` may be a copy of. Traces of other tools have 0 in place of the
    /// parent's pid.
    fn parents(&self, one: &Process) -> impl Iterator<Item = &'a Process> {
        let of_parent = if one.parent == 0 { &[] } else { self.of_pid(one.parent) };
        of_parent.iter().copied().filter(|parent| forks(parent, one))
    }

    /// Whether an image began as a copy of another process, even if its pid later ran another
    /// program.
    pub(super) fn is_copy(&self, one: &Process) -> bool {
        let is_later = self.of_pid(one.pid).iter().any(|image| image.process < one.process);
        !is_later && self.parents(one).next().is_some()
    }
}

fn forks(parent: &Process, one: &Process) -> bool {
    one.process != parent.process
        && one.command == parent.command
        && one.start_ns >= parent.start_ns
}

/// Returns each process's last sample at or before a time.
fn latest_of_all(samples: &[Sample], at_ns: u64) -> FxHashMap<ProcessIndex, u64> {
    let mut latest: FxHashMap<ProcessIndex, (u64, u64)> = FxHashMap::default();
    for &(time_ns, process, value) in samples.iter().filter(|sample| sample.0 <= at_ns) {
        let last = latest.entry(process).or_insert((time_ns, value));
        if last.0 <= time_ns {
            *last = (time_ns, value);
        }
    }
    latest.into_iter().map(|(process, (_, value))| (process, value)).collect()
}

/// Returns by how much the live heap grew from the fork to `at_ns`.
fn own(
    file: &TraceFile,
    parent: ProcessIndex,
    read: &[ProcessIndex],
    fork_ns: u64,
    at_ns: u64,
) -> Option<u64> {
    let totals = file.totals().iter();
    let mut heap: Vec<Sample> =
        totals.filter_map(|row| Some((row.time_ns, row.process, row.live_bytes?))).collect();
    heap.extend(process_samples(file, counter::HEAP_BYTES));
    let latest_heap = latest_of_all(&heap, at_ns);
    let then: Option<u64> = read.iter().map(|process| latest_heap.get(process)).sum();
    Some(then?.saturating_sub(*latest_of_all(&heap, fork_ns).get(&parent)?))
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::{MemoryRecording, NameId};

    use super::*;

    /// The pid of the parent that `family` finds among processes, each given as pid, parent and
    /// command line.
    fn parent(processes: &[(u32, u32, &str)]) -> Option<u32> {
        let mut made = Fixture::new();
        for (process, (pid, parent, command)) in (0..).zip(processes) {
            let command = made.name(command);
            let memory = MemoryRecording::Off;
            let (rank, exe, start_ns) = (Some(0), NameId(0), u64::from(process));
            let (pid, parent) = (*pid, *parent);
            let row = Process { process, pid, parent, rank, command, exe, start_ns, memory };
            made.writer.process(&row);
        }
        family(&made.finish()).map(|(parent, _)| parent.pid)
    }

    #[test]
    fn pools_of_compilers_are_not_workers_that_load_data() {
        let job = "python train.py";
        let pool = "python /lib/torch/_inductor/compile_worker/__main__.py --workers=16";
        let pools = [(2, 1, pool), (3, 2, pool), (4, 2, pool)];
        assert_eq!(parent(&[&[(1, 0, job)], &pools[..]].concat()), None);
        assert_eq!(parent(&[&[(1, 0, job), (9, 1, job)], &pools[..]].concat()), Some(1));
        // Traces of other tools have 0 in place of the parent's pid. They also have the pid 0 for a
        // process that they name by a text.
        assert_eq!(parent(&[(0, 0, job), (1, 0, job)]), None);
        let server = "python -c from multiprocessing.forkserver import main; main(4, 5)";
        assert_eq!(parent(&[(1, 0, job), (2, 1, server), (3, 2, server)]), None);
    }
}
