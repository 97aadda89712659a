//! Calls that were in progress when CUPTI began to record. Often this is a thread's first CUDA
//! call, which waits for CUDA to start. CUPTI also records such a call if its own record begins
//! after that start, so the hook's row waits until it is certain whether CUPTI did.

use crate::gpu::coverage::SETTLED_MS;
use std::collections::HashMap;
use tprof_trace::model::*;

/// Longest time after a call until CUPTI's record of it arrives, ns.
const LATE_NS: u64 = SETTLED_MS * 1_000_000;

/// The hooks' rows of calls that were in progress when CUPTI began.
#[derive(Debug, Default)]
pub struct InProgress {
    /// The waiting rows of the hooks.
    held: Vec<Span>,
    /// The earliest of CUPTI's records by thread and name of the function: the middle of its
    /// interval, ns.
    first: HashMap<(ThreadIndex, NameId), u64>,
}

impl InProgress {
    /// Holds a hook's row of a call that began before CUPTI began to record and ended later.
    pub fn hold(&mut self, row: Span) {
        self.held.push(row);
    }

    /// Notes a call that CUPTI recorded. It began `since_ns` after CUPTI began to record.
    pub fn recorded(&mut self, row: &Span, since_ns: u64) {
        if since_ns > LATE_NS {
            return;
        }
        let middle_ns = row.start_ns + row.duration_ns / 2;
        let first = self.first.entry((row.thread, row.name)).or_insert(middle_ns);
        *first = middle_ns.min(*first);
    }

    /// Returns the number of rows that wait.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns the rows that CUPTI certainly did not record: all that are left if `last` is set.
    pub fn settle(&mut self, now_ns: u64, last: bool) -> Vec<Span> {
        let first = &self.first;
        // The middle of CUPTI's record lies within the hook's row if it is the same call, and after
        // the row if it is the thread's next call. That holds even if the joined clocks differ a
        // little.
        self.held.retain(|row| {
            let end_ns = row.start_ns + row.duration_ns;
            first.get(&(row.thread, row.name)).is_none_or(|middle_ns| *middle_ns >= end_ns)
        });
        let is_certain = |row: &mut Span| last || row.start_ns + row.duration_ns + LATE_NS < now_ns;
        self.held.extract_if(.., is_certain).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MALLOC: NameId = NameId(7);

    fn row(thread: ThreadIndex, name: NameId, start_ns: u64, duration_ns: u64) -> Span {
        Span { start_ns, duration_ns, thread, name, kind: SpanKind::Runtime, ..Span::default() }
    }

    #[test]
    fn a_call_that_cupti_recorded_too_has_one_row_whichever_came_first() {
        for cupti_first in [true, false] {
            let mut calls = InProgress::default();
            let (hooks, cupti) = (row(1, MALLOC, 100, 900), row(1, MALLOC, 980, 15));
            if cupti_first {
                calls.recorded(&cupti, 5);
                calls.hold(hooks);
            } else {
                calls.hold(hooks);
                assert_eq!(calls.settle(2_000, false), []);
                calls.recorded(&cupti, 5);
            }
            assert_eq!(calls.settle(3_000, true), [], "{cupti_first}");
        }
    }

    #[test]
    fn a_call_that_only_its_hook_recorded_keeps_its_row() {
        let mut calls = InProgress::default();
        let rows = [row(1, MALLOC, 100, 900), row(2, MALLOC, 90, 950)];
        rows.into_iter().for_each(|row| calls.hold(row));
        // The thread's next call of this function, a call of another function, and another thread's
        // call.
        calls.recorded(&row(1, MALLOC, 1_001, 3), 5);
        calls.recorded(&row(1, NameId(8), 950, 3), 5);
        calls.recorded(&row(3, MALLOC, 950, 3), 5);
        assert_eq!(calls.settle(LATE_NS, false), []);
        assert_eq!(calls.settle(LATE_NS + 1_020, false), [row(1, MALLOC, 100, 900)]);
        assert_eq!(calls.settle(LATE_NS + 1_020, true), [row(2, MALLOC, 90, 950)]);
    }
}
