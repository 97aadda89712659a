//! The time over which a rule judges the growth of memory, and what follows from the rate.

use rustc_hash::FxHashMap;
use tprof_facts::units::{bytes, duration};
use tprof_metrics::memory::Moments;
use tprof_metrics::memory::timeline::Cgroup;
use tprof_trace::TraceFile;
use tprof_trace::model::counter;

use crate::scene::Scene;
use crate::verdict::Verdict;

/// The smallest growth that counts, because any program grows by a few bytes.
const LEAST_BYTES: u64 = 1 << 20;
/// The smallest growth that counts, as a share of the live bytes at the end.
const LEAST_OF_LIVE: f64 = 0.05;
/// The smallest number of rises that the growth must consist of. Data that is loaded once makes one
/// rise, or two if it is loaded in halves.
pub(super) const LEAST_RISES: usize = 3;
/// If there are at least this many steps, memory is compared at their boundaries.
const LEAST_STEPS: usize = 4;
/// Without enough steps, the judged time is divided into this many equal parts.
const PARTS: u64 = 256;
/// Without enough steps and with a judged time shorter than this, the growth may belong to the
/// start of a job, which fills libraries and caches once. Such growth counts only if a line of the
/// user's own code allocates the memory and the growth lasts for at least [`LEAST_NS`].
const LONG_NS: u64 = 10_000_000_000;
const LEAST_NS: u64 = 1_000_000_000;
/// A growing heap costs no time until memory is full. If the size of memory is unknown, this is the
/// maximum share of the finding, so its severity is at most medium.
const MOST_SHARE: f64 = 0.099;
/// If the size of memory is known, growth that fills it in an hour has this share, which makes the
/// severity high. Growth that fills it in half of that time has twice the share.
const SHARE_OF_HOUR: f64 = 0.1;
/// With fewer steps than this, in less than [`LONG_NS`], the report doesn't predict when memory
/// will be full.
const MANY_STEPS: usize = 20;
/// The maximum share of a finding: not quite all of the time.
const LONGEST_SHARE: f64 = 0.99;
const MINUTE_NS: f64 = 6e10;
const HOUR_NS: f64 = 3.6e12;

/// The moments at which memory is compared.
pub(super) struct GrowthTime {
    /// Times of the trace file, in order.
    pub moments: Vec<u64>,
    by_step: bool,
    steps: usize,
}

/// By how much memory grew in which time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grown {
    /// Bytes that came.
    pub bytes: u64,
    /// The bytes that came per step, if steps were compared.
    pub per_step: f64,
    /// The time in which they came, ns.
    pub life_ns: u64,
}

impl GrowthTime {
    /// Takes the start of each step except the first, and the end of the last step. Without enough
    /// steps, takes regular moments of the judged time. Returns `None` if no time is judged.
    pub fn of(scene: &Scene<'_>) -> Option<GrowthTime> {
        let window = scene.window.span()?;
        let by_step = scene.steps >= LEAST_STEPS;
        let moments = if by_step {
            let last = scene.later_steps.last().map(|step| step.end.saturating_sub(1));
            scene.later_steps.iter().map(|step| step.start).chain(last).collect()
        } else {
            let part = window.length() / PARTS;
            (0..=PARTS).map(|at| window.start + at * part).collect()
        };
        Some(GrowthTime { moments, by_step, steps: scene.steps })
    }

    /// Returns some of the moments, for a metric that compares memory at them.
    pub fn within(&self, within: std::ops::Range<usize>) -> Moments {
        let times = self.moments[within].to_vec();
        if self.by_step { Moments::steps(times) } else { Moments::even(times) }
    }

    /// Returns the length of the judged time, ns.
    fn length_ns(&self) -> u64 {
        let ends = self.moments.last().zip(self.moments.first());
        ends.map_or(0, |(last, first)| last - first)
    }

    /// Whether the time is long enough to tell growth that goes on. `is_own` says whether a line of
    /// the user's own takes the memory.
    pub fn tells_growth(&self, life_ns: u64, is_own: bool) -> bool {
        // Growth in only a part of a long judged time isn't the growth of a start, so use the
        // length of the whole judged time.
        self.by_step || self.length_ns() >= LONG_NS || is_own && life_ns >= LEAST_NS
    }

    /// Formats the rate: `2.0 MiB a step`, `30.0 MiB a minute`.
    pub fn rate(&self, grown: Grown) -> String {
        if self.by_step {
            return format!("{} a step", bytes(grown.per_step as u64));
        }
        let rate = grown.bytes as f64 * MINUTE_NS / grown.life_ns.max(1) as f64;
        format!("{} a minute", bytes(rate as u64))
    }

    /// Returns the time until memory is full at this rate, ns; `None` if it isn't known.
    pub fn full_in_ns(&self, scene: &Scene<'_>, grown: Grown) -> Option<f64> {
        let is_long = self.length_ns() >= LONG_NS || self.steps >= MANY_STEPS;
        full_in_ns(scene, grown.bytes, grown.life_ns).filter(|_| is_long)
    }
}

/// The end of a sentence on growth that would be large enough to report, if it went on.
pub(super) const NOT_STEADY: &str = ", but not steadily until the end";

/// Formats growth that is no problem, or `rests` if there is none. `is_large` says whether its size
/// would count.
pub(super) fn not_steady(grows: &str, rests: &str, grown: u64, is_large: bool) -> String {
    match grown {
        0 => rests.to_owned(),
        _ => format!("{grows} by {}{}", bytes(grown), if is_large { NOT_STEADY } else { "" }),
    }
}

/// Returns the verdict on growth in a time that is too short to judge it.
pub(super) fn too_short(what: &str, grown: Grown) -> Verdict {
    Verdict::unchecked(
        format!(
            "{what} by {} in {}, too short a time to tell growth that goes on",
            bytes(grown.bytes),
            duration(grown.life_ns)
        ),
        "a run of 10 s, four steps, or a line that allocates (`--stacks python`)",
    )
}

/// Whether the growth is larger than the growth of any program.
pub(super) fn counts(first: u64, last: u64) -> bool {
    let grown = last.saturating_sub(first);
    grown >= LEAST_BYTES && grown as f64 >= LEAST_OF_LIVE * last as f64
}

/// Returns the share by which a finding of growth is ranked. `of_live` is the growth's share of the
/// memory at its end.
pub(super) fn share(left_ns: Option<f64>, of_live: f64) -> f64 {
    match left_ns {
        Some(left_ns) => (SHARE_OF_HOUR * HOUR_NS / left_ns.max(1.0)).min(LONGEST_SHARE),
        None => of_live.min(MOST_SHARE),
    }
}

/// Formats when memory is full, to follow a rate; empty if it isn't known.
pub(super) fn full_words(left_ns: Option<f64>) -> String {
    let words = |left_ns| format!("; memory is full in {} at that rate", long(left_ns));
    left_ns.map(words).unwrap_or_default()
}

/// Returns the time until memory is full if it keeps growing, ns. Memory is limited by the
/// cgroup, or by the machine if the cgroup has no limit. Returns `None` if neither limit is known.
fn full_in_ns(scene: &Scene<'_>, grown: u64, life_ns: u64) -> Option<f64> {
    let file = scene.rank.file;
    let cgroup = Cgroup::of(file);
    let limit = cgroup.limit_bytes.get().filter(|limit| *limit > 0);
    let (all, used) = match (limit, cgroup.last_bytes.get()) {
        (Some(limit), Some(used)) => (limit, used),
        _ => (scene.machine.memory_bytes?, resident(file)?),
    };
    let left = all.saturating_sub(used) as f64;
    Some(left / (grown as f64 / life_ns.max(1) as f64))
}

/// Returns the last resident memory of a rank's processes, in bytes. A page that several processes
/// share counts for each of them.
fn resident(file: &TraceFile) -> Option<u64> {
    let of = file.counters().iter().filter(|row| file.name(row.name) == counter::RSS_BYTES);
    let mut last: FxHashMap<_, (u64, u64)> = FxHashMap::default();
    for row in of {
        let one = last.entry(row.process).or_default();
        if row.time_ns >= one.0 {
            *one = (row.time_ns, row.value as u64);
        }
    }
    (!last.is_empty()).then(|| last.values().map(|(_, bytes)| bytes).sum())
}

/// Formats a time coarsely, because the rate isn't exact: `20 min`, `3 h`, `12 days`.
fn long(ns: f64) -> String {
    match ns / MINUTE_NS {
        minutes if minutes < 1.0 => "less than a minute".to_owned(),
        minutes if minutes < 120.0 => format!("{minutes:.0} min"),
        minutes if minutes < 48.0 * 60.0 => format!("{:.0} h", minutes / 60.0),
        minutes => format!("{:.0} days", minutes / 1440.0),
    }
}
