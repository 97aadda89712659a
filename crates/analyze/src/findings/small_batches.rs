//! SmallBatches: kernels with fewer blocks than the device has multiprocessors.

use rustc_hash::FxHashMap;
use tprof_trace::model::Kernel;

use super::rule::{Evidence, Finding, Place, Rule, Verdict};
use super::scene::Scene;
use super::words::{short, time};
use crate::intervals::{Cover, Interval};
use crate::rank::{StreamKey, kernel_class};
use crate::units::{duration, percent};

/// Multiprocessors left empty by kernels of too few blocks.
pub(super) struct SmallBatches;

/// A kernel that runs on part of the device.
#[derive(Clone, Debug)]
struct Part {
    interval: Interval,
    /// Of the device's multiprocessors; at most 1.
    filled: f64,
    row: Kernel,
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
        let mut sums: FxHashMap<&str, (u64, usize)> = FxHashMap::default();
        for part in &narrow {
            let sum = sums.entry(scene.rank.name(part.row.name)).or_default();
            *sum = (sum.0 + part.interval.length(), sum.1 + 1);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
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
        let place = |part: &&Part| {
            let Kernel { process, device, context, stream, .. } = part.row;
            Evidence {
                interval: part.interval,
                place: Place::Stream(StreamKey { process, device, context, stream }),
                name: scene.rank.name(part.row.name).to_owned(),
            }
        };
        Verdict::Found(vec![
            Finding::new("kernels are too small to fill the device")
                .seen(seen)
                .advice(
                    "Use larger batches (more samples, longer sequences, less splitting into \
                     micro-batches): such kernels take them at little cost. What stays small \
                     can be fused, batched (bmm, foreach) or run on several streams.",
                )
                .bound(empty)
                .at(narrow.iter().map(place).collect()),
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
    let mut computes: FxHashMap<_, bool> = FxHashMap::default();
    let mut parts = Vec::new();
    for row in file.blocks::<Kernel>().flatten() {
        let class = |name| kernel_class(file.name(name)) == crate::rank::Class::Compute;
        if !*computes.entry(row.name).or_insert_with(|| class(row.name)) {
            continue;
        }
        let interval = Interval::new(row.start_ns, row.start_ns.saturating_add(row.duration_ns));
        if scene.in_window(interval) < interval.length() {
            continue;
        }
        let blocks = row.grid.iter().fold(1_u64, |all, &side| all.saturating_mul(u64::from(side)));
        let processors = *processors.get(&(row.process, row.device))?;
        if blocks == 0 || processors == 0 {
            return None;
        }
        let filled = (blocks as f64 / f64::from(processors)).min(1.0);
        parts.push(Part { interval, filled, row });
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
