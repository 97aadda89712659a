//! Decides which calls that were in progress when CUPTI began to record need the hook's row. Such a
//! call is often a thread's first CUDA call, which waits for CUDA to start. CUPTI has its own
//! record of the call if it takes the call's begin after its own start. The hook's row waits until
//! it is certain whether that record exists.

use crate::gpu::coverage::SETTLED_MS;
use std::collections::HashMap;
use tprof_trace::model::*;

/// CUPTI's record of a call arrives at most this long after the call, ns.
const LATE_NS: u64 = SETTLED_MS * 1_000_000;

/// The hooks' rows of calls that were in progress when CUPTI began.
#[derive(Debug, Default)]
pub struct InProgress {
    /// The hooks' rows that wait.
    held: Vec<Span>,
    /// For each thread and function name, the earliest of CUPTI's records: the middle of its
    /// interval, ns.
    first: HashMap<(ThreadIndex, NameId), u64>,
}

impl InProgress {
    /// Stores the hook's row of a call that began before CUPTI began to record and ended later.
    pub fn hold(&mut self, row: Span) {
        self.held.push(row);
    }

    /// Notes a call that CUPTI recorded. The call began `since_ns` after CUPTI began to record.
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

    /// Returns and removes the rows of calls that CUPTI certainly did not record. With `last`, all
    /// rows that are left count as certain.
    pub fn settle(&mut self, now_ns: u64, last: bool) -> Vec<Span> {
        let first = &self.first;
        // If CUPTI's record is of the same call, its middle is within the hook's row. If it is of
        // the thread's next call, its middle is after the row. That holds even if the joined clocks
        // differ a little.
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
    fn a_call_recorded_by_hook_and_cupti_has_one_row_in_either_order() {
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
        // CUPTI's records of other calls: the thread's next call of this function, a call of
        // another function, and a call of another thread.
        calls.recorded(&row(1, MALLOC, 1_001, 3), 5);
        calls.recorded(&row(1, NameId(8), 950, 3), 5);
        calls.recorded(&row(3, MALLOC, 950, 3), 5);
        assert_eq!(calls.settle(LATE_NS, false), []);
        assert_eq!(calls.settle(LATE_NS + 1_020, false), [row(1, MALLOC, 100, 900)]);
        assert_eq!(calls.settle(LATE_NS + 1_020, true), [row(2, MALLOC, 90, 950)]);
    }
}
