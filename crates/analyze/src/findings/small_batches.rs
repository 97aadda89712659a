//! SmallBatches: kernels with fewer blocks than the device has multiprocessors.

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
#[derive(Clone, Debug)]
struct Part {
    interval: Interval,
    /// Of the device's multiprocessors; at most 1.
    filled: f64,
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
            let sum = sums.entry(scene.rank.work[part.work as usize].name).or_default();
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
    let mut parts = Vec::new();
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
        parts.push(Part { interval, filled, work });
    }
    (!parts.is_empty()).then_some(parts)
}

/// Σ, over the time in which something computes, of the share of the
/// multiprocessors that stays empty.
fn empty_ns(parts: &[Part]) -> u64 {
    let mut changes: Vec<(u64, f64, i64)> = Vec::with_capacity(parts.len() * 2);
    for part in parts.iter().filter(|part| part.interval.length() > 0) {
        changes.push((part.interval.start, part.filled, 1));
        changes.push((part.interval.end, -part.filled, -1));
    }
    changes.sort_by(|a, b| a.0.cmp(&b.0).then(a.2.cmp(&b.2)).then(a.1.total_cmp(&b.1)));
    let (mut empty, mut filled, mut running, mut since) = (0.0, 0.0_f64, 0_i64, 0);
    for (at, change, count) in changes {
        if running > 0 {
            empty += (at - since) as f64 * (1.0 - filled.clamp(0.0, 1.0));
        }
        running += count;
        // Sums of fractions would drift.
        filled = if running == 0 { 0.0 } else { filled + change };
        since = at;
    }
    empty.round() as u64
}
