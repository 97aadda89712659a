//! The tables of `report host`.

use rustc_hash::FxHashMap;
use tprof_document::{Cell, Column, RankContext, Table, Unit, View};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{PARTS, Part};

use crate::files::FileSums;

use super::ledger::{Ledger, WallTime};
use super::line::Place;
use super::rank_host::RankHost;
use super::steps::{OF_STEPS, StepTime};

const NO_CALLS: &str = "calls on files were not recorded";
const NO_CALL_THERE: &str = "no recorded call of the thread itself transferred bytes at this line";

type Ranks = [(RankContext, RankHost)];

/// Returns all tables of the report.
pub(super) fn all(ranks: &Ranks, why: &str) -> Vec<Table> {
    let mut tables = Vec::new();
    if ranks.len() > 1 {
        tables.push(side_by_side(ranks));
    }
    tables.push(parts(ranks, why));
    tables.push(followed(ranks));
    tables.extend([places(ranks, why), lines(ranks, why)]);
    tables.extend(steps(ranks));
    tables.extend(start_up(ranks));
    tables.push(drivers(ranks, why));
    tables
}

/// Returns the column of ranks, which people see only if there are several ranks.
fn rank_column(ranks: &Ranks) -> Column {
    Column::new("rank", if ranks.len() > 1 { "rank" } else { "" }, Unit::Id)
}

fn share(ns: u64, ledger: &Ledger) -> Cell {
    (ns as f64 / ledger.wall_ns.max(1) as f64).into()
}

fn amount(ledger: &Ledger, amount: &WallTime) -> Cell {
    match ledger.error_ns(amount) {
        0 => amount.ns.into(),
        error => Cell::Estimate { value: amount.ns.into(), error: error.into() },
    }
}

/// Columns of the table that compares ranks. Each sums one or several parts.
const GROUPS: [(&str, &str, &[Part]); 9] = [
    ("python_share", "Python", &[Part::Python, Part::Gc]),
    ("native_share", "native", &[Part::Native, Part::Allocator, Part::PageFault]),
    ("data_share", "data", &[Part::Data]),
    ("lock_share", "lock", &[Part::Gil, Part::Lock]),
    ("io_share", "I/O", &[Part::FileIo, Part::Socket]),
    ("collective_share", "coll.", &[Part::Collective]),
    ("device_share", "device", &[Part::Device]),
    ("no_core_share", "no core", &[Part::NoCore]),
    ("rest_share", "rest", &[Part::Tprof, Part::Other, Part::Unknown]),
];

fn side_by_side(ranks: &Ranks) -> Table {
    let mut columns =
        vec![Column::new("rank", "rank", Unit::Id), Column::new("wall_ns", "wall", Unit::Duration)];
    columns.extend(GROUPS.map(|(key, heading, _)| Column::new(key, heading, Unit::Share)));
    let mut table = Table::new("ranks", "Ranks side by side, shares of wall time", columns).about(
        "lock: Python's too; native: allocator and page faults too; coll.: collectives; rest: \
         waits for tprof, other waits and unknown",
    );
    for (at, host) in ranks {
        let ledger = &host.ledger;
        let mut row: Vec<Cell> = vec![Cell::applies(at.rank), ledger.wall_ns.into()];
        for (.., parts) in GROUPS {
            row.push(share(parts.iter().map(|part| ledger.ns(*part)).sum(), ledger));
        }
        table.row(row);
    }
    table
}

fn parts(ranks: &Ranks, why: &str) -> Table {
    let columns = vec![
        rank_column(ranks),
        Column::data("part", Unit::Text),
        Column::new("wall_ns", "wall", Unit::Duration),
        Column::new("share", "share", Unit::Share),
        Column::new("what", "what", Unit::Text),
        Column::data("function", Unit::Text),
        Column::data("file", Unit::Text),
        Column::data("line", Unit::Id),
        Column::functions("most", "mostly in"),
    ];
    let mut table = Table::new("parts", "Wall time of the driving thread", columns)
        .about(
            "parts that add up to the wall time; by cause, each with the line that has most of it",
        )
        .empty(why);
    for (at, host) in ranks {
        let ledger = &host.ledger;
        let mut rows: Vec<Part> = PARTS.to_vec();
        rows.retain(|part| ledger.ns(*part) > 0);
        rows.sort_rows_by_key(|part| std::cmp::Reverse(ledger.ns(*part)));
        for part in rows {
            let all = ledger.parts.get(&part).copied().unwrap_or_default();
            let most = largest_line(&ledger.places(Some(part)));
            let most = most.filter(|place| !place.function.is_empty());
            let mut row = vec![
                Cell::applies(at.rank),
                part.key().into(),
                amount(ledger, &all),
                share(all.ns, ledger),
                part.word().into(),
            ];
            row.extend(place_cells(most));
            row.push(Cell::applies(most.map(Place::shown)));
            table.row(row);
        }
    }
    table
}

/// Returns a place of the line with most time, of places that tell apart what a line calls.
fn largest_line<'a>(places: &[(&'a Place, &WallTime)]) -> Option<&'a Place> {
    let mut lines: FxHashMap<(&str, &str, u32), (u64, &'a Place)> = FxHashMap::default();
    for (place, time) in places {
        let line = (place.function.as_str(), place.file.as_str(), place.line);
        lines.entry(line).or_insert((0, place)).0 += time.ns;
    }
    lines.into_values().max_by_key(|(ns, place)| (*ns, std::cmp::Reverse(*place))).map(|of| of.1)
}

fn place_cells(place: Option<&Place>) -> [Cell; 3] {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    [
        Cell::applies(place.and_then(|place| text(&place.function))),
        Cell::applies(place.and_then(|place| text(&place.file))),
        Cell::applies(place.map(|place| place.line).filter(|line| *line > 0)),
    ]
}

/// What the driving thread read and wrote at a place where it waits in such calls; `None` for other
/// places.
fn transferred(host: &RankHost, place: &Place) -> Option<Result<FileSums, &'static str>> {
    // A line may open, write and flush, and only waits of its reads and writes have a rate.
    let moves = ["read", "write", "recv", "send"].iter().any(|word| place.below.contains(word));
    if !moves || !matches!(place.part, Part::FileIo | Part::Socket) {
        return None;
    }
    let Some(bytes) = &host.bytes else { return Some(Err(NO_CALLS)) };
    let line = place.code_line().filter(|_| place.thread.is_empty());
    let found = line.and_then(|line| bytes.at(&line, place.part == Part::Socket));
    Some(found.cloned().ok_or(NO_CALL_THERE))
}

fn places(ranks: &Ranks, why: &str) -> Table {
    let has_rate = |host: &RankHost| {
        let mut places = host.ledger.places(None).into_iter();
        places.any(|(place, _)| matches!(transferred(host, place), Some(Ok(_))))
    };
    // People see no empty column.
    let has_rates = ranks.iter().any(|(_, host)| has_rate(host));
    let rate_heading = if has_rates { "I/O rate" } else { "" };
    let columns = vec![
        rank_column(ranks),
        Column::new("wall_ns", "wall", Unit::Duration),
        Column::new("share", "share", Unit::Share),
        Column::data("part", Unit::Text),
        Column::new("what", "what", Unit::Text),
        Column::data("library", Unit::Text),
        Column::data("below", Unit::Text),
        Column::data("function", Unit::Text),
        Column::data("file", Unit::Text),
        Column::data("line", Unit::Id),
        Column::data("thread", Unit::Text),
        Column::data("bytes", Unit::Bytes),
        Column::new("bytes_per_s", rate_heading, Unit::BytesPerSecond),
        Column::functions("place", "line, and what it calls"),
    ];
    let mut table = Table::new("places", "Places, by wall time", columns)
        .about("the innermost line of the user's own code; in brackets: of that thread")
        .empty(why);
    let mut rows: Vec<(&RankContext, &RankHost, &Place, &WallTime)> = Vec::new();
    for (at, host) in ranks {
        let all = host.ledger.places(None).into_iter();
        rows.extend(all.map(|(place, amount)| (at, host, place, amount)));
    }
    rows.sort_rows_by(|a, b| (b.3.ns, a.2).cmp(&(a.3.ns, b.2)));
    for (at, host, place, all) in rows {
        let ledger = &host.ledger;
        let mut name = match place.below.is_empty() {
            true => place.shown(),
            false => format!("{} > {}", place.shown(), place.below),
        };
        if !place.thread.is_empty() {
            name.push_str(&format!(" [{}]", place.thread));
        }
        let text = |text: &str| Cell::applies((!text.is_empty()).then(|| text.to_owned()));
        let mut row = vec![
            Cell::applies(at.rank),
            amount(ledger, all),
            share(all.ns, ledger),
            place.part.key().into(),
            place.part.word().into(),
            text(&place.library),
            text(&place.below),
        ];
        row.extend(place_cells(Some(place)));
        row.push(text(&place.thread));
        match transferred(host, place) {
            None => row.extend([Cell::applies(None::<u64>), Cell::applies(None::<f64>)]),
            Some(Ok(sum)) => row.extend([sum.bytes.into(), Cell::applies(sum.rate())]),
            Some(Err(why)) => {
                row.extend([Cell::known(None::<u64>, why), Cell::known(None::<f64>, why)]);
            }
        }
        row.push(name.into());
        table.row(row);
    }
    table
}

/// Returns the table of awaited threads, which people see only if the driving thread waits for any.
fn followed(ranks: &Ranks) -> Table {
    let columns = vec![
        rank_column(ranks),
        Column::new("wall_ns", "wall", Unit::Duration),
        Column::new("share", "share", Unit::Share),
        Column::new("thread", "thread", Unit::Name),
        Column::data("part", Unit::Text),
        Column::new("what", "what it does", Unit::Text),
        Column::data("function", Unit::Text),
        Column::data("file", Unit::Text),
        Column::data("line", Unit::Id),
        Column::new("waits", "while the driving thread waits in", Unit::Name),
    ];
    let about = "of the parts above: what other threads do while the driving thread waits for that";
    let mut table =
        Table::new("followed", "Other threads that are waited for", columns).about(about);
    for (at, host) in ranks {
        let ledger = &host.ledger;
        let mut rows: Vec<_> = ledger.followed.iter().filter(|(_, all)| all.ns > 0).collect();
        rows.sort_rows_by(|a, b| (b.1.ns, a.0).cmp(&(a.1.ns, b.0)));
        for ((thread, waits, part), all) in rows {
            let mut row = vec![
                Cell::applies(at.rank),
                amount(ledger, all),
                share(all.ns, ledger),
                thread.as_str().into(),
                part.key().into(),
                part.word().into(),
            ];
            row.extend(place_cells(Some(waits)));
            row.push(waits.shown().into());
            table.row(row);
        }
    }
    match table.rows.is_empty() {
        true => table.view(View::Data),
        false => table,
    }
}

fn lines(ranks: &Ranks, why: &str) -> Table {
    let columns = vec![
        Column::data("rank", Unit::Id),
        Column::data("file", Unit::Text),
        Column::data("line", Unit::Id),
        Column::data("function", Unit::Text),
        Column::data("cpu_ns", Unit::Duration),
        Column::data("wait_ns", Unit::Duration),
    ];
    let mut table = Table::new("lines", "Lines", columns).view(View::Data).empty(why);
    for (at, host) in ranks {
        for ((file, line, function), [cpu_ns, wait_ns]) in host.lines() {
            table.row(vec![
                Cell::applies(at.rank),
                Cell::applies((!file.is_empty()).then_some(file)),
                Cell::applies((line > 0).then_some(line)),
                function.into(),
                cpu_ns.into(),
                wait_ns.into(),
            ]);
        }
    }
    table
}

/// Columns of the table of steps, one for each of [`OF_STEPS`]. People see the columns in which any
/// step has time; with the time that the step ran, they add up to the wall time.
const STEP_COLUMNS: [(&str, &str); OF_STEPS.len()] = [
    ("data_ns", "data"),
    ("gil_ns", "GIL"),
    ("lock_ns", "lock"),
    ("file_io_ns", "files"),
    ("socket_ns", "socket"),
    ("collective_ns", "coll."),
    ("device_ns", "device"),
    ("no_core_ns", "no core"),
    ("tprof_ns", "tprof"),
    ("other_ns", "other"),
    ("unknown_ns", "unknown"),
];
/// The reason why a step has no time on a core.
const NOT_SEEN: &str = "no sample saw the thread run in this step";

fn steps(ranks: &Ranks) -> Option<Table> {
    let mut columns = vec![
        rank_column(ranks),
        Column::new("step", "step", Unit::Id),
        Column::new("wall_ns", "wall", Unit::Duration),
        Column::new("running_ns", "ran", Unit::Duration),
    ];
    let all_steps = || ranks.iter().flat_map(|(_, host)| &host.steps);
    columns.extend(STEP_COLUMNS.iter().enumerate().map(|(at, (key, heading))| {
        let has_any = all_steps().any(|step| step.parts_ns[at] > 0);
        Column::new(key, if has_any { heading } else { "" }, Unit::Duration)
    }));
    let mut table = Table::new("steps", "Steps, longest first", columns).about(
        "ran: wall time without all waits; other: sleeps, children, threads, events; waits \
             below 1 ms are divided over up to 0.2 s",
    );
    let mut rows: Vec<(&RankContext, &StepTime)> = Vec::new();
    for (at, host) in ranks {
        rows.extend(host.steps.iter().map(|step| (at, step)));
    }
    rows.sort_rows_by_key(|(_, step)| std::cmp::Reverse(step.wall_ns));
    for (at, step) in rows {
        let mut row: Vec<Cell> = vec![
            Cell::applies(at.rank),
            step.number.into(),
            step.wall_ns.into(),
            step.ran_ns().map_or_else(|| Cell::missing(NOT_SEEN), Cell::from),
        ];
        row.extend(step.parts_ns.map(Cell::from));
        table.row(row);
    }
    (!table.rows.is_empty()).then_some(table)
}

fn start_up(ranks: &Ranks) -> Vec<Table> {
    let columns = vec![
        rank_column(ranks),
        Column::new("wall_ns", "wall", Unit::Duration),
        Column::new("running_ns", "ran", Unit::Duration),
        Column::data("unknown_ns", Unit::Duration),
        Column::new("imports_ns", "of it imports", Unit::Duration),
    ];
    let mut all = Table::new("start_up", "Start-up, before the judged time", columns).about(
        "from the process's beginning to the first step or batch; without these to the last of \
             the first imports",
    );
    let columns = vec![
        rank_column(ranks),
        Column::new("wall_ns", "wall", Unit::Duration),
        Column::new("share", "share", Unit::Share),
        Column::new("module", "module", Unit::Name),
    ];
    let mut modules = Table::new("imports", "Imports of start-up, by module", columns)
        .about("the outermost module, what it imports itself included; an estimate from samples");
    for (at, host) in ranks.iter().filter(|(_, host)| host.start_up.wall_ns > 0) {
        let ledger = &host.start_up;
        let rank = || Cell::applies(at.rank);
        all.row(vec![
            rank(),
            ledger.wall_ns.into(),
            ledger.running_ns.into(),
            ledger.ns(Part::Unknown).into(),
            host.imports.iter().map(|(_, ns)| ns).sum::<u64>().into(),
        ]);
        for (module, ns) in &host.imports {
            modules.row(vec![rank(), (*ns).into(), share(*ns, ledger), module.as_str().into()]);
        }
    }
    [all, modules].into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn drivers(ranks: &Ranks, why: &str) -> Table {
    let columns = vec![
        Column::data("rank", Unit::Id),
        Column::data("tid", Unit::Id),
        Column::data("thread", Unit::Text),
        Column::data("judged_from", Unit::Text),
        Column::data("start_ns", Unit::Time),
        Column::data("end_ns", Unit::Time),
        Column::data("wall_ns", Unit::Duration),
        Column::data("start_up_ns", Unit::Duration),
        Column::data("outside_ns", Unit::Duration),
    ];
    let mut table = Table::new("drivers", "Driving threads", columns).view(View::Data).empty(why);
    for (at, host) in ranks {
        let window = host.life.window;
        table.row(vec![
            Cell::applies(at.rank),
            host.driver.tid.into(),
            host.driver.name.as_str().into(),
            host.life.start.words().into(),
            at.clock.since_start(window.start).into(),
            at.clock.since_start(window.end).into(),
            host.ledger.wall_ns.into(),
            host.start_up.wall_ns.into(),
            host.outside_ns().into(),
        ]);
    }
    table
}
