//! Finds a rank's main threads: the threads that drive its job, so that their waits delay it.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_rank::{HostSpan, RankTrace, Step, descends};
use tprof_trace::model::{Process, SpanKind, Thread, ThreadIndex};

/// The kinds of spans that identify main threads if no thread launches work or marks steps.
const SHOWING: [SpanKind; 5] =
    [SpanKind::Annotation, SpanKind::Nvtx, SpanKind::Operator, SpanKind::Python, SpanKind::Other];

/// The main threads of a rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct MainThreads {
    threads: FxHashSet<ThreadIndex>,
    /// Whether only ranges and operators identify the threads, which is a guess. Launches and steps
    /// are certain.
    by_ranges: bool,
}

impl MainThreads {
    /// Returns the threads that launch device work. Without launches, returns the threads that mark
    /// steps. Without steps, returns one thread of each outermost process that has ranges: its
    /// first thread if that has ranges, otherwise the thread that spends the most time in ranges.
    pub fn of(rank: &RankTrace<'_>, steps: &[Step]) -> MainThreads {
        let known = [launching(rank), stepping(rank, steps)];
        match known.into_iter().find(|threads| !threads.is_empty()) {
            Some(threads) => MainThreads { threads, by_ranges: false },
            None => MainThreads { threads: in_ranges(rank), by_ranges: true },
        }
    }

    /// Whether a thread is a main thread.
    pub fn contains(&self, thread: ThreadIndex) -> bool {
        self.threads.contains(&thread)
    }

    /// Whether launches or steps identify the threads, so that no other thread can be a main
    /// thread.
    pub fn are_certain(&self) -> bool {
        !self.by_ranges
    }
}

fn launching(rank: &RankTrace<'_>) -> FxHashSet<ThreadIndex> {
    let launches = (0..rank.calls.len()).filter(|&at| !rank.launches.work_of(at).is_empty());
    let (mut threads, mut last) = (FxHashSet::default(), None);
    for thread in launches.map(|at| rank.calls[at].thread) {
        // Most calls come from the same thread as the call before, so insert a thread only when it
        // changes.
        if last.replace(thread) != Some(thread) {
            threads.insert(thread);
        }
    }
    threads
}

fn stepping(rank: &RankTrace<'_>, steps: &[Step]) -> FxHashSet<ThreadIndex> {
    let begins: FxHashSet<u64> = steps.iter().map(|step| step.interval.start).collect();
    let marks = rank.spans(SpanKind::Annotation).iter();
    marks.filter(|span| begins.contains(&span.start_ns)).map(|span| span.thread).collect()
}

fn in_ranges(rank: &RankTrace<'_>) -> FxHashSet<ThreadIndex> {
    let times = times(rank);
    let processes = rank.file.processes();
    let threads = rank.file.threads().iter().filter(|row| times.contains_key(&row.thread));
    let mut threads_of: FxHashMap<u32, Vec<&Thread>> = FxHashMap::default();
    threads.for_each(|row| threads_of.entry(row.process).or_default().push(row));
    let with_ranges: FxHashSet<u32> = threads_of.keys().copied().collect();
    let by_pid: FxHashMap<u32, &Process> = processes.iter().map(|row| (row.pid, row)).collect();
    let mut found = FxHashSet::default();
    for (process, of_process) in threads_of {
        let row = rank.file.process(process);
        if row.is_some_and(|row| descends(row, &by_pid, &with_ranges, processes.len())) {
            continue;
        }
        let is_first = |thread: &Thread| row.is_some_and(|row| row.pid == thread.tid);
        // In a container, the id of a process's first thread may differ from the recorded pid. Then
        // choose the thread that spends the most time in ranges.
        let main = of_process.into_iter().max_by_key(|thread| {
            (is_first(thread), times[&thread.thread], std::cmp::Reverse(thread.thread))
        });
        found.extend(main.map(|thread| thread.thread));
    }
    // A file may lack the rows of threads, but still has their spans. Then choose among the threads
    // of the spans.
    if found.is_empty() {
        let longest =
            times.into_iter().max_by_key(|(thread, ns)| (*ns, std::cmp::Reverse(*thread)));
        found.extend(longest.map(|(thread, _)| thread));
    }
    found
}

/// Returns the time of each thread in its outermost ranges, ns. If ranges of different kinds
/// overlap, the time counts once for each kind.
fn times(rank: &RankTrace<'_>) -> FxHashMap<ThreadIndex, u64> {
    let mut times: FxHashMap<ThreadIndex, u64> = FxHashMap::default();
    for kind in SHOWING {
        let mut last: Option<(ThreadIndex, u64)> = None;
        for span in rank.spans(kind) {
            let HostSpan { thread, start_ns, .. } = *span;
            let from = match last {
                Some((of, until)) if of == thread => until.max(start_ns),
                _ => start_ns,
            };
            *times.entry(thread).or_default() += span.end_ns().saturating_sub(from);
            last = Some((thread, from.max(span.end_ns())));
        }
    }
    times
}
