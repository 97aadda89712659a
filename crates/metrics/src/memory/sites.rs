//! Merges the allocation sites of a rank's processes: stacks whose frames have the same names are
//! one site.

use std::collections::HashMap;
use std::sync::Arc;

use tprof_rank::base::frames::{FrameId, Frames};
use tprof_rank::base::object::object;
use tprof_rank::base::reading::Reading;
use tprof_rank::base::sort_rows::SortRows;
use tprof_trace::model::ProcessIndex;

use super::points::{Points, Trend};
use super::replay::{RawSite, Replay};
use super::weight::{bounded, error};

/// The allocations of one call stack.
#[derive(Clone, Debug)]
pub struct Site {
    /// Sum of the requested bytes.
    pub bytes: Reading<u64>,
    /// Number of allocations; a realloc counts as one.
    pub allocations: Reading<u64>,
    /// Bytes that were not freed when their process ended.
    pub live_bytes: Reading<u64>,
    /// Bytes that were live at the rank's peak.
    pub peak_bytes: Reading<u64>,
    /// Whether the figures are estimates from samples.
    pub estimate: bool,
    /// Frames, innermost first; empty if no stack was taken.
    pub stack: Vec<Arc<str>>,
}
object! { Site {
    reading bytes, reading allocations, reading live_bytes, reading peak_bytes, plain estimate,
    plain stack,
} }

/// A site whose live bytes grow.
#[derive(Clone, Debug)]
pub struct GrowingSite {
    /// Live bytes at the last point minus those at the first after warm-up.
    pub growth_bytes: Reading<i64>,
    /// Slope of the least-squares line through all points after warm-up.
    pub bytes_per_interval: f64,
    /// Live bytes at the last point.
    pub last_bytes: Reading<u64>,
    /// Frames of the stack, innermost first.
    pub stack: Vec<Arc<str>>,
}
object! { GrowingSite {
    reading growth_bytes, plain bytes_per_interval, reading last_bytes, plain stack,
} }

/// The interval at which allocations were sampled, and a bound of live bytes.
pub(crate) struct Sampled {
    /// Mean bytes between samples.
    pub unit: u64,
    /// An upper bound of the live bytes at any time, if it is known. It comes from the processes'
    /// own counters.
    pub most: Option<u64>,
}

/// Live bytes compared at points.
pub(crate) struct SiteGrowth {
    pub first_bytes: Reading<u64>,
    pub last_bytes: Reading<u64>,
    pub growth_bytes: Reading<i64>,
    pub bytes_per_interval: f64,
}

/// The sites of one rank, merged over its processes.
pub(crate) struct MergedSites {
    frames: Vec<Vec<FrameId>>,
    sums: Vec<RawSite>,
    of_raw: Vec<usize>,
}

impl MergedSites {
    pub fn new(replay: &Replay, frames: &mut Frames) -> MergedSites {
        let mut merged = MergedSites { frames: Vec::new(), sums: Vec::new(), of_raw: Vec::new() };
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

    /// Number of sites.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Allocations and bytes of all sites, estimated from samples that were taken every `unit`
    /// bytes.
    pub fn estimates(&self, unit: u64) -> (Reading<u64>, Reading<u64>) {
        let mut all = RawSite::default();
        self.sums.iter().for_each(|sum| all.absorb(sum));
        (all.count_reading(Some(unit)), all.bytes_reading(all.bytes, 0, Some(unit)))
    }

    /// For each site of a single process, the index of its merged site.
    pub fn of_raw(&self) -> &[usize] {
        &self.of_raw
    }

    /// Frames of a site, innermost first.
    pub fn stack(&self, at: usize, frames: &Frames) -> Vec<Arc<str>> {
        frames.texts(&self.frames[at])
    }

    /// The sites, the largest at the peak first. `unit` is the sampling interval, `partial` the
    /// reason why live bytes are unknown.
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
        // Sites with equal bytes are ordered by their stacks, so that the result does not depend on
        // the order of events.
        sites.sort_rows_by(|a, b| {
            let key =
                |site: &Site| (site.peak_bytes.get(), site.bytes.get(), site.allocations.get());
            key(b).cmp(&key(a)).then_with(|| a.stack.cmp(&b.stack))
        });
        sites
    }

    /// The growth of all sites together.
    pub fn grown(&self, total: &Trend, sampled: Option<&Sampled>, points: &Points) -> SiteGrowth {
        let mut all = RawSite::default();
        self.sums.iter().for_each(|sum| all.absorb(sum));
        let variance = all.trend.variance;
        all.trend = *total;
        all.trend.variance = variance;
        all.grown(sampled, points)
    }

    /// Returns the sites with positive growth and positive slope, the largest growth first.
    pub fn growing(
        &self,
        frames: &Frames,
        sampled: Option<&Sampled>,
        points: &Points,
    ) -> Vec<GrowingSite> {
        let mut growing: Vec<GrowingSite> = (self.frames.iter().zip(&self.sums))
            .filter(|(_, sum)| sum.trend.growth() > 0 && sum.trend.slope(points) > 0.0)
            .map(|(stack, sum)| {
                let SiteGrowth { growth_bytes, bytes_per_interval, last_bytes, .. } =
                    sum.grown(sampled, points);
                let stack = frames.texts(stack);
                GrowingSite { growth_bytes, bytes_per_interval, last_bytes, stack }
            })
            .collect();
        growing.sort_rows_by(|a, b| {
            let (of_a, of_b) = (a.growth_bytes.get(), b.growth_bytes.get());
            of_b.cmp(&of_a).then_with(|| a.stack.cmp(&b.stack))
        });
        growing
    }

    /// Returns the `most` sites with the most live bytes at a process's end, as bytes and stack.
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
        owners.sort_rows_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
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

    fn grown(&self, sampled: Option<&Sampled>, points: &Points) -> SiteGrowth {
        let trend = &self.trend;
        let (first, last, growth) = (trend.first, trend.last, trend.growth());
        let slope = trend.slope(points);
        let Some(sampled) = sampled.filter(|_| self.uncertain > 0.0) else {
            return SiteGrowth {
                first_bytes: Reading::Is(first),
                last_bytes: Reading::Is(last),
                growth_bytes: Reading::Is(growth),
                bytes_per_interval: slope,
            };
        };
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let most = sampled.most.map_or(i64::MAX, signed);
        let known = |value: i64, variance: f64, least: i64| {
            let error = error(variance, sampled.unit as f64).round() as u64;
            bounded(value, error, least, most)
        };
        let live = |value, variance| known(signed(value), variance, 0).map(|is| is.max(0) as u64);
        let steepest_slope = sampled.most.map_or(f64::INFINITY, |most| points.steepest_slope(most));
        SiteGrowth {
            first_bytes: live(first, trend.variance[0]),
            last_bytes: live(last, trend.variance[1]),
            // Blocks that are live at both points add their variance twice here but not to the true
            // error, so this error is an upper bound.
            growth_bytes: known(growth, trend.variance.iter().sum(), most.saturating_neg()),
            bytes_per_interval: slope.clamp(-steepest_slope, steepest_slope),
        }
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
