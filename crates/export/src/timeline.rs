//! Exports a timeline: one self-contained HTML page with a lane for each thread and stream.
//!
//! Events are packed as columns, about 6 bytes each. If there are more than `MOST_EVENTS`, the page
//! leaves out the shortest ones. It then shows how many were left out, and below which duration.

mod compiled;
mod curves;
mod device;
mod device_memory;
mod events;
mod graphs;
mod host;
mod processes;
mod samples;

use serde_json::Value;
use tprof_facts::compile::RunLogs;
use tprof_trace::RunDir;

use crate::page::{Page, Payload, run_title};
use crate::{ExportError, OpenRank, Options, Selection, Written};
use curves::Curves;
use events::Lanes;
use processes::Processes;

/// Number of events that a browser can show within a second or two without running out of memory.
const MOST_EVENTS: usize = 4_000_000;
/// Smallest size of a page without events, which consists of scripts and styles.
const FRAME_BYTES: u64 = 96 << 10;
/// Cautious first estimate of an event's size in bytes, if the page's size is limited.
const GUESSED_BYTES: u64 = 8;

/// Writes the page: `timeline.html`, or the file that the options name.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    let path = crate::page::path(run, options, "timeline.html")?;
    let most = match options.max_bytes {
        None => MOST_EVENTS,
        Some(max_bytes) if max_bytes < 2 * FRAME_BYTES => {
            return Err(ExportError::TooSmall { max_bytes, least_bytes: 2 * FRAME_BYTES });
        }
        Some(bytes) => ((bytes - FRAME_BYTES) / GUESSED_BYTES).min(MOST_EVENTS as u64) as usize,
    };
    let page = Page {
        title: &format!("{} – timeline – tprof", run_title(run)),
        body: include_str!("timeline/timeline.html"),
        style: include_str!("timeline/timeline.css"),
        scripts: &[
            include_str!("timeline/model.js"),
            include_str!("timeline/order.js"),
            include_str!("timeline/idle.js"),
            include_str!("timeline/rows.js"),
            include_str!("timeline/raster.js"),
            include_str!("timeline/statistics.js"),
            include_str!("timeline/scope.js"),
            include_str!("timeline/panel.js"),
            include_str!("timeline/ruler.js"),
            include_str!("timeline/main.js"),
        ],
    };
    let mut most = most;
    loop {
        let mut payload = Payload::default();
        let mut written = collect(run, options, most, &mut payload)?;
        let bytes = options.max_bytes.map_or(0, |_| page.bytes(&payload));
        match options.max_bytes {
            // The estimate was too low, so try again with at least a fifth fewer events.
            Some(max_bytes) if bytes > max_bytes && most > 0 => {
                most = (most as u64 * max_bytes / bytes).min(most as u64 * 4 / 5) as usize;
            }
            Some(max_bytes) if bytes > max_bytes => {
                return Err(ExportError::TooSmall { max_bytes, least_bytes: bytes });
            }
            _ => {
                written.paths.extend(page.save(&path, &payload)?);
                return Ok(written);
            }
        }
    }
}

fn collect(
    run: &RunDir,
    options: &Options<'_>,
    most: usize,
    payload: &mut Payload,
) -> Result<Written, ExportError> {
    let mut written = Written::default();
    let mut lanes = Lanes::new();
    let mut processes = Processes::default();
    let mut curves = Curves::default();
    let mut marks: Vec<Value> = Vec::new();
    let mut slice: Option<(u64, u64)> = None;
    let selection = Selection::new(run, &options.slice, options.symbols)?;
    let logs = RunLogs::of(run);
    for file in &selection.files {
        let part = written.open_spans(&selection, file)?;
        host::spans(&part, &mut written, &mut processes, &mut lanes);
        samples::sampled(&part, &mut written, &mut processes, &mut lanes);
        let compile = logs.of_rank(file, &part.trace);
        compiled::compilations(&part, &compile, &mut written, &mut processes, &mut lanes);
        let sources = compiled::sources(&compile);
        device::streams(&part, &sources, &mut written, &mut processes, &mut lanes);
        if !options.slice.is_all_time() {
            let (from_ns, to_ns) = recorded(&part);
            slice = Some(slice.map_or((from_ns, to_ns), |s| (s.0.min(from_ns), s.1.max(to_ns))));
        }
        curves.file(&part, &mut written, &mut processes);
        processes::marks(&part, &mut written, &mut marks);
        processes.next_file();
    }
    if lanes.count() == 0 {
        written.notes.push("no span, kernel, copy or sample was recorded: only curves".to_owned());
    }
    if let Some((gone, below_ns)) = lanes.thin(most) {
        let kept = lanes.count();
        written.notes.push(format!(
            "{gone} events shorter than {below_ns} ns were left out of the timeline; {kept} are in \
             it"
        ));
        written.left_out += gone as u64;
        written.events = written.events.saturating_sub(gone as u64);
    }
    payload.set("notes", crate::page::notes(&options.slice, &written));
    payload.set("run", run_title(run));
    payload.set("slice", slice.map(|(from_ns, to_ns)| vec![from_ns, to_ns]));
    let lanes = lanes.pack(payload);
    payload.set("lanes", lanes);
    let curves = curves.pack(payload);
    payload.set("curves", curves);
    payload.set("processes", processes.into_rows());
    payload.set("marks", marks);
    Ok(written)
}

/// Returns the first and last recorded moment of a rank's slice, in ns since the run began.
fn recorded(part: &OpenRank<'_>) -> (u64, u64) {
    let (first_ns, last_ns) = part.trace.extent_ns().unwrap_or_default();
    let from_ns = part.window.from_ns.max(first_ns);
    (part.since_start(from_ns), part.since_start(part.window.to_ns.min(last_ns).max(from_ns)))
}
