//! SynchronousCopies: copies that hold their thread until they are done. The
//! rule "CUDA synchronous memcpy" of Nsight Systems.

use crate::findings::absent::Thing;
use crate::findings::rule::{Rule, Verdict};
use crate::findings::scene::Scene;
use crate::findings::scene::calls::is_synchronous_copy;
use crate::findings::scene::copies::{Copy, Words, finding};

/// Copies by calls that are not asynchronous.
pub(super) struct SynchronousCopies;

const WORDS: Words = Words {
    what: "copies hold the host until they are done",
    sort: "",
    things: "synchronous copies",
    subject: "",
    advice: "Copy asynchronously, on a stream of its own, from and to pinned memory \
             (cudaMemcpyAsync; in PyTorch non_blocking=True).",
};

const COPY: Thing = Thing::new("synchronous copy");

impl Rule for SynchronousCopies {
    fn name(&self) -> &'static str {
        "SynchronousCopies"
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        judge_synchronous(scene, &COPY, &WORDS, |copy: &Copy| {
            !copy.is_memset() && by_a_call_named(scene, copy, is_synchronous_copy)
        })
    }
}

/// Whether the call's name passes; where the call was not seen, whether the
/// trace says that the copy was synchronous.
pub(super) fn by_a_call_named(scene: &Scene<'_>, copy: &Copy, passes: fn(&str) -> bool) -> bool {
    match copy.call {
        Some(call) => passes(scene.rank.name(scene.rank.calls[call].name)),
        None => copy.row.asynchronous == Some(false),
    }
}

/// Copies or memsets whose calls hold their thread.
pub(super) fn judge_synchronous(
    scene: &Scene<'_>,
    thing: &Thing,
    words: &Words,
    is_one: impl Fn(&Copy) -> bool,
) -> Verdict {
    if let Some(verdict) = scene.no_device() {
        return verdict;
    }
    let copies = scene.copies(&is_one);
    if !copies.is_empty() {
        return Verdict::Found(vec![finding(scene, &copies, words)]);
    }
    let all = scene.copies(|_| true);
    match !all.is_empty() && all.iter().all(|copy| copy.is_asynchronous(scene.rank).is_none()) {
        true => Verdict::undecided(
            "which call started which copy was not recorded",
            "calls of the CUDA or HIP runtime with the correlations of their copies",
        ),
        false => scene
            .no_calls()
            .filter(|_| !all.is_empty())
            .unwrap_or_else(|| Verdict::none(scene.none(thing, scene.has_copies(is_one)))),
    }
}
