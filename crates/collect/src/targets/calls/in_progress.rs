//! Calls that were in progress when CUPTI began to record calls: each thread's first, which waited
//! for CUDA to start. CUPTI also records such a call if its own record begins after the start, so
//! the hook's row waits until that is certain.

use crate::gpu::coverage::SETTLED_MS;
use std::collections::HashMap;
use tprof_trace::model::*;

/// Latest time at which CUPTI's record of a call may come, ns after the call.
const LATE_NS: u64 = SETTLED_MS * 1_000_000;

/// See the module.
#[derive(Debug, Default)]
pub struct InProgress {
    /// Rows of the hooks that wait.
    held: Vec<Span>,
    /// The first record of CUPTI's of a thread's calls of one name: its middle, ns.
    first: HashMap<(ThreadIndex, NameId), u64>,
}

impl InProgress {
    /// A hook's row of a call that had begun when CUPTI began to record, and ended later.
    pub fn hold(&mut self, row: Span) {
        self.held.push(row);
    }

    /// Takes a call that CUPTI recorded, which began this long after CUPTI began to record.
    pub fn recorded(&mut self, row: &Span, since_ns: u64) {
        if since_ns > LATE_NS {
            return;
        }
        let middle_ns = row.start_ns + row.duration_ns / 2;
        let first = self.first.entry((row.thread, row.name)).or_insert(middle_ns);
        *first = middle_ns.min(*first);
    }

    /// Rows that wait.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// The rows of calls that CUPTI did not record, as far as that is certain: all at the end.
    pub fn settle(&mut self, now_ns: u64, last: bool) -> Vec<Span> {
        let first = &self.first;
        // The middle of the same call lies within the hook's, that of the next call after it, even
        // if the joined clocks differ.
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
        // The thread's next call of this name, another function, and another thread's.
        calls.recorded(&row(1, MALLOC, 1_001, 3), 5);
        calls.recorded(&row(1, NameId(8), 950, 3), 5);
        calls.recorded(&row(3, MALLOC, 950, 3), 5);
        assert_eq!(calls.settle(LATE_NS, false), []);
        assert_eq!(calls.settle(LATE_NS + 1_020, false), [row(1, MALLOC, 100, 900)]);
        assert_eq!(calls.settle(LATE_NS + 1_020, true), [row(2, MALLOC, 90, 950)]);
    }
}
