//! Joins operators with the calls that they make and with the device work of these calls, by
//! numbers like Kineto's `External id`. A run contains such numbers only if a profiler in the job
//! pushed some. For other runs, they are assigned here.

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{ExternalId, ProcessIndex, Span, SpanKind, ThreadIndex};

/// The open operators, and the calls whose device work hasn't been written yet.
#[derive(Default)]
pub(super) struct OperatorIds {
    has_own: bool,
    last: u64,
    /// Ends and numbers of each thread's open operators, outermost first.
    open: FxHashMap<ThreadIndex, Vec<(u64, u64)>>,
    calls: FxHashMap<(ProcessIndex, u64), u64>,
}

impl OperatorIds {
    /// Creates the state for a file. An imported file keeps its own numbers.
    pub fn of(trace: &TraceFile, imported: bool) -> OperatorIds {
        let has_own = imported || trace.row_count::<ExternalId>() > 0;
        OperatorIds { has_own, ..OperatorIds::default() }
    }

    /// Returns the number of a span. An operator gets a number of its own. A call gets the number
    /// of the operator around it, which is stored if device work follows. Spans must be passed in
    /// order of time; of spans that begin together, the longest must come first.
    pub fn span(&mut self, row: &Span, has_work: bool) -> Option<u64> {
        let is_call = matches!(row.kind, SpanKind::Runtime | SpanKind::Driver);
        if self.has_own || !(is_call || row.kind == SpanKind::Operator) {
            return row.external;
        }
        let open = self.open.entry(row.thread).or_default();
        while open.last().is_some_and(|(end_ns, _)| *end_ns <= row.start_ns) {
            open.pop();
        }
        if !is_call {
            self.last += 1;
            open.push((row.start_ns.saturating_add(row.duration_ns), self.last));
            return Some(self.last);
        }
        let (_, id) = *open.last()?;
        if let (Some(correlation), true) = (row.correlation, has_work) {
            // A driver call within a runtime call has the same correlation and so the same number.
            self.calls.insert((row.process, correlation), id);
        }
        Some(id)
    }

    /// Returns the number of the call that started this device work. Forgets the call unless it
    /// started more work.
    pub fn work(
        &mut self,
        process: ProcessIndex,
        (correlation, external): (Option<u64>, Option<u64>),
        more: bool,
    ) -> Option<u64> {
        let Some(correlation) = correlation.filter(|_| !self.has_own) else { return external };
        match more {
            true => self.calls.get(&(process, correlation)).copied(),
            false => self.calls.remove(&(process, correlation)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(kind: SpanKind, start_ns: u64, duration_ns: u64, correlation: u64) -> Span {
        let correlation = (correlation > 0).then_some(correlation);
        Span { kind, start_ns, duration_ns, correlation, ..Span::default() }
    }

    #[test]
    fn work_has_the_number_of_the_innermost_operator_around_its_call() {
        let mut ids = OperatorIds::default();
        let mut see = |kind, start_ns, duration_ns, correlation| {
            ids.span(&span(kind, start_ns, duration_ns, correlation), true)
        };
        let (operator, call) = (SpanKind::Operator, SpanKind::Runtime);
        assert_eq!(see(operator, 0, 100, 0), Some(1));
        assert_eq!(see(operator, 10, 50, 0), Some(2));
        assert_eq!(see(call, 20, 5, 7), Some(2));
        assert_eq!(see(call, 70, 5, 8), Some(1));
        assert_eq!(see(call, 200, 5, 9), None);
        assert_eq!(see(SpanKind::Annotation, 300, 5, 0), None);
        let mut work = |correlation, more| ids.work(0, (Some(correlation), None), more);
        assert_eq!((work(7, true), work(7, false), work(7, false)), (Some(2), Some(2), None));
        assert_eq!((work(8, false), work(9, false)), (Some(1), None));
    }

    #[test]
    fn numbers_that_the_job_pushed_are_not_replaced() {
        let mut ids = OperatorIds { has_own: true, ..OperatorIds::default() };
        assert_eq!(ids.span(&span(SpanKind::Operator, 0, 100, 0), false), None);
        let call = Span { external: Some(40), ..span(SpanKind::Runtime, 1, 2, 7) };
        assert_eq!(ids.span(&call, true), Some(40));
        assert_eq!(ids.work(0, (Some(7), Some(40)), false), Some(40));
    }
}
