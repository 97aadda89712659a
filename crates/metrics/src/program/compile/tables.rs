//! Makes the tables of `compile` on compilations, graph breaks, recompilations, and code that runs
//! uncompiled.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use tprof_rank::base::sort_rows::SortRows;

use tprof_document::{Cell, Column, RankContext, Table, Unit};
use tprof_trace::compile_log::{CompiledFrame, GraphBreak};

use super::per_rank::{FrameRow, NO_END};
use super::words::{
    CompiledParts, NO_CLOCK, NO_CODE, NO_FIGURE, NO_GRAPH, NO_NAME, NO_REASON, empty, rank_column,
};

/// Makes the tables of this module, in the order of the report.
pub(super) fn all(parts: &CompiledParts) -> Vec<Table> {
    vec![frames(parts), graph_breaks(parts), recompiles(parts), uncompiled(parts)]
}

/// Returns the reason why a figure of a compilation is missing.
fn why_no_figure(frame: &CompiledFrame) -> &'static str {
    if frame.is_ended { NO_FIGURE } else { NO_END }
}

/// Returns a cell with a duration in ns, which the log has in µs.
fn duration_cell(us: Option<u64>, why: &str) -> Cell {
    Cell::known(us.map(|us| us.saturating_mul(1000)), why)
}

fn frames(parts: &CompiledParts) -> Table {
    let columns = vec![
        rank_column(parts),
        Column::new("compile_id", "id", Unit::Text),
        Column::new("direction", "graph", Unit::Text),
        Column::new("total_ns", "time", Unit::Duration),
        Column::new("dynamo_ns", "dynamo", Unit::Duration),
        Column::new("aot_ns", "aot", Unit::Duration),
        Column::new("inductor_ns", "inductor", Unit::Duration),
        Column::new("kernels_ns", "kernels", Unit::Duration),
        Column::data("cuda_graphs_ns", Unit::Duration),
        Column::data("start_ns", Unit::Time),
        Column::data("attempts", Unit::Count),
        Column::data("guards", Unit::Count),
        Column::data("operators_before", Unit::Count),
        Column::data("operators_after", Unit::Count),
        Column::data("generated_kernels", Unit::Count),
        Column::data("external_kernels", Unit::Count),
        Column::data("failure", Unit::Text),
        Column::data("restart_reasons", Unit::Text),
        Column::data("file", Unit::Text),
        Column::data("line", Unit::Id),
        Column::new("function", "function", Unit::Name),
    ];
    let mut table = Table::new("frames", "Compiled functions", columns)
        .about("the four phases add up to the time; kernels: waiting for Triton or C++ compilers")
        .empty(empty(parts, "the log has no compilation"));
    let mut rows: Vec<(&RankContext, &FrameRow)> =
        parts.iter().flat_map(|(at, part)| part.frames.iter().map(move |row| (at, row))).collect();
    rows.sort_rows_by_key(|(at, row)| (Reverse(row.frame.total_us), at.rank, row.frame.id));
    for (at, row) in rows {
        table.row(frame_cells(at, row));
    }
    table
}

fn frame_cells(at: &RankContext, row: &FrameRow) -> Vec<Cell> {
    let FrameRow { frame, start_ns, operators_before, operators_after, kernels } = row;
    let why = why_no_figure(frame);
    let phases = frame.phases;
    // Dynamo traces the function for both graphs at once, so the backward graph has no time, guards
    // or traced operators of its own.
    let dynamo = match frame.is_backward {
        true => Cell::Empty,
        false => duration_cell(phases.dynamo_us, why),
    };
    let if_forward = |value: Option<u64>, why: &str| match frame.is_backward {
        true => Cell::Empty,
        false => Cell::known(value, why),
    };
    let restarts = frame.restart_reasons.join("; ");
    vec![
        at.label.as_str().into(),
        frame.id.to_string().into(),
        if frame.is_backward { "backward" } else { "forward" }.into(),
        duration_cell(frame.total_us, why),
        dynamo,
        duration_cell(phases.aot_us, why),
        duration_cell(phases.inductor_us, why),
        duration_cell(phases.kernels_us, why),
        Cell::applies(phases.cuda_graphs_us.map(|us| us.saturating_mul(1000))),
        Cell::known(*start_ns, NO_CLOCK),
        Cell::from(frame.attempts),
        if_forward(frame.guards, why),
        if_forward(*operators_before, NO_GRAPH),
        Cell::known(*operators_after, NO_GRAPH),
        Cell::known(kernels.map(|(generated, _)| generated), NO_CODE),
        Cell::known(kernels.map(|(_, external)| external), NO_CODE),
        Cell::applies(frame.failure.as_deref()),
        Cell::applies((!restarts.is_empty()).then_some(restarts)),
        Cell::known(frame.file.as_deref(), NO_NAME),
        Cell::known(frame.line, NO_NAME),
        Cell::known(frame.function.as_deref(), NO_NAME),
    ]
}

fn graph_breaks(parts: &CompiledParts) -> Table {
    let columns = vec![
        Column::new("count", "times", Unit::Count),
        Column::data("ranks", Unit::Count),
        Column::new("file", "file", Unit::Text),
        Column::new("line", "line", Unit::Id),
        Column::data("explanation", Unit::Text),
        Column::data("hints", Unit::Text),
        Column::new("reason", "reason", Unit::Name),
    ];
    let mut table = Table::new("graph_breaks", "Graph breaks", columns)
        .about("times: over all ranks and compilations, each of which meets a break again")
        .empty(empty(parts, "the log has no graph break"));
    type Place<'a> = (&'a Option<String>, Option<u32>, &'a Option<String>);
    // For each place: how often it broke a graph, in which ranks, and the first break there.
    let mut found: BTreeMap<Place<'_>, (u64, BTreeSet<&str>, &GraphBreak)> = BTreeMap::new();
    for (at, part) in parts {
        for one in &part.breaks {
            let place = (&one.file, one.line, &one.reason);
            let row = found.entry(place).or_insert_with(|| (0, BTreeSet::new(), one));
            row.0 += 1;
            row.1.insert(&at.label);
        }
    }
    let mut rows: Vec<_> = found.into_iter().collect();
    rows.sort_rows_by_key(|(_, row)| Reverse(row.0));
    for ((file, line, reason), (count, ranks, first)) in rows {
        let hints = first.hints.join("\n");
        table.row(vec![
            count.into(),
            ranks.len().into(),
            Cell::known(file.as_deref(), NO_NAME),
            Cell::known(line, NO_NAME),
            Cell::applies(first.explanation.as_deref()),
            Cell::applies((!hints.is_empty()).then_some(hints)),
            Cell::known(reason.as_deref(), NO_REASON),
        ]);
    }
    table
}

fn recompiles(parts: &CompiledParts) -> Table {
    let columns = vec![
        rank_column(parts),
        Column::new("compile_id", "id", Unit::Text),
        Column::new("total_ns", "time", Unit::Duration),
        Column::data("file", Unit::Text),
        Column::data("line", Unit::Id),
        Column::new("function", "function", Unit::Text),
        Column::data("other_reasons", Unit::Text),
        Column::new("reason", "guard that failed", Unit::Name),
    ];
    let mut table = Table::new("recompiles", "Recompilations", columns)
        .about("reason: the guard of the newest code that did not hold; `3/0` is the code it is of")
        .empty(empty(parts, "the log has no recompilation"));
    for (at, part) in parts {
        for row in &part.recompiles {
            let frame = row.frame.as_ref();
            // The first reason is the guard of the newest code.
            let others = row.reasons.get(1..).unwrap_or_default().join("\n");
            table.row(vec![
                at.label.as_str().into(),
                row.id.to_string().into(),
                duration_cell(
                    frame.and_then(|frame| frame.total_us),
                    frame.map_or(NO_END, why_no_figure),
                ),
                Cell::known(frame.and_then(|frame| frame.file.as_deref()), NO_NAME),
                Cell::known(frame.and_then(|frame| frame.line), NO_NAME),
                Cell::known(frame.and_then(|frame| frame.function.as_deref()), NO_NAME),
                Cell::applies((!others.is_empty()).then_some(others)),
                Cell::known(row.reasons.first().map(String::as_str), NO_REASON),
            ]);
        }
    }
    table
}

fn uncompiled(parts: &CompiledParts) -> Table {
    let columns = vec![
        rank_column(parts),
        Column::new("what", "what", Unit::Text),
        Column::data("file", Unit::Text),
        Column::new("line", "line", Unit::Id),
        Column::new("function", "function", Unit::Text),
        Column::new("why", "why", Unit::Name),
    ];
    let mut table = Table::new("uncompiled", "What runs without compiled code or graph", columns)
        .about(
            "graph break: the line between two graphs runs in Python; failed: all of the function",
        )
        .empty(empty(parts, "the log has no break, failure or skipped CUDA graph"));
    for (at, part) in parts {
        for row in &part.uncompiled {
            table.row(vec![
                at.label.as_str().into(),
                row.what.into(),
                Cell::known(row.file.as_deref(), NO_NAME),
                Cell::known(row.line, NO_NAME),
                Cell::known(row.function.as_deref(), NO_NAME),
                Cell::known(row.why.as_deref(), NO_REASON),
            ]);
        }
    }
    table
}
