//! The table of ranks: the columns that fit, and their cells.

use tprof_facts::units;

use super::cells::{UNKNOWN, clean, value};
use super::view::{View, ended_badly};
use crate::metric::Metric;

/// The state column shows the age of a rank's newest data if the age exceeds this.
const BEHIND_NS: u64 = 5_000_000_000;

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Label of the rank.
    Label,
    /// A metric of the run.
    Of(Metric),
    /// State of the rank.
    State,
}

/// Returns a metric's title, width and priority. If the terminal is narrow, columns with the
/// largest priority number are left out first.
fn shape(metric: Metric) -> (&'static str, usize, u8) {
    match metric {
        Metric::StepTime => ("STEP", 9, 0),
        Metric::StepsPerSecond => ("STEPS/S", 8, 1),
        Metric::Rss => ("RSS", 9, 2),
        Metric::GpuUtilization => ("GPU", 7, 3),
        Metric::SinceStep => ("SINCE", 9, 4),
        Metric::CpuCores => ("CORES", 6, 5),
        Metric::Lost => ("LOST", 6, 6),
        Metric::GpuPower => ("POWER", 6, 7),
        Metric::GpuMemory => ("GPU MEM", 9, 8),
        Metric::Heap => ("HEAP", 9, 9),
        Metric::Steps => ("STEPS", 8, 10),
    }
}

/// Width of the column of labels.
const LABEL_WIDTH: usize = 16;
/// Width of the column of states.
const STATE_WIDTH: usize = 14;

impl Column {
    /// Returns the column's title.
    pub fn title(self) -> &'static str {
        match self {
            Column::Label => "RANK",
            Column::Of(metric) => shape(metric).0,
            Column::State => "STATE",
        }
    }

    /// Returns the width of the column's cells in characters.
    pub fn width(self) -> usize {
        match self {
            Column::Label => LABEL_WIDTH,
            Column::Of(metric) => shape(metric).1,
            Column::State => STATE_WIDTH,
        }
    }

    /// Whether the column's cells are numbers, which are aligned to the right.
    pub fn is_number(self) -> bool {
        matches!(self, Column::Of(_))
    }
}

/// Returns the columns that fit into a width, each with a space before it. Columns without a known
/// value are left out.
pub fn columns(view: &View, width: usize) -> Vec<Column> {
    let is_known = |metric: &Metric| {
        let found = view.now.metrics.iter().find(|of| of.key == metric.key());
        found.is_some_and(|of| of.why.is_none())
    };
    let order = [
        Metric::StepsPerSecond,
        Metric::StepTime,
        Metric::SinceStep,
        Metric::Steps,
        Metric::Rss,
        Metric::Heap,
        Metric::CpuCores,
        Metric::GpuUtilization,
        Metric::GpuMemory,
        Metric::GpuPower,
        Metric::Lost,
    ];
    let mut shown: Vec<Metric> = order.into_iter().filter(is_known).collect();
    let needed = |shown: &[Metric]| -> usize {
        shown.iter().map(|metric| shape(*metric).1 + 1).sum::<usize>()
            + LABEL_WIDTH
            + STATE_WIDTH
            + 2
    };
    while needed(&shown) > width {
        let last = shown.iter().copied().max_by_key(|metric| shape(*metric).2);
        let Some(last) = last else { break };
        shown.retain(|metric| *metric != last);
    }
    let numbers = shown.into_iter().map(Column::Of);
    std::iter::once(Column::Label).chain(numbers).chain([Column::State]).collect()
}

/// Returns the text of a rank's cell in a column.
pub fn cell(view: &View, at: usize, column: Column) -> String {
    match column {
        Column::Label => clean(&view.now.ranks[at].label),
        Column::Of(metric) => value(view.number(at, metric.key()), metric.unit()),
        Column::State => state(view, at),
    }
}

/// Describes the state of a rank in a word or two.
fn state(view: &View, at: usize) -> String {
    let rank = &view.now.ranks[at];
    if rank.problem.is_some() {
        return "unreadable".to_owned();
    }
    if let Some(end) = &rank.ended {
        return clean(end);
    }
    if view.stalled_for(rank).is_some() {
        return "stalled".to_owned();
    }
    match (rank.recording, rank.behind_ns) {
        (None, _) => UNKNOWN.to_owned(),
        (Some(false), _) => "not recorded".to_owned(),
        (_, Some(behind_ns)) if behind_ns > BEHIND_NS => {
            format!("{} old", units::duration(behind_ns))
        }
        _ => "ok".to_owned(),
    }
}

/// How much attention a row needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Nothing needs attention.
    Plain,
    /// The rank is over.
    Faint,
    /// Something is wrong.
    Alarming,
}

/// Returns the tone of a rank's row.
pub fn tone(view: &View, at: usize) -> Tone {
    let rank = &view.now.ranks[at];
    if ended_badly(rank) || view.stalled_for(rank).is_some() {
        return Tone::Alarming;
    }
    if rank.ended.is_some() { Tone::Faint } else { Tone::Plain }
}
