//! Finds what device work waited for, and which host calls waited for device work.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_rank::{RankTrace, Work, WorkKind};
use tprof_trace::model::{SyncKind, Synchronization};

/// A host call that returned only after a piece of device work had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The end of the work, ns.
    pub work_end_ns: u64,
    /// The time at which the call returned, ns.
    pub end_ns: u64,
    /// Index of the work.
    pub work: u32,
    /// Index of the call.
    pub call: u32,
}

/// The waits within a rank, each with its cause. Work is identified by its index.
#[derive(Debug, Default)]
pub struct Causes {
    /// For each piece of work, the work before it on its stream.
    pub before: Vec<Option<u32>>,
    /// For a piece of work, the other work that it waited for through an event.
    pub awaited: FxHashMap<u32, Vec<u32>>,
    /// Blocked calls of each thread, in order of their ends.
    pub blocked: FxHashMap<u32, Vec<Blocked>>,
    /// All work in order of end.
    pub by_end: Vec<u32>,
}

/// Finds the work that each piece of work and each host call of a rank waited for.
pub fn causes(rank: &RankTrace) -> Causes {
    let mut causes = Causes { before: vec![None; rank.work.len()], ..Causes::default() };
    let mut last: Vec<Option<u32>> = vec![None; rank.streams.len()];
    for (work, at) in rank.work.iter().zip(0_u32..) {
        causes.before[at as usize] = last[work.stream as usize].replace(at);
    }
    let ends = rank.work.iter().map(Work::end_ns).zip(0_u32..);
    let mut by_end: Vec<(u64, u32)> = ends.collect();
    by_end.sort_unstable();
    causes.by_end = by_end.into_iter().map(|(_, at)| at).collect();
    let streams = StreamLaunches::of(rank);
    add_event_waits(rank, &streams, &mut causes);
    add_blocked_calls(rank, &streams, &mut causes);
    causes
}

/// The work of each stream, and the calls that the rank's recorded waits refer to. Both are empty
/// if no wait was recorded.
struct StreamLaunches {
    /// For each process, device and stream: time of the launch and index of the work, in order of
    /// start.
    work: FxHashMap<(u32, u32, u64), Vec<(u64, u32)>>,
    /// Calls that waits refer to, by process and correlation.
    calls: FxHashMap<(u32, u64), u32>,
}

impl StreamLaunches {
    fn of(rank: &RankTrace) -> StreamLaunches {
        let mut streams =
            StreamLaunches { work: FxHashMap::default(), calls: FxHashMap::default() };
        // Only recorded waits need this index, so without any of them it stays empty.
        let waits = rank.synchronizations.iter();
        let of_wait = |wait: &Synchronization| {
            [wait.correlation, wait.event_correlation].map(|at| Some((wait.process, at?)))
        };
        let wanted: FxHashSet<(u32, u64)> = waits.flat_map(of_wait).flatten().collect();
        if wanted.is_empty() {
            return streams;
        }
        for (row, at) in rank.work.iter().zip(0_u32..) {
            let key = rank.stream(row);
            let call = rank.launches.call_of(at as usize).map(|call| rank.calls[call].start_ns);
            let launched_ns = call.unwrap_or(row.start_ns);
            let rows = streams.work.entry((key.process, key.device, key.stream)).or_default();
            // On a stream, work that is launched later runs later. If the clocks of host and device
            // disagree, raise the launch time to that of the work before, so that the launch times
            // stay sorted.
            let launched_ns = rows.last().map_or(launched_ns, |last| last.0.max(launched_ns));
            rows.push((launched_ns, at));
        }
        let key = |(call, at): (&tprof_rank::HostSpan, u32)| {
            Some(((call.process, call.correlation.get()?), at))
        };
        let calls = rank.calls.iter().zip(0..).filter_map(key);
        streams.calls.extend(calls.filter(|(key, _)| wanted.contains(key)));
        streams
    }

    fn call(&self, process: u32, correlation: Option<u64>) -> Option<u32> {
        self.calls.get(&(process, correlation?)).copied()
    }

    /// Returns the last work of a stream that was launched up to a moment, and the first after it.
    fn around(&self, key: (u32, u32, u64), time_ns: u64) -> (Option<u32>, Option<u32>) {
        let rows = self.work.get(&key).map_or(&[][..], Vec::as_slice);
        let after = rows.partition_point(|(launched_ns, _)| *launched_ns <= time_ns);
        (rows[..after].last().map(|row| row.1), rows.get(after).map(|row| row.1))
    }
}

/// Returns the last work that had been launched on the awaited stream when a wait's event was
/// recorded.
fn recorded_after(
    rank: &RankTrace,
    streams: &StreamLaunches,
    wait: &Synchronization,
) -> Option<u32> {
    let record = streams.call(wait.process, wait.event_correlation)?;
    let key = (wait.process, wait.device.unwrap_or(0), wait.event_stream?);
    streams.around(key, rank.calls[record as usize].start_ns).0
}

fn add_event_waits(rank: &RankTrace, streams: &StreamLaunches, causes: &mut Causes) {
    let waits = rank.synchronizations.iter();
    for wait in waits.filter(|wait| wait.kind == SyncKind::StreamWaitEvent) {
        let source = recorded_after(rank, streams, wait);
        let call = streams.call(wait.process, wait.correlation);
        let time_ns = call.map_or(wait.start_ns, |call| rank.calls[call as usize].start_ns);
        let Some(stream) = wait.stream else { continue };
        let key = (wait.process, wait.device.unwrap_or(0), stream);
        if let (Some(source), Some(target)) = (source, streams.around(key, time_ns).1) {
            causes.awaited.entry(target).or_default().push(source);
        }
    }
}

fn add_blocked_calls(rank: &RankTrace, streams: &StreamLaunches, causes: &mut Causes) {
    let known: FxHashMap<u32, &Synchronization> = rank
        .synchronizations
        .iter()
        .filter_map(|wait| Some((streams.call(wait.process, wait.correlation)?, wait)))
        .collect();
    let mut synchronizes: FxHashMap<_, bool> = FxHashMap::default();
    for (call, at) in rank.calls.iter().zip(0_u32..) {
        let by_name = *synchronizes
            .entry(call.name)
            .or_insert_with(|| rank.name(call.name).contains("Synchronize"));
        let (from, to) = (call.start_ns, call.end_ns());
        let ended_within = |work: &u32| {
            let end = rank.work[*work as usize].end_ns();
            end > from && end <= to
        };
        let work = match known.get(&at) {
            Some(wait) => match (wait.kind, wait.stream) {
                (SyncKind::Event, _) => recorded_after(rank, streams, wait).filter(ended_within),
                (SyncKind::Stream, Some(stream)) => {
                    let key = (wait.process, wait.device.unwrap_or(0), stream);
                    streams.around(key, from).0.filter(ended_within)
                }
                (SyncKind::StreamWaitEvent, _) => None,
                _ => last_ended(rank, causes, call.process, from, to),
            },
            // No row says what this synchronizing call waited for. Assume that it waited for the
            // work that ended last during the call.
            None if by_name => last_ended(rank, causes, call.process, from, to),
            None => {
                let started = rank.launches.work_of(at as usize);
                let is_copy =
                    |work: &&u32| matches!(rank.work[**work as usize].kind, WorkKind::Copy { .. });
                started.iter().filter(is_copy).copied().rfind(ended_within)
            }
        };
        if let Some(work) = work {
            let work_end_ns = rank.work[work as usize].end_ns();
            let blocked = Blocked { work_end_ns, end_ns: to, work, call: at };
            causes.blocked.entry(call.thread).or_default().push(blocked);
        }
    }
    for blocked in causes.blocked.values_mut() {
        blocked.sort_by_key(|blocked| blocked.end_ns);
    }
}

/// Finds the work of a process that ended last within an interval.
fn last_ended(
    rank: &RankTrace,
    causes: &Causes,
    process: u32,
    from_ns: u64,
    to_ns: u64,
) -> Option<u32> {
    let end = |at: u32| rank.work[at as usize].end_ns();
    let after = causes.by_end.partition_point(|&at| end(at) <= to_ns);
    let recent = causes.by_end[..after].iter().rev().copied();
    recent
        .take_while(|&at| end(at) > from_ns)
        .find(|&at| rank.stream(&rank.work[at as usize]).process == process)
}
