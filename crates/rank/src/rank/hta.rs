//! Reads a rank as Holistic Trace Analysis 0.5.0 (HTA) does, so that tprof's numbers can be
//! compared with HTA's.
//!
//! HTA rounds every interval inwards to whole microseconds. If a trace has at least two
//! `ProfilerStep`s, it drops host rows that begin at or after the start of the last step, and
//! device rows whose launch was dropped or not recorded. It counts every row with a stream as
//! device work, including waits on streams and host spans that have a stream number.
//! `docs/metrics.md` lists where these rules mislead.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_facts::copies::direction;
use tprof_facts::steps::{StepRange, StepSource};
use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, SpanKind, Synchronization};

use super::hta_class::hta_class;
use super::launches::Launches;
use super::load::load as load_as_recorded;
use super::needs::Needs;
use super::rows::{HostSpan, MaybeNumber, StreamKey, Work, WorkKind};
use super::streams::StreamTable;
use super::trace::RankTrace;
use crate::base::intervals::Interval;

/// The property in which the importer stores the start of its file's first event.
const FIRST_EVENT: &str = "tprof.first_event_ns";
/// The text that the name of each step contains.
const STEP: &str = "ProfilerStep";

impl<'a> RankTrace<'a> {
    /// Like [`Self::load`]; with `hta`, reads the file as Holistic Trace Analysis does (`--hta`):
    /// rounded, without the last step, and with waits as work.
    pub fn load_as(file: &'a TraceFile, needs: Needs, hta: bool, cores: usize) -> RankTrace<'a> {
        if hta { load(file, needs, cores) } else { load_as_recorded(file, needs, cores) }
    }
}

/// Reads a file as HTA does. This reads more tables than `needs`, because rows of other tables
/// decide which rows are dropped.
fn load(file: &TraceFile, needs: Needs, cores: usize) -> RankTrace<'_> {
    let all = Needs::WORK | Needs::ALL_SPANS | Needs::SYNCHRONIZATIONS | Needs::DEVICE_SPANS;
    let mut rank = load_as_recorded(file, needs | all, cores);
    rank.hta = true;
    round(&mut rank);
    add_rows_with_streams(&mut rank);
    rank.first_row_ns = first_row(file);
    if let Some(last_step_ns) = last_step(&rank) {
        rank.first_row_ns = rank.first_row_ns.filter(|start_ns| *start_ns < last_step_ns);
        drop_from(&mut rank, last_step_ns);
    }
    rank.steps_from = Some(StepSource::Profiler);
    rank.step_ranges = rank.spans(SpanKind::Annotation).iter().map(step_range).collect();
    rank.launches = Launches::of(&rank.calls, &rank.work, &rank.streams);
    rank.extent = extent(&rank);
    rank
}

/// Converts an annotation to a range that may be a step. HTA finds steps only among annotations.
fn step_range(span: &HostSpan) -> StepRange {
    let HostSpan { kind, name, process, start_ns, .. } = *span;
    StepRange { kind, name, process, start_ns, end_ns: span.end_ns() }
}

/// Start of the row that came first in the imported file. HTA marks work without a launch by the
/// link 0, but then follows this link to the first row, so the first row acts as the launch.
fn first_row(file: &TraceFile) -> Option<u64> {
    let mut start_ns = file.property(FIRST_EVENT)?.parse().ok()?;
    inwards(&mut start_ns, &mut 0);
    Some(start_ns)
}

/// Shrinks an interval to whole microseconds; it becomes empty if it contains none.
fn inwards(start_ns: &mut u64, duration_ns: &mut u64) {
    let end_ns = start_ns.saturating_add(*duration_ns) / 1000 * 1000;
    *start_ns = start_ns.div_ceil(1000).saturating_mul(1000);
    *duration_ns = end_ns.saturating_sub(*start_ns);
}

fn round(rank: &mut RankTrace<'_>) {
    let spans = rank.spans.iter_mut().flatten().chain(&mut rank.calls);
    spans.for_each(|row| inwards(&mut row.start_ns, &mut row.duration_ns));
    rank.work.iter_mut().for_each(|row| inwards(&mut row.start_ns, &mut row.duration_ns));
    let device = &mut rank.device_spans;
    device.iter_mut().for_each(|row| inwards(&mut row.start_ns, &mut row.duration_ns));
    let waits = &mut rank.synchronizations;
    waits.iter_mut().for_each(|row| inwards(&mut row.start_ns, &mut row.duration_ns));
}

/// Adds rows with a stream number to the work, and sets the class of all work by its name.
fn add_rows_with_streams(rank: &mut RankTrace<'_>) {
    let file = rank.file;
    let mut classes = FxHashMap::default();
    for row in &mut rank.work {
        let class = || match row.kind {
            // HTA classifies copies by Kineto's names, all of which begin with the direction.
            WorkKind::Copy { kind, .. } if row.name == NameId(0) => hta_class(direction(kind)),
            _ => hta_class(file.name(row.name)),
        };
        row.class = *classes.entry((row.name, row.kind)).or_insert_with(class);
    }
    let mut streams = StreamTable::new(&rank.streams);
    let waits = rank.synchronizations.iter().filter_map(|row| of_wait(file, row, &mut streams));
    rank.work.extend(waits);
    let mut with_stream: FxHashMap<NameId, Option<u64>> = FxHashMap::default();
    let spans = rank.spans.iter().flatten().chain(&rank.calls);
    for row in spans.filter(|row| row.args != NameId(0)) {
        let stream = with_stream.entry(row.args).or_insert_with(|| stream_in(file.name(row.args)));
        if let Some(stream) = *stream {
            rank.work.push(of_span(file, row, stream, &mut streams));
        }
    }
    rank.calls.retain(|row| with_stream.get(&row.args).copied().flatten().is_none());
    let (streams, order) = streams.sorted();
    rank.work.iter_mut().for_each(|row| row.stream = order[row.stream as usize]);
    rank.streams = streams;
    rank.work.sort_by_key(|row| (row.start_ns, row.duration_ns, row.stream, row.correlation));
}

fn of_wait(file: &TraceFile, row: &Synchronization, streams: &mut StreamTable) -> Option<Work> {
    let (device, stream) = (row.device.unwrap_or(0), row.stream?);
    let (process, context) = (row.process, row.context);
    Some(Work {
        start_ns: row.start_ns,
        duration_ns: row.duration_ns,
        correlation: row.correlation.into(),
        bytes: MaybeNumber::NONE,
        stream: streams.index(StreamKey { process, device, context, stream }),
        name: row.name,
        args: row.args,
        graph: None,
        blocks: 0,
        kind: WorkKind::Wait,
        class: hta_class(file.name(row.name)),
    })
}

fn of_span(file: &TraceFile, row: &HostSpan, stream: u64, streams: &mut StreamTable) -> Work {
    let process = row.process;
    Work {
        start_ns: row.start_ns,
        duration_ns: row.duration_ns,
        correlation: row.correlation,
        bytes: MaybeNumber::NONE,
        stream: streams.index(StreamKey { process, device: 0, context: 0, stream }),
        name: row.name,
        args: row.args,
        graph: None,
        blocks: 0,
        kind: WorkKind::HostSpan,
        class: hta_class(file.name(row.name)),
    }
}

/// Returns the stream number in a row's other arguments; `None` if the value is text, such as
/// `"0x0"`.
fn stream_in(args: &str) -> Option<u64> {
    if !args.contains("\"stream\"") {
        return None;
    }
    serde_json::from_str::<serde_json::Value>(args).ok()?.get("stream")?.as_u64()
}

/// Start of the last step; `None` if there are fewer than two.
fn last_step(rank: &RankTrace<'_>) -> Option<u64> {
    let spans = rank.spans.iter().flatten().map(|row| (row.name, row.start_ns));
    let images = rank.device_spans.iter().map(|row| (row.name, row.start_ns));
    let mut is_step: FxHashMap<NameId, bool> = FxHashMap::default();
    let (mut names, mut last) = (FxHashSet::default(), None);
    for (name, start_ns) in spans.chain(images) {
        if *is_step.entry(name).or_insert_with(|| rank.file.name(name).contains(STEP)) {
            names.insert(name);
            last = last.max(Some(start_ns));
        }
    }
    last.filter(|_| names.len() >= 2)
}

/// Drops host rows from `last_step_ns` on, and device rows that were not launched before.
fn drop_from(rank: &mut RankTrace<'_>, last_step_ns: u64) {
    let early = |start_ns: u64| start_ns < last_step_ns;
    rank.spans.iter_mut().for_each(|spans| spans.retain(|row| early(row.start_ns)));
    rank.calls.retain(|row| early(row.start_ns));
    rank.device_spans.retain(|row| early(row.start_ns));
    let mut launched: FxHashMap<u64, usize> = FxHashMap::default();
    for number in rank.calls.iter().filter_map(|row| row.correlation.get()) {
        *launched.entry(number).or_default() += 1;
    }
    let times = |row: &Work| match row.correlation.get() {
        Some(number) => launched.get(&number).copied().unwrap_or(0),
        // HTA treats a row without a correlation as a host row, which its own start decides about.
        None => usize::from(early(row.start_ns)),
    };
    let work = std::mem::take(&mut rank.work);
    rank.work = work.into_iter().flat_map(|row| std::iter::repeat_n(row, times(&row))).collect();
}

/// The time from the start of the first row to the start of the last one.
fn extent(rank: &RankTrace<'_>) -> Option<Interval> {
    let host = rank.spans.iter().flatten().chain(&rank.calls).map(|row| row.start_ns);
    let device = rank.work.iter().map(|row| row.start_ns);
    let images = rank.device_spans.iter().map(|row| row.start_ns);
    let all = host.chain(device).chain(images);
    let ends = |so_far: Option<(u64, u64)>, at: u64| match so_far {
        None => Some((at, at)),
        Some((first, last)) => Some((first.min(at), last.max(at))),
    };
    all.fold(None, ends).map(|(first, last)| Interval::new(first, last))
}
