//! The tables of `compile` beside that of ranks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tprof_facts::compile::NO_LOG;
use tprof_trace::compile_log::{CompiledFrame, EventUse, GraphBreak, GraphStage};

use super::graphs::RankGraphs;
use super::of_rank::{FrameRow, RankCompiled};
use crate::document::{Cell, Column, RankAt, Table, Unit, View};
use crate::gpu::breakdown::NO_WORK;

const NO_END: &str = "the log ends before this compilation";
const NO_FIGURE: &str = "this PyTorch's log has no such figure";
const NO_CLOCK: &str = "nothing joins the log's times to the run's clock";
const NO_NAME: &str = "the log does not name it";
const NO_REASON: &str = "this PyTorch does not log the reason";
const NO_DEVICE: &str = "no kernel of this name was recorded on a device";
pub(super) const NO_CODE: &str = "the log has not all generated code of it";
const NO_RUN: &str = "no operator of compiled code was recorded (tprof run --operators names)";
const NO_NUMBER: &str = "the operator around it has no number of a compilation";
const NO_STEADY_STEP: &str = "no step after warm-up compiles nothing";
const NO_GRAPH: &str = "the log has no such graph of it";

type CompiledParts = [(RankAt, RankCompiled)];

/// All of them, the most telling first.
pub(super) fn all(parts: &CompiledParts) -> Vec<Table> {
    vec![
        frames(parts),
        graph_breaks(parts),
        recompiles(parts),
        uncompiled(parts),
        graphs(parts),
        caches(parts),
        kernels(parts),
        operators(parts),
        events(parts),
    ]
}

/// What a table without rows states: that there is no log, or none of it in the log.
fn empty(parts: &CompiledParts, none: &'static str) -> &'static str {
    if parts.iter().all(|(_, part)| part.logs.is_empty()) { NO_LOG } else { none }
}

/// Shown where there are several.
pub(super) fn rank_column(parts: &CompiledParts) -> Column {
    Column::new("rank", if parts.len() > 1 { "rank" } else { "" }, Unit::Text)
}

fn nanos(us: Option<u64>, why: &str) -> Cell {
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
    let mut rows: Vec<(&RankAt, &FrameRow)> =
        parts.iter().flat_map(|(at, part)| part.frames.iter().map(move |row| (at, row))).collect();
    rows.sort_by_key(|(at, row)| (Reverse(row.frame.total_us), at.rank, row.frame.id));
    for (at, row) in rows {
        table.row(frame(at, row));
    }
    table
}

fn frame(at: &RankAt, row: &FrameRow) -> Vec<Cell> {
    let FrameRow { frame, start_ns, operators_before, operators_after, kernels } = row;
    let why = if frame.total_us.is_some() { NO_FIGURE } else { NO_END };
    let phases = frame.phases;
    let dynamo = match frame.is_backward {
        true => Cell::Empty,
        false => nanos(phases.dynamo_us, why),
    };
    let of_forward = |value: Option<u64>, why: &str| match frame.is_backward {
        true => Cell::Empty,
        false => Cell::known(value, why),
    };
    let restarts = frame.restart_reasons.join("; ");
    vec![
        at.label.as_str().into(),
        frame.id.to_string().into(),
        if frame.is_backward { "backward" } else { "forward" }.into(),
        nanos(frame.total_us, NO_END),
        dynamo,
        nanos(phases.aot_us, why),
        nanos(phases.inductor_us, why),
        nanos(phases.kernels_us, why),
        Cell::applies(phases.cuda_graphs_us.map(|us| us.saturating_mul(1000))),
        Cell::known(*start_ns, NO_CLOCK),
        Cell::from(frame.attempts),
        of_forward(frame.guards, why),
        of_forward(*operators_before, NO_GRAPH),
        Cell::known(*operators_after, NO_GRAPH),
        Cell::known(kernels.map(|kernels| kernels.0), NO_CODE),
        Cell::known(kernels.map(|kernels| kernels.1), NO_CODE),
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
    rows.sort_by_key(|(_, row)| Reverse(row.0));
    for ((file, line, reason), (count, ranks, one)) in rows {
        let hints = one.hints.join("\n");
        table.row(vec![
            count.into(),
            ranks.len().into(),
            Cell::known(file.as_deref(), NO_NAME),
            Cell::known(line, NO_NAME),
            Cell::applies(one.explanation.as_deref()),
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
            let others = row.reasons.get(1..).unwrap_or_default().join("\n");
            table.row(vec![
                at.label.as_str().into(),
                row.id.to_string().into(),
                nanos(frame.and_then(|frame| frame.total_us), NO_END),
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

fn graphs(parts: &CompiledParts) -> Table {
    let has_work = parts.iter().any(|(_, part)| part.has_work);
    let on_device = |title| if has_work { title } else { "" };
    let columns = vec![
        rank_column(parts),
        Column::new("compile_id", "id", Unit::Text),
        Column::new("direction", "graph", Unit::Text),
        Column::new("runs", "runs", Unit::Count),
        Column::new("host_ns", "host", Unit::Duration),
        Column::new("of_steps", "of steps", Unit::Share),
        Column::new("kernels", on_device("kernels"), Unit::Count),
        Column::new("device_ns", on_device("on GPU"), Unit::Duration),
        Column::data("file", Unit::Text),
        Column::data("line", Unit::Id),
        Column::new("function", "function", Unit::Name),
    ];
    let mut table = Table::new("graphs", "Runs of compiled code", columns)
        .about(
            "host: without compilation, and without other compiled code within it; of steps: its \
             share of the time of steps after warm-up that compile nothing",
        )
        .empty(empty(parts, NO_RUN));
    for (at, part) in parts {
        let frames: BTreeMap<String, &CompiledFrame> = part
            .frames
            .iter()
            .filter(|row| !row.frame.is_backward)
            .map(|row| (row.frame.id.to_string(), &row.frame))
            .collect();
        let RankGraphs { graphs, steps_ns, is_timed } = &part.graphs;
        let mut rows: Vec<_> = graphs.iter().collect();
        rows.sort_by_key(|(graph, runs)| (Reverse(runs.host_ns), *graph));
        for (graph, runs) in rows {
            let frame = graph.id.as_ref().and_then(|id| frames.get(id));
            let share = steps_ns.map(|all| runs.in_steps_ns as f64 / all as f64);
            let device = |value: u64| Cell::known(part.has_work.then_some(value), NO_WORK);
            table.row(vec![
                at.label.as_str().into(),
                Cell::known(graph.id.as_deref(), NO_NUMBER),
                if graph.is_backward { "backward" } else { "forward" }.into(),
                runs.runs.into(),
                Cell::known(is_timed.then_some(runs.host_ns), NO_CLOCK),
                Cell::known(share, NO_STEADY_STEP),
                device(runs.kernels),
                device(runs.device_ns),
                Cell::applies(frame.and_then(|frame| frame.file.as_deref())),
                Cell::applies(frame.and_then(|frame| frame.line)),
                Cell::known(frame.and_then(|frame| frame.function.as_deref()), NO_NAME),
            ]);
        }
    }
    table
}

fn caches(parts: &CompiledParts) -> Table {
    let columns = vec![
        rank_column(parts),
        Column::new("cache", "cache", Unit::Text),
        Column::new("outcome", "outcome", Unit::Text),
        Column::new("count", "times", Unit::Count),
        Column::new("why", "why", Unit::Name),
    ];
    let mut table = Table::new("caches", "Caches of compiled graphs", columns)
        .about("bypass: the cache was not asked, since the graph cannot be stored")
        .empty(empty(
            parts,
            "the log has no look-up: this PyTorch does not log them, or caches are off",
        ));
    for (at, part) in parts {
        for ((cache, outcome, why), count) in &part.caches {
            table.row(vec![
                at.label.as_str().into(),
                (*cache).into(),
                outcome.word().into(),
                (*count).into(),
                Cell::applies(why.as_deref()),
            ]);
        }
    }
    table
}

fn kernels(parts: &CompiledParts) -> Table {
    let has_work = parts.iter().any(|(_, part)| part.has_work);
    let columns = vec![
        rank_column(parts),
        Column::new("compile_id", "id", Unit::Text),
        Column::new("language", "language", Unit::Text),
        Column::new("runs", if has_work { "runs" } else { "" }, Unit::Count),
        Column::new("device_ns", if has_work { "on GPU" } else { "" }, Unit::Duration),
        Column::data("sources", Unit::Text),
        Column::data("operators", Unit::Text),
        Column::data("path", Unit::Text),
        Column::new("kernel", "kernel", Unit::Name),
    ];
    let mut table = Table::new("compiled_kernels", "Kernels of compiled code", columns)
        .about("extern: a call of a library or of an ATen operator; runs, on GPU: of all runs of that name")
        .empty(empty(parts, "the log has no generated code"));
    for (at, part) in parts {
        let mut rows: Vec<_> = part.kernels.iter().collect();
        rows.sort_by_key(|row| (Reverse(row.ran.map(|ran| ran.1)), row.language, row.id));
        for row in rows {
            let joined = |all: &[String]| Cell::applies((!all.is_empty()).then(|| all.join("\n")));
            table.row(vec![
                at.label.as_str().into(),
                row.id.to_string().into(),
                row.language.word().into(),
                Cell::known(row.ran.map(|ran| ran.0), NO_DEVICE),
                Cell::known(row.ran.map(|ran| ran.1), NO_DEVICE),
                joined(&row.sources),
                joined(&row.operators),
                Cell::applies(row.path.as_deref()),
                row.name.as_str().into(),
            ]);
        }
    }
    table
}

fn operators(parts: &CompiledParts) -> Table {
    let columns = vec![
        rank_column(parts),
        Column::new("stage", "graph", Unit::Text),
        Column::new("count", "calls", Unit::Count),
        Column::new("operator", "operator", Unit::Name),
    ];
    let mut table = Table::new("graph_operators", "Operators in compiled graphs", columns)
        .about("before: as Dynamo traced the program; after: as Inductor was given it (ATen)")
        .view(View::Data)
        .empty(empty(parts, "the log has no graph"));
    for (at, part) in parts {
        for ((stage, name), count) in &part.operators {
            let stage = match stage {
                GraphStage::Traced => "before",
                GraphStage::Lowered => "after",
            };
            let label = at.label.as_str();
            table.row(vec![label.into(), stage.into(), (*count).into(), name.as_str().into()]);
        }
    }
    table
}

fn events(parts: &CompiledParts) -> Table {
    let columns = vec![
        rank_column(parts),
        Column::data("pid", Unit::Id),
        Column::new("use", "use", Unit::Text),
        Column::new("count", "events", Unit::Count),
        Column::new("bytes", "bytes", Unit::Bytes),
        Column::data("log", Unit::Text),
        Column::data("is_cut", Unit::Flag),
        Column::new("event", "event", Unit::Name),
    ];
    let mut table = Table::new("compile_events", "Events of the log", columns)
        .about("read: its content is in this report; counted: only its number; unknown: of no known PyTorch")
        .view(View::Data)
        .empty(empty(parts, "the log has no event"));
    for (at, part) in parts {
        for log in &part.logs {
            for (name, of, count, bytes) in &log.events {
                let of = match of {
                    EventUse::Read => "read",
                    EventUse::Counted => "counted",
                    EventUse::Unknown => "unknown",
                };
                table.row(vec![
                    at.label.as_str().into(),
                    Cell::known(log.pid, "this PyTorch's log does not name its process"),
                    of.into(),
                    (*count).into(),
                    (*bytes).into(),
                    log.name.as_str().into(),
                    log.is_cut.into(),
                    name.as_str().into(),
                ]);
            }
        }
    }
    table
}
