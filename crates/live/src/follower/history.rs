//! Stores the history of a run's metrics: a value per recent poll, and for the time before a value
//! per stretch (see `history`).

use std::collections::BTreeMap;

use super::Follower;
use crate::files::RunFiles;
use crate::heat;
use crate::history::{STRETCHES, to_f64};
use crate::metric::Metric;
use crate::rank::Rank;
use crate::snapshot::{Heat, History, MetricValues};

/// Number of polls in the history.
const HISTORY_POLLS: usize = 300;
/// Number of ranks in the history.
const HISTORY_RANKS: usize = 32;
/// Metrics that are computed at a poll. The values of all other metrics are in the files, with
/// their times.
const POLLED: [Metric; 5] =
    [Metric::Steps, Metric::StepsPerSecond, Metric::SinceStep, Metric::CpuCores, Metric::Lost];

impl<F: RunFiles> Follower<F> {
    /// Stores the values of a poll.
    pub(super) fn record_poll(&mut self, time_ns: u64, is_running: bool, metrics: &[MetricValues]) {
        if !is_running {
            return;
        }
        self.ticks.push_back(time_ns);
        if self.ticks.len() > HISTORY_POLLS {
            self.ticks.pop_front();
        }
        let scale = self.scale;
        for (at, rank) in self.ranks.iter_mut().enumerate() {
            let value = |metric: &MetricValues| metric.values[at].unwrap_or(f64::NAN);
            for place in POLLED.map(Metric::place) {
                let value = value(&metrics[place]);
                if !value.is_nan() {
                    rank.courses.add(scale, place, time_ns, value);
                }
            }
            if at < HISTORY_RANKS {
                let values = metrics.iter().map(|metric| value(metric) as f32).collect();
                rank.recent.push_back((time_ns, values));
                if rank.recent.len() > HISTORY_POLLS {
                    rank.recent.pop_front();
                }
            }
        }
        self.widen(time_ns);
    }

    /// Returns the history of the metrics: the values of recent polls, preceded by one value per
    /// stretch from the files.
    pub fn history(&self) -> History {
        let first_ns = self.ticks.front().copied().unwrap_or(u64::MAX);
        let width_ns = self.scale.width_ns;
        let until = first_ns.min(self.last.time_ns.saturating_add(width_ns)) / width_ns;
        let until = (until as usize).min(STRETCHES);
        let stretches = until.saturating_sub(HISTORY_POLLS - self.ticks.len())..until;
        let ends = stretches.clone().map(|at| (at as u64 + 1).saturating_mul(width_ns));
        let times_ns: Vec<u64> = ends.chain(self.ticks.iter().copied()).collect();
        let of_rank = |rank: &Rank, place: usize| -> Vec<Option<f64>> {
            let course = rank.courses.of(place);
            let before = stretches.clone().map(|at| course.and_then(|course| to_f64(course[at])));
            let mut polls: BTreeMap<u64, &[f32]> = BTreeMap::new();
            polls.extend(rank.recent.iter().map(|(time_ns, values)| (*time_ns, &values[..])));
            let at_tick = |tick: &u64| to_f64(*polls.get(tick)?.get(place)?);
            before.chain(self.ticks.iter().map(at_tick)).collect()
        };
        let mut series = BTreeMap::new();
        for (place, metric) in self.last.metrics.iter().enumerate() {
            let ranks = self.ranks.iter().take(HISTORY_RANKS);
            let all: Vec<_> = ranks.map(|rank| of_rank(rank, place)).collect();
            if all.iter().flatten().any(Option::is_some) {
                series.insert(metric.key.clone(), all);
            }
        }
        History { times_ns, series }
    }

    /// Returns a metric of all ranks over time, folded to at most 256 rows and 200 columns.
    ///
    /// `metric` is a key of the snapshot.
    pub fn heat(&self, metric: &str) -> Heat {
        let found = self.last.metrics.iter().position(|of| of.key == metric);
        let Some(place) = found else {
            let known: Vec<&str> = self.last.metrics.iter().map(|of| of.key.as_str()).collect();
            let missing = format!("there is no number `{metric}`: there are {}", known.join(", "));
            return Heat { missing: Some(missing), ..heat::empty(metric, "none") };
        };
        let courses: Vec<_> = self.ranks.iter().map(|rank| rank.courses.of(place)).collect();
        let labels = &self.last.ranks;
        let of = &self.last.metrics[place];
        heat::heat(of, labels, &courses, self.scale, self.last.time_ns)
    }
}
