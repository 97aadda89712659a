//! UnfusedAttention: attention as two batches of products with a softmax between them.

use std::ops::Range;

use rustc_hash::FxHashSet;
use tprof_facts::flops::Family;
use tprof_facts::units::counted;

use super::modelled::{cover, no_sizes, work_of};
use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::verdict::Verdict;
use crate::findings::words::{by_name, time, top};
use crate::program::flops::ModelledRun;

/// Scores that are written to memory, and read again.
pub(super) struct UnfusedAttention;

/// Operators between a product and the softmax: scaling, masks, dropout, types.
const MOST_BETWEEN: usize = 8;

/// Elements of a product's result, and its last size.
fn result(run: &ModelledRun) -> Option<(u64, u64)> {
    let sizes = run.sizes?;
    Some((sizes.batch.checked_mul(sizes.m)?.checked_mul(sizes.n)?, sizes.n))
}

/// Elements of a product's first matrices, and their last size.
fn first(run: &ModelledRun) -> Option<(u64, u64)> {
    let sizes = run.sizes?;
    Some((sizes.batch.checked_mul(sizes.m)?.checked_mul(sizes.k)?, sizes.k))
}

/// Elements that a softmax has, or one backwards, and their last size.
fn scores(run: &ModelledRun) -> Option<(u64, u64)> {
    let each = run.work.of?.bytes();
    let is_softmax = run.work.family == Family::Softmax;
    // Five or four operations for each element.
    let of_all = [5, 4].into_iter().find_map(|each_has| {
        let elements = run.work.flops / each_has;
        let read = run.work.read? / each;
        (run.work.flops.is_multiple_of(each_has) && (read == elements || read == 2 * elements))
            .then_some(elements)
    });
    of_all.filter(|_| is_softmax).zip(run.last_size)
}

/// The runs of attention around a softmax, both products included.
fn around(runs: &[ModelledRun], at: usize) -> Option<Range<usize>> {
    let softmax = &runs[at];
    let wanted = scores(softmax)?;
    let same = |run: &ModelledRun| run.thread == softmax.thread;
    let before = runs[..at].iter().rev().take(MOST_BETWEEN).take_while(|run| same(run));
    let begin = at - 1 - before.clone().position(|run| result(run) == Some(wanted))?;
    let after = runs[at + 1..].iter().take(MOST_BETWEEN).take_while(|run| same(run));
    let end = at + 1 + after.clone().position(|run| first(run) == Some(wanted))?;
    Some(begin..end + 1)
}

impl Rule for UnfusedAttention {
    fn name(&self) -> &'static str {
        "UnfusedAttention"
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = no_sizes(scene) {
            return verdict;
        }
        let runs = &scene.modelled().runs;
        let found: Vec<Range<usize>> = (0..runs.len()).filter_map(|at| around(runs, at)).collect();
        if found.is_empty() {
            return Verdict::clear(
                "softmax does not lie between products that attention consists of",
            );
        }
        let these: FxHashSet<usize> = found.iter().flat_map(Range::clone).collect();
        let work = work_of(scene, |at, _| these.contains(&at));
        let cover = cover(scene, &work);
        // One fused operator has to do the products as well.
        let products = these.iter().filter(|at| runs[**at].sizes.is_some());
        let least: f64 = products.filter_map(|at| runs[*at].compute_ns()).sum();
        let names = by_name(scene, work.iter().map(|work| (*work, work.duration_ns)));
        let seen = format!(
            "{} of products, softmax and what lies between take {}: {}.",
            counted(found.len() as u64, "sequence", "sequences"),
            time(scene, cover.length()),
            top(scene, &names, 3),
        );
        Verdict::Found(vec![
            scene
                .finding("attention runs as separate products and softmax")
                .seen(seen)
                .advice(
                    "Use torch.nn.functional.scaled_dot_product_attention (or flex_attention for \
                     masks of your own): it keeps the scores on the chip. Check that a fused backend is \
                     taken: fp16 or bf16, sizes of heads up to 256.",
                )
                .bound(cover.length().saturating_sub(least as u64))
                .at(work.iter().map(|work| scene.work_place(work))),
        ])
    }
}
