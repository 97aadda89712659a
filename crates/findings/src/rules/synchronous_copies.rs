//! SynchronousCopies: copies that block their thread until they are done. This is the rule "CUDA
//! synchronous memcpy" of Nsight Systems.

use super::copies::{CopyProblem, by_a_call_named, judge_synchronous};
use crate::absent::SearchTarget;
use crate::rule::{Rule, RuleAbout};
use crate::scene::calls::is_synchronous_copy;
use crate::scene::{Copy, Scene};
use crate::verdict::Verdict;

/// The rule that judges copies by calls that are not asynchronous.
pub(super) struct SynchronousCopies;

const WORDS: CopyProblem = CopyProblem {
    what: "copies block the host until they are done",
    sort: "",
    things: "synchronous copies",
    subject: "",
    advice: "Copy asynchronously (cudaMemcpyAsync), on a stream of its own, from and to pinned \
             memory.",
    in_pytorch: "non_blocking=True and pin_memory().",
};

const COPY: SearchTarget = SearchTarget::new("synchronous copy");

impl Rule for SynchronousCopies {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "SynchronousCopies",
            found_if: "copies by calls that are not asynchronous (`cudaMemcpy`, `hipMemcpyWithStream`)",
            gain: "as PageableCopies",
            needs: "calls",
            remedy: "`cudaMemcpyAsync` with pinned memory, `non_blocking=True`",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        judge_synchronous(scene, &COPY, &WORDS, |copy: &Copy| {
            !copy.is_memset() && by_a_call_named(scene, copy, is_synchronous_copy)
        })
    }
}
