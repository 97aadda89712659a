//! SynchronousMemsets: memsets that may block their thread until they are done. This is the rule
//! "CUDA synchronous memset" of Nsight Systems.

use super::copies::{CopyProblem, by_a_call_named, judge_synchronous};
use crate::absent::SearchTarget;
use crate::rule::{Rule, RuleAbout};
use crate::scene::calls::is_synchronous_memset;
use crate::scene::{Copy, Scene};
use crate::verdict::Verdict;

/// The rule that judges memsets by calls that are not asynchronous.
pub(super) struct SynchronousMemsets;

const WORDS: CopyProblem = CopyProblem {
    what: "memsets block the host until they are done",
    sort: "",
    things: "synchronous memsets",
    subject: "",
    advice: "Use cudaMemsetAsync on the stream that needs the memory.",
    in_pytorch: "",
};

const MEMSET: SearchTarget = SearchTarget::new("synchronous memset");

impl Rule for SynchronousMemsets {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "SynchronousMemsets",
            found_if: "memsets by calls that are not asynchronous",
            gain: "as PageableCopies",
            needs: "calls",
            remedy: "`cudaMemsetAsync`",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        judge_synchronous(scene, &MEMSET, &WORDS, |copy: &Copy| {
            copy.is_memset() && by_a_call_named(scene, copy, is_synchronous_memset)
        })
    }
}
