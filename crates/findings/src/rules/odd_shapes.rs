//! OddShapes: matrix products with sizes that leave matrix units partly unused.

use std::collections::BTreeMap;
use tprof_rank::base::sort_rows::SortRows;

use tprof_facts::flops::ElementType::{BFloat16, Float8, Float16};
use tprof_facts::flops::ProductSizes;
use tprof_facts::units::{counted, duration};
use tprof_metrics::program::flops::{Modelled, ModelledRun};

use super::modelled::{cover, no_sizes, of_roof, work_of};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::time;

/// The rule that judges products with a size that isn't a multiple of 16 bytes.
pub(super) struct OddShapes;

/// Matrix units process rows of this many bytes at once (NVIDIA's guide on matrix products).
const ALIGNED_BYTES: u64 = 16;
/// Products with a smaller size than this are slow for other reasons.
const LEAST_SIZE: u64 = 64;
/// If a product reaches this share of its peak, its sizes hardly cost time.
const WELL: f64 = 0.6;

/// Returns the first of a product's sizes that is not a multiple of [`ALIGNED_BYTES`].
fn odd(run: &ModelledRun) -> Option<u64> {
    let (of, ProductSizes { m, n, k, .. }) = (run.work.of?, run.sizes?);
    let is_short = matches!(of, Float16 | BFloat16 | Float8);
    let every = ALIGNED_BYTES / of.bytes();
    let sizes = [m, n, k];
    if !is_short || sizes.iter().any(|size| *size < LEAST_SIZE) {
        return None;
    }
    sizes.into_iter().find(|size| size % every != 0)
}

/// Whether a run has an odd size and is far from its roof.
fn suffers(run: &ModelledRun) -> bool {
    let far = |least: f64| least < WELL * run.device_ns as f64;
    odd(run).is_some() && run.device_ns > 0 && run.least_ns().is_some_and(far)
}

impl Rule for OddShapes {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "OddShapes",
            found_if: "products of 1- and 2-byte types with a size of 64 or more that is no multiple of \
                 16 bytes, below 60 % of the roof",
            gain: "time of these products beyond their least time",
            needs: "device work; operators with sizes; peaks",
            remedy: "pad these sizes to a multiple of 64",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = no_sizes(scene) {
            return verdict;
        }
        let Modelled { runs, peaks, .. } = scene.modelled();
        if peaks.is_none() {
            return Verdict::unchecked(
                "how fast the device may multiply is not known",
                "a device that docs/metrics.md lists under Peaks",
            );
        }
        let work = work_of(scene, |_, run| suffers(run));
        if work.is_empty() {
            return Verdict::no_problem(
                "matrix products have sizes that matrix units take whole, or are near the roof",
            );
        }
        let cover = cover(scene, &work);
        let mut by_size: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut least, mut all) = (0.0, 0);
        for run in runs.iter().filter(|run| suffers(run)) {
            *by_size.entry(odd(run).unwrap_or(0)).or_default() += run.device_ns;
            least += run.least_ns().unwrap_or(0.0);
            all += run.device_ns;
        }
        let mut sizes: Vec<(u64, u64)> = by_size.into_iter().map(|(size, ns)| (ns, size)).collect();
        sizes.sort_rows_by(|a, b| b.cmp(a));
        let text = |(ns, size): &(u64, u64)| format!("{size} ({})", duration(scene.per_step(*ns)));
        let sizes: Vec<String> = sizes.iter().take(3).map(text).collect();
        let seen = format!(
            "{} with such sizes take {}; they need {}. Sizes: {}.",
            counted(work.len() as u64, "kernel", "kernels"),
            time(scene, cover.length()),
            of_roof(scene, least, all),
            sizes.join(", "),
        );
        // Other work that runs at the same time remains. At the peak, the runs would still take
        // their least time. So the gain is the rest of their time.
        let beyond = (cover.length() as f64 * (1.0 - least / all.max(1) as f64)).max(0.0);
        Verdict::Found(vec![
            scene
                .finding("matrix products have sizes that matrix units do not take whole")
                .seen(seen)
                .advice(
                    "Pad these sizes to a multiple of 64 (vocabulary, sequence length, hidden \
                     size), or at least to 16 bytes: 8 elements of bf16 or fp16.",
                )
                .bound(beyond as u64)
                .at(work.iter().map(|work| scene.work_place(work))),
        ])
    }
}
