//! Makes the tables of time by source line. The table for people lists functions, each with its
//! lines below it. The table for JSON and CSV has one row for each line.

use rustc_hash::FxHashMap;
use tprof_document::{Cell, Column, SortBy, Table, Unit, View};
use tprof_facts::functions::source_line;
use tprof_facts::sources::{NoSource, Sources};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{Func, Layer};

use super::cells::{sampled, short_path, shown};
use super::lines::{FunctionLines, LineTime, Lines};

/// Most lines that are displayed below a function.
const MOST_LINES: usize = 5;
/// The table for people leaves out a line if its time is less than its function's time divided by
/// this.
const LEAST_SHARE: u64 = 50;
/// Most files that a note lists.
const MOST_FILES: usize = 3;

/// The reason why a function has no line.
const NO_LINE: &str = "its code has no line information: compile with -g";

/// The quantity by which lines are ordered.
fn key(sort: SortBy) -> fn(&LineTime) -> u64 {
    match sort {
        SortBy::SelfTime => |time| time.self_ns,
        SortBy::Total => |time| time.total_ns,
        SortBy::Waited => |time| time.self_waited_ns,
    }
}

/// The lines of a function, the largest first.
fn lines_of(sum: &FunctionLines, sort: SortBy) -> Vec<(u32, &LineTime)> {
    let key = key(sort);
    let mut lines: Vec<_> = sum.lines.iter().map(|(line, time)| (*line, time)).collect();
    lines.sort_rows_by_key(|(line, time)| {
        (std::cmp::Reverse((key(time), time.self_ns, time.total_ns, time.waited_ns)), *line)
    });
    lines
}

/// The table for people: each function, followed by the lines that have most of its time.
pub(super) fn by_function(lines: &Lines, sort: SortBy, sources: &mut Sources, why: &str) -> Table {
    let columns = vec![
        Column::new("self_ns", "self", Unit::Duration),
        Column::new("self_share", "share", Unit::Share),
        Column::new("total_ns", "total", Unit::Duration),
        Column::new("self_waited_ns", "waited", Unit::Duration),
        Column::data("depth", Unit::Count),
        Column::functions("place", "function and lines"),
    ];
    let title = format!("Functions and their lines, by {}", sort.words());
    let mut table = Table::new("line_functions", title, columns)
        .about(
            "self, waited: code without lines of its own included; libraries that only pass \
             calls on are left out",
        )
        .view(View::Groups)
        .empty(why);
    let key = key(sort);
    for (func, sum) in lines.folded(key) {
        table.row(row(lines, &sum.time, 0, place(func, sum)));
        let least = (key(&sum.time) / LEAST_SHARE).max(1);
        let of = lines_of(sum, sort).into_iter();
        for (line, time) in
            of.filter(|(line, time)| *line > 0 && key(time) >= least).take(MOST_LINES)
        {
            let text = sources.line(&func.file, line).unwrap_or_default();
            table.row(row(lines, time, 1, source_line(line, text)));
        }
    }
    table
}

fn row(lines: &Lines, time: &LineTime, depth: u64, place: String) -> Vec<Cell> {
    vec![
        sampled(time.self_ns, time.self_samples),
        (time.self_ns as f64 / lines.running_ns.max(1) as f64).into(),
        sampled(time.total_ns, time.total_samples),
        time.self_waited_ns.into(),
        depth.into(),
        place.into(),
    ]
}

/// A function with its file, or with its module if it has no file.
fn place(func: &Func, sum: &FunctionLines) -> String {
    match func.layer {
        Layer::Native if !func.file.is_empty() && sum.lines.keys().any(|line| *line > 0) => {
            format!("{} ({})", func.name, short_path(&func.file))
        }
        Layer::Native if !func.module.is_empty() => format!("{} ({})", func.name, func.module),
        _ => shown(func),
    }
}

/// The table for programs: one row for each line.
pub(super) fn flat(lines: &Lines, sort: SortBy, sources: &mut Sources, why: &str) -> Table {
    let columns = vec![
        Column::data("self_ns", Unit::Duration),
        Column::data("self_share", Unit::Share),
        Column::data("total_ns", Unit::Duration),
        Column::data("self_waited_ns", Unit::Duration),
        Column::data("waited_ns", Unit::Duration),
        Column::data("samples", Unit::Count),
        Column::data("layer", Unit::Text),
        Column::data("module", Unit::Text),
        Column::data("file", Unit::Text),
        Column::data("line", Unit::Id),
        Column::data("own", Unit::Flag),
        Column::data("source", Unit::Text),
        Column::data("function", Unit::Name),
    ];
    let mut table = Table::new("lines", format!("Lines, by {}", sort.words()), columns)
        .view(View::Data)
        .empty(why);
    let functions = lines.functions.iter();
    let mut all: Vec<(&Func, u32, &LineTime)> = functions
        .flat_map(|(func, sum)| sum.lines.iter().map(move |(line, time)| (func, *line, time)))
        .collect();
    let key = key(sort);
    all.sort_rows_by(|(a, a_line, a_time), (b, b_line, b_time)| {
        let times = |time: &LineTime| (key(time), time.self_ns, time.total_ns, time.waited_ns);
        times(b_time)
            .cmp(&times(a_time))
            .then_with(|| (&a.file, a_line, &a.name).cmp(&(&b.file, b_line, &b.name)))
    });
    for (func, line, time) in all {
        let file: Cell = match func.file.is_empty() {
            true => Cell::missing("no debug information names its file"),
            false => func.file.to_string().into(),
        };
        let source: Cell = match (line, sources.line(&func.file, line)) {
            (0, _) => Cell::missing(NO_LINE),
            (_, Ok(text)) => text.into(),
            (_, Err(why)) => Cell::missing(why.to_string()),
        };
        table.row(vec![
            sampled(time.self_ns, time.self_samples),
            (time.self_ns as f64 / lines.running_ns.max(1) as f64).into(),
            sampled(time.total_ns, time.total_samples),
            time.self_waited_ns.into(),
            time.waited_ns.into(),
            time.self_samples.into(),
            func.layer.word().into(),
            func.module.to_string().into(),
            file,
            Cell::known((line > 0).then_some(line), NO_LINE),
            func.is_own().into(),
            source,
            func.name.to_string().into(),
        ]);
    }
    table
}

/// Returns notes on the user's own files whose source is not shown, one note for each reason.
pub(super) fn without_source(lines: &Lines, sources: &mut Sources) -> Vec<String> {
    let mut files: FxHashMap<(NoSource, &str), u64> = FxHashMap::default();
    for (func, sum) in lines.functions.iter().filter(|(func, _)| func.is_own()) {
        let Some(line) = sum.lines.keys().find(|line| **line > 0) else { continue };
        if let Err(why) = sources.line(&func.file, *line) {
            let time = sum.time.self_ns + sum.time.self_waited_ns;
            *files.entry((why, &*func.file)).or_default() += time;
        }
    }
    files.retain(|(why, _), _| *why != NoSource::NoFile);
    let mut reasons: Vec<NoSource> = files.keys().map(|(why, _)| *why).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let note = |why: NoSource| {
        let mut of: Vec<_> = files.iter().filter(|((reason, _), _)| *reason == why).collect();
        of.sort_rows_by_key(|((_, file), ns)| (std::cmp::Reverse(**ns), *file));
        let mut names: Vec<&str> =
            of.iter().take(MOST_FILES).map(|((_, file), _)| short_path(file)).collect();
        let more = format!("{} more", of.len().saturating_sub(MOST_FILES));
        if of.len() > MOST_FILES {
            names.push(&more);
        }
        format!("the source of {} is not shown: {why}", names.join(", "))
    };
    reasons.into_iter().map(note).collect()
}
