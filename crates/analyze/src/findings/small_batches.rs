//! SmallBatches: kernels with fewer blocks than the device has multiprocessors.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;
use tprof_trace::model::NameId;

use super::rule::{Finding, Rule, Verdict};
use super::scene::Scene;
use super::words::{short, time};
use crate::intervals::{Cover, Interval};
use crate::rank::Class;
use crate::units::{duration, percent};

/// Multiprocessors left empty by kernels of too few blocks.
pub(super) struct SmallBatches;

/// A kernel that runs on part of the device.
#[derive(Clone, Copy, Debug)]
struct Part {
    interval: Interval,
    /// Of the device's multiprocessors; at most 1.
    filled: f64,
    name: NameId,
    /// Index of the kernel in the rank's work.
    work: u32,
}

impl Rule for SmallBatches {
    fn name(&self) -> &'static str {
        "SmallBatches"
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if scene.compute.is_empty() {
            return super::no_device();
        }
        let Some(parts) = parts(scene) else {
            return Verdict::undecided(
                "the sizes of the kernels' grids, or the number of the device's \
                 multiprocessors, were not recorded",
                "both of them: tprof's own recording and torch.profiler of 1.13 or newer \
                 on CUDA have them",
            );
        };
        let empty = empty_ns(&parts);
        let narrow: Vec<&Part> = parts.iter().filter(|part| part.filled < 1.0).collect();
        let cover = Cover::of(narrow.iter().map(|part| part.interval));
        let mut sums: FxHashMap<NameId, (u64, usize)> = FxHashMap::default();
        for part in &narrow {
            let sum = sums.entry(part.name).or_default();
            *sum = (sum.0 + part.interval.length(), sum.1 + 1);
        }
        let named = |(name, sum)| (scene.rank.name(name), sum);
        let mut sums: Vec<(&str, (u64, usize))> = sums.into_iter().map(named).collect();
        sums.sort_by(|a, b| (b.1, a.0).cmp(&(a.1, b.0)));
        let most: Vec<String> = sums
            .iter()
            .take(3)
            .map(|(name, (ns, _))| format!("{} ({})", short(name), duration(scene.per_step(*ns))))
            .collect();
        let seen = format!(
            "{} of the kernels that compute have fewer blocks than the device has \
             multiprocessors. They run for {}; what they leave empty, with all that runs \
             beside them, is worth {}. Most: {}.",
            percent(narrow.len() as f64 / parts.len().max(1) as f64),
            time(scene, cover.length()),
            time(scene, empty),
            most.join(", "),
        );
        let place = |part: &&Part| scene.work_place(&scene.rank.work[part.work as usize]);
        Verdict::Found(vec![
            Finding::new("kernels are too small to fill the device")
                .seen(seen)
                .advice(
                    "Use larger batches (more samples, longer sequences, less splitting into \
                     micro-batches): such kernels take them at little cost. What stays small \
                     can be fused, batched (bmm, foreach) or run on several streams.",
                )
                .bound(empty)
                .at(narrow.iter().map(place)),
        ])
    }
}

/// Kernels that compute, in the window; none if some lack their size or the
/// device's.
fn parts(scene: &Scene<'_>) -> Option<Vec<Part>> {
    let file = scene.rank.file;
    let processors: FxHashMap<(u32, u32), u32> = file
        .devices()
        .iter()
        .filter_map(|device| Some(((device.process, device.device), device.processors?)))
        .collect();
    let mut parts = Vec::with_capacity(scene.rank.work.len());
    for (row, work) in scene.rank.work.iter().zip(0_u32..) {
        let interval = row.interval();
        let is_whole = scene.work_in_window_ns[work as usize] == interval.length();
        if !row.is_kernel() || row.class != Class::Compute || !is_whole {
            continue;
        }
        let stream = scene.rank.stream(row);
        let processors = *processors.get(&(stream.process, stream.device))?;
        if row.blocks == 0 || processors == 0 {
            return None;
        }
        let filled = (f64::from(row.blocks) / f64::from(processors)).min(1.0);
        parts.push(Part { interval, filled, name: row.name, work });
    }
    (!parts.is_empty()).then_some(parts)
}

/// Σ, over the time in which something computes, of the share of the
/// multiprocessors that stays empty. The parts are in order of start.
fn empty_ns(parts: &[Part]) -> u64 {
    let mut sweep = Sweep::default();
    for part in parts.iter().filter(|part| part.interval.length() > 0) {
        sweep.end_up_to(part.interval.start);
        sweep.pass_to(part.interval.start);
        sweep.filled += part.filled;
        sweep.running.push(Reverse((part.interval.end, part.filled.to_bits())));
    }
    sweep.end_up_to(u64::MAX);
    sweep.empty.round() as u64
}

/// What runs at a moment, and what was empty until then.
#[derive(Default)]
struct Sweep {
    /// Ends of what runs, the next one first, with what each fills.
    running: BinaryHeap<Reverse<(u64, u64)>>,
    filled: f64,
    since_ns: u64,
    empty: f64,
}

impl Sweep {
    fn pass_to(&mut self, time_ns: u64) {
        if !self.running.is_empty() {
            self.empty += (time_ns - self.since_ns) as f64 * (1.0 - self.filled.clamp(0.0, 1.0));
        }
        self.since_ns = time_ns;
    }

    fn end_up_to(&mut self, time_ns: u64) {
        while let Some(&Reverse((end_ns, filled))) = self.running.peek() {
            if end_ns > time_ns {
                break;
            }
            self.pass_to(end_ns);
            self.running.pop();
            // Sums of fractions would drift.
            let left = self.filled - f64::from_bits(filled);
            self.filled = if self.running.is_empty() { 0.0 } else { left };
        }
    }
}
