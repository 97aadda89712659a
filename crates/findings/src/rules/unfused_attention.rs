//! UnfusedAttention: attention runs as two batched matrix products with a softmax between them.

use std::ops::Range;

use rustc_hash::FxHashSet;
use tprof_facts::flops::Family;
use tprof_facts::units::counted;
use tprof_metrics::program::flops::ModelledRun;

use super::modelled::{cover, no_sizes, work_of};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::{by_name, time, top};

/// The rule that judges attention that writes its scores to memory and reads them again.
pub(super) struct UnfusedAttention;

/// Maximum number of operators between a product and the softmax, such as scaling, masks, dropout
/// and conversions.
const MOST_BETWEEN: usize = 8;

/// Returns the number of elements of a product's result, and the size of the result's last
/// dimension.
fn result(run: &ModelledRun) -> Option<(u64, u64)> {
    let sizes = run.sizes?;
    Some((sizes.batch.checked_mul(sizes.m)?.checked_mul(sizes.n)?, sizes.n))
}

/// Returns the number of elements of a product's first operand, and the size of the operand's last
/// dimension.
fn first(run: &ModelledRun) -> Option<(u64, u64)> {
    let sizes = run.sizes?;
    Some((sizes.batch.checked_mul(sizes.m)?.checked_mul(sizes.k)?, sizes.k))
}

/// Returns the number of elements of a softmax or its backward pass, and the size of the last
/// dimension. Returns `None` for other runs.
fn scores(run: &ModelledRun) -> Option<(u64, u64)> {
    let each = run.work.of?.bytes();
    let is_softmax = run.work.family == Family::Softmax;
    // The model counts five operations per element for a softmax, and four for its backward pass.
    let of_all = [5, 4].into_iter().find_map(|each_has| {
        let elements = run.work.flops / each_has;
        let read = run.work.read? / each;
        (run.work.flops.is_multiple_of(each_has) && (read == elements || read == 2 * elements))
            .then_some(elements)
    });
    of_all.filter(|_| is_softmax).zip(run.last_size)
}

/// Returns the range of runs that form one attention around a softmax, including both products;
/// `None` if they don't form one.
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
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "UnfusedAttention",
            found_if: "products before and after a softmax of as many elements, within eight operators",
            gain: "time of these operators − least time of the products' operations",
            needs: "device work; operators with sizes",
            remedy: "`scaled_dot_product_attention` or `flex_attention`",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = no_sizes(scene) {
            return verdict;
        }
        let runs = &scene.modelled().runs;
        let found: Vec<Range<usize>> = (0..runs.len()).filter_map(|at| around(runs, at)).collect();
        if found.is_empty() {
            return Verdict::no_problem(
                "softmax does not lie between products that attention consists of",
            );
        }
        let attention_runs: FxHashSet<usize> = found.iter().flat_map(Range::clone).collect();
        let work = work_of(scene, |at, _| attention_runs.contains(&at));
        let cover = cover(scene, &work);
        // A fused operator still has to compute the products, so their least time isn't gained.
        let products = attention_runs.iter().filter(|at| runs[**at].sizes.is_some());
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
