//! State of the screen: the newest snapshot, the history of its metrics, the selection and the sort
//! order.

use std::collections::{BTreeMap, VecDeque};

use crate::metric::Metric;
use crate::snapshot::{Event, MetricValues, RankState, Snapshot};

/// Number of values to keep per rank, for the chart.
const MOST_VALUES: usize = 300;
/// Number of events to keep.
const MOST_EVENTS: usize = 200;

/// Sort orders of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Stalled ranks first, then those that ended badly, then by step time, slow first.
    #[default]
    Worst,
    /// By rank number.
    Rank,
    /// By the selected metric, largest first.
    Metric,
}

impl Order {
    /// Returns the word that the screen shows.
    pub fn word(self) -> &'static str {
        match self {
            Order::Worst => "worst first",
            Order::Rank => "by rank",
            Order::Metric => "by metric",
        }
    }

    fn next(self) -> Order {
        match self {
            Order::Worst => Order::Rank,
            Order::Rank => Order::Metric,
            Order::Metric => Order::Worst,
        }
    }
}

/// State of the screen.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The newest snapshot.
    pub now: Snapshot,
    /// The last events, in order.
    pub events: VecDeque<Event>,
    /// History of values by file, then by metric index.
    courses: BTreeMap<String, VecDeque<Vec<f32>>>,
    /// File of the selected rank; `None` for the first in order.
    selected: Option<String>,
    /// Key of the selected metric.
    metric: Option<String>,
    /// How ranks are sorted.
    pub order: Order,
    /// Whether the help on keys is shown.
    pub help: bool,
    /// Whether no more snapshots will come.
    pub is_over: bool,
    /// Why the snapshots ended although the run goes on.
    pub ended: Option<String>,
}

impl View {
    /// Stores the next snapshot.
    pub fn take(&mut self, mut snapshot: Snapshot) {
        if let Some(history) = snapshot.history.take() {
            self.events.clear();
            self.courses.clear();
            self.fill(&snapshot, &history);
        }
        self.events.extend(snapshot.events.iter().cloned());
        let surplus = self.events.len().saturating_sub(MOST_EVENTS);
        self.events.drain(..surplus);
        let files: Vec<&str> = snapshot.ranks.iter().map(|rank| rank.file.as_str()).collect();
        self.courses.retain(|file, _| files.contains(&file.as_str()));
        for (at, file) in files.into_iter().enumerate() {
            let value = |metric: &MetricValues| metric.values.get(at).copied().flatten();
            let values =
                snapshot.metrics.iter().map(|metric| value(metric).map_or(f32::NAN, |v| v as f32));
            push(self.courses.entry(file.to_owned()).or_default(), values.collect());
        }
        self.now = snapshot;
    }

    /// Fills in the history of each metric, which the first snapshot contains.
    fn fill(&mut self, snapshot: &Snapshot, history: &crate::snapshot::History) {
        for (at, rank) in snapshot.ranks.iter().enumerate() {
            let course = self.courses.entry(rank.file.clone()).or_default();
            // The last moment of the history is the snapshot itself.
            for moment in 0..history.times_ns.len().saturating_sub(1) {
                let value = |metric: &MetricValues| {
                    let of_rank = history.series.get(&metric.key)?.get(at)?;
                    of_rank.get(moment).copied().flatten()
                };
                let values = snapshot.metrics.iter();
                push(course, values.map(|of| value(of).map_or(f32::NAN, |v| v as f32)).collect());
            }
        }
    }

    /// Returns the indexes of ranks in the displayed order.
    pub fn order(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.now.ranks.len()).collect();
        match self.order {
            Order::Rank => {}
            Order::Worst => places.sort_by_key(|at| {
                let rank = &self.now.ranks[*at];
                let slow = self.number(*at, Metric::StepTime.key()).unwrap_or(0.0) as u64;
                let stalled = self.stalled_for(rank).unwrap_or(0);
                (std::cmp::Reverse((stalled, ended_badly(rank), slow)), *at)
            }),
            Order::Metric => {
                let key = self.metric().map(|metric| metric.key.clone()).unwrap_or_default();
                let value = |at: usize| self.number(at, &key).unwrap_or(f64::NEG_INFINITY);
                places.sort_by(|a, b| value(*b).total_cmp(&value(*a)).then(a.cmp(b)));
            }
        }
        places
    }

    /// Returns for how long a rank has had no step, if it is stalled.
    pub fn stalled_for(&self, rank: &RankState) -> Option<u64> {
        let stall = self.now.stalls.iter().find(|stall| stall.label == rank.label);
        stall.map(|stall| stall.for_ns)
    }

    /// Returns the value of a metric for a rank, by the rank's index and the metric's key.
    pub fn number(&self, at: usize, key: &str) -> Option<f64> {
        let metric = self.now.metrics.iter().find(|metric| metric.key == key)?;
        metric.values.get(at).copied().flatten()
    }

    /// Returns the selected metric. If none was selected, it is the step time, else RSS, if they
    /// are known.
    pub fn metric(&self) -> Option<&MetricValues> {
        let all = &self.now.metrics;
        let chosen = self.metric.as_ref().and_then(|key| all.iter().find(|of| of.key == *key));
        let known = |key: &str| all.iter().find(|of| of.key == key && of.why.is_none());
        chosen
            .or_else(|| known(Metric::StepTime.key()))
            .or_else(|| known(Metric::Rss.key()))
            .or_else(|| all.first())
    }

    /// Selects the next metric with a known value.
    pub fn next_metric(&mut self) {
        let known: Vec<&str> = (self.now.metrics.iter())
            .filter(|metric| metric.why.is_none())
            .map(|metric| metric.key.as_str())
            .collect();
        let now = self.metric().map(|metric| metric.key.as_str());
        let at = known.iter().position(|key| Some(*key) == now).map_or(0, |at| at + 1);
        self.metric = known.get(at % known.len().max(1)).map(|key| (*key).to_owned());
    }

    /// Selects the next sort order.
    pub fn next_order(&mut self) {
        self.order = self.order.next();
    }

    /// Returns the index of the selected rank: the first in order if none was selected.
    pub fn selected(&self, order: &[usize]) -> Option<usize> {
        let file = self.selected.as_ref();
        let found = file.and_then(|file| self.now.ranks.iter().position(|rank| rank.file == *file));
        found.or_else(|| order.first().copied())
    }

    /// Moves the selection by a number of lines.
    pub fn move_by(&mut self, lines: isize) {
        let order = self.order();
        let Some(selected) = self.selected(&order) else { return };
        let line = order.iter().position(|at| *at == selected).unwrap_or(0);
        let line = line.saturating_add_signed(lines).min(order.len() - 1);
        self.selected = self.now.ranks.get(order[line]).map(|rank| rank.file.clone());
    }

    /// Returns the history of the selected metric for a rank, newest last.
    pub fn course(&self, at: usize) -> Vec<Option<f64>> {
        let key = self.metric().map(|metric| metric.key.as_str());
        let place = self.now.metrics.iter().position(|metric| Some(metric.key.as_str()) == key);
        let (Some(place), Some(rank)) = (place, self.now.ranks.get(at)) else { return Vec::new() };
        let known = |values: &Vec<f32>| {
            values.get(place).copied().map(f64::from).filter(|value| value.is_finite())
        };
        self.courses.get(&rank.file).into_iter().flatten().map(known).collect()
    }
}

fn push(course: &mut VecDeque<Vec<f32>>, values: Vec<f32>) {
    course.push_back(values);
    if course.len() > MOST_VALUES {
        course.pop_front();
    }
}

/// Whether a rank ended abnormally.
pub fn ended_badly(rank: &RankState) -> bool {
    rank.problem.is_some() || rank.ended.as_ref().is_some_and(|end| end != "exit 0")
}
