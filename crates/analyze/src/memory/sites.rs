//! Allocation sites: stacks of all processes of a rank, merged by their names.

use std::collections::HashMap;
use std::sync::Arc;

use tprof_trace::model::ProcessIndex;

use super::points::{Points, Trend};
use super::replay::{RawSite, Replay};
use super::weight::error;
use crate::base::frames::{FrameId, Frames};
use crate::base::object::object;
use crate::base::reading::Reading;

/// What one call stack allocated.
#[derive(Clone, Debug)]
pub struct Site {
    /// Requested bytes.
    pub bytes: Reading<u64>,
    /// Allocations; a realloc is one.
    pub allocations: Reading<u64>,
    /// Bytes not freed when their process ended.
    pub live_bytes: Reading<u64>,
    /// Bytes live at the rank's peak.
    pub peak_bytes: Reading<u64>,
    /// True where the figures are estimates from samples.
    pub estimate: bool,
    /// Frames, innermost first; empty where no stack was taken.
    pub stack: Vec<Arc<str>>,
}
object! { Site {
    reading bytes, reading allocations, reading live_bytes, reading peak_bytes, plain estimate,
    plain stack,
} }

/// A site that holds more and more.
#[derive(Clone, Debug)]
pub struct GrowingSite {
    /// Live bytes at the last point minus those at the first after warm-up.
    pub growth_bytes: i64,
    /// Slope of the least-squares line through all points after warm-up.
    pub bytes_per_interval: f64,
    /// Live bytes at the last point.
    pub last_bytes: u64,
    /// Frames, innermost first.
    pub stack: Vec<Arc<str>>,
}
object! { GrowingSite {
    plain growth_bytes, plain bytes_per_interval, plain last_bytes, plain stack,
} }

/// Sites of one rank, merged.
pub(crate) struct Merged {
    frames: Vec<Vec<FrameId>>,
    sums: Vec<RawSite>,
    of_raw: Vec<usize>,
}

impl Merged {
    pub fn new(replay: &Replay, frames: &mut Frames) -> Merged {
        let mut merged = Merged { frames: Vec::new(), sums: Vec::new(), of_raw: Vec::new() };
        let mut index: HashMap<Vec<FrameId>, usize> = HashMap::new();
        for raw in &replay.sites {
            let stack = frames.stack(raw.process, raw.stack);
            let at = *index.entry(stack).or_insert_with_key(|stack| {
                merged.frames.push(stack.clone());
                merged.sums.push(RawSite::default());
                merged.sums.len() - 1
            });
            merged.sums[at].absorb(raw);
            merged.of_raw.push(at);
        }
        merged
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Allocations and bytes of all sites, from samples that were taken each `unit` bytes.
    pub fn estimates(&self, unit: u64) -> (Reading<u64>, Reading<u64>) {
        let mut all = RawSite::default();
        self.sums.iter().for_each(|sum| all.absorb(sum));
        (all.count_reading(Some(unit)), all.bytes_reading(all.bytes, 0, Some(unit)))
    }

    /// For each site of one process, the merged one.
    pub fn of_raw(&self) -> &[usize] {
        &self.of_raw
    }

    /// Frames of a site, innermost first.
    pub fn stack(&self, at: usize, frames: &Frames) -> Vec<Arc<str>> {
        frames.texts(&self.frames[at])
    }

    /// The sites, largest at the peak first. `unit` is the sampling interval,
    /// `partial` the reason why nothing is known about live bytes.
    pub fn sites(&self, frames: &Frames, unit: Option<u64>, partial: Option<&str>) -> Vec<Site> {
        let known = |reading: Reading<u64>| match partial {
            Some(why) => Reading::missing(why),
            None => reading,
        };
        let mut sites: Vec<Site> = (self.frames.iter().zip(&self.sums))
            .map(|(stack, sum)| Site {
                bytes: sum.bytes_reading(sum.bytes, 0, unit),
                allocations: sum.count_reading(unit),
                live_bytes: known(sum.bytes_reading(sum.live, 2, unit)),
                peak_bytes: known(sum.bytes_reading(sum.peak, 3, unit)),
                estimate: unit.is_some(),
                stack: frames.texts(stack),
            })
            .collect();
        // Equal sites keep one order whatever the order of the events was.
        sites.sort_by(|a, b| {
            let key =
                |site: &Site| (site.peak_bytes.get(), site.bytes.get(), site.allocations.get());
            key(b).cmp(&key(a)).then_with(|| a.stack.cmp(&b.stack))
        });
        sites
    }

    /// Sites that grew by both measures, largest growth first.
    pub fn growing(&self, frames: &Frames, points: &Points) -> Vec<GrowingSite> {
        let mut growing: Vec<GrowingSite> = (self.frames.iter().zip(&self.sums))
            .filter(|(_, sum)| sum.trend.growth() > 0 && sum.trend.slope(points) > 0.0)
            .map(|(stack, sum)| GrowingSite {
                growth_bytes: sum.trend.growth(),
                bytes_per_interval: sum.trend.slope(points),
                last_bytes: sum.trend.last,
                stack: frames.texts(stack),
            })
            .collect();
        growing.sort_by(|a, b| {
            b.growth_bytes.cmp(&a.growth_bytes).then_with(|| a.stack.cmp(&b.stack))
        });
        growing
    }

    /// The largest owners of what a process held at its end: bytes and stack.
    pub fn owners(
        &self,
        replay: &Replay,
        frames: &Frames,
        process: ProcessIndex,
        most: usize,
    ) -> Vec<(u64, Vec<Arc<str>>)> {
        let mut held: HashMap<usize, u64> = HashMap::new();
        for (raw, &at) in replay.sites.iter().zip(&self.of_raw) {
            if raw.process == process && raw.live > 0 {
                *held.entry(at).or_default() += raw.live;
            }
        }
        let mut owners: Vec<(u64, Vec<Arc<str>>)> =
            held.into_iter().map(|(at, bytes)| (bytes, frames.texts(&self.frames[at]))).collect();
        owners.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        owners.truncate(most);
        owners
    }
}

impl RawSite {
    fn absorb(&mut self, other: &RawSite) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.allocations += other.allocations;
        self.live = self.live.saturating_add(other.live);
        self.peak = self.peak.saturating_add(other.peak);
        self.uncertain += other.uncertain;
        for (sum, part) in self.variance.iter_mut().zip(other.variance) {
            *sum += part;
        }
        let mut trend: Trend = self.trend;
        trend.add(&other.trend);
        self.trend = trend;
    }

    fn bytes_reading(&self, value: u64, variance: usize, unit: Option<u64>) -> Reading<u64> {
        match unit {
            Some(unit) if self.uncertain > 0.0 => Reading::Estimate {
                value,
                error: error(self.variance[variance], unit as f64).round() as u64,
            },
            _ => Reading::Is(value),
        }
    }

    fn count_reading(&self, unit: Option<u64>) -> Reading<u64> {
        let value = self.allocations.round() as u64;
        if unit.is_none() || self.uncertain <= 0.0 {
            return Reading::Is(value);
        }
        let unit = self.variance[1] / self.uncertain;
        Reading::Estimate { value, error: error(self.variance[1], unit).round() as u64 }
    }
}
