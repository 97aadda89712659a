//! SynchronousCopies: copies that hold their thread until they are done. The
//! rule "CUDA synchronous memcpy" of Nsight Systems.

use super::absent::Thing;
use super::calls::is_synchronous_copy;
use super::copies::{Copy, Words};
use super::rule::{Rule, Verdict};
use super::scene::Scene;

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
        super::judge_synchronous(scene, &COPY, &WORDS, |copy: &Copy| {
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
