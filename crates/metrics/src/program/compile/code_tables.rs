//! Makes the tables of `compile` on compiled code: its runs, caches, kernels and operators, and the
//! events of the log.

use std::cmp::Reverse;
use tprof_rank::base::sort_rows::SortRows;

use tprof_document::{Cell, Column, Table, Unit, View};
use tprof_trace::compile_log::{EventUse, GraphStage};

use super::graphs::RankGraphs;
use super::words::{CompiledParts, NO_CLOCK, NO_NAME, SEVERAL, by_number, empty, rank_column};
use crate::gpu::breakdown::NO_WORK;

const NO_DEVICE: &str = "no kernel of this name was recorded on a device";
const NO_RUN: &str = "no operator of compiled code was recorded (tprof run --operators names)";
const NO_NUMBER: &str = "the operator around it has no number of a compilation";
const NO_STEADY_STEP: &str = "no step after warm-up compiles nothing";

/// Makes all tables on generated code.
pub(super) fn all(parts: &CompiledParts) -> Vec<Table> {
    vec![graphs(parts), caches(parts), kernels(parts), operators(parts), events(parts)]
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
        let frames = by_number(part.frames.iter().map(|row| &row.frame));
        let RankGraphs { graphs, steps_ns, is_timed } = &part.graphs;
        let mut rows: Vec<_> = graphs.iter().collect();
        rows.sort_rows_by_key(|(graph, runs)| (Reverse(runs.host_ns), *graph));
        for (graph, runs) in rows {
            let found = graph.id.as_ref().and_then(|id| frames.get(&**id));
            let frame = found.copied().flatten();
            let no_name = if found == Some(&None) { SEVERAL } else { NO_NAME };
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
                Cell::known(frame.and_then(|frame| frame.function.as_deref()), no_name),
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
        rows.sort_rows_by_key(|row| (Reverse(row.ran.map(|ran| ran.1)), row.language, row.id));
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
