//! Finds the most live bytes of the heap within windows of time, such as spans.
//!
//! If every allocation is recorded, live bytes are known at each time. With `--mem sampled`, the
//! live bytes and the peak so far are known only at the times at which the process's counters were
//! read. Between two of these times, the sampled allocations show how live bytes moved. They don't
//! account for all of the change from one known value to the next, so the rest of the change is
//! spread evenly over the time between.

use rustc_hash::FxHashMap;
use tprof_facts::units;
use tprof_trace::TraceFile;
use tprof_trace::model::{
    HeapChange, HeapEvent, HeapTotals, MemoryRecording, ProcessIndex, counter, loss,
};

use super::blocks::{Block, Blocks};
use super::gauges::process_samples;
use super::held_within::{HeldLevel, HeldSweep, HeldWindow, HeldWithin};
use super::missing::{CYCLE, OFF, gap, was_off};
use super::weight::{error, weigh};

/// Returns the peak of each window, in the order of `windows`.
pub(crate) fn heap_within(file: &TraceFile, windows: &[HeldWindow]) -> Vec<HeldWithin> {
    let mut sweep = HeldSweep::of(windows);
    let mut heaps: FxHashMap<ProcessIndex, HeapLevels> = FxHashMap::default();
    let mut unknown: FxHashMap<ProcessIndex, String> = FxHashMap::default();
    for process in file.processes().iter().filter(|process| sweep.is_of(process.process)) {
        match HeapLevels::of(file, process.process, process.memory) {
            Ok(levels) => drop(heaps.insert(process.process, levels)),
            Err(why) => drop(unknown.insert(process.process, why)),
        }
    }
    if !heaps.is_empty() {
        let mut events = file.heap_events();
        for event in events.by_ref() {
            if let Some(heap) = heaps.get_mut(&event.process) {
                heap.event(&event, &mut sweep);
            }
        }
        let is_damaged = !events.problems().is_empty() || !file.problems().is_empty();
        for (process, mut heap) in heaps {
            heap.finish(&mut sweep);
            // When a process ends, its blocks no longer use memory.
            if let Some((end_ns, _)) = file.process_end(process) {
                sweep.level(process, end_ns.saturating_add(1), HeldLevel::default());
            }
            if is_damaged && heap.interval.is_none() {
                unknown.insert(process, "a part of the file could not be read".to_owned());
            }
        }
    }
    let missing = |window: &HeldWindow| {
        let why = unknown.get(&window.process).map_or(OFF, String::as_str);
        HeldWithin::missing(why)
    };
    let found = sweep.finish().into_iter().zip(windows);
    let known = |window: &HeldWindow| !unknown.contains_key(&window.process);
    found
        .map(|(held, window)| held.filter(|_| known(window)).unwrap_or_else(|| missing(window)))
        .collect()
}

/// The live bytes at a time at which they are known exactly.
#[derive(Clone, Copy, Debug)]
struct KnownLive {
    time_ns: u64,
    live: u64,
    /// Total of the requested bytes at the last reading before this time, and at the first reading
    /// after it.
    asked_for: (u64, u64),
    /// The highest number of live bytes up to the row that reports this peak.
    peak: u64,
}

/// Live bytes of one process, event by event.
struct HeapLevels {
    process: ProcessIndex,
    interval: Option<u64>,
    blocks: Blocks,
    live: u64,
    /// Variance of the bytes that were sampled since the last time with known live bytes.
    variance: f64,
    /// The times at which live bytes are known, in order; entry `at` is the last one that was
    /// reached.
    known: Vec<KnownLive>,
    at: usize,
    /// Known live bytes minus live bytes by samples, at the last known time that was reached.
    left_out: i128,
    /// Levels by samples since that time that were not passed on to the sweep yet: time, live
    /// bytes, variance.
    waiting: Vec<(u64, u64, f64)>,
}

impl HeapLevels {
    /// Reads a process, or returns why its live bytes are unknown.
    fn of(
        file: &TraceFile,
        process: ProcessIndex,
        memory: MemoryRecording,
    ) -> Result<HeapLevels, String> {
        let interval = match memory {
            MemoryRecording::Off => return Err(OFF.to_owned()),
            MemoryRecording::Exact => None,
            MemoryRecording::Sampled { interval } => Some(interval),
        };
        let known = known(file, process);
        match interval {
            None if file.part().is_some() => return Err(CYCLE.to_owned()),
            None if was_off(file, process, u64::MAX) => return Err(gap(file)),
            None => lost(file).map_or(Ok(()), Err)?,
            Some(_) if known.is_empty() => return Err("it left no totals".to_owned()),
            Some(_) => {}
        }
        let known = known.into_iter().collect::<Option<Vec<KnownLive>>>();
        let mut known = known.ok_or_else(|| gap(file))?;
        if was_off(file, process, u64::MAX) {
            // While recording is off, requested bytes are not counted, so they give no bound of the
            // error.
            known.iter_mut().for_each(|known| known.asked_for = (0, u64::MAX));
        }
        let start_ns = file.processes().iter().find(|one| one.process == process);
        let start_ns = start_ns.map_or(0, |one| one.start_ns);
        let first = match (file.kept_since_ns(), known.first()) {
            // Of a process from before what was kept, the first reading tells where it stood.
            (Some(since_ns), Some(first)) if start_ns < since_ns => {
                KnownLive { time_ns: since_ns.min(first.time_ns), ..*first }
            }
            (_, first) => KnownLive {
                time_ns: start_ns,
                live: 0,
                asked_for: (0, 0),
                peak: first.map_or(0, |first| first.peak),
            },
        };
        Ok(HeapLevels {
            process,
            interval,
            blocks: Blocks::default(),
            live: 0,
            variance: 0.0,
            known: std::iter::once(first).chain(known).collect(),
            at: 0,
            left_out: 0,
            waiting: Vec::new(),
        })
    }

    fn event(&mut self, event: &HeapEvent, sweep: &mut HeldSweep<'_>) {
        if self.interval.is_some() {
            self.reach(event.time_ns, sweep);
        }
        let since_ns = self.known[self.at].time_ns;
        match event.what {
            HeapChange::Alloc { ordinal, size, .. } => {
                let weight = weigh(size, self.interval);
                self.blocks.insert(ordinal, Block { size, time_ns: event.time_ns, site: 0 });
                self.live = self.live.saturating_add(weight.bytes);
                self.variance += weight.variance * (size.max(1) as f64).powi(2);
            }
            HeapChange::Free { ordinal, .. } => {
                let Some(block) = ordinal.and_then(|ordinal| self.blocks.remove(ordinal)) else {
                    return;
                };
                let weight = weigh(block.size, self.interval);
                self.live = self.live.saturating_sub(weight.bytes);
                if block.time_ns > since_ns {
                    let variance = weight.variance * (block.size.max(1) as f64).powi(2);
                    self.variance = (self.variance - variance).max(0.0);
                }
            }
        }
        match self.interval {
            None => {
                sweep.level(self.process, event.time_ns, HeldLevel::is(self.live));
            }
            Some(_) => self.waiting.push((event.time_ns, self.live, self.variance)),
        }
    }

    /// Advances to a time: passes on the levels before each known time that is earlier than it.
    fn reach(&mut self, time_ns: u64, sweep: &mut HeldSweep<'_>) {
        while self.known.get(self.at + 1).is_some_and(|next| next.time_ns < time_ns) {
            let to = self.known[self.at + 1];
            let left_out = i128::from(to.live) - i128::from(self.live);
            self.give(sweep, Some((to, left_out - self.left_out)));
            self.left_out = left_out;
            self.at += 1;
            sweep.level(self.process, to.time_ns, HeldLevel::is(to.live));
        }
    }

    /// Passes on the waiting levels to `sweep`. Each level is corrected by the bytes that the
    /// samples left out. `to` has the next known time and the amount by which these bytes change
    /// until then, which they do evenly. A level is at most the known peak. Its error is at most
    /// the bytes that were requested since the last known time, plus that amount.
    fn give(&mut self, sweep: &mut HeldSweep<'_>, to: Option<(KnownLive, i128)>) {
        let from = self.known[self.at];
        let unit = self.interval.unwrap_or(1) as f64;
        let (length_ns, drift, asked_for) = match to {
            Some((to, drift)) => (
                to.time_ns.saturating_sub(from.time_ns).max(1),
                drift,
                to.asked_for.1.saturating_sub(from.asked_for.0),
            ),
            None => (1, 0, u64::MAX),
        };
        let peak = to.map_or(from.peak, |(to, _)| to.peak).max(from.live);
        for (time_ns, live, variance) in self.waiting.drain(..) {
            let passed = i128::from(time_ns.saturating_sub(from.time_ns).min(length_ns));
            let left_out = self.left_out + drift * passed / i128::from(length_ns);
            let bytes = u64::try_from(i128::from(live) + left_out).unwrap_or(0).min(peak);
            let off = (error(variance, unit) as u64).min(asked_for);
            let off = off.saturating_add(drift.unsigned_abs() as u64);
            let most = bytes.saturating_add(off).min(peak);
            sweep.level(self.process, time_ns, HeldLevel { bytes, off, most });
        }
        self.variance = 0.0;
    }

    fn finish(&mut self, sweep: &mut HeldSweep<'_>) {
        if self.interval.is_some() {
            self.reach(u64::MAX, sweep);
            self.give(sweep, None);
        }
    }
}

/// Returns the times at which a process's live bytes are known, in order; a row that reports them
/// as unknown is `None`.
fn known(file: &TraceFile, process: ProcessIndex) -> Vec<Option<KnownLive>> {
    let rows: Vec<&HeapTotals> =
        file.totals().iter().filter(|row| row.process == process).collect();
    let mut all: Vec<Option<KnownLive>> = Vec::new();
    let (mut asked_before, mut peak_at_ns) = (0, None);
    let kept_ns = file.kept_since_ns().unwrap_or(0);
    for row in &rows {
        let (Some(live), Some(peak)) = (row.live_bytes, row.peak_bytes) else {
            all.push(None);
            continue;
        };
        let asked_for = (asked_before, row.allocated_bytes);
        // What was not kept says nothing of the levels since.
        if let Some(at_ns) = row.peak_at_ns.filter(|at_ns| Some(*at_ns) != peak_at_ns)
            && (kept_ns..row.time_ns).contains(&at_ns)
        {
            peak_at_ns = Some(at_ns);
            all.push(Some(KnownLive { time_ns: at_ns, live: peak, asked_for, peak }));
        }
        asked_before = row.allocated_bytes;
        let asked_for = (asked_before, asked_before);
        all.push(Some(KnownLive { time_ns: row.time_ns, live, asked_for, peak }));
    }
    let samples = process_samples(file, counter::HEAP_BYTES).into_iter();
    for (time_ns, _, live) in samples.filter(|(_, of, _)| *of == process) {
        let after = rows.partition_point(|row| row.time_ns < time_ns);
        let before = after.checked_sub(1).and_then(|at| rows.get(at));
        let Some(next) = rows.get(after).or(before) else { continue };
        let asked_for = (
            before.map_or(0, |row| row.allocated_bytes),
            match rows.get(after) {
                Some(row) => row.allocated_bytes,
                None => u64::MAX,
            },
        );
        let peak = next.peak_bytes.unwrap_or(u64::MAX).max(live);
        all.push(Some(KnownLive { time_ns, live, asked_for, peak }));
    }
    all.sort_by_key(|known| known.map_or(0, |known| known.time_ns));
    all
}

/// Kinds of losses of allocations or frees. The first kind is lost before it is counted, so it is
/// missing from the processes' counters too.
const LOSSES: [&str; 5] =
    [loss::EVENTS, "records", "heap events", "frees", "events after the limit"];

/// Returns the reason why recorded allocations and frees are not complete; `None` if they are.
pub(crate) fn lost(file: &TraceFile) -> Option<String> {
    lost_of(file, &LOSSES)
}

/// Like [`lost`], for the counters of processes, which count all calls since the process attached.
pub(crate) fn uncounted(file: &TraceFile) -> Option<String> {
    lost_of(file, &LOSSES[..1])
}

fn lost_of(file: &TraceFile, of: &[&str]) -> Option<String> {
    let losses = file.losses().iter().filter(|loss| of.contains(&file.name(loss.what)));
    let most = losses.max_by_key(|loss| loss.count)?;
    let count = match most.count {
        0 => "an unknown number of".to_owned(),
        count => units::count(count),
    };
    let (what, why) = (file.name(most.what), file.name(most.why));
    Some(format!("{count} {what} lost ({why})"))
}
