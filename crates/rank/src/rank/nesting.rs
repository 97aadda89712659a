//! Finds the innermost span around each of many spans. One sweep over each thread keeps a stack of
//! open spans.

use super::rows::HostSpan;

/// A piece of a host thread's time.
pub trait OnThread {
    /// Index of the thread.
    fn thread(&self) -> u32;
    /// The start, ns.
    fn start_ns(&self) -> u64;
    /// The end, ns.
    fn end_ns(&self) -> u64;
}

/// A time of a thread, for finding the span around it.
#[derive(Clone, Copy, Debug)]
pub struct Moment<T> {
    /// Index of the thread.
    pub thread: u32,
    /// The time, ns.
    pub time_ns: u64,
    /// A value that the caller attaches to this time.
    pub of: T,
}

impl<T> OnThread for Moment<T> {
    fn thread(&self) -> u32 {
        self.thread
    }

    fn start_ns(&self) -> u64 {
        self.time_ns
    }

    fn end_ns(&self) -> u64 {
        self.time_ns
    }
}

impl OnThread for HostSpan {
    fn thread(&self) -> u32 {
        self.thread
    }

    fn start_ns(&self) -> u64 {
        self.start_ns
    }

    fn end_ns(&self) -> u64 {
        HostSpan::end_ns(self)
    }
}

/// The order in which spans nest: by thread, then by start, and longer ones first.
pub fn nesting_order(span: &impl OnThread) -> (u32, u64, std::cmp::Reverse<u64>) {
    (span.thread(), span.start_ns(), std::cmp::Reverse(span.end_ns()))
}

/// For each of `inner`, returns the index of the innermost of `outer` on the same thread that
/// starts no later and ends no earlier. Both lists are in [`nesting_order`].
pub fn enclosing<'s>(
    outer: &'s [impl OnThread],
    inner: &'s [impl OnThread],
) -> impl Iterator<Item = Option<u32>> + 's {
    let mut open: Vec<u32> = Vec::new();
    let mut next = 0;
    inner.iter().map(move |span| {
        while let Some(candidate) = outer.get(next) {
            if (candidate.thread(), candidate.start_ns()) > (span.thread(), span.start_ns()) {
                break;
            }
            push(outer, &mut open, next as u32);
            next += 1;
        }
        close(outer, &mut open, span.thread(), span.start_ns());
        let holds = |at: &&u32| outer[**at as usize].end_ns() >= span.end_ns();
        open.iter().rev().find(holds).copied()
    })
}

/// For each span, returns the index of the innermost other span around it. `spans` is in
/// [`nesting_order`].
pub fn parents(spans: &[HostSpan]) -> Vec<Option<u32>> {
    let mut open: Vec<u32> = Vec::new();
    let mut parents = Vec::with_capacity(spans.len());
    for (at, span) in spans.iter().enumerate() {
        close(spans, &mut open, span.thread, span.start_ns);
        let holds = |at: &&u32| spans[**at as usize].end_ns() >= span.end_ns();
        parents.push(open.iter().rev().find(holds).copied());
        open.push(at as u32);
    }
    parents
}

fn push(spans: &[impl OnThread], open: &mut Vec<u32>, at: u32) {
    let span = &spans[at as usize];
    close(spans, open, span.thread(), span.start_ns());
    open.push(at);
}

/// Removes the spans that are over: those of another thread, and those that ended before `time_ns`.
/// A span that ends at `time_ns` is over too, unless it also starts at that time.
fn close(spans: &[impl OnThread], open: &mut Vec<u32>, thread: u32, time_ns: u64) {
    while let Some(at) = open.last() {
        let span = &spans[*at as usize];
        let lasts = span.end_ns() > time_ns || span.start_ns() == time_ns;
        if span.thread() == thread && lasts {
            break;
        }
        open.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(rows: &[(u32, u64, u64)]) -> Vec<HostSpan> {
        let span = |&(thread, start_ns, end_ns): &(u32, u64, u64)| HostSpan {
            thread,
            start_ns,
            duration_ns: end_ns - start_ns,
            ..HostSpan::default()
        };
        let mut spans: Vec<HostSpan> = rows.iter().map(span).collect();
        spans.sort_by_key(nesting_order);
        spans
    }

    #[test]
    fn the_innermost_span_around_a_call_is_found() {
        let outer = spans(&[(0, 0, 100), (0, 10, 50), (0, 20, 30), (1, 0, 100), (0, 60, 70)]);
        let inner =
            spans(&[(0, 5, 6), (0, 22, 25), (0, 45, 55), (0, 62, 70), (1, 62, 63), (2, 1, 2)]);
        let found: Vec<Option<u64>> = enclosing(&outer, &inner)
            .map(|at| at.map(|at| outer[at as usize].duration_ns))
            .collect();
        // A span that begins within the span from 10 to 50 but ends after it belongs to the span
        // around both.
        assert_eq!(found, [Some(100), Some(10), Some(100), Some(10), Some(100), None]);
    }

    #[test]
    fn a_span_that_follows_another_is_not_within_it() {
        let rows = spans(&[(0, 0, 10), (0, 10, 20), (0, 12, 12), (0, 12, 15), (3, 0, 50)]);
        assert_eq!(parents(&rows), [None, None, Some(1), Some(2), None]);
    }
}
