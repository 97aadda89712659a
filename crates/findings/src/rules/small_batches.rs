//! SmallBatches: kernels with too few blocks to fill the device.
//!
//! Such a kernel would process a larger batch in about the same time, because the batch would use
//! the multiprocessors that are empty now. If the device waits for the launches of such kernels, a
//! larger batch also needs fewer launches for the same samples, so it waits less.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;
use tprof_facts::units::{duration, percent};
use tprof_metrics::gpu::waves::blocks_that_fill;
use tprof_rank::base::intervals::{Cover, Interval, Union};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{Class, StreamKey, Work};
use tprof_trace::model::{Device, NameId, SpanKind};

use crate::rule::{Rule, RuleAbout};
use crate::scene::{Gap, Scene};
use crate::verdict::Verdict;
use crate::words::{short, time};

/// The rule that judges multiprocessors that are empty while kernels with too few blocks run.
pub(super) struct SmallBatches;

/// A kernel is narrow if it fills less than this share of the device. A larger batch also reduces
/// the waits before the launches of narrow kernels.
const NARROW: f64 = 0.5;
/// If at least this share of the compute kernels is narrow, the small batch is the reason for their
/// gaps.
const MOST_ARE_NARROW: f64 = 0.5;

impl Rule for SmallBatches {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "SmallBatches",
            found_if: "kernels that compute with fewer blocks than half of what the device takes at once \
                 (a wave)",
            gain: "Σ time × share of half a wave that stays empty, over all kernels that run at \
                   once; with narrow kernels also their gaps, see below",
            needs: "grid and multiprocessors",
            remedy: "larger batches; fuse or batch small kernels, or run them on several streams",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_compute() {
            return verdict;
        }
        let Some(processors) = processors(scene) else {
            return Verdict::unchecked(
                "the sizes of the kernels' grids, or the number of the device's \
                 multiprocessors, were not recorded",
                "both: a tprof recording, or torch.profiler of 1.13 or newer on CUDA",
            );
        };
        let (mut sweep, mut narrow_time) = (EmptyMultiprocessors::default(), Union::default());
        let (mut kernels, mut narrow) = (0_usize, Vec::new());
        let mut sums: FxHashMap<NameId, (u64, usize)> = FxHashMap::default();
        let enough = blocks_that_fill(scene.rank.file);
        let updates = updates(scene);
        let mut by_launch: FxHashMap<usize, f64> = FxHashMap::default();
        for (at, row) in computing(scene) {
            let StreamKey { process, device, .. } = scene.rank.stream(row);
            let each = enough.get(&(process, device, row.name)).copied().unwrap_or(1);
            let wave = f64::from(processors[row.stream as usize]) * each as f64;
            let filled = f64::from(row.blocks) / wave;
            kernels += 1;
            // A larger batch doesn't change an optimizer's work, which depends on the number of
            // parameters. So the gaps before its kernels don't count.
            if let Some(call) = scene.rank.launches.call_of(at)
                && filled < NARROW
                && !updates.touches(scene.rank.calls[call].interval())
            {
                by_launch.insert(call, filled);
            }
            sweep.add(row.interval(), filled.min(1.0));
            if filled < 1.0 {
                narrow.push(at as u32);
                narrow_time.add(row.interval());
                let sum = sums.entry(row.name).or_default();
                *sum = (sum.0 + row.duration_ns, sum.1 + 1);
            }
        }
        if kernels == 0 {
            return Verdict::no_problem(format!("no compute kernel lies {} whole", scene.place()));
        }
        let (empty, narrow_time) = (sweep.finish(), narrow_time.finish());
        let named = |(name, sum)| (scene.rank.name(name), sum);
        let mut sums: Vec<(&str, (u64, usize))> = sums.into_iter().map(named).collect();
        sums.sort_rows_by(|a, b| (b.1, a.0).cmp(&(a.1, b.0)));
        let most: Vec<String> = sums
            .iter()
            .take(3)
            .map(|(name, (ns, _))| format!("{} ({})", short(name), duration(scene.per_step(*ns))))
            .collect();
        let shared = match by_launch.len() as f64 >= MOST_ARE_NARROW * kernels as f64 {
            true => shared_gaps(scene, &by_launch),
            false => 0,
        };
        let gaps = match shared {
            0 => String::new(),
            ns => format!(
                " The device waits for the launches of most of them: with batches that fill it {} \
                 less, for as many samples.",
                time(scene, ns)
            ),
        };
        let seen = format!(
            "{} of the compute kernels have fewer blocks than half of what the device takes at once. They run for {}; what they leave empty is worth {}. The longest: {}.{gaps}",
            percent(narrow.len() as f64 / kernels as f64),
            time(scene, narrow_time.length()),
            time(scene, empty),
            most.join(", "),
        );
        let place = |at: &u32| scene.work_place(&scene.rank.work[*at as usize]);
        Verdict::Found(vec![
            scene
                .finding("kernels are too small to fill the device")
                .seen(seen)
                .advice(
                    "Use larger batches (more samples, longer sequences, less splitting into \
                     micro-batches): such kernels take them at little cost, with as many launches. \
                     Fuse or batch (bmm, foreach) the rest, or run it on several streams.",
                )
                .bound(empty + shared)
                .at(narrow.iter().map(place)),
        ])
    }
}

/// Returns the time in which optimizers update parameters.
fn updates(scene: &Scene<'_>) -> Cover {
    let spans = scene.rank.spans(SpanKind::Annotation).iter();
    let is_update = |name: &str| name.starts_with("Optimizer.step");
    Cover::of(
        spans.filter(|span| is_update(scene.rank.name(span.name))).map(|span| span.interval()),
    )
}

/// Returns the part of the waits before launches that a larger batch would save, ns. If a kernel
/// fills only a share of the device, a batch that fills the whole device needs only that share of
/// the launches for the same samples.
fn shared_gaps(scene: &Scene<'_>, by_launch: &FxHashMap<usize, f64>) -> u64 {
    let of_gap = |gap: &Gap| {
        let filled = by_launch.get(&gap.launch()?)?;
        Some(gap.late().length() as f64 * (1.0 - filled))
    };
    scene.gaps.iter().filter_map(of_gap).sum::<f64>() as u64
}

/// Returns the compute kernels that lie completely in the window, in order of start.
fn computing<'s>(scene: &'s Scene<'_>) -> impl Iterator<Item = (usize, &'s Work)> {
    let rows = scene.rank.work.iter().enumerate();
    rows.filter(|(at, row)| {
        let is_whole = scene.work_in_window_ns[*at] == row.duration_ns;
        row.is_kernel() && row.class == Class::Compute && is_whole
    })
}

/// Returns the number of multiprocessors of each stream's device. Returns `None` if that number, or
/// the grid size, is unknown for a compute kernel.
fn processors(scene: &Scene<'_>) -> Option<Vec<u32>> {
    let devices = scene.rank.file.devices();
    let of_stream = |stream: &StreamKey| {
        let is = |row: &&Device| (row.process, row.device) == (stream.process, stream.device);
        devices.iter().rfind(is).and_then(|device| device.processors).unwrap_or(0)
    };
    let processors: Vec<u32> = scene.rank.streams.iter().map(of_stream).collect();
    let is_known = |row: &Work| row.blocks > 0 && processors[row.stream as usize] > 0;
    computing(scene).all(|(_, row)| is_known(row)).then_some(processors)
}

/// Integrates the share of the multiprocessors that is empty over the time in which something
/// computes. It contains the kernels that run at the current moment, and the sum up to it.
#[derive(Default)]
struct EmptyMultiprocessors {
    /// The kernels that run now, the one that ends first at the top. Each entry is the kernel's
    /// end, and the bits of the share of the device that the kernel fills.
    running: BinaryHeap<Reverse<(u64, u64)>>,
    filled: f64,
    since_ns: u64,
    empty: f64,
}

impl EmptyMultiprocessors {
    /// Adds a kernel. Kernels must be added in order of start.
    fn add(&mut self, interval: Interval, filled: f64) {
        if interval.length() > 0 {
            self.end_up_to(interval.start);
            self.pass_to(interval.start);
            self.filled += filled;
            self.running.push(Reverse((interval.end, filled.to_bits())));
        }
    }

    fn finish(mut self) -> u64 {
        self.end_up_to(u64::MAX);
        self.empty.round() as u64
    }

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
            // When nothing runs, set the sum to zero exactly, because sums of fractions drift.
            let left = self.filled - f64::from_bits(filled);
            self.filled = if self.running.is_empty() { 0.0 } else { left };
        }
    }
}
