//! Tells apart compilations of a process to which PyTorch gave the same number. After
//! `torch._dynamo.reset()`, numbers start again at `0/0`. They also start again for a function
//! whose recompilations are isolated.

use super::bounds::Budget;
use super::log::CompileId;
use rustc_hash::FxHashMap;

/// Approximate size of a number's entry, bytes, without its compilations.
const ENTRY_BYTES: usize = 160;

/// The part of a compilation that an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The reasons why existing code didn't fit. They are written before the compilation begins.
    Reasons,
    /// The compilation begins, or begins again after a graph break. The value is the number of the
    /// attempt, from 0.
    Begin(u32),
    /// The compilation ends.
    End,
    /// A backward graph of the compilation ends, possibly long after the compilation itself.
    BackwardEnd,
    /// Any other event.
    Within,
}

/// Tells apart the compilations that PyTorch gave the same number.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    by_id: FxHashMap<CompileId, CompileCounts>,
}

/// The facts that are known about a number.
#[derive(Debug, Default)]
struct CompileCounts {
    /// How often PyTorch has given the number to a compilation, minus one.
    latest: u32,
    /// Whether the latest compilation with the number has reasons.
    has_reasons: bool,
    is_begun: bool,
    /// The compilations that have no end yet; in `without_backward`, those that have no backward
    /// graph yet.
    open: Vec<u32>,
    without_backward: Vec<u32>,
}

impl Numbers {
    /// Returns the compilation that an event with this number belongs to.
    pub(super) fn compilation(
        &mut self,
        id: CompileId,
        stage: Stage,
        budget: &mut Budget,
    ) -> CompileId {
        let is_known = self.by_id.contains_key(&id);
        if !is_known && (stage == Stage::Within || !budget.takes(ENTRY_BYTES)) {
            return id;
        }
        let counts = self.by_id.entry(id).or_default();
        CompileId { given_before: counts.which(stage), ..id }
    }
}

impl CompileCounts {
    fn which(&mut self, stage: Stage) -> u32 {
        match stage {
            Stage::Reasons => {
                if self.has_reasons || self.is_begun {
                    self.give_again();
                }
                self.has_reasons = true;
                self.latest
            }
            Stage::Begin(attempt) => {
                if attempt == 0 || self.open.is_empty() {
                    self.begin();
                }
                self.latest
            }
            Stage::End => match self.open.pop() {
                Some(which) => which,
                None => {
                    self.begin();
                    self.open.pop().unwrap_or(self.latest)
                }
            },
            Stage::BackwardEnd => self.without_backward.pop().unwrap_or(self.latest),
            Stage::Within => self.latest,
        }
    }

    fn begin(&mut self) {
        if self.is_begun {
            self.give_again();
        }
        self.is_begun = true;
        self.open.push(self.latest);
        self.without_backward.push(self.latest);
    }

    fn give_again(&mut self) {
        self.latest = self.latest.saturating_add(1);
        (self.has_reasons, self.is_begun) = (false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn which(stages: &[Stage]) -> Vec<u32> {
        let (mut numbers, mut budget) = (Numbers::default(), Budget::new(1 << 20));
        let of = |&stage: &Stage| {
            numbers.compilation(CompileId::default(), stage, &mut budget).given_before
        };
        stages.iter().map(of).collect()
    }

    #[test]
    fn a_number_that_begins_again_is_another_compilation() {
        use Stage::{Begin, End, Reasons, Within};
        let once = [Reasons, Within, Begin(0), Within, Begin(1), End, Within];
        let twice = [once, once].concat();
        assert_eq!(which(&twice), [vec![0; 7], vec![1; 7]].concat());
        // After the first reasons, PyTorch didn't compile the function again. The next log lacks
        // the beginnings of compilations.
        assert_eq!(which(&[Reasons, Reasons, Begin(0), End]), [0, 1, 1, 1]);
        assert_eq!(which(&[End, End, End]), [0, 1, 2]);
        // Two logs are in one file, and the process died during the first compilation of the first
        // log.
        assert_eq!(which(&[Begin(0), Begin(0), End, Within]), [0, 1, 1, 1]);
    }

    #[test]
    fn a_backward_graph_belongs_to_a_compilation_without_one() {
        use Stage::{BackwardEnd, Begin, End};
        let two = [Begin(0), End, Begin(0), End, BackwardEnd, BackwardEnd, BackwardEnd];
        assert_eq!(which(&two), [0, 0, 1, 1, 1, 0, 1]);
    }
}
