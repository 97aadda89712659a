//! Builds a snapshot from the data read so far: state, events, stalls and metrics of all ranks.

use nix::time::{ClockId, clock_gettime};
use tprof_facts::units::count;
use tprof_trace::run::RunInfo;

use super::{Follower, MOST_EVENTS};
use crate::figures::{RankFigures, compare};
use crate::files::RunFiles;
use crate::metric::{GAUGE, Metric, unit_of};
use crate::pace::StalledSteps;
use crate::rank::{Rank, RankEvent, earlier_start};
use crate::snapshot::{
    Event, EventKind, MetricValues, RankState, RunState, Snapshot, Stall, VERSION,
};

/// A run without any info file counts as running while the newest data of one of its files is
/// younger than this.
const FRESH_NS: u64 = 10_000_000_000;

impl<F: RunFiles> Follower<F> {
    pub(super) fn build_snapshot(
        &mut self,
        unix_ns: u64,
        rank_events: Vec<(String, RankEvent)>,
    ) -> Snapshot {
        for info in self.infos.iter() {
            self.zero = earlier_start(self.zero, info.start_unix_ns);
        }
        let state = self.infos.state(self.is_fresh(unix_ns));
        let is_running = state == RunState::Running;
        let time_ns = match is_running {
            true => unix_ns.saturating_sub(self.zero.unix_ns),
            false => self.end_ns(),
        };
        let rank_times = self.rank_times(unix_ns, time_ns, is_running);
        let mut events: Vec<Event> = Vec::new();
        for (name, one) in rank_events {
            if let Some(at) = self.ranks.iter().position(|rank| rank.name == name) {
                events.push(self.event(at, one));
            }
        }
        let mut stalls = Vec::new();
        for (at, now_ns) in rank_times.iter().enumerate() {
            let (stalled, new) = self.ranks[at].update_stall(*now_ns, is_running);
            events.extend(new.map(|one| self.event(at, one)));
            stalls.extend(stalled.map(|stalled| self.stall(at, stalled)));
        }
        events.extend(self.new_losses(time_ns));
        events.sort_by_key(|event| event.time_ns);
        // A mark of the whole run is in each of the run's files, but should appear as one event.
        events.dedup_by(|a, b| a.rank.is_none() && a == b);
        self.events.extend(events.iter().cloned());
        self.events.drain(..self.events.len().saturating_sub(MOST_EVENTS));
        events.drain(..events.len().saturating_sub(MOST_EVENTS));
        let mut figures: Vec<RankFigures> = self.ranks.iter().map(Rank::current_figures).collect();
        compare(&mut figures);
        let metrics = self.metrics(&rank_times);
        self.record_poll(time_ns, is_running, &metrics);
        let recording = self.ranks.iter().filter_map(Rank::recording).reduce(|a, b| a || b);
        let mut totals = self.infos.totals();
        totals.bytes = self.ranks.iter().map(Rank::bytes).sum();
        totals.damaged = self.ranks.iter().map(Rank::damaged).sum();
        Snapshot {
            version: VERSION,
            state,
            command: self.infos.command(),
            time_ns,
            start_unix_ns: self.zero.unix_ns,
            recording,
            totals,
            ranks: rank_times
                .iter()
                .enumerate()
                .map(|(at, now_ns)| self.state(at, *now_ns))
                .collect(),
            metrics,
            figures,
            stalls,
            events,
            history: None,
            verdict: None,
        }
    }

    /// Whether an open file has data from the last ten seconds. If no collector has written an info
    /// file, this decides whether the run is in progress.
    fn is_fresh(&self, unix_ns: u64) -> bool {
        self.ranks.iter().any(|rank| {
            let clock = rank.clock(self.zero);
            let newest_ns = self.zero.unix_ns.saturating_add(clock.since_start(rank.last_ns()));
            !rank.is_closed() && newest_ns.saturating_add(FRESH_NS) > unix_ns
        })
    }

    /// Returns when a finished run ended, on the run's clock.
    fn end_ns(&self) -> u64 {
        let of_info =
            |info: &RunInfo| Some(self.zero.clock_of_info(info).since_start(info.end_ns?));
        let ends = self.infos.iter().filter_map(of_info);
        let newest =
            self.ranks.iter().map(|rank| rank.clock(self.zero).since_start(rank.last_ns()));
        ends.max().or(newest.max()).unwrap_or(0)
    }

    /// Returns the current time on the clock of each file.
    fn rank_times(&self, unix_ns: u64, time_ns: u64, is_running: bool) -> Vec<u64> {
        let here = self.infos.files_of_this_host();
        let own_ns = clock_gettime(ClockId::CLOCK_MONOTONIC).ok().map(|now| {
            (now.tv_sec() as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec() as u64)
        });
        let now = |rank: &Rank| {
            let clock = rank.clock(self.zero);
            match own_ns.filter(|_| is_running && here.contains(rank.name.as_str())) {
                Some(own_ns) => own_ns,
                None if is_running => clock.file_ns(unix_ns.saturating_sub(self.zero.unix_ns)),
                None => clock.file_ns(time_ns),
            }
        };
        self.ranks.iter().map(now).collect()
    }

    fn event(&self, at: usize, one: RankEvent) -> Event {
        let time_ns = self.ranks[at].clock(self.zero).since_start(one.time_ns);
        let (rank, label) = match one.of_run {
            true => (None, "run".to_owned()),
            false => (self.labels[at].rank, self.labels[at].label.to_string()),
        };
        Event { time_ns, rank, label, kind: one.kind, text: one.text }
    }

    fn stall(&self, at: usize, stalled: StalledSteps) -> Stall {
        let StalledSteps { since_ns, for_ns, usual_ns, step, .. } = stalled;
        Stall {
            rank: self.labels[at].rank,
            label: self.labels[at].label.to_string(),
            since_ns: self.ranks[at].clock(self.zero).since_start(since_ns),
            for_ns,
            usual_ns,
            step,
            what: self.ranks[at].activity(&stalled),
        }
    }

    /// Returns an event for each loss that is new or has doubled since it was last reported.
    fn new_losses(&mut self, time_ns: u64) -> Vec<Event> {
        let mut events = Vec::new();
        for ((host, what, why), lost) in self.infos.losses() {
            let key = (host.to_owned(), what.to_owned(), why.to_owned());
            let known = self.losses.get(&key).copied();
            if known.is_some_and(|known| lost < known.saturating_mul(2).max(1)) {
                continue;
            }
            let number = if lost > 0 { format!("{} ", count(lost)) } else { String::new() };
            let text = format!("lost: {number}{what}: {why}");
            let (rank, label, kind) = (None, format!("host {host}"), EventKind::Loss);
            events.push(Event { time_ns, rank, label, kind, text });
            self.losses.insert(key, lost);
        }
        events
    }

    fn state(&self, at: usize, now_ns: u64) -> RankState {
        let (rank, label) = (&self.ranks[at], &self.labels[at]);
        let newest_ns = Some(rank.last_ns()).filter(|ns| *ns > 0);
        RankState {
            rank: label.rank,
            label: label.label.to_string(),
            host: rank.header().map(|header| header.host.clone()).unwrap_or_default(),
            file: rank.name.clone(),
            processes: rank.readings.running() as u64,
            ended: rank.readings.ended(),
            recording: rank.recording(),
            behind_ns: newest_ns.map(|newest_ns| now_ns.saturating_sub(newest_ns)),
            problem: rank.error.clone(),
            out_of_memory: rank.failed_requests.state(|ns| rank.clock(self.zero).since_start(ns)),
        }
    }

    fn metrics(&mut self, rank_times: &[u64]) -> Vec<MetricValues> {
        let lost: Vec<Option<f64>> = {
            let known = self.infos.lost();
            let of = |rank: &Rank| known.get(rank.name.as_str()).map(|lost| *lost as f64);
            self.ranks.iter().map(of).collect()
        };
        let mut all = Vec::new();
        for metric in Metric::ALL {
            let values = match metric {
                Metric::Lost => lost.clone(),
                _ => {
                    let ranks = self.ranks.iter_mut().zip(rank_times);
                    ranks.map(|(rank, now_ns)| rank.value(metric, *now_ns)).collect()
                }
            };
            all.push(values_of(
                metric.key(),
                metric.unit(),
                metric.about(),
                values,
                metric.missing(),
            ));
        }
        for name in &self.gauges {
            let of = |rank: &Rank| rank.readings.gauges().get(name).copied();
            let values = self.ranks.iter().map(of).collect();
            let about = format!("`{name}` of the program, last value");
            let key = format!("{GAUGE}{name}");
            all.push(values_of(&key, unit_of(name), &about, values, "no rank has a value"));
        }
        all
    }
}

fn values_of(
    key: &str,
    unit: &str,
    about: &str,
    values: Vec<Option<f64>>,
    missing: &str,
) -> MetricValues {
    let why = values.iter().all(Option::is_none).then(|| missing.to_owned());
    MetricValues {
        key: key.to_owned(),
        unit: unit.to_owned(),
        about: about.to_owned(),
        values,
        why,
    }
}
