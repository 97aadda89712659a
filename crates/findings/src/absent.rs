//! Writes the sentences for rules that find nothing, either because nothing was recorded or because
//! the recorded events lie outside of the judged time.

use rustc_hash::FxHashSet;
use tprof_trace::model::NameId;

use super::scene::Scene;
use super::verdict::Verdict;
use crate::scene::calls::is_known;

/// The kind of event or work that a rule searches for.
pub(super) struct SearchTarget {
    /// The singular noun for it: `call that waits for the device`.
    pub one: &'static str,
    /// Whether the rule only searches main threads.
    pub of_main_threads: bool,
}

impl SearchTarget {
    /// Creates the target for events on a device.
    pub const fn new(one: &'static str) -> SearchTarget {
        SearchTarget { one, of_main_threads: false }
    }

    /// Creates the target for events on the main threads.
    pub const fn of_main_threads(one: &'static str) -> SearchTarget {
        SearchTarget { one, of_main_threads: true }
    }
}

/// Kernels that compute, as a search target.
pub(super) const COMPUTE: SearchTarget = SearchTarget::new("compute kernel");

/// The reason that rules about devices report if nothing ran on a device.
pub(super) const NO_WORK: &str = "no kernel, copy or memset was recorded";

const NEEDS_WORK: &str = "kernels and copies: record a job that uses a GPU with GPU activities";

impl Scene<'_> {
    /// Returns words for the part of the time in which rules search.
    pub fn place(&self) -> &'static str {
        match (self.steps, self.has_device()) {
            (0, true) => "from the first work on a device to the last",
            (0, false) => "in the judged time",
            _ => "in the steps",
        }
    }

    /// Says that the window contains none of what a rule searches for. `is_recorded` tells whether
    /// the recording contains any outside of the window.
    pub fn none(&self, thing: &SearchTarget, is_recorded: bool) -> String {
        let SearchTarget { one, of_main_threads } = thing;
        match (is_recorded, of_main_threads) {
            (false, _) => format!("no {one} was recorded"),
            (true, false) => format!("no {one} lies {}, only outside", self.place()),
            (true, true) => {
                format!("no {one} lies {} on a main thread, only elsewhere", self.place())
            }
        }
    }

    /// Returns the verdict of rules about devices if nothing ran on a device.
    pub fn no_device(&self) -> Option<Verdict> {
        (!self.has_device()).then(|| Verdict::nothing_recorded(NO_WORK, NEEDS_WORK))
    }

    /// Returns the verdict of rules about the blocks of a framework's allocator if there are none.
    pub fn without_blocks(&self) -> Verdict {
        self.no_device().unwrap_or_else(|| {
            Verdict::nothing_recorded(
                "no block of a framework's allocator was recorded",
                "blocks: a tprof recording of PyTorch on a GPU",
            )
        })
    }

    /// Returns the verdict of rules about compute kernels if the window contains no compute kernel.
    pub fn no_compute(&self) -> Option<Verdict> {
        let is_recorded = || self.rank.devices().iter().any(|device| !device.compute.is_empty());
        self.no_device().or_else(|| {
            self.compute.is_empty().then(|| {
                Verdict::nothing_recorded(
                    self.none(&COMPUTE, is_recorded()),
                    "compute kernels in the judged time",
                )
            })
        })
    }

    /// Returns the verdict of rules that identify calls by name, if no call of a known library was
    /// recorded. These rules don't know the purpose of another library's calls.
    pub fn no_calls(&self) -> Option<Verdict> {
        let mut names: FxHashSet<NameId> = FxHashSet::default();
        let is_known = self
            .rank
            .calls
            .iter()
            .any(|call| names.insert(call.name) && is_known(self.rank.name(call.name)));
        (!is_known).then(|| {
            Verdict::nothing_recorded(
                self.none(&SearchTarget::new("CUDA or HIP runtime call"), false),
                "runtime calls: torch.profiler's CPU activities, or a tprof recording",
            )
        })
    }
}
