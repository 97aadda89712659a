//! Changes the part of the driving thread's time inside spans whose name or category says what the
//! time is for. For example, a sleep in a span that loads data counts as a wait for data.

use rustc_hash::FxHashMap;
use tprof_rank::SpanPurpose;
use tprof_rank::base::innermost::innermost;
use tprof_rank::base::intervals::Interval;
use tprof_rank::samples::{CpuTrace, Part};
use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, NamedSpan, Sample, SpanKind, ThreadState};

use super::awaited_threads::AwaitedThreads;
use super::cut::{extent, wait_ns_in};
use super::driver::Driver;
use super::line::{OtherCause, Place};

/// Returns a driving thread's rows. Rows in a span with a stated purpose, if that differs from what
/// their stack shows, get the thread number of that purpose.
pub(super) fn in_spans(
    file: &TraceFile,
    cpu: &CpuTrace,
    driver: &Driver,
    rows: Vec<Sample>,
    awaited_threads: &mut AwaitedThreads,
) -> Vec<Sample> {
    let spans = innermost(spans(file, driver));
    if spans.is_empty() {
        return rows;
    }
    let unseen_is_inline = loads_itself(&rows, &spans, cpu);
    let mut marked = |row, stated| marked(row, stated, cpu, awaited_threads, unseen_is_inline);
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        if row.state == ThreadState::Running {
            let at = spans.partition_point(|(span, _)| span.end <= row.time_ns);
            let stated = spans.get(at).filter(|(span, _)| span.start <= row.time_ns);
            found.push(marked(row, stated.map(|(_, stated)| *stated)));
            continue;
        }
        let all = extent(&row);
        let from = spans.partition_point(|(span, _)| span.end <= all.start);
        let inside = spans[from..].iter().take_while(|(span, _)| span.start < all.end);
        let mut start_ns = all.start;
        let mut part = |until_ns: u64, stated| {
            let part = Interval::new(start_ns, until_ns);
            start_ns = until_ns.max(start_ns);
            let weight_ns = wait_ns_in(&row, part);
            let spread_ns = row.spread_ns.map(|_| part.length());
            let row = Sample { time_ns: part.start, weight_ns, spread_ns, ..row };
            found.extend((weight_ns > 0).then(|| marked(row, stated)));
        };
        for (span, stated) in inside {
            part(span.start, None);
            part(span.end.min(all.end), Some(*stated));
        }
        part(all.end, None);
    }
    found
}

/// Whether most waits in the spans that load data are those of loading itself (for files, a sleep)
/// and not for other threads and processes that load, as far as stacks show. A wait without a stack
/// is taken for one of the kind that is more frequent.
fn loads_itself(rows: &[Sample], spans: &[(Interval, SpanPurpose)], cpu: &CpuTrace) -> bool {
    let (mut itself_ns, mut waiting_ns) = (0, 0);
    for row in rows.iter().filter(|row| row.state != ThreadState::Running) {
        let at = spans.partition_point(|(span, _)| span.end <= row.time_ns);
        let is_loading = spans.get(at).is_some_and(|(span, purpose)| {
            span.start <= row.time_ns && *purpose == SpanPurpose::DataLoad
        });
        if !is_loading {
            continue;
        }
        let seen = place(row, cpu);
        if awaits_others(&seen) || seen.part == Part::Data && !seen.is_inline {
            waiting_ns += row.weight_ns;
        } else if shows_work(&seen) {
            itself_ns += row.weight_ns;
        }
    }
    itself_ns >= waiting_ns
}

/// Whether other threads or processes do the work that the thread's span is for.
fn awaits_others(seen: &Place) -> bool {
    let is_others = matches!(seen.cause, OtherCause::Child | OtherCause::Start);
    seen.part == Part::Other && (seen.cause.is_of_thread() || is_others)
}

/// Whether a sample shows that the thread itself does the work.
fn shows_work(seen: &Place) -> bool {
    seen.part.is_running() || !seen.function.is_empty()
}

fn place(row: &Sample, cpu: &CpuTrace) -> Place {
    let part = cpu.driver_part(row.process, row.stack, row.state).unwrap_or(Part::Unknown);
    let state = cpu.state(row.process, row.stack, row.state);
    Place::of(part, state, cpu.stack(row.process, row.stack), &cpu.names)
}

/// Returns the row, with the thread number of its span's purpose if that differs from what its
/// stack shows.
fn marked(
    row: Sample,
    stated: Option<SpanPurpose>,
    cpu: &CpuTrace,
    awaited_threads: &mut AwaitedThreads,
    unseen_is_inline: bool,
) -> Sample {
    let Some(stated) = stated else { return row };
    let seen = place(&row, cpu);
    let state = cpu.state(row.process, row.stack, row.state);
    let Some(part) = part_of(stated, &seen) else { return row };
    let cause = if stated == SpanPurpose::Sync { OtherCause::Sync } else { OtherCause::default() };
    let is_inline =
        part == Part::Data && !awaits_others(&seen) && (shows_work(&seen) || unseen_is_inline);
    let thread =
        awaited_threads.state(stated, (row.stack, state), Place { part, cause, is_inline, ..seen });
    Sample { thread, ..row }
}

/// Returns the part that time at a place counts as in a span with this purpose. Returns `None` if
/// the time keeps the part that its stack shows. Time for Python's lock, other ranks, a device or
/// tprof, and time without a core, always keeps its part.
fn part_of(stated: SpanPurpose, seen: &Place) -> Option<Part> {
    let runs = seen.part.is_running();
    let waits = matches!(seen.part, Part::FileIo | Part::Socket | Part::Unknown)
        || seen.part == Part::Other && !seen.cause.is_of_thread();
    match stated {
        SpanPurpose::DataLoad => {
            (runs || waits || matches!(seen.part, Part::Lock | Part::Other)).then_some(Part::Data)
        }
        SpanPurpose::Sync => (waits || matches!(seen.part, Part::Python | Part::Native))
            .then_some(Part::Other)
            .filter(|_| seen.cause != OtherCause::Child),
        SpanPurpose::Communication => {
            (runs || waits || matches!(seen.part, Part::Lock | Part::Other))
                .then_some(Part::Collective)
        }
        SpanPurpose::Memory => {
            matches!(seen.part, Part::Python | Part::Native).then_some(Part::Allocator)
        }
        SpanPurpose::Io => (waits && seen.part != Part::Socket && seen.part != Part::FileIo)
            .then_some(Part::FileIo),
        SpanPurpose::Compute | SpanPurpose::Compile => None,
    }
}

/// Returns the driving thread's spans that state a purpose.
fn spans(file: &TraceFile, driver: &Driver) -> Vec<(Interval, SpanPurpose)> {
    let mut known: FxHashMap<(NameId, NameId), Option<SpanPurpose>> = FxHashMap::default();
    let mut spans = Vec::new();
    for row in file.blocks::<NamedSpan>().flatten() {
        let is_named = matches!(row.kind, SpanKind::Annotation | SpanKind::Nvtx);
        if row.thread != driver.thread || row.process != driver.process || !is_named {
            continue;
        }
        let stated = *known.entry((row.name, row.args)).or_insert_with(|| {
            let args = file.name(row.args);
            // A start/end range may be ended by any thread, so it doesn't describe the time of one
            // thread.
            let is_of_thread = !args.contains("\"start/end\"");
            SpanPurpose::of(file.name(row.name), args).filter(|_| is_of_thread)
        });
        let interval = Interval::new(row.start_ns, row.start_ns.saturating_add(row.duration_ns));
        spans.extend(stated.map(|stated| (interval, stated)));
    }
    spans
}
