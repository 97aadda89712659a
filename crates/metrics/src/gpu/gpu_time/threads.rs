//! Collects the host threads of a rank, and finds the causes that kept each thread from launching
//! work.

use rustc_hash::FxHashMap;
use tprof_rank::base::innermost::innermost;
use tprof_rank::base::intervals::{Cover, Interval, Union};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::call_names::{
    is_device_allocation, is_pinned_allocation, is_synchronous_copy, is_synchronous_memset,
    is_wait, loads_code,
};
use tprof_rank::samples::{CpuTrace, Layer, Part};
use tprof_rank::{HostSpan, RankTrace, SpanPurpose, WorkKind};
use tprof_trace::model::{
    CallStack, MemoryKind, NameId, ProcessIndex, Sample, SpanKind, StackId, ThreadIndex,
    ThreadState,
};

use super::cause::IdleCause;
use super::host_code::HostCode;
use super::ranges;
use super::timeline::{NO_CALL, QUIET_NS, ThreadTimeline, TimelinePiece, around, ordered};
use crate::host::Place;

/// The maximum number of threads through which a chain of waits is followed.
const MOST_HOPS: usize = 3;
/// If a thread waits for the device again after at most this many launches, it can't launch ahead
/// of the device.
const FEW_LAUNCHES: usize = 8;
/// A copy to the host of at most this many bytes counts as reading a value, which is a wait for the
/// device.
const MOST_OF_VALUE: u64 = 1 << 16;

/// Kinds of spans whose names say what a thread is doing.
const NAMING: [SpanKind; 4] =
    [SpanKind::Annotation, SpanKind::Nvtx, SpanKind::Python, SpanKind::Other];

/// The threads of the processes that launch work.
#[derive(Debug, Default)]
pub struct Threads {
    all: Vec<ThreadTimeline>,
    /// For each thread, the time in which it was at work.
    active: Vec<Cover>,
    index: FxHashMap<ThreadIndex, usize>,
    /// Samples and waits with a stack, from which the lines of code are found.
    rows: Vec<SampledRow>,
    /// For each thread, whether Python was ever on its stack.
    has_python: Vec<bool>,
    /// For each process, the thread that ran most of its Python code.
    main: FxHashMap<ProcessIndex, u32>,
    cpu: CpuTrace,
}

/// A sample of a thread on a core, or a wait.
#[derive(Clone, Copy, Debug)]
struct SampledRow {
    process: ProcessIndex,
    stack: StackId,
    thread: u32,
    state: ThreadState,
    time_ns: u64,
    weight_ns: u64,
}

/// An idle interval with its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplainedIdle {
    pub interval: Interval,
    pub cause: IdleCause,
    /// The thread that kept the device waiting, as an index into [`Threads`].
    pub thread: u32,
    /// Index of the call that kept the device waiting, or [`NO_CALL`].
    pub call: u32,
}

/// The purpose that a span declares, the cause for all of its time including calls, and the cause
/// for its time without blocking calls.
type SpanCauses = (Option<SpanPurpose>, [Option<IdleCause>; 2]);

impl Threads {
    /// Reads the threads of a rank that has calls. Operators, annotations and samples are used if
    /// the rank has them.
    pub fn of(rank: &RankTrace<'_>) -> Threads {
        let mut threads = Threads::default();
        threads.add_calls(rank);
        threads.add_operators(rank);
        threads.add_names(rank);
        threads.add_samples(rank);
        for timeline in &mut threads.all {
            timeline.whole = ordered(std::mem::take(&mut timeline.whole));
            // Sort runtime calls before driver calls. A driver call that takes all of the time of a
            // runtime call then counts as a part of the runtime call.
            timeline.blocking.sort_by_key(|(_, (_, call))| rank.calls[*call as usize].kind);
            timeline.blocking = ordered(std::mem::take(&mut timeline.blocking));
            timeline.waits = ordered(std::mem::take(&mut timeline.waits));
            timeline.samples.sort_by_key(|sample| sample.0);
            timeline.sampled = around(&timeline.samples);
            timeline.quiet = quiet(&timeline.busy);
        }
        threads.active = threads.all.iter().map(ThreadTimeline::active).collect();
        threads.find_python();
        threads
    }

    fn entry(&mut self, process: ProcessIndex, thread: ThreadIndex) -> usize {
        let all = &mut self.all;
        *self.index.entry(thread).or_insert_with(|| {
            all.push(ThreadTimeline { process, ..ThreadTimeline::default() });
            all.len() - 1
        })
    }

    fn add_calls(&mut self, rank: &RankTrace<'_>) {
        let mut named: FxHashMap<NameId, Option<IdleCause>> = FxHashMap::default();
        let mut busy: Vec<Union> = Vec::new();
        // For each thread: the end and the index of its last wait, and the number of its launches
        // since then.
        let mut waits: Vec<Option<(u64, u32, usize)>> = Vec::new();
        for (call, index) in rank.calls.iter().zip(0_u32..) {
            let at = self.entry(call.process, call.thread);
            if at == busy.len() {
                busy.push(Union::default());
                waits.push(None);
            }
            busy[at].add(call.interval());
            let by_name = *named.entry(call.name).or_insert_with(|| blocks(rank.name(call.name)));
            let cause = of_pageable(rank, index).or(by_name);
            let cause = cause.or_else(|| of_memset(rank, index));
            let timeline = &mut self.all[at];
            if let Some(cause) = cause {
                timeline.blocking.push((call.interval(), (cause, index)));
            }
            match cause {
                Some(IdleCause::Sync) => {
                    if let Some((end_ns, last, launches)) = waits[at]
                        && launches <= FEW_LAUNCHES
                        && end_ns < call.start_ns
                    {
                        let between = Interval::new(end_ns, call.start_ns);
                        timeline.between_waits.push((between, last));
                    }
                    waits[at] = Some((call.end_ns(), index, 0));
                }
                _ if !rank.launches.work_of(index as usize).is_empty() => {
                    if let Some(wait) = &mut waits[at] {
                        wait.2 += 1;
                    }
                }
                _ => {}
            }
        }
        for (timeline, busy) in self.all.iter_mut().zip(busy) {
            timeline.busy = busy.finish();
            timeline.between_waits = ordered(std::mem::take(&mut timeline.between_waits));
        }
    }

    fn add_operators(&mut self, rank: &RankTrace<'_>) {
        let mut operators: FxHashMap<usize, Union> = FxHashMap::default();
        let mut computing: FxHashMap<usize, Vec<(Interval, NameId)>> = FxHashMap::default();
        for span in rank.spans(SpanKind::Operator) {
            let at = self.entry(span.process, span.thread);
            operators.entry(at).or_default().add(span.interval());
            // `busy` contains only the thread's calls at this point.
            let calls = &self.all[at].busy;
            let is_long = span.duration_ns >= QUIET_NS && !calls.is_empty();
            // Autograd's own ranges contain operators, but also the time in which autograd looks
            // for the next operator.
            let is_operator = || !rank.name(span.name).starts_with("autograd::");
            if is_long && calls.length_within(span.interval()) == 0 && is_operator() {
                computing.entry(at).or_default().push((span.interval(), span.name));
            }
        }
        for (at, spans) in computing {
            self.all[at].computing = innermost(spans);
        }
        for (at, operators) in operators {
            self.all[at].busy = self.all[at].busy.union(&operators.finish());
        }
    }

    fn add_names(&mut self, rank: &RankTrace<'_>) {
        let mut known: FxHashMap<(NameId, NameId), SpanCauses> = FxHashMap::default();
        let mut named: FxHashMap<usize, Vec<(Interval, Option<IdleCause>)>> = FxHashMap::default();
        for span in NAMING.iter().flat_map(|kind| rank.spans(*kind)) {
            let HostSpan { name, args, process, thread, .. } = *span;
            let (stated, [whole, rest]) = *known.entry((name, args)).or_insert_with(|| {
                let name = rank.name(name);
                let stated = SpanPurpose::of(name, rank.name(args));
                (
                    stated,
                    [ranges::of_all_within(name, stated), ranges::of_rest_within(name, stated)],
                )
            });
            if whole.is_none() && rest.is_none() && stated.is_none() {
                continue;
            }
            let at = self.entry(process, thread);
            self.all[at].whole.extend(whole.map(|cause| (span.interval(), cause)));
            // The time of a span that declares another purpose must not count for the span around
            // it, so such a span is listed even without a cause.
            if rest.is_some() || stated.is_some() {
                named.entry(at).or_default().push((span.interval(), rest));
            }
        }
        for (at, spans) in named {
            let parts = innermost(spans).into_iter();
            self.all[at].named = parts.filter_map(|(part, cause)| Some((part, cause?))).collect();
        }
        for read in &rank.compile.logs {
            let intervals = read.log.frames.iter().filter_map(|frame| read.interval_ns(frame));
            let compiled: Vec<(Interval, IdleCause)> = intervals
                .map(|(start, end)| (Interval::new(start, end), IdleCause::Compile))
                .collect();
            // A process in a container has different pids inside and on the host. If no pid
            // matches, the writer of the log is unknown, and the log counts for all processes.
            let processes = rank.file.processes().iter();
            let writers: Vec<ProcessIndex> = processes
                .filter(|process| Some(process.pid) == read.log.pid)
                .map(|process| process.process)
                .collect();
            let is_of = |timeline: &&mut ThreadTimeline| {
                writers.is_empty() || writers.contains(&timeline.process)
            };
            for timeline in self.all.iter_mut().filter(is_of) {
                timeline.whole.extend(&compiled);
            }
        }
    }

    fn add_samples(&mut self, rank: &RankTrace<'_>) {
        if self.all.is_empty() {
            return;
        }
        let mut processes: Vec<ProcessIndex> = self.all.iter().map(|of| of.process).collect();
        processes.sort_unstable();
        processes.dedup();
        let counts = |row: &Sample| {
            let has_place = row.state != ThreadState::Running || row.cpu.is_some();
            has_place && row.state != ThreadState::Runnable && processes.contains(&row.process)
        };
        let rows: Vec<Sample> = rank.file.blocks::<Sample>().flatten().filter(counts).collect();
        let calls = called_at(rank);
        self.cpu = CpuTrace::of_rows(rank.file, rows.iter().chain(&calls).copied());
        for row in &calls {
            self.add_row(row);
        }
        let mut codes: FxHashMap<(ProcessIndex, StackId, ThreadState), HostCode> =
            FxHashMap::default();
        for row in rows {
            let at = self.entry(row.process, row.thread);
            let code = *codes.entry((row.process, row.stack, row.state)).or_insert_with(|| {
                let part = self.cpu.part(row.process, row.stack, row.state);
                let stack = self.cpu.stack(row.process, row.stack);
                let state = self.cpu.state(row.process, row.stack, row.state);
                HostCode::of(part.unwrap_or(Part::Unknown), state, stack, &self.cpu.names)
            });
            let timeline = &mut self.all[at];
            match row.state {
                ThreadState::Running => {
                    timeline.samples.push((row.time_ns, row.weight_ns, code));
                }
                // A row that sums up several short waits has no exact position in time, so it is
                // left out.
                _ if row.spread_ns.is_none() => {
                    let lasted =
                        Interval::new(row.time_ns, row.time_ns.saturating_add(row.weight_ns));
                    timeline.waits.push((lasted, code));
                }
                _ => {}
            }
            self.add_row(&row);
        }
    }

    fn add_row(&mut self, row: &Sample) {
        let thread = self.entry(row.process, row.thread) as u32;
        let Sample { process, stack, state, time_ns, weight_ns, .. } = *row;
        self.rows.push(SampledRow { process, stack, thread, state, time_ns, weight_ns });
    }

    /// Finds out which threads run Python, and sets `has_python` and `main`.
    fn find_python(&mut self) {
        let mut sums = vec![0_u64; self.all.len()];
        let is_python = self.cpu.names.which(|func| func.layer == Layer::Python);
        for row in &self.rows {
            let stack = self.cpu.stack(row.process, row.stack);
            if stack.functions.iter().any(|id| is_python[*id as usize]) {
                let sum = &mut sums[row.thread as usize];
                *sum = sum.saturating_add(row.weight_ns);
            }
        }
        self.has_python = sums.iter().map(|ns| *ns > 0).collect();
        for (at, ns) in sums.iter().enumerate().filter(|(_, ns)| **ns > 0) {
            let main = self.main.entry(self.all[at].process).or_insert(at as u32);
            if sums[*main as usize] < *ns {
                *main = at as u32;
            }
        }
    }

    /// Returns the thread whose lines of code explain this thread's time. For a thread without
    /// Python, such as PyTorch's thread for backward passes, it is the thread that runs the
    /// program.
    pub(super) fn with_lines(&self, thread: u32) -> u32 {
        let at = thread as usize;
        let process = self.all.get(at).map(|timeline| timeline.process);
        let main = process.and_then(|process| self.main.get(&process).copied());
        match self.has_python.get(at) {
            Some(false) => main.unwrap_or(thread),
            _ => thread,
        }
    }

    /// Returns the index of a thread, if it has an entry.
    pub(super) fn index(&self, thread: ThreadIndex) -> Option<u32> {
        self.index.get(&thread).map(|at| *at as u32)
    }

    /// Divides an interval by the causes that kept a thread from launching work, in order of time.
    /// The parts add up to the interval.
    pub(super) fn explain(&self, thread: u32, interval: Interval) -> Vec<ExplainedIdle> {
        let mut found = Vec::new();
        self.explain_by(thread, interval, MOST_HOPS, &mut found);
        found.sort_by_key(|one| one.interval);
        found
    }

    fn explain_by(
        &self,
        thread: u32,
        interval: Interval,
        hops: usize,
        found: &mut Vec<ExplainedIdle>,
    ) {
        let mut pieces: Vec<TimelinePiece> = Vec::new();
        self.all[thread as usize].split(interval, &mut pieces);
        for TimelinePiece { interval, code, call } in pieces {
            let explained = |cause| ExplainedIdle { interval, cause, thread, call };
            match code {
                HostCode::Cause(cause) => found.push(explained(cause)),
                HostCode::Operators => found.push(explained(IdleCause::Launch)),
                HostCode::OtherThread => {
                    self.follow(thread, interval, hops, found, |at| &self.active[at]);
                }
                HostCode::Quiet => {
                    self.follow(thread, interval, hops, found, |at| &self.all[at].busy);
                }
            }
        }
    }

    /// Divides an interval by what the other threads of the process did, starting with the busiest
    /// thread. The rest is time in which no other thread did anything. In a short interval, the
    /// rest counts as launching: the thread was being woken up. In a long one, it counts as the
    /// thread's own code if the thread was sampled at all, and otherwise as unknown.
    fn follow<'t>(
        &'t self,
        thread: u32,
        interval: Interval,
        hops: usize,
        found: &mut Vec<ExplainedIdle>,
        at_work: impl Fn(usize) -> &'t Cover,
    ) {
        let mut rest = Cover::of([interval]);
        // Decide by the length of the whole interval, because the pieces that other threads leave
        // may be short.
        let own = match interval.length() < QUIET_NS {
            true => IdleCause::Launch,
            false if self.all[thread as usize].samples.is_empty() => IdleCause::Unknown,
            false => IdleCause::Python,
        };
        if hops > 0 {
            let process = self.all[thread as usize].process;
            let others = (0..self.all.len())
                .filter(|at| *at != thread as usize && self.all[*at].process == process);
            let worked = others.map(|at| (at_work(at).length_within(interval), at));
            let mut worked: Vec<(u64, usize)> = worked.filter(|(ns, _)| *ns > 0).collect();
            worked.sort_rows_by_key(|(ns, at)| (std::cmp::Reverse(*ns), *at));
            for (_, at) in worked {
                let part = rest.intersection(&at_work(at).within(interval));
                for &part in part.parts() {
                    self.explain_by(at as u32, part, hops - 1, found);
                }
                rest = rest.without(&part);
                if rest.is_empty() {
                    break;
                }
            }
        }
        for &interval in rest.parts() {
            found.push(ExplainedIdle { interval, cause: own, thread, call: NO_CALL });
        }
    }

    /// Whether any thread is known to have compiled code.
    pub fn compile(&self) -> bool {
        let is = |cause: &IdleCause| *cause == IdleCause::Compile;
        self.all.iter().any(|of| {
            of.whole.iter().any(|(_, cause)| is(cause))
                || of.blocking.iter().any(|(_, (cause, _))| is(cause))
                || of.samples.iter().any(|(.., code)| *code == HostCode::Cause(IdleCause::Compile))
        })
    }

    /// Returns the operators that compute on the host in an interval of a thread, each with its
    /// time, ns.
    pub(super) fn computing(
        &self,
        thread: u32,
        interval: Interval,
    ) -> impl Iterator<Item = (NameId, u64)> {
        self.all[thread as usize].computing(interval)
    }

    /// Returns the call of a thread's last wait before a moment, if the thread waits for the device
    /// every few launches.
    pub(super) fn wait_before(&self, thread: u32, time_ns: u64) -> Option<u32> {
        self.all[thread as usize].wait_before(time_ns)
    }

    /// Returns the places in the code of each thread within the given times. Each place comes with
    /// the time that its samples stand for, most time first.
    pub(crate) fn places(&self, times: &FxHashMap<u32, Cover>) -> Vec<(Place, u64)> {
        let mut by_stack: FxHashMap<(ProcessIndex, StackId, ThreadState), u64> =
            FxHashMap::default();
        for row in &self.rows {
            let Some(cover) = times.get(&row.thread) else { continue };
            let ns = match row.state {
                // A sample stands for the time before it.
                ThreadState::Running => {
                    let before_ns = row.time_ns.saturating_sub(1);
                    let is_in = cover.touches(Interval::new(before_ns, before_ns));
                    if is_in { row.weight_ns } else { 0 }
                }
                _ => {
                    let end_ns = row.time_ns.saturating_add(row.weight_ns);
                    cover.length_within(Interval::new(row.time_ns, end_ns))
                }
            };
            if ns > 0 {
                let sum = by_stack.entry((row.process, row.stack, row.state)).or_default();
                *sum = sum.saturating_add(ns);
            }
        }
        let mut places: FxHashMap<Place, u64> = FxHashMap::default();
        for ((process, stack, state), ns) in by_stack {
            let part = self.cpu.part(process, stack, state).unwrap_or(Part::Unknown);
            let of_wait = self.cpu.state(process, stack, state);
            let place = Place::of(part, of_wait, self.cpu.stack(process, stack), &self.cpu.names);
            if !place.function.is_empty() {
                let sum = places.entry(place).or_default();
                *sum = sum.saturating_add(ns);
            }
        }
        let mut places: Vec<(Place, u64)> = places.into_iter().collect();
        places.sort_rows_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        places
    }
}

/// Returns the calls of the device's libraries that have a stack, each as a wait at that stack. The
/// stack was recorded at the call itself. It contains the Python functions, which a sample within
/// the call may lack.
fn called_at(rank: &RankTrace<'_>) -> Vec<Sample> {
    let is_call = |call: &CallStack| {
        matches!(call.kind, SpanKind::Runtime | SpanKind::Driver) && call.stack != 0
    };
    let sample = |call: CallStack| Sample {
        time_ns: call.start_ns,
        process: call.process,
        thread: call.thread,
        stack: call.stack,
        weight_ns: call.duration_ns,
        state: ThreadState::Device,
        ..Sample::default()
    };
    rank.file.blocks::<CallStack>().flatten().filter(is_call).map(sample).collect()
}

/// Returns the cause for which a call of this name keeps its thread from launching, if it does.
fn blocks(name: &str) -> Option<IdleCause> {
    if is_wait(name) || is_synchronous_copy(name) {
        return Some(IdleCause::Sync);
    }
    if is_device_allocation(name) || is_pinned_allocation(name) {
        return Some(IdleCause::Allocation);
    }
    loads_code(name).then_some(IdleCause::Compile)
}

/// Returns the cause for which a copy from or to pageable memory keeps its thread from launching.
/// Such a call returns only when the driver has read the memory, or when the whole copy is done. A
/// copy that reads a value back counts as a wait for the device.
fn of_pageable(rank: &RankTrace<'_>, call: u32) -> Option<IdleCause> {
    let work = rank.launches.work_of(call as usize);
    work.iter().find_map(|&at| {
        let row = &rank.work[at as usize];
        let WorkKind::Copy { from, to, .. } = row.kind else { return None };
        if from == MemoryKind::Pageable {
            return Some(IdleCause::PageableCopy);
        }
        let is_value = row.bytes.get().is_none_or(|bytes| bytes <= MOST_OF_VALUE);
        let cause = if is_value { IdleCause::Sync } else { IdleCause::PageableCopy };
        (to == MemoryKind::Pageable).then_some(cause)
    })
}

/// Returns the cause for which a memset keeps its thread from launching, if it does. Some memsets
/// return at once, others only when the memory is set.
fn of_memset(rank: &RankTrace<'_>, call: u32) -> Option<IdleCause> {
    let work = rank.launches.work_of(call as usize);
    let last_ns = work.iter().map(|&at| rank.work[at as usize].end_ns()).max()?;
    let row = &rank.calls[call as usize];
    let waited = last_ns <= row.end_ns() && is_synchronous_memset(rank.name(row.name));
    waited.then_some(IdleCause::Sync)
}

/// Returns the intervals outside of a cover that last [`QUIET_NS`] or longer.
fn quiet(busy: &Cover) -> Cover {
    let all = Cover::of([Interval::new(0, u64::MAX)]).without(busy);
    Cover::of(all.parts().iter().copied().filter(|part| part.length() >= QUIET_NS))
}
