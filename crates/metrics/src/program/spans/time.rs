//! Measures what threads did within spans: their time on a core, ready and waiting.
//!
//! The recording has the time off a core of each context switch, so the rest of a span was on a
//! core. But the collector may have summed up several short waits in one record, so only bounds are
//! known of how much of them lies in a span. If these bounds are wide, the samples of the running
//! thread are a better estimate.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_facts::units;
use tprof_rank::RankTrace;
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::reading::Reading;
use tprof_rank::samples::NO_SAMPLES;
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, Sample, ThreadIndex, ThreadState, loss};

use super::bounded::BoundedTime;
use super::find::OwnSpan;
use super::open::OpenSpans;
use super::pauses::{PAUSED, Pauses};

pub(super) const ANY_THREAD: &str = "any thread may end these spans: they lie on none";
const NO_THREAD: &str = "the spans' thread was not sampled";

/// The causes of waits, in the order of the table's columns.
pub(super) const WAITS: [ThreadState; 7] = [
    ThreadState::Lock,
    ThreadState::Io,
    ThreadState::Sleep,
    ThreadState::Poll,
    ThreadState::Gil,
    ThreadState::Device,
    ThreadState::Blocked,
];

/// The activity of threads within spans, including inner spans.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ThreadTime {
    pub cpu_ns: Reading<u64>,
    pub ready_ns: Reading<u64>,
    pub waited_ns: Reading<u64>,
    /// The parts of `waited_ns`, in the order of [`WAITS`].
    pub waits_ns: [Reading<u64>; WAITS.len()],
}

impl ThreadTime {
    /// Returns the sum over zero spans.
    pub fn none() -> ThreadTime {
        ThreadTime::all(&Reading::Is(0))
    }

    pub fn missing(why: &str) -> ThreadTime {
        ThreadTime::all(&Reading::missing(why))
    }

    fn all(of: &Reading<u64>) -> ThreadTime {
        ThreadTime {
            cpu_ns: of.clone(),
            ready_ns: of.clone(),
            waited_ns: of.clone(),
            waits_ns: std::array::from_fn(|_| of.clone()),
        }
    }

    /// Returns the sum of the two.
    pub fn plus(self, other: ThreadTime) -> ThreadTime {
        let mut others = other.waits_ns.into_iter();
        let mut plus = |mine: Reading<u64>| match others.next() {
            Some(other) => mine.plus(other),
            None => mine,
        };
        ThreadTime {
            cpu_ns: self.cpu_ns.plus(other.cpu_ns),
            ready_ns: self.ready_ns.plus(other.ready_ns),
            waited_ns: self.waited_ns.plus(other.waited_ns),
            waits_ns: self.waits_ns.map(&mut plus),
        }
    }
}

/// A group of spans that are added up.
#[derive(Clone, Debug, Default)]
pub(super) struct SpanGroup {
    /// Sum of the spans' durations, ns. The spans of a group do not overlap: none lies within
    /// another one.
    pub total_ns: u64,
    /// The reason if the time of any of the spans isn't known.
    pub missing: Option<String>,
}

/// The records of a group's threads within the group's spans.
#[derive(Clone, Copy, Default)]
struct Recorded {
    sampled_ns: u64,
    samples: u64,
    ready: BoundedTime,
    waits: [BoundedTime; WAITS.len()],
}

/// Returns the time of each group. `groups_of` has the groups that each span belongs to.
pub(super) fn of_groups(
    rank: &RankTrace<'_>,
    spans: &[OwnSpan],
    groups: &[SpanGroup],
    groups_of: &[[Option<u32>; 2]],
) -> Vec<ThreadTime> {
    let mut recorded = vec![Recorded::default(); groups.len()];
    let open = OpenSpans::of(spans);
    let around = GroupsAround::of(spans, groups_of);
    let mut overlaps: FxHashMap<u32, u64> = FxHashMap::default();
    // Errors are ignored here, since unreadable parts were reported when the samples were first
    // read.
    for row in rank.file.blocks::<Sample>().flatten() {
        if row.state == ThreadState::Running {
            let inner = row.cpu.and_then(|_| open.at(row.thread, row.time_ns));
            around.each(inner, |group| {
                recorded[group as usize].sampled_ns += row.weight_ns;
                recorded[group as usize].samples += 1;
            });
            continue;
        }
        let within_ns = row.spread_ns.unwrap_or(row.weight_ns).max(row.weight_ns);
        let when = Interval::new(row.time_ns, row.time_ns.saturating_add(within_ns));
        for (inner, ns) in open.within(row.thread, when) {
            around.each(Some(inner), |group| *overlaps.entry(group).or_default() += ns);
        }
        let state = rank.cpu.state(row.process, row.stack, row.state);
        for (group, ns) in overlaps.drain() {
            recorded[group as usize].off(state, BoundedTime::part(row.weight_ns, within_ns, ns));
        }
    }
    let samples_lost = lost(rank.file, &[loss::CPU_SAMPLES, loss::THROTTLED]).is_some();
    groups.iter().zip(recorded).map(|(group, of)| of.time(group, samples_lost)).collect()
}

/// Finds the groups of a span and of the spans around it. Spans without a group are skipped,
/// because spans may be nested thousands deep.
struct GroupsAround<'s> {
    spans: &'s [OwnSpan],
    groups_of: &'s [[Option<u32>; 2]],
    /// For each span, the innermost span with a group: the span itself or one around it.
    nearest: Vec<Option<u32>>,
}

impl<'s> GroupsAround<'s> {
    fn of(spans: &'s [OwnSpan], groups_of: &'s [[Option<u32>; 2]]) -> GroupsAround<'s> {
        let mut nearest: Vec<Option<u32>> = Vec::with_capacity(spans.len());
        // The spans around a span come before it, so their entries are set already.
        for (at, span) in (0..).zip(spans) {
            let has_group = groups_of[at as usize].iter().any(Option::is_some);
            let outer = span.parent.and_then(|parent| nearest[parent as usize]);
            nearest.push(if has_group { Some(at) } else { outer });
        }
        GroupsAround { spans, groups_of, nearest }
    }

    fn each(&self, innermost: Option<u32>, mut found: impl FnMut(u32)) {
        let mut at = innermost.and_then(|at| self.nearest[at as usize]);
        while let Some(span) = at {
            self.groups_of[span as usize].iter().flatten().for_each(|group| found(*group));
            let parent = self.spans[span as usize].parent;
            at = parent.and_then(|parent| self.nearest[parent as usize]);
        }
    }
}

impl Recorded {
    fn off(&mut self, state: ThreadState, part: BoundedTime) {
        match WAITS.iter().position(|wait| *wait == state) {
            Some(at) => self.waits[at] += part,
            None => self.ready += part,
        }
    }

    fn time(&self, group: &SpanGroup, samples_lost: bool) -> ThreadTime {
        if let Some(why) = &group.missing {
            return ThreadTime::missing(why);
        }
        let mut waited = BoundedTime::default();
        self.waits.iter().for_each(|wait| waited += *wait);
        let mut off = waited;
        off += self.ready;
        let on_core = off.rest_of(group.total_ns);
        ThreadTime {
            cpu_ns: self.sampled(on_core, samples_lost).unwrap_or(on_core.reading()),
            ready_ns: self.ready.reading(),
            waited_ns: waited.reading(),
            waits_ns: self.waits.map(BoundedTime::reading),
        }
    }

    /// Returns the time on a core by samples, if that is more exact than the bounds.
    fn sampled(&self, on_core: BoundedTime, samples_lost: bool) -> Option<Reading<u64>> {
        let spread = 1.96 * self.sampled_ns as f64 / (self.samples as f64).sqrt();
        let is_better = self.samples > 0 && !samples_lost && spread < on_core.error_ns() as f64;
        let value = self.sampled_ns.clamp(on_core.least_ns, on_core.most_ns);
        is_better.then_some(Reading::Estimate { value, error: spread.round() as u64 })
    }
}

/// The facts that tell why a thread's time within a span isn't known.
pub(super) struct Unknown {
    threads: FxHashSet<(ProcessIndex, ThreadIndex)>,
    pauses: Pauses,
    lost: Option<String>,
}

impl Unknown {
    pub fn of(rank: &RankTrace<'_>) -> Unknown {
        let threads = rank.cpu.stretches.iter().map(|of| (of.process, of.thread)).collect();
        let lost = lost(rank.file, &[loss::PERF_RECORDS]);
        Unknown { threads, pauses: Pauses::of(rank.file), lost }
    }

    /// Returns the reason for a span; `None` if its time is known.
    pub fn why(&self, span: &OwnSpan) -> Option<&str> {
        match (&self.lost, self.threads.contains(&(span.row.process, span.row.thread))) {
            _ if self.threads.is_empty() => Some(NO_SAMPLES),
            _ if span.any_thread => Some(ANY_THREAD),
            (_, false) => Some(NO_THREAD),
            _ if self.pauses.overlap(span) => Some(PAUSED),
            (why, _) => why.as_deref(),
        }
    }
}

/// Describes the largest of these losses; `None` if there are none.
fn lost(file: &TraceFile, of: &[&str]) -> Option<String> {
    let losses = file.losses().iter().filter(|loss| of.contains(&file.name(loss.what)));
    let most = losses.max_by_key(|loss| loss.count)?;
    let (what, why) = (file.name(most.what), file.name(most.why));
    Some(format!("{} {what} lost ({why})", units::count(most.count)))
}
