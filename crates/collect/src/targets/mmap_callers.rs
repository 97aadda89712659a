//! Finds the code that maps anonymous memory for itself. The caller of `mmap` is the innermost
//! frame of the call's stack.

use std::collections::HashMap;

/// Return address of the innermost frame of a stack, and the time when the stack was taken.
type Top = (u64, u64);

/// Bytes of anonymous memory, by the code that mapped them.
#[derive(Debug, Default)]
pub struct MmapCallers {
    /// The stacks of this pass, by id. `last` has those of the previous pass. Older ones aren't
    /// needed, because a stack is defined just before the first event that refers to it.
    tops: HashMap<u32, Top>,
    last: HashMap<u32, Top>,
    mapped: HashMap<u32, (Top, u64)>,
}

impl MmapCallers {
    /// Stores a stack that the process has defined.
    pub fn stack_defined(&mut self, stack: u32, innermost: u64, time_ns: u64) {
        self.tops.insert(stack, (innermost, time_ns));
    }

    /// Ends a pass, and forgets the stacks of the pass before.
    pub fn pass_ended(&mut self) {
        if !(self.tops.is_empty() && self.last.is_empty()) {
            self.last = std::mem::take(&mut self.tops);
        }
    }

    /// Adds bytes to the caller with this stack.
    pub fn mapped(&mut self, stack: u32, bytes: u64) {
        if let Some((_, sum)) = self.mapped.get_mut(&stack) {
            *sum = sum.saturating_add(bytes);
        } else if let Some(top) = self.tops.get(&stack).or_else(|| self.last.get(&stack)) {
            self.mapped.insert(stack, (*top, bytes));
        }
    }

    /// Returns for each caller its return address, the time of its first call, and the bytes that
    /// it mapped.
    pub fn all(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.mapped.values().map(|((address, time_ns), bytes)| (*address, *time_ns, *bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_summed_per_caller_of_mmap() {
        let mut mappers = MmapCallers::default();
        mappers.stack_defined(1, 0x10, 5);
        mappers.stack_defined(2, 0x20, 6);
        mappers.mapped(1, 100);
        mappers.pass_ended();
        mappers.mapped(2, 30);
        mappers.pass_ended();
        mappers.pass_ended();
        mappers.mapped(1, 1);
        // Stack 3 was never defined.
        mappers.mapped(3, 7);
        let mut all: Vec<_> = mappers.all().collect();
        all.sort_unstable();
        assert_eq!(all, [(0x10, 5, 101), (0x20, 6, 30)]);
    }
}
