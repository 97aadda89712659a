//! Reads each table of a rank's file, and passes its rows to a sink.

use tprof_analyze::joined::JoinedCollective;
use tprof_export::external::{ExternalIds, HasCallIds};
use tprof_export::in_order;
use tprof_export::{OpenRank, Window};
use tprof_facts::frames::Frames;
use tprof_trace::model::{
    ChannelWork, Connection, EventSample, ExternalId, FileCalls, Kernel, KernelOutline,
    KernelStall, MemoryCopy, Sample, Span, SpanOutline,
};
use tprof_trace::{TraceFile, TracePart};

use crate::column::{Column, Sink, identity};
use crate::columns::{device, files, history, host, host_times, small};
use crate::context::Context;
use crate::host_time::HostTime;
use crate::rows::{self, InnermostPlaces, InputTexts, RowRequest, ShortNames};

/// Names of the tables that each rank has, in the order in which they are read.
pub const RANK_TABLES: [&str; 33] = [
    "spans",
    "kernels",
    "kernel_stalls",
    "copies",
    "synchronizations",
    "device_spans",
    "collectives",
    "collective_runs",
    "channel_work",
    "file_calls",
    "steps",
    "history",
    "device_allocations",
    "samples",
    "event_samples",
    "flow_points",
    "heap_events",
    "map_events",
    "heap_totals",
    "counters",
    "thread_counts",
    "marks",
    "losses",
    "processes",
    "threads",
    "devices",
    "streams",
    "external_ids",
    "communicators",
    "connections",
    "host_times",
    "stack_frames",
    "properties",
];

/// Reads the tables of a rank's file.
pub struct RankTables<'a> {
    context: &'a Context<'a>,
    window: Window,
    host_times: Vec<HostTime>,
}

impl<'a> RankTables<'a> {
    /// Creates a reader of the rows of `part` within its window. `host_times` has the rows of the
    /// table of the driving thread's wall time.
    pub fn of(
        context: &'a Context<'a>,
        part: &OpenRank<'_>,
        host_times: Vec<HostTime>,
    ) -> RankTables<'a> {
        RankTables { context, window: part.window, host_times }
    }

    /// Passes all tables to a sink, in the order of [`RANK_TABLES`].
    pub fn each<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let ids = ExternalIds::of(self.context.trace);
        RANK_TABLES.into_iter().try_for_each(|name| self.read(name, &ids, sink))
    }

    /// Passes one of [`RANK_TABLES`] to a sink.
    pub fn one<S: Sink>(&self, name: &'static str, sink: &mut S) -> Result<(), S::Error> {
        let ids = match sink.takes(name, "external") {
            true => ExternalIds::of(self.context.trace),
            false => ExternalIds::default(),
        };
        self.read(name, &ids, sink)
    }

    fn read<S: Sink>(
        &self,
        name: &'static str,
        ids: &ExternalIds,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let (context, trace, window) = (self.context, self.context.trace, self.window);
        let all = Table { name, context };
        match name {
            "spans" => self.spans(ids, sink),
            "kernels" => self.kernels(ids, sink),
            "copies" => self.copies(ids, sink),
            "samples" => self.samples(ids, sink),
            "synchronizations" => all.pass(sink, device::SYNCHRONIZATIONS, self.rows(ids)),
            "kernel_stalls" => {
                let rows = self.blocks::<KernelStall>().filter(|row| window.holds(row.time_ns));
                all.pass(sink, device::KERNEL_STALLS, rows)
            }
            "device_spans" => all.pass(sink, device::DEVICE_SPANS, self.rows(ids)),
            "collectives" => all.pass(sink, host::COLLECTIVES, self.rows(ids)),
            "collective_runs" => {
                let runs = self.collective_runs();
                all.pass(sink, host::COLLECTIVE_RUNS, runs.into_iter())
            }
            "channel_work" => all.pass(sink, host::CHANNEL_WORK, self.rows(ids)),
            "file_calls" => {
                let end_ns = |row: &FileCalls| row.start_ns.saturating_add(row.duration_ns);
                let rows = self.blocks::<FileCalls>();
                let rows = rows.filter(|row| window.touches(row.start_ns, end_ns(row)));
                all.pass(sink, files::FILE_CALLS, rows)
            }
            "steps" => {
                let found = context.joined().steps();
                let within = found.all.iter().filter(|of| window.touches(of.start_ns, of.end_ns));
                let row = |step: &_| small::StepRow { step: *step, source: found.source };
                all.pass(sink, small::STEPS, within.map(row))
            }
            "history" => {
                let within = context.history();
                let within = within.filter(|of| window.touches(of.row.start_ns, of.row.end_ns()));
                all.pass(sink, history::HISTORY, within)
            }
            "device_allocations" => all.pass(sink, device::ALLOCATIONS, self.rows(ids)),
            "event_samples" => {
                let rows = self.blocks::<EventSample>().filter(|row| window.holds(row.time_ns));
                all.pass(sink, host::EVENT_SAMPLES, rows)
            }
            "flow_points" => all.pass(sink, host::FLOW_POINTS, self.rows(ids)),
            "heap_events" => {
                let rows = trace.heap_events().filter(|row| window.holds(row.time_ns));
                all.pass(sink, host::HEAP_EVENTS, rows)
            }
            "map_events" => {
                let rows = trace.map_events().filter(|row| window.holds(row.time_ns));
                all.pass(sink, host::MAP_EVENTS, rows)
            }
            "heap_totals" => {
                let rows = trace.totals().iter().filter(|row| window.holds(row.time_ns));
                all.pass(sink, small::HEAP_TOTALS, rows.copied())
            }
            "counters" => {
                let rows = trace.counters().iter().filter(|row| window.holds(row.time_ns));
                all.pass(sink, small::COUNTERS, rows.copied())
            }
            "thread_counts" => {
                let rows = trace.thread_counts().iter().filter(|row| window.holds(row.time_ns));
                all.pass(sink, host::THREAD_COUNTS, rows.copied())
            }
            "marks" => {
                let rows = trace.marks().iter().filter(|row| window.holds(row.time_ns));
                all.pass(sink, small::MARKS, rows.copied())
            }
            // The tables from here on are complete even if a slice is exported, because rows of the
            // tables above refer to them.
            "losses" => all.pass(sink, small::LOSSES, trace.losses().iter().copied()),
            "processes" => all.pass(sink, small::PROCESSES, trace.processes().iter().cloned()),
            "threads" => all.pass(sink, small::THREADS, trace.threads().iter().cloned()),
            "devices" => all.pass(sink, small::DEVICES, trace.devices().iter().cloned()),
            "streams" => all.pass(sink, small::STREAMS, trace.streams().iter().cloned()),
            "external_ids" => {
                all.pass(sink, small::EXTERNAL_IDS, trace.blocks::<ExternalId>().flatten())
            }
            "communicators" => {
                all.pass(sink, small::COMMUNICATORS, trace.communicators().iter().cloned())
            }
            "connections" => {
                all.pass(sink, small::CONNECTIONS, trace.blocks::<Connection>().flatten())
            }
            "host_times" => all.pass(sink, host_times::HOST_TIMES, self.host_times.iter().cloned()),
            "stack_frames" => {
                let frames = Frames::new(trace);
                let stacks = trace.stacks().iter().flat_map(|of| small::frames(&frames, of));
                all.pass(sink, small::STACK_FRAMES, stacks)
            }
            "properties" => {
                let of = |(key, value): (&str, &str)| small::PropertyText {
                    key: key.into(),
                    value: value.into(),
                };
                all.pass(sink, small::PROPERTIES, trace.properties().map(of))
            }
            _ => unreachable!("{name} is no table of a rank"),
        }
    }

    /// Returns the rows of a large table within the window, in order of time.
    fn rows<R: HasCallIds>(&self, ids: &ExternalIds) -> impl Iterator<Item = R> {
        let batches = self.context.trace.in_order(self.window.from_ns, self.window.to_ns);
        batches.flat_map(|mut rows: Vec<R>| {
            ids.fill(&mut rows);
            rows
        })
    }

    /// Returns the rows of a large table, or parts of them, block by block in the file's order. If
    /// a block overlaps the window, all of its rows are returned, even those outside.
    fn blocks<R: TracePart>(&self) -> impl Iterator<Item = R> {
        let Window { from_ns, to_ns } = self.window;
        self.context.trace.blocks_between(from_ns, to_ns).flatten()
    }

    fn spans<S: Sink>(&self, ids: &ExternalIds, sink: &mut S) -> Result<(), S::Error> {
        let (context, name) = (self.context, "spans");
        let request = RowRequest {
            places: takes(
                sink,
                name,
                &["row", "parent_row", "depth", "self_ns", "flops", "flop_bytes", "flop_row"],
            ),
            texts: takes(sink, name, &["input_shapes", "input_types"]),
        };
        let mut texts = InputTexts::default();
        let mut of = |row| texts.row(row, context, request);
        let table = Table { name, context };
        match takes(sink, name, &BESIDE_SPAN_OUTLINE) {
            true => table.pass(sink, host::SPANS, self.rows::<Span>(ids).map(of)),
            false => {
                let rows = self.blocks::<SpanOutline>().map(span_of);
                table.pass(sink, host::SPANS, rows.map(&mut of))
            }
        }
    }

    fn kernels<S: Sink>(&self, ids: &ExternalIds, sink: &mut S) -> Result<(), S::Error> {
        let (context, name) = (self.context, "kernels");
        let places = takes(sink, name, &["class"]) || takes(sink, name, &OF_LAUNCH);
        let request = RowRequest { places, texts: sink.takes(name, "short_name") };
        let mut names = ShortNames::default();
        let mut of = |row| names.kernel(row, context, request);
        let table = Table { name, context };
        match takes(sink, name, &BESIDE_KERNEL_OUTLINE) {
            true => table.pass(sink, device::KERNELS, self.rows::<Kernel>(ids).map(of)),
            false => {
                let rows = self.blocks::<KernelOutline>().map(kernel_of);
                table.pass(sink, device::KERNELS, rows.map(&mut of))
            }
        }
    }

    fn copies<S: Sink>(&self, ids: &ExternalIds, sink: &mut S) -> Result<(), S::Error> {
        let (context, name) = (self.context, "copies");
        let request = RowRequest { places: takes(sink, name, &OF_LAUNCH), texts: false };
        let rows = self.rows::<MemoryCopy>(ids).map(|row| rows::copy(row, context, request));
        Table { name, context }.pass(sink, device::COPIES, rows)
    }

    fn samples<S: Sink>(&self, ids: &ExternalIds, sink: &mut S) -> Result<(), S::Error> {
        let (context, name) = (self.context, "samples");
        let texts = takes(sink, name, &["function", "file", "line", "module"]);
        let mut innermost = InnermostPlaces::default();
        let request = RowRequest { places: false, texts };
        let rows = self.rows::<Sample>(ids).map(|row| innermost.row(row, context, request));
        Table { name, context }.pass(sink, host::SAMPLES, rows)
    }

    fn collective_runs(&self) -> Vec<JoinedCollective> {
        let mut runs = self.context.joined().collectives();
        let end_ns = |run: &JoinedCollective| run.start_ns.saturating_add(run.duration_ns);
        runs.retain(|run| self.window.touches(run.start_ns, end_ns(run)));
        runs.sort_by_key(|run| run.start_ns);
        runs
    }
}

const OF_LAUNCH: [&str; 5] =
    ["step", "launch_start_ns", "launch_duration_ns", "launch_name", "launch_thread"];

/// Columns of kernels that need values which a [`KernelOutline`] lacks.
const BESIDE_KERNEL_OUTLINE: [&str; 10] = [
    "external",
    "block_x",
    "block_y",
    "block_z",
    "registers",
    "shared_static_bytes",
    "shared_dynamic_bytes",
    "graph_node",
    "queued_ns",
    "submitted_ns",
];

/// Columns of spans that need values which a [`SpanOutline`] lacks.
const BESIDE_SPAN_OUTLINE: [&str; 9] = [
    "external",
    "id",
    "parent",
    "sequence",
    "forward_thread",
    "status",
    "stack",
    "allocations",
    "allocated_bytes",
];

fn kernel_of(outline: KernelOutline) -> Kernel {
    let KernelOutline { start_ns, duration_ns, process, device, context, stream, .. } = outline;
    let KernelOutline { name, correlation, grid, graph, args, .. } = outline;
    Kernel {
        start_ns,
        duration_ns,
        process,
        device,
        context,
        stream,
        name,
        correlation,
        grid,
        graph,
        args,
        ..Kernel::default()
    }
}

fn span_of(outline: SpanOutline) -> Span {
    let SpanOutline { start_ns, duration_ns, process, thread, name, .. } = outline;
    let SpanOutline { category, args, correlation, kind, .. } = outline;
    Span {
        start_ns,
        duration_ns,
        process,
        thread,
        name,
        category,
        args,
        correlation,
        kind,
        ..Span::default()
    }
}

fn takes<S: Sink>(sink: &S, table: &'static str, columns: &[&'static str]) -> bool {
    columns.iter().any(|column| sink.takes(table, column))
}

/// A table whose rows are being passed to a sink.
struct Table<'a> {
    name: &'static str,
    context: &'a Context<'a>,
}

/// Number of rows in a batch. A sink goes through a batch once per column, so the batch should fit
/// the core's cache.
const BATCH_ROWS: usize = 1 << 9;

impl Table<'_> {
    fn pass<R, S: Sink>(
        &self,
        sink: &mut S,
        columns: &[Column<R>],
        mut rows: impl Iterator<Item = R>,
    ) -> Result<(), S::Error> {
        let columns: Vec<Column<R>> =
            identity().into_iter().chain(columns.iter().copied()).collect();
        let mut batches = std::iter::from_fn(|| {
            let batch: Vec<R> = rows.by_ref().take(BATCH_ROWS).collect();
            (!batch.is_empty()).then_some(batch)
        });
        sink.table(self.name, &columns, self.context, &mut batches)
    }
}

/// Returns the number of rows that [`RankTables::each`] passes on for a whole file, counting only
/// rows that have a time.
pub(crate) fn count(trace: &TraceFile) -> u64 {
    let small = trace.totals().len() + trace.counters().len() + trace.marks().len();
    in_order::count(trace)
        + trace.row_count::<ChannelWork>()
        + trace.row_count::<FileCalls>()
        + trace.row_count::<KernelStall>()
        + trace.row_count::<EventSample>()
        + trace.heap_event_count()
        + trace.map_events().count() as u64
        + (small + trace.thread_counts().len()) as u64
}

/// Whether the rows of a table are events. A slice selects events by their time, and exports all
/// other tables completely.
pub(crate) fn is_timed(table: &str) -> bool {
    !matches!(
        table,
        "losses"
            | "processes"
            | "threads"
            | "devices"
            | "streams"
            | "external_ids"
            | "communicators"
            | "connections"
            | "host_times"
            | "stack_frames"
            | "properties"
            // These tables are derived from the rows of other tables.
            | "steps"
            | "history"
            | "collective_runs"
    )
}
