//! Makes the tables of threads (time, switches and faults, counted events), and the table of
//! processes.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_document::{Cell, Column, FoldedRows, RankContext, Table, Unit, View};
use tprof_facts::units;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{Func, NO_SAMPLES, word};
use tprof_trace::model::{ThreadCounts, ThreadState};

use super::cells::{estimated, shown};
use super::counted_tables::{self, RequestedByRanks};
use super::thread_row::{ThreadRow, WAITS};

/// Most names of idle threads that are listed.
const MOST_NAMES: usize = 8;
/// The reason why switches are not known.
const NO_SWITCHES: &str =
    "records of switches were lost or off for a while, or perf events are refused";
/// The reason why faults are not known.
const NO_FAULTS: &str = "the thread was short-lived, called exec, or its counters were unreadable";

/// The reason why switches and faults of a cycle are not known.
const NOT_BY_CYCLE: &str =
    "switches and faults are counted over a thread's life, not by part of the run";

/// How threads are displayed.
#[derive(Clone, Copy)]
pub(super) struct ThreadsShown {
    /// Whether each thread is shown with its rank, since there are several ranks.
    pub ranked: bool,
    /// Whether the times cover only a cycle.
    pub cycle: bool,
}

/// Time of each thread.
pub(super) fn threads(all: &[(RankContext, ThreadRow)], shown: ThreadsShown) -> Table {
    let mut columns = vec![
        Column::new("running_ns", "ran", Unit::Duration),
        Column::new("ready_ns", "ready", Unit::Duration),
        Column::new("waited_ns", "waited", Unit::Duration),
        Column::data("lock_ns", Unit::Duration),
        Column::data("io_ns", Unit::Duration),
        Column::data("sleep_ns", Unit::Duration),
        Column::data("poll_ns", Unit::Duration),
        Column::data("gil_ns", Unit::Duration),
        Column::data("device_ns", Unit::Duration),
        Column::data("other_ns", Unit::Duration),
        Column::data("held_gil_ns", Unit::Duration),
        Column::data("voluntary_switches", Unit::Count),
        Column::data("involuntary_switches", Unit::Count),
        Column::data("migrations", Unit::Count),
        Column::data("minor_faults", Unit::Count),
        Column::data("major_faults", Unit::Count),
        Column::data("samples", Unit::Count),
        Column::data("ran_in", Unit::Text),
        Column::new("most_for", "mostly", Unit::Text),
        Column::data("waited_in", Unit::Text),
        Column::data("rank", Unit::Id),
        Column::data("pid", Unit::Id),
        Column::new("tid", "tid", Unit::Id),
        Column::data("program", Unit::Text),
        Column::data("name", Unit::Text),
    ];
    columns.push(Column::new("thread", "thread", Unit::Name));
    let about = match shown.cycle {
        false => {
            "whole lives, start-up included; ready: able to run, no free core; mostly: main cause \
             of waiting"
        }
        true => {
            "samples and waits that began in this part; ready: able to run, no free core; mostly: \
             main cause of waiting"
        }
    };
    let mut table =
        Table::new("threads", "Threads, by time on a core", columns).about(about).empty(NO_SAMPLES);
    for (at, row) in all {
        table.row(cells(at, row, shown));
    }
    table.folded = idle(all);
    table
}

/// Folds the idle threads, which are last, into one line.
fn idle(all: &[(RankContext, ThreadRow)]) -> Option<FoldedRows> {
    let from = all.iter().position(|(_, row)| row.is_idle())?;
    let idle = &all[from..];
    if idle.len() < 2 {
        return None;
    }
    let mut names: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, row) in idle {
        let name = row.name.as_deref().unwrap_or(&row.program);
        *names
            .entry(name.trim_end_matches(|c: char| c.is_ascii_digit() || "-_#".contains(c)))
            .or_default() += 1;
    }
    let mut names: Vec<(&str, u64)> = names.into_iter().collect();
    names.sort_rows_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    let left_out = names.len().saturating_sub(MOST_NAMES);
    let mut shown: Vec<String> = (names.iter().take(MOST_NAMES))
        .map(
            |(name, count)| if *count > 1 { format!("{count} {name}") } else { (*name).to_owned() },
        )
        .collect();
    shown.extend((left_out > 0).then(|| format!("{left_out} more names")));
    let ran = idle.iter().map(|(_, row)| row.time(ThreadState::Running)).sum();
    let line = format!(
        "and {} idle threads, on a core for {} together: {}",
        units::count(idle.len() as u64),
        units::duration(ran),
        shown.join(", ")
    );
    Some(FoldedRows { from, line })
}

/// The cells of switches, migrations and faults.
fn counted(counts: &ThreadCounts, shown: ThreadsShown) -> [Cell; 5] {
    let of = |value: Option<u64>, why| match shown.cycle {
        true => Cell::missing(NOT_BY_CYCLE),
        false => Cell::known(value, why),
    };
    [
        of(counts.voluntary, NO_SWITCHES),
        of(counts.involuntary, NO_SWITCHES),
        of(counts.migrations, NO_SWITCHES),
        of(counts.minor_faults, NO_FAULTS),
        of(counts.major_faults, NO_FAULTS),
    ]
}

/// Columns of context switches and page faults.
const COUNTED: [Column; 5] = [
    Column::new("voluntary_switches", "waits", Unit::Count),
    Column::new("involuntary_switches", "preempted", Unit::Count),
    Column::new("migrations", "moved", Unit::Count),
    Column::new("minor_faults", "faults", Unit::Count),
    Column::new("major_faults", "from disk", Unit::Count),
];

/// Context switches and page faults of each thread.
pub(super) fn switches(all: &[(RankContext, ThreadRow)], shown: ThreadsShown) -> Table {
    let mut columns = COUNTED.to_vec();
    columns.extend([
        Column::data("pid", Unit::Id),
        Column::new("tid", "tid", Unit::Id),
        Column::new("thread", "thread", Unit::Name),
    ]);
    let mut table = Table::new("switches", "Switches and page faults of threads", columns)
        .about(
            "waits, preempted, moved: times it left its core to wait, by preemption, or came back \
             on another; faults: pages touched first; from disk: pages read",
        )
        .empty(NO_SAMPLES);
    let sum = |row: &ThreadRow| {
        let counts = &row.counts;
        let all = [counts.voluntary, counts.involuntary, counts.minor_faults, counts.major_faults];
        all.into_iter().flatten().sum::<u64>()
    };
    let mut sorted: Vec<&(RankContext, ThreadRow)> = all.iter().collect();
    sorted.sort_rows_by_key(|(_, row)| std::cmp::Reverse(sum(row)));
    for (at, row) in sorted {
        let mut cells = counted(&row.counts, shown).to_vec();
        cells.extend([row.pid.into(), row.tid.into(), name_of(at, row, shown.ranked).into()]);
        table.row(cells);
    }
    // Rows in which all counts are unknown are left out.
    let known = |(_, row): &(RankContext, ThreadRow)| {
        let counts = &row.counts;
        counts.voluntary.is_some() || counts.minor_faults.is_some()
    };
    match !shown.cycle && all.iter().any(known) {
        true => table,
        false => table.view(View::Data),
    }
}

/// The tables of the events that were counted in threads.
pub(super) fn events(
    all: &[(RankContext, ThreadRow)],
    shown: ThreadsShown,
    asked: &RequestedByRanks<'_>,
) -> Vec<Table> {
    let names = |(at, row): &(RankContext, ThreadRow)| {
        vec![row.pid.into(), row.tid.into(), name_of(at, row, shown.ranked).into()]
    };
    let rows = all.iter().map(|of| (names(of), &of.1.events)).collect();
    counted_tables::of_threads(rows, asked)
}

/// Threads added up by process; a value that is unknown for one thread is unknown for the process.
pub(super) fn processes(all: &[(RankContext, ThreadRow)], shown: ThreadsShown) -> Table {
    let mut columns = vec![
        Column::new("running_ns", "ran", Unit::Duration),
        Column::data("ready_ns", Unit::Duration),
        Column::data("waited_ns", Unit::Duration),
    ];
    columns.extend(COUNTED);
    columns.extend([
        Column::data("threads", Unit::Count),
        Column::data("rank", Unit::Id),
        Column::new("pid", "pid", Unit::Id),
        Column::data("program", Unit::Text),
        Column::new("process", "process", Unit::Name),
    ]);
    let mut table =
        Table::new("processes", "Processes, their threads added up", columns).empty(NO_SAMPLES);
    let mut sums: Vec<(&RankContext, &ThreadRow, [u64; 4], ThreadCounts)> = Vec::new();
    for (at, row) in all {
        let time =
            [row.time(ThreadState::Running), row.time(ThreadState::Runnable), row.waited_ns(), 1];
        let same = |(of, other, ..): &&mut (&RankContext, &ThreadRow, _, _)| {
            other.process == row.process && of.label == at.label
        };
        match sums.iter_mut().find(same) {
            None => sums.push((at, row, time, row.counts)),
            Some((.., times, counts)) => {
                times.iter_mut().zip(time).for_each(|(sum, more)| *sum += more);
                *counts = both(counts, &row.counts);
            }
        }
    }
    sums.sort_rows_by_key(|(_, _, time, _)| std::cmp::Reverse(time[0]));
    for (at, row, time, counts) in sums {
        let name = match shown.ranked {
            true => format!("{}, {}", at.label, row.program),
            false => row.program.clone(),
        };
        let mut cells: Vec<Cell> = time[..3].iter().map(|ns| Cell::from(*ns)).collect();
        cells.extend(counted(&counts, shown));
        cells.extend([
            time[3].into(),
            Cell::applies(at.rank),
            row.pid.into(),
            row.program.clone().into(),
            name.into(),
        ]);
        table.row(cells);
    }
    table
}

fn both(a: &ThreadCounts, b: &ThreadCounts) -> ThreadCounts {
    let sum = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
    ThreadCounts {
        voluntary: sum(a.voluntary, b.voluntary),
        involuntary: sum(a.involuntary, b.involuntary),
        migrations: sum(a.migrations, b.migrations),
        minor_faults: sum(a.minor_faults, b.minor_faults),
        major_faults: sum(a.major_faults, b.major_faults),
        ..*a
    }
}

/// A row of the table of times.
fn cells(at: &RankContext, row: &ThreadRow, how: ThreadsShown) -> Vec<Cell> {
    let mut cells: Vec<Cell> = vec![
        row.time(ThreadState::Running).into(),
        row.time(ThreadState::Runnable).into(),
        row.waited_ns().into(),
    ];
    let variance = |state| row.variance.get(state).copied().unwrap_or(0.0);
    cells.extend(WAITS.iter().map(|state| estimated(row.time(*state), variance(state))));
    let largest = |map: &FxHashMap<Func, u64>| {
        let most = map.iter().max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.name.cmp(&a.0.name)));
        most.map(|(func, _)| shown(func))
    };
    let waited = (row.waited.iter())
        .max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.1.name.cmp(&a.0.1.name)))
        .map(|((_, func), _)| shown(func));
    let mostly = WAITS.iter().filter(|s| row.time(**s) > 0).max_by_key(|s| row.time(**s));
    cells.extend([Cell::known(row.gil_ns, "Python's lock was not recorded")]);
    cells.extend(counted(&row.counts, how));
    cells.extend([
        row.samples.into(),
        Cell::known(largest(&row.ran), "no stack was sampled"),
        Cell::applies(mostly.map(|state| word(*state))),
        Cell::known(waited, "no stack was taken during its waits"),
        Cell::applies(at.rank),
        row.pid.into(),
        row.tid.into(),
        row.program.clone().into(),
        Cell::known(row.name.clone(), "it has no name"),
        name_of(at, row, how.ranked).into(),
    ]);
    cells
}

/// A thread's displayed name. A thread without a name of its own has its program's name, which the
/// kernel cuts off.
fn name_of(at: &RankContext, row: &ThreadRow, ranked: bool) -> String {
    let own = row.name.as_deref().filter(|name| !row.program.starts_with(*name));
    let name = match own {
        Some(own) => format!("{own} of {}", row.program),
        None => row.program.clone(),
    };
    if ranked { format!("{}, {name}", at.label) } else { name }
}
