//! Turns the spans of each host thread into the form that `walk` needs: the innermost span at each
//! time, and the thread's busy intervals.

use std::cell::Cell;

use rustc_hash::FxHashMap;
use tprof_rank::HostSpan;
use tprof_rank::base::intervals::{Cover, Interval, Union};
use tprof_rank::base::search::partition_near;
use tprof_trace::model::{NameId, SpanKind};

/// A host thread, as intervals of time.
#[derive(Debug, Default)]
pub struct HostThread {
    /// Index of its process.
    pub process: u32,
    /// The time in which an operator or a call was open.
    pub busy: Cover,
    /// The innermost span at each time, in order. The intervals touch wherever a span was open.
    pub innermost: Vec<(Interval, NameId)>,
    /// The position at which the last searches in `busy` and `innermost` ended. The next search
    /// starts there.
    near: [Cell<usize>; 2],
}

/// Host threads by their index.
pub type HostThreads = FxHashMap<u32, HostThread>;

/// Builds the threads from their spans. `spans` must contain all spans of a thread together, and
/// each span before the spans that it encloses.
pub fn threads<'s>(spans: impl Iterator<Item = &'s HostSpan>) -> HostThreads {
    let mut threads = HostThreads::default();
    let mut last: Option<(u32, Builder)> = None;
    for span in spans {
        if let Some((thread, builder)) = last.take_if(|(thread, _)| *thread != span.thread) {
            threads.insert(thread, builder.finish());
        }
        last.get_or_insert_with(|| (span.thread, Builder::new(span.process))).1.add(span);
    }
    threads.extend(last.map(|(thread, builder)| (thread, builder.finish())));
    threads
}

/// Builds a [`HostThread`] from its spans.
#[derive(Default)]
struct Builder {
    process: u32,
    busy: Union,
    innermost: Vec<(Interval, NameId)>,
    /// The spans that are open: the end and the name of each.
    open: Vec<(u64, NameId)>,
    now: u64,
}

impl Builder {
    fn new(process: u32) -> Builder {
        Builder { process, ..Builder::default() }
    }

    /// Adds the time from `now` to `to`, in which `name` was innermost.
    fn put(&mut self, to: u64, name: NameId) {
        if to > self.now {
            self.innermost.push((Interval::new(self.now, to), name));
            self.now = to;
        }
    }

    fn add(&mut self, span: &HostSpan) {
        if matches!(span.kind, SpanKind::Operator | SpanKind::Runtime | SpanKind::Driver) {
            self.busy.add(span.interval());
        }
        while let Some(&(end, name)) = self.open.last().filter(|(end, _)| *end <= span.start_ns) {
            self.put(end, name);
            self.open.pop();
        }
        if let Some(&(_, name)) = self.open.last() {
            self.put(span.start_ns, name);
        }
        self.now = self.now.max(span.start_ns);
        self.open.push((span.end_ns(), span.name));
    }

    fn finish(mut self) -> HostThread {
        while let Some((end, name)) = self.open.pop() {
            self.put(end, name);
        }
        let Builder { process, busy, innermost, .. } = self;
        HostThread { process, busy: busy.finish(), innermost, near: Default::default() }
    }
}

impl HostThread {
    /// Returns the last busy interval that began before a moment. The interval contains the moment,
    /// or ended at or before it.
    pub fn busy_before(&self, time_ns: u64) -> Option<Interval> {
        let (busy, near) = (self.busy.parts(), &self.near[0]);
        near.set(partition_near(busy, near.get(), |busy| busy.start < time_ns));
        busy[..near.get()].last().copied()
    }

    /// Replaces the contents of `parts` with the innermost spans in an interval, in order. Where no
    /// span was open, the name is 0.
    pub fn cut(&self, interval: Interval, parts: &mut Vec<(Interval, NameId)>) {
        parts.clear();
        let mut now = interval.start;
        let near = &self.near[1];
        let is_over = |(part, _): &(Interval, NameId)| part.end <= interval.start;
        near.set(partition_near(&self.innermost, near.get(), is_over));
        for (part, name) in &self.innermost[near.get()..] {
            if part.start >= interval.end {
                break;
            }
            if part.start > now {
                parts.push((Interval::new(now, part.start), NameId(0)));
            }
            let part = part.overlap(interval);
            parts.push((part, *name));
            now = part.end;
        }
        if interval.end > now {
            parts.push((Interval::new(now, interval.end), NameId(0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tprof_rank::Nested;

    use super::*;

    fn of(rows: &[(u64, u64)]) -> HostThreads {
        let span = |(&(start_ns, duration_ns), name): (&(u64, u64), u32)| {
            let kind = SpanKind::Operator;
            let name = NameId(name);
            HostSpan { start_ns, duration_ns, kind, name, ..HostSpan::default() }
        };
        let spans: Vec<HostSpan> = rows.iter().zip(1..).map(span).collect();
        threads(Nested::of([(&spans[..], false)]).map(|(span, _)| span))
    }

    #[test]
    fn a_thread_is_cut_into_its_innermost_spans() {
        let threads = of(&[(10, 90), (20, 10), (40, 20), (45, 5), (120, 10)]);
        let thread = &threads[&0];
        assert_eq!(thread.busy.parts(), [Interval::new(10, 100), Interval::new(120, 130)]);
        let mut parts = Vec::new();
        thread.cut(Interval::new(25, 125), &mut parts);
        let cut: Vec<(u64, u64, u32)> =
            parts.into_iter().map(|(part, name)| (part.start, part.end, name.0)).collect();
        let expected = [
            (25, 30, 2),
            (30, 40, 1),
            (40, 45, 3),
            (45, 50, 4),
            (50, 60, 3),
            (60, 100, 1),
            (100, 120, 0),
            (120, 125, 5),
        ];
        assert_eq!(cut, expected);
        assert_eq!(thread.busy_before(120), Some(Interval::new(10, 100)));
        assert_eq!(thread.busy_before(121), Some(Interval::new(120, 130)));
        assert_eq!(thread.busy_before(10), None);
    }

    proptest! {
        #[test]
        fn a_cut_covers_its_interval_without_gaps(
            rows in prop::collection::vec((0_u64..60, 0_u64..30), 0..20),
            from in 0_u64..60,
            long in 0_u64..60,
        ) {
            let threads = of(&rows);
            let mut parts = vec![(Interval::new(from, from + long), NameId(0))];
            if let Some(thread) = threads.get(&0) {
                thread.cut(Interval::new(from, from + long), &mut parts);
            }
            let mut now = from;
            for (part, _) in parts {
                prop_assert_eq!(part.start, now);
                now = part.end;
            }
            prop_assert_eq!(now, from + long);
        }
    }
}
