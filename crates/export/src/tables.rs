//! The trace as plain tables, for formats that are tables: one definition of
//! their columns for Parquet, CSV and JSON. `docs/tables.md` is the same list.
//!
//! Names are resolved, times are nanoseconds since the run began. What is not
//! known is null, never 0.

mod column;
mod device;
mod host;
mod host_times;
mod small;

use tprof_facts::frames::Frames;
use tprof_trace::TraceFile;
use tprof_trace::model::{ChannelWork, ExternalId};

pub(crate) use column::{Cell, Column, Context, Sink, Type};

use crate::external::{Called, ExternalIds};
use crate::host_time::HostTime;
use crate::{OpenRank, Window};

/// Version of the tables: it rises when a column changes its meaning or goes.
pub(crate) const VERSION: u32 = 1;

/// Names of the tables, which name the files of CSV and the directories of Parquet.
pub const NAMES: [&str; 24] = [
    "channel_work",
    "collectives",
    "communicators",
    "copies",
    "counters",
    "device_allocations",
    "device_spans",
    "devices",
    "external_ids",
    "flow_points",
    "heap_events",
    "heap_totals",
    "host_times",
    "kernels",
    "losses",
    "map_events",
    "marks",
    "processes",
    "properties",
    "samples",
    "spans",
    "stack_frames",
    "synchronizations",
    "threads",
];

/// Gives all tables of a rank, as far as they lie in its window.
pub(crate) fn each<S: Sink>(
    part: &OpenRank<'_>,
    host_times: &[&HostTime],
    sink: &mut S,
) -> Result<(), S::Error> {
    let (context, trace, window) = (Context::of(part), &part.trace, part.window);
    let ids = ExternalIds::of(trace);
    let wanted = (window, &ids);
    large(sink, "spans", host::SPANS, &context, wanted)?;
    large(sink, "kernels", device::KERNELS, &context, wanted)?;
    large(sink, "copies", device::COPIES, &context, wanted)?;
    large(sink, "synchronizations", device::SYNCHRONIZATIONS, &context, wanted)?;
    large(sink, "device_spans", device::DEVICE_SPANS, &context, wanted)?;
    large(sink, "collectives", host::COLLECTIVES, &context, wanted)?;
    large(sink, "channel_work", host::CHANNEL_WORK, &context, wanted)?;
    large(sink, "device_allocations", device::ALLOCATIONS, &context, wanted)?;
    large(sink, "samples", host::SAMPLES, &context, wanted)?;
    large(sink, "flow_points", host::FLOW_POINTS, &context, wanted)?;
    let mut heap = trace.heap_events().filter(|row| window.holds(row.time_ns));
    sink.table("heap_events", host::HEAP_EVENTS, &context, &mut batches(&mut heap))?;
    let mut maps = trace.map_events().filter(|row| window.holds(row.time_ns));
    sink.table("map_events", host::MAP_EVENTS, &context, &mut batches(&mut maps))?;
    let mut totals = trace.totals().iter().filter(|row| window.holds(row.time_ns)).copied();
    sink.table("heap_totals", small::HEAP_TOTALS, &context, &mut batches(&mut totals))?;
    let mut counters = trace.counters().iter().filter(|row| window.holds(row.time_ns)).copied();
    sink.table("counters", small::COUNTERS, &context, &mut batches(&mut counters))?;
    let mut marks = trace.marks().iter().filter(|row| window.holds(row.time_ns)).copied();
    sink.table("marks", small::MARKS, &context, &mut batches(&mut marks))?;
    // Whom and what the rows above refer to; all of it, whatever the slice.
    sink.table(
        "losses",
        small::LOSSES,
        &context,
        &mut batches(&mut trace.losses().iter().copied()),
    )?;
    let mut processes = trace.processes().iter().cloned();
    sink.table("processes", small::PROCESSES, &context, &mut batches(&mut processes))?;
    let mut threads = trace.threads().iter().cloned();
    sink.table("threads", small::THREADS, &context, &mut batches(&mut threads))?;
    let mut devices = trace.devices().iter().cloned();
    sink.table("devices", small::DEVICES, &context, &mut batches(&mut devices))?;
    let mut ids = trace.blocks::<ExternalId>().flatten();
    sink.table("external_ids", small::EXTERNAL_IDS, &context, &mut batches(&mut ids))?;
    let mut groups = trace.communicators().iter().cloned();
    sink.table("communicators", small::COMMUNICATORS, &context, &mut batches(&mut groups))?;
    let mut times = host_times.iter().map(|time| (*time).clone());
    sink.table("host_times", host_times::HOST_TIMES, &context, &mut batches(&mut times))?;
    let frames = Frames::new(trace);
    let mut stacks = trace.stacks().iter().flat_map(|stack| small::frames(&frames, stack));
    sink.table("stack_frames", small::STACK_FRAMES, &context, &mut batches(&mut stacks))?;
    let mut properties = trace.properties();
    let mut properties = std::iter::from_fn(|| {
        properties
            .next()
            .map(|(key, value)| small::PropertyText { key: key.into(), value: value.into() })
    });
    sink.table("properties", small::PROPERTIES, &context, &mut batches(&mut properties))
}

fn large<R: Called, S: Sink>(
    sink: &mut S,
    name: &'static str,
    columns: &[Column<R>],
    context: &Context<'_>,
    (window, ids): (Window, &ExternalIds),
) -> Result<(), S::Error> {
    let batches_in_order = context.trace.in_order(window.from_ns, window.to_ns);
    let mut rows = batches_in_order.flat_map(|mut rows| {
        ids.fill(&mut rows);
        rows
    });
    sink.table(name, columns, context, &mut batches(&mut rows))
}

/// Rows of a batch: what a sink makes a group of.
const BATCH_ROWS: usize = 1 << 16;

fn batches<R>(rows: &mut dyn Iterator<Item = R>) -> impl Iterator<Item = Vec<R>> {
    std::iter::from_fn(move || {
        let batch: Vec<R> = rows.take(BATCH_ROWS).collect();
        (!batch.is_empty()).then_some(batch)
    })
}

/// Rows that [`each`] gives without a slice, as far as they have a time.
pub(crate) fn count(trace: &TraceFile) -> u64 {
    let small = trace.totals().len() + trace.counters().len() + trace.marks().len();
    crate::in_order::count(trace)
        + trace.row_count::<ChannelWork>()
        + trace.heap_event_count()
        + trace.map_events().count() as u64
        + small as u64
}

/// Whether rows of a table have a time by which a slice takes or leaves them.
pub(crate) fn is_timed(table: &str) -> bool {
    !matches!(
        table,
        "losses"
            | "processes"
            | "threads"
            | "devices"
            | "external_ids"
            | "communicators"
            | "host_times"
            | "stack_frames"
            | "properties"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the list of tables in `docs/exports.md`.
    struct List(String);

    impl Sink for List {
        type Error = std::convert::Infallible;

        fn table<R>(
            &mut self,
            name: &'static str,
            columns: &[Column<R>],
            _: &Context<'_>,
            _: &mut dyn Iterator<Item = Vec<R>>,
        ) -> Result<(), Self::Error> {
            self.0 += &format!("\n**{name}**\n\n| column | type | what |\n|---|---|---|\n");
            for Column { name, kind, about, .. } in columns {
                self.0 += &format!("| `{name}` | {} | {about} |\n", kind.name());
            }
            Ok(())
        }
    }

    #[test]
    fn the_documentation_lists_every_column() {
        use tprof_trace::{RunDir, TraceHeader, TraceWriter};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        TraceWriter::create(&path, &TraceHeader::default()).unwrap().finish().unwrap();
        let run = RunDir::open(&path).unwrap();
        let slice = crate::Slice::default();
        let selection = crate::Selection::new(&run, &slice, None).unwrap();
        let part = selection.open(selection.files[0]).unwrap();
        let mut list = List(String::new());
        let Ok(()) = each(&part, &[], &mut list);
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exports.md");
        let text = std::fs::read_to_string(&docs).unwrap();
        let (_, found) = text.split_once("raises it.\n").unwrap();
        assert_eq!(found.trim(), list.0.trim(), "docs/exports.md, from `### Columns` on");
    }
}
