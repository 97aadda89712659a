//! Beginnings that wait for their ends.

use rustc_hash::FxHashMap;
use tprof_trace::model::{Span, ThreadIndex};

/// Beginnings that may wait at a time, over all threads.
const MAX_OPEN: usize = 1 << 18;

/// Open spans of all threads, innermost last.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    open: FxHashMap<ThreadIndex, Vec<Span>>,
    count: usize,
}

impl Pairs {
    /// Adds a beginning; false if too many wait.
    pub fn begin(&mut self, span: Span) -> bool {
        if self.count == MAX_OPEN {
            return false;
        }
        self.count += 1;
        self.open.entry(span.thread).or_default().push(span);
        true
    }

    /// The innermost open span of a thread.
    pub fn end(&mut self, thread: ThreadIndex) -> Option<Span> {
        let span = self.open.get_mut(&thread)?.pop()?;
        self.count -= 1;
        Some(span)
    }

    /// How many still wait.
    pub fn open(&self) -> u64 {
        self.count as u64
    }
}
