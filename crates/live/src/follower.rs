//! All ranks of a run: one poll a second by one thread reads what came, and gives a snapshot.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::time::{ClockId, clock_gettime};
use tprof_facts::units::count;
use tprof_facts::zero::Zero;
use tprof_trace::run::RunInfo;
use tprof_trace::{RankFile, RankLabel, TailDecoder};

use crate::files::{FileEntry, RunFiles};
use crate::heat;
use crate::history::{LEAST_NS, STRETCHES, Scale, wide};
use crate::infos::Infos;
use crate::metric::{GAUGE, MOST_GAUGES, Metric, unit_of};
use crate::pace::Standing;
use crate::rank::{Context, Happened, Rank, earlier};
use crate::snapshot::{
    Event, EventKind, Heat, History, MetricValues, RankState, RunState, Snapshot, Stall, VERSION,
};

/// Files of one run that are followed.
const MOST_FILES: usize = 8192;
/// Events that are kept.
const MOST_EVENTS: usize = 200;
/// Moments of the history, and ranks in it.
const HISTORY_POLLS: usize = 300;
const HISTORY_RANKS: usize = 32;
/// A poll that finds a lot to read goes on in the next one after this time.
const LONGEST: Duration = Duration::from_millis(700);
/// A file that was closed is checked in one of so many polls.
const CLOSED_POLLS: u64 = 16;
/// A run without any info counts as running while a file of it is so fresh.
const FRESH_NS: u64 = 10_000_000_000;

/// Follows one run.
#[derive(Debug)]
pub struct Follower<F> {
    files: F,
    decoder: Option<TailDecoder>,
    infos: Infos,
    /// In the order of the snapshot.
    ranks: Vec<Rank>,
    labels: Vec<RankFile>,
    /// What the labels follow from.
    labelled: (Vec<String>, usize),
    gauges: Vec<String>,
    scale: Scale,
    zero: Zero,
    polls: u64,
    next: usize,
    ticks: VecDeque<u64>,
    events: VecDeque<Event>,
    losses: BTreeMap<(String, String, String), u64>,
    last: Snapshot,
}

impl<F: RunFiles> Follower<F> {
    /// Of a run that was not read yet.
    pub fn new(files: F) -> Follower<F> {
        Follower {
            files,
            decoder: TailDecoder::new().ok(),
            infos: Infos::default(),
            ranks: Vec::new(),
            labels: Vec::new(),
            labelled: Default::default(),
            gauges: Vec::new(),
            scale: Scale::default(),
            zero: Zero::default(),
            polls: 0,
            next: 0,
            ticks: VecDeque::new(),
            events: VecDeque::new(),
            losses: BTreeMap::new(),
            last: Snapshot::default(),
        }
    }

    /// Reads what came since the last poll: once a second, by one thread.
    ///
    /// A directory that cannot be listed now gives what is known of the run.
    pub fn poll(&mut self) -> Snapshot {
        if let Ok(entries) = self.files.list() {
            self.infos.poll(&self.files, &entries);
            self.match_files(entries);
        }
        let unix_ns = unix_now_ns();
        // By name: labels put ranks into another order.
        let happened = self.read(unix_ns).into_iter();
        let happened = happened.map(|(at, one)| (self.ranks[at].name.clone(), one)).collect();
        self.polls += 1;
        self.label();
        self.last = self.made(unix_ns, happened);
        self.last.clone()
    }

    /// The last snapshot with the last 200 events and the course of its numbers.
    pub fn with_history(&self) -> Snapshot {
        Snapshot {
            events: self.events.iter().cloned().collect(),
            history: Some(self.history()),
            ..self.last.clone()
        }
    }

    /// Whether a poll right away would find more of what is there already.
    pub fn has_more(&self) -> bool {
        self.ranks.iter().any(|rank| rank.more)
    }

    /// Ranks by their files: a file that was renamed is known by its inode.
    fn match_files(&mut self, entries: Vec<FileEntry>) {
        let mut files: BTreeMap<(u64, String), FileEntry> = BTreeMap::new();
        for entry in entries.into_iter().filter(|entry| entry.name.ends_with(".tprof")) {
            let name = if entry.inode == 0 { entry.name.clone() } else { String::new() };
            if files.len() < MOST_FILES {
                files.insert((entry.inode, name), entry);
            }
        }
        self.ranks.retain_mut(|rank| {
            let name = if rank.inode == 0 { rank.name.clone() } else { String::new() };
            match files.remove(&(rank.inode, name)) {
                Some(entry) => {
                    rank.name = entry.name;
                    true
                }
                None => false,
            }
        });
        for entry in files.into_values() {
            self.ranks.push(Rank::new(entry.name, entry.inode));
        }
    }

    /// Reads files that grew, for a while: the poll after goes on where this one stopped.
    fn read(&mut self, unix_ns: u64) -> Vec<(usize, Happened)> {
        let begun = Instant::now();
        let mut happened = Vec::new();
        let (count, first) = (self.ranks.len(), self.next);
        for at in (0..count).map(|turn| (first + turn) % count) {
            let rank = &self.ranks[at];
            let is_due = (self.polls + at as u64).is_multiple_of(CLOSED_POLLS);
            if rank.is_closed() && !rank.more && !is_due {
                continue;
            }
            let file = match self.files.open(&rank.name) {
                Ok(file) => file,
                Err(error) => {
                    self.ranks[at].error = Some(format!("it cannot be opened: {error}"));
                    continue;
                }
            };
            while self.read_part(at, &file, unix_ns, &mut happened) && begun.elapsed() < LONGEST {}
            if begun.elapsed() >= LONGEST {
                self.next = (at + 1) % count;
                break;
            }
        }
        happened
    }

    /// Reads a part of a file; whether there is more.
    fn read_part(
        &mut self,
        at: usize,
        file: &File,
        unix_ns: u64,
        happened: &mut Vec<(usize, Happened)>,
    ) -> bool {
        let gauges = &mut self.gauges;
        // Without memory for one, the next poll tries again.
        if self.decoder.is_none() {
            self.decoder = TailDecoder::new().ok();
        }
        let Some(decoder) = &mut self.decoder else { return false };
        let mut context = Context {
            zero: self.zero,
            scale: self.scale,
            limit_unix_ns: unix_ns.saturating_add(LEAST_NS),
            decoder,
            gauge: &mut |name| place_of(gauges, name),
        };
        let rank = &mut self.ranks[at];
        let new = rank.read(file, &mut context);
        self.zero = context.zero;
        happened.extend(new.into_iter().map(|one| (at, one)));
        if happened.len() > 4 * MOST_EVENTS {
            happened.drain(..happened.len() - 2 * MOST_EVENTS);
        }
        let (more, beyond_ns) = (rank.more, rank.courses.beyond_ns());
        if let Some(beyond_ns) = beyond_ns {
            self.widen(beyond_ns);
        }
        more
    }

    /// Makes stretches long enough for a moment.
    fn widen(&mut self, until_ns: u64) {
        while self.scale.place(until_ns).is_none() {
            self.scale.width_ns = self.scale.width_ns.saturating_mul(2);
            self.ranks.iter_mut().for_each(|rank| rank.courses.widen());
        }
        self.ranks.iter_mut().for_each(|rank| rank.courses.settle(self.scale));
    }

    /// Labels files, and puts ranks in their order.
    fn label(&mut self) {
        let names: Vec<String> = self.ranks.iter().map(|rank| rank.name.clone()).collect();
        let headers = self.ranks.iter().filter(|rank| rank.header().is_some()).count();
        let known: usize = self.infos.iter().map(|info| info.ranks.len() + 1).sum();
        if self.labelled == (names.clone(), known + headers) {
            return;
        }
        let mut labels: Vec<RankFile> = self.ranks.iter().map(label_of).collect();
        let infos: Vec<_> = self.infos.iter().cloned().collect();
        RankFile::settle(&mut labels, &infos);
        let places: BTreeMap<PathBuf, usize> =
            labels.iter().zip(0..).map(|(file, at)| (file.path.clone(), at)).collect();
        self.ranks.sort_by_key(|rank| places.get(Path::new(&rank.name)).copied());
        self.labels = labels;
        let names = self.ranks.iter().map(|rank| rank.name.clone()).collect();
        self.labelled = (names, known + headers);
    }

    fn made(&mut self, unix_ns: u64, happened: Vec<(String, Happened)>) -> Snapshot {
        for info in self.infos.iter() {
            self.zero = earlier(self.zero, info.start_unix_ns);
        }
        let state = self.infos.state(self.is_fresh(unix_ns));
        let is_running = state == RunState::Running;
        let time_ns = match is_running {
            true => unix_ns.saturating_sub(self.zero.unix_ns),
            false => self.end_ns(),
        };
        let nows = self.nows(unix_ns, time_ns, is_running);
        let mut events: Vec<Event> = Vec::new();
        for (name, one) in happened {
            if let Some(at) = self.ranks.iter().position(|rank| rank.name == name) {
                events.push(self.event(at, one));
            }
        }
        let mut stalls = Vec::new();
        for (at, now_ns) in nows.iter().enumerate() {
            let (standing, new) = self.ranks[at].judge(*now_ns, is_running);
            events.extend(new.map(|one| self.event(at, one)));
            stalls.extend(standing.map(|standing| self.stall(at, standing)));
        }
        events.extend(self.new_losses(time_ns));
        events.sort_by_key(|event| event.time_ns);
        // A mark of the whole run is in each of its files.
        events.dedup_by(|a, b| a.rank.is_none() && a == b);
        self.events.extend(events.iter().cloned());
        self.events.drain(..self.events.len().saturating_sub(MOST_EVENTS));
        events.drain(..events.len().saturating_sub(MOST_EVENTS));
        let metrics = self.metrics(&nows);
        self.remember(time_ns, is_running, &metrics);
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
            ranks: nows.iter().enumerate().map(|(at, now_ns)| self.state(at, *now_ns)).collect(),
            metrics,
            stalls,
            events,
            history: None,
        }
    }

    /// Whether a file has something of the last seconds, where no collector has written an info.
    fn is_fresh(&self, unix_ns: u64) -> bool {
        self.ranks.iter().any(|rank| {
            let clock = rank.clock(self.zero);
            let newest_ns = self.zero.unix_ns.saturating_add(clock.since_start(rank.last_ns()));
            !rank.is_closed() && newest_ns.saturating_add(FRESH_NS) > unix_ns
        })
    }

    /// When a run that is over ended.
    fn end_ns(&self) -> u64 {
        let of_info =
            |info: &RunInfo| Some(self.zero.clock_of_info(info).since_start(info.end_ns?));
        let ends = self.infos.iter().filter_map(of_info);
        let newest =
            self.ranks.iter().map(|rank| rank.clock(self.zero).since_start(rank.last_ns()));
        ends.max().or(newest.max()).unwrap_or(0)
    }

    /// Now on the clock of each file.
    fn nows(&self, unix_ns: u64, time_ns: u64, is_running: bool) -> Vec<u64> {
        let here = self.infos.files_of_here();
        let own_ns = clock_gettime(ClockId::CLOCK_MONOTONIC).ok().map(|now| {
            (now.tv_sec() as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec() as u64)
        });
        let now = |rank: &Rank| {
            let clock = rank.clock(self.zero);
            match own_ns.filter(|_| is_running && here.contains(rank.name.as_str())) {
                Some(own_ns) => own_ns,
                None if is_running => clock.at(unix_ns.saturating_sub(self.zero.unix_ns)),
                None => clock.at(time_ns),
            }
        };
        self.ranks.iter().map(now).collect()
    }

    fn event(&self, at: usize, one: Happened) -> Event {
        let time_ns = self.ranks[at].clock(self.zero).since_start(one.time_ns);
        let (rank, label) = match one.of_run {
            true => (None, "run".to_owned()),
            false => (self.labels[at].rank, self.labels[at].label.to_string()),
        };
        Event { time_ns, rank, label, kind: one.kind, text: one.text }
    }

    fn stall(&self, at: usize, standing: Standing) -> Stall {
        let Standing { since_ns, for_ns, usual_ns, step, .. } = standing;
        Stall {
            rank: self.labels[at].rank,
            label: self.labels[at].label.to_string(),
            since_ns: self.ranks[at].clock(self.zero).since_start(since_ns),
            for_ns,
            usual_ns,
            step,
            what: self.ranks[at].doing(&standing),
        }
    }

    /// Losses that grew to twice of what was stated last.
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
        }
    }

    fn metrics(&mut self, nows: &[u64]) -> Vec<MetricValues> {
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
                    let ranks = self.ranks.iter_mut().zip(nows);
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

    /// Keeps the numbers of a poll.
    fn remember(&mut self, time_ns: u64, is_running: bool, metrics: &[MetricValues]) {
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

    /// The course of numbers: of the polls so far, and before them of what the files have.
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
            let before = stretches.clone().map(|at| course.and_then(|course| wide(course[at])));
            let mut polls: BTreeMap<u64, &[f32]> = BTreeMap::new();
            polls.extend(rank.recent.iter().map(|(time_ns, values)| (*time_ns, &values[..])));
            let at_tick = |tick: &u64| wide(*polls.get(tick)?.get(place)?);
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

    /// A number of all ranks over time, folded to at most 256 rows and 200 columns.
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

/// Numbers that only polls have.
const POLLED: [Metric; 5] =
    [Metric::Steps, Metric::StepsPerSecond, Metric::SinceStep, Metric::CpuCores, Metric::Lost];

/// The place of a gauge among the numbers of the run; none if there are too many.
fn place_of(gauges: &mut Vec<String>, name: &str) -> Option<usize> {
    let at = gauges.iter().position(|known| known == name);
    let at = at.or_else(|| {
        (gauges.len() < MOST_GAUGES).then(|| {
            gauges.push(name.to_owned());
            gauges.len() - 1
        })
    });
    Some(Metric::ALL.len() + at?)
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

fn label_of(rank: &Rank) -> RankFile {
    let label = RankLabel::of_name(&rank.name).unwrap_or_else(|| {
        let header = rank.header().cloned().unwrap_or_default();
        RankLabel::of_header(&rank.name, &header)
    });
    RankFile { path: PathBuf::from(&rank.name), label, rank: None }
}

fn unix_now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
