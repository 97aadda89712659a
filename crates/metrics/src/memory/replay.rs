//! Replays the heap events of a rank in one pass to find what was live when, and where it was
//! allocated.
//!
//! The replay keeps the live blocks, and sums for each allocation site. Its memory is bounded by
//! the number of live blocks and sites, not by the number of events. Two questions about times that
//! are known only later are answered lazily, when a site next changes:
//!
//! - *How many bytes were live here at the rank's peak?* Every new peak of the rank increments an
//!   epoch. Before a site changes, it compares its epoch with the rank's. If its epoch is older, it
//!   has not changed since the last peak, and saves its current value as its value at that peak.
//! - *How many bytes were live here at each mark?* The number of marks that have passed plays the
//!   part of the epoch. The value is added once for all marks since the site last changed.

use rustc_hash::FxHashMap;
use tprof_trace::model::{HeapChange, HeapEvent, MemoryRecording, Process, ProcessIndex, StackId};

use super::blocks::{Block, Blocks};
use super::curve::{Axis, Curve};
use super::gauges::ProcessEnds;
use super::points::{Points, Trend};
use super::weight::{Mean, Weight, weigh};

/// A process's blocks are kept for this long after its end, ns, since the record of a free may have
/// a slightly later time.
const LATE_NS: u64 = 100_000_000;
/// A block that lives no longer than this counts as short-lived.
pub(crate) const SHORT_NS: u64 = 1_000_000;

/// Sums of one stack of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawSite {
    pub process: ProcessIndex,
    pub stack: StackId,
    pub bytes: u64,
    pub allocations: f64,
    /// Bytes that have not been freed yet.
    pub live: u64,
    /// Bytes that were live at the rank's peak.
    pub peak: u64,
    /// Variances of bytes, allocations, live and peak; 0 if all allocations are recorded.
    pub variance: [f64; 4],
    /// Number of allocations, estimated from blocks that were recorded only by chance.
    pub uncertain: f64,
    pub trend: Trend,
    epoch: u64,
    gone: bool,
}

impl RawSite {
    /// Live bytes that count for the rank: 0 once the process has ended.
    fn held(&self) -> u64 {
        if self.gone { 0 } else { self.live }
    }
}

/// Sums over one process.
#[derive(Default)]
pub(crate) struct ProcessSums {
    pub process: ProcessIndex,
    pub allocations: u64,
    pub frees: u64,
    pub bytes: u64,
    pub live: u64,
    pub unmatched_frees: u64,
    interval: Option<u64>,
    ended: bool,
    blocks: Blocks,
    sites: FxHashMap<StackId, u32>,
}

/// Actions that are due at a given time. At equal times, they run in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DueAction {
    Point,
    Snapshot,
    End(ProcessIndex),
    Forget(ProcessIndex),
}

/// The state of the pass, and its result after [`Replay::finish`].
pub(crate) struct Replay {
    pub processes: Vec<ProcessSums>,
    pub sites: Vec<RawSite>,
    pub live: u64,
    pub peak: u64,
    pub peak_at_ns: Option<u64>,
    pub curve: Curve,
    pub lifetime: Mean,
    pub short: Mean,
    pub points: Points,
    /// Live bytes of the rank at the points.
    pub trend: Trend,
    /// Live bytes at each point.
    pub levels: Vec<u64>,
    /// For each process whose index is not its place in `processes`: that place.
    places: FxHashMap<ProcessIndex, usize>,
    agenda: Vec<(u64, DueAction)>,
    agenda_at: usize,
    due_ns: u64,
    reached: u32,
    epoch: u64,
    lazy_peak: bool,
}

impl Replay {
    /// Prepares a replay. `ends` are the ends of `processes`, and `axis` is the axis of the curve.
    /// `peak_at_ns` is the time of the peak if it is already known; otherwise the replay finds it.
    pub fn new(
        processes: &[Process],
        ends: &ProcessEnds,
        points: Points,
        axis: Axis,
        peak_at_ns: Option<u64>,
    ) -> Replay {
        let mut agenda: Vec<(u64, DueAction)> =
            points.times.iter().map(|&t| (t, DueAction::Point)).collect();
        agenda.extend(peak_at_ns.map(|t| (t.saturating_add(1), DueAction::Snapshot)));
        for (&process, &end_ns) in ends {
            agenda.push((end_ns.saturating_add(1), DueAction::End(process)));
            agenda.push((end_ns.saturating_add(LATE_NS), DueAction::Forget(process)));
        }
        agenda.sort_unstable();
        let sums = |process: &Process| ProcessSums {
            process: process.process,
            interval: match process.memory {
                MemoryRecording::Sampled { interval } => Some(interval),
                MemoryRecording::Exact | MemoryRecording::Off => None,
            },
            ..ProcessSums::default()
        };
        Replay {
            processes: processes.iter().map(sums).collect(),
            sites: Vec::new(),
            live: 0,
            peak: 0,
            peak_at_ns,
            curve: Curve::new(axis),
            lifetime: Mean::default(),
            short: Mean::default(),
            points,
            trend: Trend::default(),
            levels: Vec::new(),
            places: FxHashMap::default(),
            due_ns: agenda.first().map_or(u64::MAX, |first| first.0),
            agenda,
            agenda_at: 0,
            reached: 0,
            epoch: 1,
            lazy_peak: peak_at_ns.is_none(),
        }
    }

    /// Replays the next event; times must not decrease.
    #[inline]
    pub fn event(&mut self, event: &HeapEvent) {
        if event.time_ns >= self.due_ns {
            self.advance(event.time_ns);
        }
        match event.what {
            HeapChange::Alloc { ordinal, size, stack, .. } => {
                self.alloc(event, ordinal, size, stack);
            }
            HeapChange::Free { ordinal, .. } => self.free(event, ordinal),
        }
    }

    /// Whether no event was replayed.
    pub fn is_empty(&self) -> bool {
        self.processes.iter().all(|sums| sums.allocations == 0 && sums.frees == 0)
    }

    /// The sums of a process, if it has any.
    pub fn process(&self, process: ProcessIndex) -> Option<&ProcessSums> {
        let is_of = |sums: &&ProcessSums| sums.process == process;
        let at_its_place = self.processes.get(process as usize).filter(is_of);
        at_its_place.or_else(|| self.processes.iter().find(is_of))
    }

    /// Returns the index of a process's sums. Rows are complete and in order unless a part of the
    /// file is damaged. A process without a row counts as recorded exactly.
    #[inline]
    fn place(&mut self, process: ProcessIndex) -> usize {
        match self.processes.get(process as usize) {
            Some(sums) if sums.process == process => process as usize,
            _ => self.search(process),
        }
    }

    #[cold]
    fn search(&mut self, process: ProcessIndex) -> usize {
        let processes = &mut self.processes;
        *self.places.entry(process).or_insert_with(|| {
            let there = processes.iter().position(|sums| sums.process == process);
            there.unwrap_or_else(|| {
                processes.push(ProcessSums { process, ..ProcessSums::default() });
                processes.len() - 1
            })
        })
    }

    fn alloc(&mut self, event: &HeapEvent, ordinal: u64, size: u64, stack: StackId) {
        let place = self.place(event.process);
        let process = &mut self.processes[place];
        let next = self.sites.len() as u32;
        let site = *process.sites.entry(stack).or_insert(next);
        let weight = weigh(size, process.interval);
        process.blocks.insert(ordinal, Block { size, time_ns: event.time_ns, site });
        process.allocations += 1;
        process.bytes = process.bytes.saturating_add(weight.bytes);
        process.live = process.live.saturating_add(weight.bytes);
        let ended = process.ended;
        if site == next {
            self.sites.push(RawSite {
                process: event.process,
                stack,
                gone: ended,
                epoch: self.epoch,
                trend: Trend::empty_until(self.reached),
                ..RawSite::default()
            });
        }
        self.touch(site);
        let raw = &mut self.sites[site as usize];
        raw.bytes = raw.bytes.saturating_add(weight.bytes);
        raw.allocations += weight.count;
        raw.live = raw.live.saturating_add(weight.bytes);
        if weight.variance != 0.0 {
            let square = byte_variance(weight, size);
            raw.variance[0] += square;
            raw.variance[1] += weight.variance;
            raw.variance[2] += square;
            raw.uncertain += weight.count;
        }
        if !ended {
            self.live = self.live.saturating_add(weight.bytes);
            if self.lazy_peak && self.live > self.peak {
                self.peak = self.live;
                self.peak_at_ns = Some(event.time_ns);
                self.epoch += 1;
            }
            self.curve.set(event.time_ns, self.live);
        }
    }

    fn free(&mut self, event: &HeapEvent, ordinal: Option<u64>) {
        let place = self.place(event.process);
        let process = &mut self.processes[place];
        process.frees += 1;
        let Some(block) = ordinal.and_then(|o| process.blocks.remove(o)) else {
            process.unmatched_frees += 1;
            return;
        };
        let weight = weigh(block.size, process.interval);
        process.live = process.live.saturating_sub(weight.bytes);
        let ended = process.ended;
        let life_ns = event.time_ns.saturating_sub(block.time_ns);
        self.lifetime.add(weight, life_ns as f64);
        self.short.add(weight, if life_ns <= SHORT_NS { 1.0 } else { 0.0 });
        self.touch(block.site);
        let raw = &mut self.sites[block.site as usize];
        raw.live = raw.live.saturating_sub(weight.bytes);
        if weight.variance != 0.0 {
            raw.variance[2] -= byte_variance(weight, block.size);
        }
        if !ended {
            self.live = self.live.saturating_sub(weight.bytes);
            self.curve.set(event.time_ns, self.live);
        }
    }

    /// Saves the site's value for the last peak and for the marks since its last change.
    #[inline]
    fn touch(&mut self, site: u32) {
        let raw = &mut self.sites[site as usize];
        if raw.epoch < self.epoch && self.lazy_peak {
            raw.peak = raw.held();
            raw.epoch = self.epoch;
        }
        if raw.trend.reached < self.reached {
            let held = raw.held();
            let variance = if raw.gone { 0.0 } else { raw.variance[2] };
            raw.trend.hold(held, variance, self.reached, &self.points);
        }
    }

    #[cold]
    fn advance(&mut self, time_ns: u64) {
        while let Some(&(due_ns, due)) = self.agenda.get(self.agenda_at) {
            if due_ns > time_ns {
                break;
            }
            self.agenda_at += 1;
            match due {
                DueAction::Point => {
                    self.reached += 1;
                    // The variance of the sum is not needed here: it is added up from the sites
                    // later.
                    self.trend.hold(self.live, 0.0, self.reached, &self.points);
                    self.levels.push(self.live);
                }
                DueAction::Snapshot => self.snapshot(),
                DueAction::End(process) => self.end(process, due_ns),
                DueAction::Forget(process) => {
                    let place = self.place(process);
                    self.processes[place].blocks = Blocks::default();
                }
            }
        }
        self.due_ns = self.agenda.get(self.agenda_at).map_or(u64::MAX, |next| next.0);
    }

    fn snapshot(&mut self) {
        self.peak = self.live;
        for raw in &mut self.sites {
            raw.peak = raw.held();
            raw.variance[3] = if raw.gone { 0.0 } else { raw.variance[2] };
        }
    }

    /// Ends a process: its blocks are gone.
    fn end(&mut self, process: ProcessIndex, time_ns: u64) {
        let place = self.place(process);
        let sums = &mut self.processes[place];
        sums.ended = true;
        self.live = self.live.saturating_sub(sums.live);
        let sites: Vec<u32> = sums.sites.values().copied().collect();
        for site in sites {
            self.touch(site);
            self.sites[site as usize].gone = true;
        }
        if time_ns != u64::MAX {
            self.curve.set(time_ns, self.live);
        }
    }

    /// Finishes the replay; must be called once, after the last event.
    pub fn finish(mut self) -> Replay {
        self.advance(u64::MAX);
        for site in 0..self.sites.len() {
            self.touch(site as u32);
        }
        self
    }
}

fn byte_variance(weight: Weight, size: u64) -> f64 {
    let size = size.max(1) as f64;
    weight.variance * size * size
}
