//! Makes the tables of the report `critical-path`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tprof_document::{Body, Cell, Column, Options, RankContext, Table, Unit, View};

use super::path::{Bound, PathTimes, Share};

/// Columns of the times by bound: the bounds that a column sums, the key of its time, the key of
/// its share, and the heading of its share.
const BOUNDS: [(&[Bound], &str, &str, &str); 7] = [
    (&[Bound::Host, Bound::Untraced], "host_ns", "host", "host"),
    (&[Bound::Compute], "compute_ns", "compute", "compute"),
    (&[Bound::Communication], "communication_ns", "communication", "comm"),
    (&[Bound::Copy], "copy_ns", "copy", "copy"),
    (&[Bound::Launch, Bound::Return], "launch_ns", "launch", "launch"),
    (&[Bound::KernelGap], "kernel_gap_ns", "kernel_gap", "gaps"),
    (&[Bound::Unknown], "unknown_ns", "unknown", "unknown"),
];

/// Makes the report's body from all ranks.
pub(super) fn body(parts: &[(RankContext, Option<PathTimes>)], options: &Options) -> Body {
    let found: Vec<(&RankContext, &PathTimes)> =
        parts.iter().filter_map(|(at, sums)| Some((at, sums.as_ref()?))).collect();
    let mut tables =
        vec![by_rank(&found, options), names(&found, options), longest(&found, options)];
    if options.hta {
        tables.push(counts(&found));
    }
    Body { tables, notes: notes(parts, options) }
}

fn empty(options: &Options) -> String {
    match &options.within {
        Some(within) => format!("no annotation or NVTX range has `{within}` in its name"),
        None => "no operators, calls or device work were recorded".to_owned(),
    }
}

fn notes(parts: &[(RankContext, Option<PathTimes>)], options: &Options) -> Vec<String> {
    let without = parts.iter().filter(|(_, sums)| sums.is_none()).count();
    let mut notes = Vec::new();
    if without > 0 && without < parts.len() {
        notes.push(format!("{without} ranks have no path: {}", empty(options)));
    }
    notes
}

fn by_rank(found: &[(&RankContext, &PathTimes)], options: &Options) -> Table {
    let mut columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("length_ns", "length", Unit::Duration),
    ];
    for (_, key, share, heading) in BOUNDS {
        columns.push(Column::data(key, Unit::Duration));
        columns.push(Column::new(share, heading, Unit::Share));
    }
    columns.push(Column::data("untraced_ns", Unit::Duration));
    let about = "through the steps where there are any; shares of the path's length. launch: from a \
                 launch to its kernel, and from the end of work to the return of the waiting call; gaps: \
                 before queued kernels";
    let mut table = Table::new("critical_path", "Critical path", columns)
        .about(if options.hta { "" } else { about })
        .empty(empty(options));
    for (at, sums) in found {
        let length_ns = sums.length_ns();
        let share = |time_ns: u64| {
            let share = (length_ns > 0).then(|| time_ns as f64 / length_ns as f64);
            Cell::known(share, "the path has no length")
        };
        let time = |bounds: &[Bound]| -> u64 {
            bounds
                .iter()
                .filter_map(|bound| sums.bounds.get(bound))
                .map(|share| share.time_ns)
                .sum()
        };
        let mut cells: Vec<Cell> = vec![at.label.as_str().into(), length_ns.into()];
        for (bounds, ..) in BOUNDS {
            cells.extend([time(bounds).into(), share(time(bounds))]);
        }
        cells.push(time(&[Bound::Untraced]).into());
        table.row(cells);
    }
    table
}

fn names(found: &[(&RankContext, &PathTimes)], options: &Options) -> Table {
    let columns = vec![
        Column::new("time_ns", "time", Unit::Duration),
        Column::new("share", "share", Unit::Share),
        Column::new("parts", "parts", Unit::Count),
        Column::new("bound_by", "bound by", Unit::Text),
        Column::new("name", "name", Unit::Name),
    ];
    let mut all: BTreeMap<(Bound, &str), Share> = BTreeMap::new();
    let mut length_ns = 0;
    for (_, sums) in found {
        length_ns += sums.length_ns();
        for ((bound, name), share) in &sums.names {
            all.entry((*bound, name)).or_default().add(share.time_ns, share.parts);
        }
    }
    let mut table = Table::new("critical_path_names", "Parts of the path", columns)
        .about("a launch and a gap have the name of the waiting kernel")
        .empty(empty(options));
    let mut rows: Vec<((Bound, &str), Share)> = all.into_iter().collect();
    rows.retain(|(_, share)| share.time_ns > 0);
    rows.sort_by_key(|(key, share)| (Reverse(share.time_ns), *key));
    for ((bound, name), share) in rows {
        table.row(vec![
            share.time_ns.into(),
            (share.time_ns as f64 / length_ns.max(1) as f64).into(),
            share.parts.into(),
            bound.name().into(),
            name.into(),
        ]);
    }
    table
}

/// Makes the table of the longest parts in order of time, for programs and for opening in a
/// timeline.
fn longest(found: &[(&RankContext, &PathTimes)], options: &Options) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("start_ns", "start", Unit::Time),
        Column::new("duration_ns", "time", Unit::Duration),
        Column::new("bound_by", "bound by", Unit::Text),
        Column::new("name", "name", Unit::Name),
    ];
    let mut table = Table::new("critical_path_parts", "Longest parts of the path", columns)
        .view(View::Data)
        .empty(empty(options));
    for (at, sums) in found {
        for (interval, bound, name) in &sums.parts {
            table.row(vec![
                at.label.as_str().into(),
                at.clock.since_start(interval.start).into(),
                interval.length().into(),
                bound.name().into(),
                name.as_str().into(),
            ]);
        }
    }
    table
}

fn counts(found: &[(&RankContext, &PathTimes)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("nodes", "nodes", Unit::Count),
        Column::new("edges", "edges", Unit::Count),
        Column::new("path_nodes", "on the path", Unit::Count),
    ];
    let mut table = Table::new("critical_path_graph", "HTA's graph", columns)
        .empty("the graph could not be made, or has a cycle");
    for (at, sums) in found {
        if let Some([nodes, edges, path_nodes]) = sums.counts {
            let label = at.label.as_str().into();
            table.row(vec![label, nodes.into(), edges.into(), path_nodes.into()]);
        }
    }
    table
}
