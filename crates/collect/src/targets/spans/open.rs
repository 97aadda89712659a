//! Stores spans that have begun and not ended. A thread has a stack of spans, innermost last. A
//! span that any thread may end has a number instead.

use super::args::MAX_RECORDS;
use super::finished::{Finished, OpenSpan};
use std::collections::HashMap;
use tprof_trace::model::ThreadIndex;
use tprof_wire::spans::{Arguments, BY_DEPTH, OnStack, Place};

/// Number of spans that may be open at the same time in one process.
const MAX_OPEN: usize = 1 << 16;
/// Number of ends without a beginning that are stored. The beginning of such a span may be in a
/// ring that is read later.
const MAX_EARLY: usize = 1 << 12;

/// The open spans of a process.
#[derive(Debug, Default)]
pub struct OpenSpans {
    stacks: HashMap<ThreadIndex, Vec<OpenSpan>>,
    free: HashMap<u64, OpenSpan>,
    early: HashMap<u64, u64>,
    /// Spans whose end was read before their beginning. They wait here because their arguments may
    /// follow their beginning in its ring.
    late: HashMap<u64, (OpenSpan, u64)>,
    len: usize,
    endless: u64,
    /// Number of records of arguments for spans that are unknown.
    pub unplaced: u64,
    /// Number of records of arguments beyond the [`MAX_RECORDS`] of their span.
    pub surplus: u64,
}

impl OpenSpans {
    /// Begins a span on its thread's stack.
    pub fn push(&mut self, span: OpenSpan) -> Option<Finished> {
        self.unwind(span.thread, span.place.number);
        if self.len >= MAX_OPEN {
            self.endless += 1;
            return None;
        }
        self.len += 1;
        self.stacks.entry(span.thread).or_default().push(span);
        None
    }

    /// Ends the innermost span of a thread. If the stack doesn't have this span, nothing ends. Then
    /// either the record of its beginning was lost, which is counted elsewhere, or the span began
    /// in the parent before it forked this process.
    pub fn pop(&mut self, thread: ThreadIndex, counted: OnStack, end_ns: u64) -> Option<Finished> {
        let place = Place { number: counted.depth.into() };
        self.unwind(thread, place.number.saturating_add(1));
        let stack = self.stacks.get_mut(&thread)?;
        let span = stack.pop_if(|top| top.place == place)?;
        self.len -= 1;
        let allocated = Some(counted.since(&span.counted));
        Some(Finished::Span { span, end_ns, any_thread: false, allocated })
    }

    /// Ends a span while spans that began within it are still open. The span doesn't nest with
    /// them, so it is written like a span that any thread may end.
    pub fn pop_around(&mut self, thread: ThreadIndex, depth: u16, end_ns: u64) -> Option<Finished> {
        let place = Place { number: depth.into() };
        let stack = self.stacks.get_mut(&thread)?;
        let at = stack.iter().rposition(|span| span.place == place)?;
        let span = stack.remove(at);
        self.len -= 1;
        Some(Finished::Span { span, end_ns, any_thread: true, allocated: None })
    }

    /// Adds arguments to a span.
    pub fn describe(&mut self, thread: ThreadIndex, keys: u32, arguments: Arguments) {
        let number = arguments.span & !BY_DEPTH;
        let span = match arguments.span & BY_DEPTH {
            0 => match self.free.get_mut(&number) {
                Some(span) => Some(span),
                None => self.late.get_mut(&number).map(|(span, _)| span),
            },
            _ => {
                let stack = self.stacks.get_mut(&thread).into_iter().flatten();
                stack.rev().find(|span| span.place.number == number)
            }
        };
        match span {
            Some(span) if span.described.len() < MAX_RECORDS => {
                span.described.push((keys, arguments));
            }
            Some(_) => self.surplus += 1,
            None => self.unplaced += 1,
        }
    }

    /// Returns the spans whose end was read before their beginning. Their arguments have arrived,
    /// because all rings have been read since.
    pub fn late(&mut self) -> Vec<Finished> {
        let over =
            |(span, end_ns)| Finished::Span { span, end_ns, any_thread: true, allocated: None };
        self.late.drain().map(|(_, late)| over(late)).collect()
    }

    /// Drops the spans at this depth and deeper. They must have ended, and the records of their
    /// ends were lost.
    fn unwind(&mut self, thread: ThreadIndex, depth: u64) {
        let Some(stack) = self.stacks.get_mut(&thread) else { return };
        while stack.pop_if(|top| top.place.number >= depth).is_some() {
            self.len -= 1;
            self.endless += 1;
        }
    }

    /// Adds floating-point operations to the span at this place on the thread's stack.
    pub fn flops(
        &mut self,
        thread: ThreadIndex,
        place: Place,
        count: u64,
        dtype: u32,
    ) -> Option<Finished> {
        let stack = self.stacks.get_mut(&thread)?;
        let span = stack.iter_mut().rev().find(|span| span.place == place)?;
        span.stated.add(count, dtype);
        None
    }

    /// Begins a span that any thread may end.
    pub fn start(&mut self, span: OpenSpan) -> Option<Finished> {
        if let Some(end_ns) = self.early.remove(&span.place.number) {
            self.late.insert(span.place.number, (span, end_ns));
            return None;
        }
        if self.len >= MAX_OPEN {
            self.endless += 1;
            return None;
        }
        match self.free.insert(span.place.number, span) {
            Some(_) => self.endless += 1,
            None => self.len += 1,
        }
        None
    }

    /// Ends the span with the number in `place`, which any thread may end.
    pub fn end(&mut self, place: Place, end_ns: u64) -> Option<Finished> {
        if let Some(span) = self.free.remove(&place.number) {
            self.len -= 1;
            return Some(Finished::Span { span, end_ns, any_thread: true, allocated: None });
        }
        if self.early.len() >= MAX_EARLY {
            self.early.clear();
        }
        self.early.insert(place.number, end_ns);
        None
    }

    /// Ends the spans that a thread has left open. Their end is that of the thread.
    pub fn leave(&mut self, thread: ThreadIndex, end_ns: u64) -> Vec<Finished> {
        let left = self.stacks.remove(&thread).unwrap_or_default();
        self.len -= left.len();
        let over = |span: OpenSpan| {
            let end_ns = end_ns.max(span.start_ns);
            Finished::Span { span, end_ns, any_thread: false, allocated: None }
        };
        left.into_iter().map(over).collect()
    }

    /// Ends the spans that are open when the process ends. Also returns the number of spans whose
    /// end was not recorded, which are not written.
    pub fn finish(&mut self, end_ns: u64) -> (Vec<Finished>, u64) {
        let stacks = std::mem::take(&mut self.stacks).into_values().flatten();
        let over = |any_thread| {
            move |span: OpenSpan| {
                let end_ns = end_ns.max(span.start_ns);
                (span.start_ns, Finished::Span { span, end_ns, any_thread, allocated: None })
            }
        };
        let mut cut: Vec<(u64, Finished)> = stacks.map(over(false)).collect();
        cut.extend(std::mem::take(&mut self.free).into_values().map(over(true)));
        cut.sort_by_key(|(start_ns, _)| *start_ns);
        self.len = 0;
        let cut = cut.into_iter().map(|(_, over)| over).collect();
        (cut, std::mem::take(&mut self.endless))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u64, start_ns: u64) -> OpenSpan {
        OpenSpan { name: 1, start_ns, place: Place { number }, ..OpenSpan::default() }
    }

    fn on_stack(depth: u16) -> OnStack {
        OnStack { depth, ..OnStack::default() }
    }

    fn times(over: Option<Finished>) -> Option<(u64, u64)> {
        match over? {
            Finished::Span { span, end_ns, .. } => Some((span.start_ns, end_ns)),
            _ => None,
        }
    }

    #[test]
    fn a_lost_pop_costs_only_its_own_span() {
        let mut spans = OpenSpans::default();
        for span in [at(0, 1), at(1, 2), at(1, 5)] {
            assert!(spans.push(span).is_none());
        }
        assert_eq!(times(spans.pop(0, on_stack(1), 6)), Some((5, 6)));
        assert_eq!(times(spans.pop(0, on_stack(0), 7)), Some((1, 7)));
        assert_eq!(times(spans.pop(0, on_stack(0), 8)), None);
        let (cut, endless) = spans.finish(9);
        assert_eq!((cut.len(), endless, spans.len), (0, 1, 0));
    }

    #[test]
    fn a_span_that_ends_before_its_inner_spans_leaves_them_open() {
        let mut spans = OpenSpans::default();
        for span in [at(0, 1), at(1, 2), at(2, 3)] {
            assert!(spans.push(span).is_none());
        }
        assert_eq!(times(spans.pop_around(0, 1, 5)), Some((2, 5)));
        assert!(spans.pop_around(0, 1, 6).is_none(), "the span has ended already");
        assert_eq!(times(spans.pop(0, on_stack(2), 7)), Some((3, 7)));
        assert_eq!(times(spans.pop(0, on_stack(0), 8)), Some((1, 8)));
        assert_eq!((spans.len, spans.endless), (0, 0));
    }

    #[test]
    fn arguments_without_a_span_are_counted() {
        let mut spans = OpenSpans::default();
        assert!(spans.push(at(0, 1)).is_none() && spans.push(at(1, 2)).is_none());
        assert!(spans.end(Place { number: 7 }, 9).is_none() && spans.start(at(7, 4)).is_none());
        for span in [BY_DEPTH, BY_DEPTH | 1, BY_DEPTH | 1, BY_DEPTH | 2, 7, 8] {
            spans.describe(0, 5, Arguments { span, ..Arguments::default() });
        }
        spans.describe(1, 5, Arguments { span: BY_DEPTH, ..Arguments::default() });
        let described = |over: Option<Finished>| match over {
            Some(Finished::Span { span, .. }) => span.described.len(),
            _ => 0,
        };
        assert_eq!(described(spans.late().pop()), 1);
        assert_eq!(described(spans.pop(0, on_stack(1), 3)), 2);
        assert_eq!(described(spans.pop(0, on_stack(0), 4)), 1);
        assert_eq!(spans.unplaced, 3);
    }

    #[test]
    fn spans_that_a_thread_leaves_open_end_with_it() {
        let mut spans = OpenSpans::default();
        for (thread, number, start_ns) in [(1, 0, 3), (1, 1, 9), (2, 0, 4)] {
            assert!(spans.push(OpenSpan { thread, ..at(number, start_ns) }).is_none());
        }
        // The second span began after the thread had recorded its end, for example in a destructor.
        let left: Vec<_> =
            spans.leave(1, 8).into_iter().map(|over| times(Some(over)).unwrap()).collect();
        assert_eq!((left, spans.len), (vec![(3, 8), (9, 9)], 1));
        assert!(spans.leave(1, 8).is_empty());
        assert_eq!(spans.finish(20).0.len(), 1);
    }

    #[test]
    fn an_end_may_be_read_first_and_open_spans_end_with_the_process() {
        let mut spans = OpenSpans::default();
        assert!(spans.end(Place { number: 7 }, 9).is_none());
        assert!(spans.start(at(7, 4)).is_none());
        let late: Vec<_> = spans.late().into_iter().map(|over| times(Some(over))).collect();
        assert_eq!(late, [Some((4, 9))]);
        assert!(spans.start(at(8, 5)).is_none() && spans.push(at(0, 3)).is_none());
        let (cut, endless) = spans.finish(20);
        let cut: Vec<_> = cut.into_iter().map(|over| times(Some(over))).collect();
        assert_eq!((cut, endless), (vec![Some((3, 20)), Some((5, 20))], 0));
    }
}
