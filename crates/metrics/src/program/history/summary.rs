//! Makes a rank's part of the report of its rows.

use tprof_document::RankContext;
use tprof_facts::history::{self, Energy};
use tprof_trace::model::{HistoryRow, HistorySource};

use super::cells::{Cells, quantile};
use super::changes::{ChangeKind, SeriesChange, changes, spikes};
use super::figures::Figure;

/// The history of a rank, as far as the report needs it. Times are since the run began.
#[derive(Clone, Debug, Default)]
pub struct RankHistory {
    /// How many rows the rank's history has.
    pub count: usize,
    /// How many of them were computed from events now.
    pub computed: usize,
    /// Time of devices that came too late for its rows, ns.
    pub late_ns: u64,
    /// Where the steps come from, in the order in which they did.
    pub sources: Vec<HistorySource>,
    /// Beginning of the first row and end of the last one, ns.
    pub extent_ns: Option<(u64, u64)>,
    /// How many steps these rows stand for.
    pub steps: u64,
    /// Median of the steps, ns.
    pub median_ns: Option<u64>,
    /// What 95 % of the steps do not exceed, ns.
    pub most_ns: Option<u64>,
    /// Duration of the slowest step, ns, its number, and when its row began.
    pub slowest: Option<(u64, u64, u64)>,
    /// Energy that the devices took in the rows with steps.
    pub step_energy: Option<Energy>,
    /// How many steps these rows have.
    pub energy_steps: u64,
    /// The rows by time.
    pub cells: Cells,
    /// Where a figure changed.
    pub changes: Vec<FigureChange>,
    /// All rows, if they were asked for, with the times at which they begin.
    pub rows: Vec<(u64, HistoryRow)>,
}

/// A change of a figure of a rank. Times are since the run began.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureChange {
    /// The figure that changed.
    pub figure: Figure,
    /// The change of its values; indexes are those of the rows in which it is known.
    pub change: SeriesChange,
    /// When it changed, and when it was back, ns.
    pub from_ns: u64,
    pub until_ns: Option<u64>,
    /// The step with which it changed; `None` for a rank without steps.
    pub step: Option<u64>,
}

impl RankHistory {
    /// Makes the part of a rank.
    pub fn of(history: history::RankHistory, at: &RankContext, keeps_rows: bool) -> RankHistory {
        let rows = &history.rows;
        let time_ns = |row: &HistoryRow| at.clock.since_start(row.start_ns);
        let mut sources: Vec<HistorySource> = Vec::new();
        for row in rows.iter().filter(|row| row.steps > 0) {
            if sources.last() != Some(&row.source) {
                sources.push(row.source);
            }
        }
        let slowest = rows.iter().filter(|row| row.steps > 0).max_by_key(|row| row.longest_ns);
        let mut steps: Vec<(u64, u64)> = rows.iter().flat_map(step_times).collect();
        let end = rows.iter().max_by_key(|row| row.end_ns());
        let in_steps = || {
            let known = rows.iter().filter(|row| row.steps > 0);
            known.filter_map(|row| Some((Energy::of(row)?, row.steps)))
        };
        RankHistory {
            count: rows.len(),
            computed: history.computed,
            late_ns: history.late_ns,
            sources,
            extent_ns: rows
                .first()
                .zip(end)
                .map(|(first, last)| (time_ns(first), at.clock.since_start(last.end_ns()))),
            steps: rows.iter().map(|row| row.steps).sum(),
            median_ns: quantile(&mut steps, 0.5),
            most_ns: quantile(&mut steps, 0.95),
            step_energy: in_steps().map(|(energy, _)| energy).reduce(Energy::plus),
            energy_steps: in_steps().map(|(_, steps)| steps).sum(),
            slowest: slowest.map(|row| (row.longest_ns, row.longest_step, time_ns(row))),
            cells: Cells::of(rows.iter().map(|row| (time_ns(row), row))),
            changes: figure_changes(rows, at),
            rows: match keeps_rows {
                true => rows.iter().map(|row| (time_ns(row), *row)).collect(),
                false => Vec::new(),
            },
        }
    }
}

/// Returns the durations of a row's steps, with their numbers. Of several steps the shortest, the
/// median and the longest are known; all others count as the median.
fn step_times(row: &HistoryRow) -> impl Iterator<Item = (u64, u64)> {
    let times = match row.steps {
        0 => [(0, 0); 3],
        1 => [(row.longest_ns, 1), (0, 0), (0, 0)],
        2 => [(row.shortest_ns, 1), (row.longest_ns, 1), (0, 0)],
        steps => [(row.shortest_ns, 1), (row.median_ns, steps - 2), (row.longest_ns, 1)],
    };
    times.into_iter().filter(|(_, count)| *count > 0)
}

/// Finds the changes of all figures. Steps from another source are another series.
fn figure_changes(rows: &[HistoryRow], at: &RankContext) -> Vec<FigureChange> {
    let mut found = Vec::new();
    for rows in rows.chunk_by(|a, b| a.source == b.source) {
        for figure in Figure::OF_RANK {
            let known: Vec<(&HistoryRow, f64)> =
                rows.iter().filter_map(|row| Some((row, figure.of(row)?))).collect();
            let values: Vec<f64> = known.iter().map(|(_, value)| *value).collect();
            let mut of = changes(&values, figure.effect());
            if figure == Figure::StepTime {
                of.extend(slow_steps(rows));
            }
            found.extend(of.into_iter().filter_map(|change| {
                let row = known.get(change.from)?.0;
                let until = change.until.and_then(|until| known.get(until));
                let is_spike = change.kind == ChangeKind::Spike;
                let step = if is_spike { row.longest_step } else { row.first_step };
                let until_ns = match is_spike {
                    true => Some(row.end_ns()),
                    false => until.map(|until| until.0.start_ns),
                };
                Some(FigureChange {
                    figure,
                    change,
                    from_ns: at.clock.since_start(row.start_ns),
                    until_ns: until_ns.map(|ns| at.clock.since_start(ns)),
                    step: (row.steps > 0).then_some(step),
                })
            }));
        }
    }
    found
}

/// Returns the steps that are extreme.
fn slow_steps(rows: &[HistoryRow]) -> Vec<SeriesChange> {
    let longest: Vec<f64> =
        rows.iter().filter(|row| row.steps > 0).map(|row| row.longest_ns as f64).collect();
    spikes(&longest)
}
