//! Reads the history of a rank's file, or computes it if the file has none.

use tprof_trace::model::*;
use tprof_trace::{RowWatcher, TraceFile};

use super::builder::HistoryBuilder;
use crate::communication::on_host::host_operation;
use crate::steps::{self, StepSource};

/// Property of a file: the time of devices that came too late for its rows, ns.
pub const LATE_PROPERTY: &str = "tprof.history_late_ns";

/// The history of a rank.
#[derive(Clone, Debug, Default)]
pub struct RankHistory {
    /// The rows, in order of time.
    pub rows: Vec<HistoryRow>,
    /// How many of them were computed now from recorded events. These have no CPU time, and their
    /// devices' work is only that of the part that is kept.
    pub computed: usize,
    /// Time of devices that came too late for its rows, ns.
    pub late_ns: u64,
}

/// Returns the history of a file. If the recorder didn't finish the file, the last rows are
/// computed from the events, and all rows if it has none. `wanted` is the source of steps for these.
pub fn of_file(file: &TraceFile, wanted: Option<StepSource>) -> RankHistory {
    let mut rows: Vec<HistoryRow> = file.blocks::<HistoryRow>().flatten().collect();
    rows.sort_by_key(|row| row.start_ns);
    // Rows of a run that lasts or was killed may also be where they were only shown.
    rows.dedup_by_key(|row| row.start_ns);
    let late_ns = file.property(LATE_PROPERTY).and_then(|ns| ns.parse().ok()).unwrap_or(0);
    let has_steps = rows.iter().any(|row| row.steps > 0);
    if !has_steps && file.kept_since_ns().is_none() {
        // Steps that nothing names can be inferred from the whole job.
        let computed = of_events(file, file.header().start_ns, wanted);
        if rows.is_empty() || computed.iter().any(|row| row.steps > 0) {
            return RankHistory { computed: computed.len(), rows: computed, late_ns: 0 };
        }
    }
    if file.is_closed() {
        return RankHistory { rows, computed: 0, late_ns };
    }
    let end_ns = rows.last().map_or(file.header().start_ns, HistoryRow::end_ns);
    let more = of_events(file, end_ns.max(file.kept_since_ns().unwrap_or(0)), wanted);
    let computed = more.len();
    rows.extend(more);
    RankHistory { rows, computed, late_ns }
}

/// Computes the rows of a file from its events, from a time on, ns.
pub fn of_events(file: &TraceFile, from_ns: u64, wanted: Option<StepSource>) -> Vec<HistoryRow> {
    let mut builder = HistoryBuilder::of_whole(from_ns);
    file.names().for_each(|(id, text)| builder.named(id, text));
    let steps = steps::of_file(file, wanted);
    let mut all = steps.all;
    all.retain(|step| step.start_ns >= from_ns);
    all.sort_by_key(|step| (step.end_ns, step.start_ns));
    if let Some(source) = steps.source {
        all.into_iter().for_each(|step| builder.step(step, source));
    }
    for row in file.marks().iter().filter(|row| row.kind != MarkKind::Step) {
        builder.marked(row, file.name(row.name));
    }
    for row in file.blocks_between::<KernelOutline>(from_ns, u64::MAX).flatten() {
        builder.kernel(row.device, row.name, row.start_ns, row.duration_ns);
    }
    for row in file.blocks_between::<MemoryCopy>(from_ns, u64::MAX).flatten() {
        builder.copy(&row);
    }
    for rows in file.blocks_between::<Collective>(from_ns, u64::MAX) {
        builder.collectives(&rows);
    }
    if file.names().any(|(_, name)| host_operation(name).is_some()) {
        for row in file.blocks_between::<SpanOutline>(from_ns, u64::MAX).flatten() {
            if matches!(row.kind, SpanKind::Annotation | SpanKind::Operator | SpanKind::Other) {
                builder.host_operation(row.name, row.start_ns, row.duration_ns);
            }
        }
    }
    file.counters().iter().for_each(|row| builder.counted(row));
    for row in file.processes() {
        if let Some((end_ns, _)) = file.process_end(row.process) {
            builder.ended(row.process, end_ns);
        }
    }
    builder.figures(u64::MAX, true)
}
