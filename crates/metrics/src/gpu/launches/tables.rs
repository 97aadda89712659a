//! Makes the tables of launches: by call, by graph, and one by one.

use std::cmp::Reverse;
use tprof_rank::base::sort_rows::SortRows;

use tprof_document::{Cell, Column, RankContext, Table, Unit, View};

use super::{CallLaunches, RankLaunches};

/// The reason that the report gives when it has no rows.
const NO_LAUNCHES: &str = "no call with a recorded kernel or copy was recorded";

pub(super) fn by_call(parts: &[(RankContext, RankLaunches)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("calls", "calls", Unit::Count),
        Column::data("work", Unit::Count),
        Column::data("call_total_ns", Unit::Duration),
        Column::new("call_median_ns", "call", Unit::Duration),
        Column::data("call_p99_ns", Unit::Duration),
        Column::data("call_max_ns", Unit::Duration),
        Column::new("delay_median_ns", "delay", Unit::Duration),
        Column::data("delay_p99_ns", Unit::Duration),
        Column::data("delay_max_ns", Unit::Duration),
        Column::new("short", "short", Unit::Count),
        Column::new("long_calls", "long", Unit::Count),
        Column::new("long_delays", "late", Unit::Count),
        Column::new("name", "by", Unit::Name),
    ];
    let mut table = Table::new("launches", "Calls that start work", columns)
        .about(
            "medians; delay: from a call's end to its work's start; short: calls longer than their \
             work; long: calls over 50 us; late: delays over 100 us",
        )
        .empty(NO_LAUNCHES);
    let mut rows: Vec<(&RankContext, &CallLaunches)> =
        parts.iter().flat_map(|(at, part)| part.calls.iter().map(move |row| (at, row))).collect();
    rows.sort_rows_by_key(|(_, row)| Reverse(row.call_ns.total_ns));
    for (at, row) in rows {
        table.row(vec![
            at.label.as_str().into(),
            row.calls.into(),
            row.work.into(),
            row.call_ns.total_ns.into(),
            row.call_ns.median_ns.into(),
            row.call_ns.p99_ns.into(),
            row.call_ns.max_ns.into(),
            row.delay_ns.median_ns.into(),
            row.delay_ns.p99_ns.into(),
            row.delay_ns.max_ns.into(),
            row.short.into(),
            row.long_calls.into(),
            row.long_delays.into(),
            (&*row.name).into(),
        ]);
    }
    table
}

pub(super) fn by_graph(parts: &[(RankContext, RankLaunches)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("graph", "graph", Unit::Id),
        Column::new("nodes", "nodes", Unit::Count),
        Column::new("launches", "launches", Unit::Count),
        Column::new("call_ns", "in calls", Unit::Duration),
        Column::new("span_ns", "on the GPU", Unit::Duration),
        Column::new("work_ns", "of it working", Unit::Duration),
    ];
    let mut table = Table::new("graphs", "Graph launches", columns)
        .about("on the GPU: first kernel's start to last one's end, summed over launches");
    for (at, part) in parts {
        for row in &part.graphs {
            table.row(vec![
                at.label.as_str().into(),
                Cell::known(row.graph, "the trace has no numbers of graphs"),
                row.nodes.into(),
                row.launches.into(),
                row.call_ns.into(),
                row.span_ns.into(),
                row.work_ns.into(),
            ]);
        }
    }
    table
}

pub(super) fn each(parts: &[(RankContext, RankLaunches)]) -> Table {
    let columns = vec![
        Column::new("start_ns", "start", Unit::Time),
        Column::new("correlation", "correlation", Unit::Id),
        Column::new("call_ns", "call", Unit::Duration),
        Column::new("work_ns", "work", Unit::Duration),
        Column::new("delay_ns", "delay", Unit::Duration),
        Column::new("name", "call", Unit::Name),
    ];
    let mut table = Table::new("each", "Launches", columns).view(View::Data).empty(NO_LAUNCHES);
    for (at, part) in parts {
        for (name, launch) in &part.each {
            table.row(vec![
                at.clock.since_start(launch.start_ns).into(),
                launch.correlation.into(),
                launch.call_ns.into(),
                launch.work_ns.into(),
                launch.delay_ns.into(),
                (&**name).into(),
            ]);
        }
    }
    table
}
