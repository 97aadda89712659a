//! The pass over a file's events that measures the memory of a rank, and the results that reports
//! read from it.

use tprof_facts::Clock;
use tprof_rank::base::frames::Frames;
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::reading::Reading;
use tprof_trace::model::{Loss, MemoryRecording, Process, ProcessIndex, counter, loss};
use tprof_trace::{Problem, TraceFile};

use super::curve::{Axis, Curve};
use super::gauges::{self, ProcessEnds, Sample};
use super::heap_within::{lost, uncounted};
use super::host_memory::HostMemory;
use super::killed::{self, Death, Owner};
use super::missing::{CYCLE, NO_PROCESS, OFF, began_ns, gap, was_off};
use super::points::Points;
use super::replay::Replay;
use super::sites::{MergedSites, Sampled};
use super::timeline::{self, Timeline, TimelineInputs};
use super::totals::{self, Totals};
use super::{churn, forked, growth, maps};
use crate::host::paused::paused;

/// Most killed processes of a rank that are described.
const MOST_DEATHS: usize = 10;
/// Most owners that are named for each killed process.
const MOST_OWNERS: usize = 3;

/// The reason why the heap is unknown in a damaged file.
const UNREAD: &str = "no block of heap events could be read";
/// The reason why live bytes are unknown in a file that was cut off, or is still being written,
/// before the first events.
const UNWRITTEN: &str = "the file ends before its first heap events";

/// The way in which a rank's allocations were recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recording {
    Off,
    Exact,
    Sampled(u64),
}

impl Recording {
    /// A rank counts as sampled if at least one of its processes is.
    fn of(processes: &[Process]) -> Recording {
        processes.iter().fold(Recording::Off, |so_far, process| match (so_far, process.memory) {
            (Recording::Sampled(a), MemoryRecording::Sampled { interval }) => {
                Recording::Sampled(a.max(interval))
            }
            (_, MemoryRecording::Sampled { interval }) => Recording::Sampled(interval),
            (Recording::Off, MemoryRecording::Exact) => Recording::Exact,
            (so_far, _) => so_far,
        })
    }
}

/// The result of one pass over a file.
pub(crate) struct Pass<'a> {
    pub(super) file: &'a TraceFile,
    pub(super) clock: Clock,
    ends: ProcessEnds,
    pub(super) recording: Recording,
    pub(super) totals: Option<Totals>,
    pub(super) replay: Replay,
    pub(super) frames: Frames<'a>,
    pub(super) merged: MergedSites,
    /// The reason why the live bytes of each site are unknown.
    pub(super) partial: Option<String>,
    /// The time at which recording began, ns, if `partial` is set only because recording was off
    /// before. What was allocated after this time is known.
    pub(super) known_since_ns: Option<u64>,
    /// The reason why the sum of live bytes is unknown. Sampled processes go on counting live bytes
    /// while recording is off, so that this may be known although `partial` is set.
    pub(super) unbalanced: Option<String>,
    axis: Axis,
    /// Start and end of the life of the processes with a recorded heap.
    life_ns: (u64, u64),
    /// The last time in the file.
    pub end_ns: u64,
    /// Blocks of events that could not be read.
    pub problems: Vec<Problem>,
    maps: maps::Maps,
}

impl<'a> Pass<'a> {
    /// Reads a file's events, and chooses the times between which growth is computed.
    pub fn over(file: &'a TraceFile, clock: Clock) -> Pass<'a> {
        Pass::at(file, clock, None)
    }

    /// Reads a file's events; growth is computed between `points`.
    pub fn at(file: &'a TraceFile, clock: Clock, points: Option<Points>) -> Pass<'a> {
        let processes = file.processes();
        let end = |p: &Process| Some((p.process, file.process_end(p.process)?.0));
        let ends: ProcessEnds = processes.iter().filter_map(end).collect();
        let (start_ns, mut end_ns) = extent(file);
        let mut life_ns = life(file, &ends, (start_ns, end_ns));
        let recording = Recording::of(processes);
        let totals =
            matches!(recording, Recording::Sampled(_)).then(|| totals::totals(file, &ends));
        let switches = Switches::of(file, &ends);
        let partial = match file.part() {
            Some(_) => Some(CYCLE.to_owned()),
            None => switches.any.then(|| gap(file)),
        };
        let known_since_ns = match file.part() {
            Some(_) => None,
            None => began_ns(file).filter(|_| partial.is_some()),
        };
        let points = points.unwrap_or_else(|| Points::choose(file, life_ns));
        let axis = Axis::over(start_ns, end_ns);
        // If the totals lack the time of the peak, `u64::MAX` keeps the replay from looking for a
        // peak among the samples, which need not contain it.
        let peak_at_ns = totals.as_ref().map(|totals| totals.peak_at_ns.unwrap_or(u64::MAX));
        let mut replay = Replay::new(processes, &ends, points, axis, peak_at_ns);
        let mut events = file.heap_events();
        for event in events.by_ref() {
            end_ns = end_ns.max(event.time_ns);
            life_ns.1 = life_ns.1.max(event.time_ns);
            replay.event(&event);
        }
        let mut problems = events.problems().to_vec();
        let mut map_events = file.map_events();
        let mut maps = maps::maps(map_events.by_ref());
        if !map_events.problems().is_empty() {
            maps.at_least = Some("a part of the file could not be read".to_owned());
            problems.extend_from_slice(map_events.problems());
        }
        let replay = replay.finish();
        let mut frames = Frames::new(file);
        let merged = MergedSites::new(&replay, &mut frames);
        let unbalanced = match (file.part(), &totals) {
            (None, _) | (_, Some(_)) => switches.unbalanced.then(|| gap(file)),
            (Some(_), None) => Some(CYCLE.to_owned()),
        };
        let axis = if totals.is_some() { axis } else { replay.curve.axis() };
        Pass {
            file,
            clock,
            ends,
            recording,
            totals,
            replay,
            frames,
            merged,
            partial,
            known_since_ns,
            unbalanced,
            axis,
            life_ns,
            end_ns,
            problems,
            maps,
        }
    }

    pub fn host_memory(&self) -> HostMemory {
        let interval = self.interval();
        let sums = self.sums();
        let growth = self.growth();
        let sites = self.merged.sites(&self.frames, interval, self.partial.as_deref());
        let life = Interval::new(self.life_ns.0, self.life_ns.1.max(self.life_ns.0));
        let off_ns = paused(self.file).within(life).length();
        let recorded_ns = (life.end - life.start).saturating_sub(off_ns);
        HostMemory {
            recording: match self.recording {
                Recording::Off => "off",
                Recording::Exact => "exact",
                Recording::Sampled(_) => "sampled",
            },
            sample_interval_bytes: interval,
            live_counts: if interval.is_some() { "usable" } else { "requested" },
            churn: churn::churn(
                &self.replay,
                &sums.allocations,
                &sums.allocated_bytes,
                recorded_ns,
                interval.is_some(),
            ),
            allocations: sums.allocations,
            frees: sums.frees,
            allocated_bytes: sums.allocated_bytes,
            peak_bytes: sums.peak_bytes,
            peak_at_ns: sums.peak_at_ns,
            live_at_exit_bytes: sums.live_at_exit_bytes,
            at_least: self.at_least(),
            unmatched_frees: self.unmatched_frees(|_| true),
            unmatched_frees_forked: {
                let images = forked::Images::of(self.file.processes());
                let is_copy = |process| self.file.process(process).map(|one| images.is_copy(one));
                self.unmatched_frees(|process| is_copy(process).unwrap_or(false))
            },
            growth: growth.marks,
            growth_over_quarters: growth.quarters,
            maps: self.maps.clone(),
            sites_total: sites.len(),
            sites,
        }
    }

    /// Number of frees of blocks without a recorded allocation in the processes that `of` selects.
    fn unmatched_frees(&self, of: impl Fn(ProcessIndex) -> bool) -> u64 {
        let unmatched = self.replay.processes.iter().filter(|sums| sums.unmatched_frees > 0);
        unmatched.filter(|sums| of(sums.process)).map(|sums| sums.unmatched_frees).sum()
    }

    pub fn timeline(&self) -> Timeline {
        let given = TimelineInputs {
            ends: &self.ends,
            axis: self.axis,
            end_ns: self.end_ns,
            heap: self.heap(),
            clock: self.clock,
        };
        timeline::timeline(self.file, given)
    }

    pub fn sigkills(&self) -> u64 {
        self.killed().filter(|(_, _, signal)| *signal == 9).count() as u64
    }

    pub fn deaths(&self) -> Vec<Death> {
        let rss = gauges::process_samples(self.file, counter::RSS_BYTES);
        let death = |(process, at_ns, signal): (&Process, u64, i32)| Death {
            pid: process.pid,
            command: self.file.name(process.command).to_owned(),
            signal,
            at_ns: self.clock.since_start(at_ns),
            cause: "killed",
            why: String::new(),
            rss_bytes: last_of(&rss, process.process, "no RSS was sampled"),
            heap_bytes: self.heap_at_end(process),
            owners: self.owners(process.process),
        };
        self.killed().take(MOST_DEATHS).map(death).collect()
    }

    pub(super) fn live_processes(&self) -> impl Iterator<Item = &Process> {
        let processes = self.file.processes().iter();
        processes.filter(|process| !self.ends.contains_key(&process.process))
    }

    fn killed(&self) -> impl Iterator<Item = (&Process, u64, i32)> {
        killed::killed(self.file)
    }

    pub(super) fn interval(&self) -> Option<u64> {
        match self.recording {
            Recording::Sampled(interval) => Some(interval),
            _ => None,
        }
    }

    pub(super) fn growth(&self) -> growth::GrowthPair {
        let why = match self.recording {
            Recording::Off => Some(OFF),
            _ => self.partial.as_deref(),
        };
        if let Some(why) = why {
            return growth::GrowthPair { marks: Reading::missing(why), quarters: None };
        }
        let sampled = self.interval().map(|unit| Sampled { unit, most: self.most_live() });
        let (replay, merged) = (&self.replay, &self.merged);
        let uncertain = self.at_least();
        growth::growth(replay, merged, &self.frames, sampled.as_ref(), self.clock, uncertain)
    }

    /// An upper bound of the live bytes of sampled processes, from their own counters.
    fn most_live(&self) -> Option<u64> {
        let peak = &self.totals.as_ref()?.peak_bytes;
        Some(peak.get()?.saturating_add(peak.error().copied().unwrap_or(0)))
    }

    /// Returns the reason why nothing is known of the heap.
    pub(super) fn off(&self) -> &'static str {
        if self.file.processes().is_empty() { NO_PROCESS } else { OFF }
    }

    /// Returns the reason why the file has none of the events that were recorded; `None` if it has
    /// some, or if there were none.
    pub(super) fn why_unread(&self) -> Option<String> {
        if self.recording != Recording::Exact || !self.replay.is_empty() {
            return None;
        }
        if self.is_damaged() {
            return Some(UNREAD.to_owned());
        }
        let of_events = |loss: &&Loss| self.file.name(loss.what).contains(loss::EVENTS);
        match self.file.losses().iter().find(of_events) {
            Some(loss) => Some(format!("all heap events were lost ({})", self.file.name(loss.why))),
            None => (!self.file.is_closed()).then(|| UNWRITTEN.to_owned()),
        }
    }

    fn is_damaged(&self) -> bool {
        !self.problems.is_empty() || !self.file.problems().is_empty()
    }

    /// Returns the reason why events are missing; `None` if none are.
    fn at_least(&self) -> Option<String> {
        match self.recording {
            Recording::Off => None,
            Recording::Exact if self.is_damaged() => {
                Some("a part of the file could not be read".to_owned())
            }
            Recording::Exact => lost(self.file),
            Recording::Sampled(_) => uncounted(self.file),
        }
    }

    fn owners(&self, process: ProcessIndex) -> Vec<Owner> {
        if self.partial.is_some() {
            return Vec::new();
        }
        (self.merged.owners(&self.replay, &self.frames, process, MOST_OWNERS).into_iter())
            .map(|(live_bytes, stack)| Owner { live_bytes, stack })
            .collect()
    }

    pub(super) fn heap_at_end(&self, process: &Process) -> Reading<u64> {
        if process.memory == MemoryRecording::Off {
            return Reading::missing(OFF);
        }
        match (&self.unbalanced, &self.totals) {
            (Some(why), _) => Reading::missing(why),
            (None, None) => match (self.replay.process(process.process), self.at_least()) {
                (Some(sums), _) => Reading::Is(sums.live),
                (None, None) => Reading::Is(0),
                (None, Some(why)) => Reading::missing(&why),
            },
            (None, Some(totals)) => last_of(&totals.samples, process.process, "it left no totals"),
        }
    }

    /// Returns live bytes over time.
    fn heap(&self) -> Reading<timeline::Series> {
        if self.recording == Recording::Off {
            return Reading::missing(self.off());
        }
        if let Some(why) = self.unbalanced.clone().or_else(|| self.why_unread()) {
            return Reading::missing(&why);
        }
        let mut curve = match &self.totals {
            None => self.replay.curve.clone(),
            Some(totals) => {
                let mut curve = Curve::new(self.axis);
                let mut samples = self.heap_samples(totals);
                gauges::sweep(&mut samples, &self.ends, |time_ns, sum| curve.set(time_ns, sum));
                // The processes measured their peak themselves. The samples in the curve may have
                // missed it.
                let (from_ns, to_ns) = gauges::part_of(self.file);
                if let (Some(at_ns), Some(peak)) = (totals.peak_at_ns, totals.peak_bytes.get())
                    && (from_ns..to_ns).contains(&at_ns)
                {
                    curve.raise(at_ns, peak);
                }
                curve
            }
        };
        curve.extend_to(self.end_ns);
        Reading::Is(curve.buckets())
    }

    /// Returns the live bytes of sampled processes at each time at which they were read.
    fn heap_samples(&self, totals: &Totals) -> Vec<Sample> {
        let mut samples: Vec<Sample> =
            self.file.processes().iter().map(|p| (p.start_ns, p.process, 0)).collect();
        samples.extend(&totals.samples);
        samples.extend(gauges::process_samples(self.file, counter::HEAP_BYTES));
        samples
    }
}

/// First and last time in a file's tables, within the part that is read.
fn extent(file: &TraceFile) -> (u64, u64) {
    let starts = file.processes().iter().map(|process| process.start_ns);
    let start = starts.min().unwrap_or(file.header().start_ns);
    let ends = file.processes().iter().filter_map(|p| Some(file.process_end(p.process)?.0));
    let rows = (file.totals().iter().map(|row| row.time_ns))
        .chain(file.counters().iter().map(|row| row.time_ns))
        .chain(file.marks().iter().map(|row| row.time_ns));
    let end = ends.chain(rows).max().unwrap_or(start);
    within_part(file, (start, end.max(start)))
}

/// Limits a range of time to the part of a file that is read.
fn within_part(file: &TraceFile, (start_ns, end_ns): (u64, u64)) -> (u64, u64) {
    let (from_ns, to_ns) = gauges::part_of(file);
    let start_ns = start_ns.max(from_ns);
    (start_ns, end_ns.min(to_ns).max(start_ns))
}

/// Start and end of the life of the processes with a recorded heap. If the end of a process is
/// unknown, the end of the file is used. It may be too late, because readings of the host go on
/// after the processes.
fn life(file: &TraceFile, ends: &ProcessEnds, extent: (u64, u64)) -> (u64, u64) {
    let recorded = || file.processes().iter().filter(|p| p.memory != MemoryRecording::Off);
    let start_ns = recorded().map(|process| process.start_ns).min().unwrap_or(extent.0);
    let ends: Option<Vec<u64>> =
        recorded().map(|process| ends.get(&process.process).copied()).collect();
    let end_ns = ends.and_then(|ends| ends.into_iter().max()).unwrap_or(extent.1);
    within_part(file, (start_ns, end_ns.max(start_ns)))
}

/// Whether recording was off for a while in a recorded process.
struct Switches {
    /// Whether it was off in any process: blocks may have been allocated or freed without a record.
    any: bool,
    /// Whether such a process did not count its blocks during that time, so that its live bytes are
    /// unknown.
    unbalanced: bool,
}

impl Switches {
    fn of(file: &TraceFile, ends: &ProcessEnds) -> Switches {
        let gaps = totals::gaps(file);
        let mut found = Switches { any: false, unbalanced: false };
        for process in file.processes() {
            let end_ns = ends.get(&process.process).copied().unwrap_or(u64::MAX);
            let is_switched = was_off(file, process.process, end_ns);
            let is_unknown = gaps.contains(&process.process);
            match process.memory {
                MemoryRecording::Off => {}
                MemoryRecording::Exact => {
                    found.any |= is_unknown || is_switched;
                    found.unbalanced |= is_unknown || is_switched;
                }
                MemoryRecording::Sampled { .. } => {
                    found.any |= is_unknown || is_switched;
                    found.unbalanced |= is_unknown;
                }
            }
        }
        found
    }
}

pub(super) fn last_of(samples: &[Sample], process: ProcessIndex, why: &str) -> Reading<u64> {
    let mine = samples.iter().filter(|sample| sample.1 == process);
    match mine.max_by_key(|sample| sample.0) {
        Some(sample) => Reading::Is(sample.2),
        None => Reading::missing(why),
    }
}
