//! Exports Chrome trace JSON in the form of torch.profiler (Kineto), one file per rank. Perfetto,
//! chrome://tracing, HTA and TensorBoard read it. A file is gzipped if its name ends in `.gz`,
//! which is the default.
//!
//! Host threads appear under their process, and streams under a "process" with their device's
//! number. Times are microseconds with nanosecond digits, relative to `baseTimeNanoseconds`. An
//! imported trace keeps its times, numbers and top-level members. Memory curves are downsampled to
//! at most 4,000 points, each the highest of its stretch. The text is streamed, so memory does not
//! grow with the trace.

mod curves;
mod envelope;
mod occupancy;
mod operators;
mod rows;
mod sink;
mod slice_tracks;
mod writer;

use std::io;
use std::path::{Path, PathBuf};

use tprof_trace::RunDir;
use tprof_trace::model::Span;

use crate::in_order::{self, TimedRow};
use crate::output::{Output, not_stdout};
use crate::{ExportError, OpenRank, Options, Selection, Written, paths};
use rows::Rows;
use sink::Sink;
use writer::Writer;

/// Smallest size limit of a file. Names need some bytes even if no event fits.
const LEAST_BYTES: u64 = 256 << 10;
/// Bytes reserved for the end of a file.
const REST_BYTES: u64 = 64 << 10;

/// Writes one file per rank.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    let selection = Selection::new(run, &options.slice, options.symbols)?;
    let files = &selection.files;
    let output = options.output.as_deref();
    not_stdout(output, "chrome")?;
    let paths = match output.filter(|_| options.output_is_file) {
        Some(path) => paths::one_file(files, path)?,
        None => paths::per_rank(run, files, output, ".trace.json.gz", &[".json.gz", ".json"])?,
    };
    if let Some(max_bytes) = options.max_bytes.filter(|bytes| *bytes < LEAST_BYTES) {
        return Err(ExportError::TooSmall { max_bytes, least_bytes: LEAST_BYTES });
    }
    for path in &paths {
        Output::check(path, options.force)?;
    }
    match output.is_some_and(|output| paths.first().is_some_and(|path| path == output)) {
        true => paths::parent(&paths[0])?,
        false => paths::create_directory_of(&paths)?,
    }
    write_all(&selection, &paths, options)
}

/// Writes each file to its path. If one cannot be written, no file appears.
pub(crate) fn write_all(
    selection: &Selection<'_>,
    paths: &[PathBuf],
    options: &Options<'_>,
) -> Result<Written, ExportError> {
    let mut written = Written::default();
    let mut outputs = Vec::new();
    for (file, path) in selection.files.iter().zip(paths) {
        let part = written.open_spans(selection, file)?;
        let events = written.events;
        let output = write(&part, selection, path, options.max_bytes, &mut written)?;
        let all = in_order::count(&part.trace) + part.trace.counters().len() as u64;
        written.left_out += all.saturating_sub(written.events - events);
        outputs.push(output);
    }
    let slice = &options.slice;
    if written.events == 0 && !slice.is_all_time() && !slice.allows_empty_chrome_trace {
        return Err(ExportError::EmptySlice);
    }
    for output in outputs {
        written.paths.extend(output.keep()?);
    }
    Ok(written)
}

/// Writes one file under a temporary name; the caller renames it.
fn write(
    part: &OpenRank<'_>,
    selection: &Selection<'_>,
    path: &Path,
    max_bytes: Option<u64>,
    written: &mut Written,
) -> Result<Output, ExportError> {
    let failed = |source| ExportError::Write { path: path.to_path_buf(), source };
    let sink = Sink::new(Output::create(path)?, path);
    let ranks = selection.run.files().iter().filter_map(|file| file.rank).max();
    let limit = max_bytes.map(|bytes| bytes - bytes / 16 - REST_BYTES);
    let write = || -> io::Result<Output> {
        let (sink, cut_ns) = document(part, selection.zero.unix_ns, ranks, limit, sink, written)?;
        if let Some(cut_ns) = cut_ns {
            let seconds = part.since_start(cut_ns) as f64 / 1e9;
            let label = &part.file.label;
            let note = format!(
                "{label} is cut at {seconds:.3} s, where its file reached \
                                --max-size"
            );
            written.notes.push(note);
        }
        sink.finish()
    };
    let output = write().map_err(failed)?;
    Ok(output)
}

/// Writes the JSON of one file. If the file became full, returns the time at which it was cut.
fn document(
    part: &OpenRank<'_>,
    unix_ns: u64,
    last_rank: Option<u32>,
    limit: Option<u64>,
    to: Sink,
    written: &mut Written,
) -> io::Result<(Sink, Option<u64>)> {
    let about = envelope::Envelope::of(part, unix_ns, last_rank);
    let mut writer = Writer::begin(part, about.clock, |text| about.begin(text), to)?;
    let mut rows = Rows::new(part, about.imported);
    // If a file's first event is a span, Holistic Trace Analysis takes it for the launch of work
    // that has no launch. So begin with the same span as the imported file, which gives the same
    // result.
    let first = first_span(part);
    if let Some(first) = &first {
        rows.write_out_of_order(first, &mut writer)?;
        written.events += 1;
    }
    let mut first = first;
    about.metadata(&mut writer)?;
    if !about.imported {
        curves::lives(&mut writer)?;
    }
    curves::marks(&mut writer)?;
    curves::losses(&mut writer)?;
    written.events += curves::memory(&mut writer)?;
    let (mut samples, mut cut_ns) = (0, None);
    in_order::each(&part.trace, part.window, |event| {
        if let TimedRow::Sample(_) = event {
            samples += 1;
            return Ok::<bool, io::Error>(true);
        }
        if let (TimedRow::Span(row), Some(known)) = (event, &first)
            && row == known
        {
            first = None;
            return Ok(true);
        }
        rows.write(event, &mut writer)?;
        written.events += 1;
        if written.events.is_multiple_of(256)
            && limit.is_some_and(|limit| writer.to.bytes() + writer.buffered() >= limit)
        {
            cut_ns = Some(event.time_ns());
        }
        Ok(cut_ns.is_none())
    })?;
    match rows.crossing() {
        0 => {}
        count => written.notes.push(format!(
            "{}: {count} slices that cross another one of their thread or stream are on tracks \
             named `(overlapping)`: a viewer would drop them",
            part.file.label
        )),
    }
    if samples > 0 {
        written.notes.push(format!(
            "{}: {samples} samples were left out; --to perfetto, speedscope or pprof has them",
            part.file.label
        ));
    }
    Ok((about.end(writer, cut_ns.map(|ns| part.since_start(ns)))?, cut_ns))
}

/// Returns the span that an imported file began with, if the slice contains it.
fn first_span(part: &OpenRank<'_>) -> Option<Span> {
    let start_ns: u64 = part.trace.property("tprof.first_event_ns")?.parse().ok()?;
    let spans = part.trace.in_order::<Span>(start_ns, start_ns.saturating_add(1)).flatten();
    let mut spans = spans.filter(|span| span.start_ns == start_ns);
    spans.next().filter(|_| part.window.holds(start_ns))
}
