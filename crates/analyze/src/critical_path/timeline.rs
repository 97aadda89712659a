//! Host threads as the walk needs them: what was innermost when, and what blocked.

use rustc_hash::FxHashMap;
use tprof_trace::model::{NameId, SpanKind};

use crate::call_tree::CallTree;
use crate::intervals::{Cover, Interval};
use crate::rank::HostSpan;

/// A host thread.
#[derive(Debug, Default)]
pub struct Thread {
    /// Whose.
    pub process: u32,
    /// When an operator or a call was open.
    pub busy: Vec<Interval>,
    /// What was innermost, in order, without gaps where anything was.
    pub innermost: Vec<(Interval, NameId)>,
}

/// Threads by index.
pub type Threads = FxHashMap<u32, Thread>;

/// Threads of a rank's call trees.
pub fn threads(tree: &CallTree) -> Threads {
    let mut threads = Threads::default();
    let mut from = 0;
    for spans in tree.spans.chunk_by(|a, b| a.thread == b.thread) {
        let works = |span: &&HostSpan| {
            matches!(span.kind, SpanKind::Operator | SpanKind::Runtime | SpanKind::Driver)
        };
        let busy: Cover = spans.iter().filter(works).map(|span| span.interval()).collect();
        let thread = Thread {
            process: spans[0].process,
            busy: busy.parts().to_vec(),
            innermost: innermost(spans),
        };
        threads.insert(spans[0].thread, thread);
        from += spans.len();
    }
    debug_assert_eq!(from, tree.spans.len());
    threads
}

/// Cuts a thread's spans, callers first, into what was innermost when.
fn innermost(spans: &[HostSpan]) -> Vec<(Interval, NameId)> {
    let mut parts: Vec<(Interval, NameId)> = Vec::new();
    let mut open: Vec<(u64, NameId)> = Vec::new();
    let mut now = 0;
    let mut put = |from: u64, to: u64, name: NameId| {
        if to > from {
            parts.push((Interval::new(from, to), name));
        }
    };
    for span in spans {
        while let Some(&(end, name)) = open.last().filter(|(end, _)| *end <= span.start_ns) {
            put(now, end, name);
            now = now.max(end);
            open.pop();
        }
        if let Some(&(_, name)) = open.last() {
            put(now, span.start_ns, name);
        }
        now = now.max(span.start_ns);
        open.push((span.end_ns(), span.name));
    }
    while let Some((end, name)) = open.pop() {
        put(now, end, name);
        now = now.max(end);
    }
    parts
}

impl Thread {
    /// The busy interval that a moment ends in or lies in: it began before it.
    pub fn busy_before(&self, time_ns: u64) -> Option<Interval> {
        let after = self.busy.partition_point(|busy| busy.start < time_ns);
        self.busy[..after].last().copied()
    }

    /// Replaces `parts` by what was innermost in an interval, in order; where nothing
    /// was, the name is 0.
    pub fn cut(&self, interval: Interval, parts: &mut Vec<(Interval, NameId)>) {
        parts.clear();
        let mut now = interval.start;
        let first = self.innermost.partition_point(|(part, _)| part.end <= interval.start);
        for (part, name) in &self.innermost[first..] {
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
    use super::*;
    use proptest::prelude::*;
    use tprof_trace::model::Span;

    fn tree(rows: &[(u64, u64)]) -> CallTree {
        let span = |(&(start_ns, duration_ns), name): (&(u64, u64), u32)| {
            let kind = SpanKind::Operator;
            let name = NameId(name);
            HostSpan::from(&Span { start_ns, duration_ns, kind, name, ..Span::default() })
        };
        let spans: Vec<HostSpan> = rows.iter().zip(1..).map(span).collect();
        CallTree::built(&spans, spans.len())
    }

    #[test]
    fn a_thread_is_cut_into_what_was_innermost() {
        let threads = threads(&tree(&[(10, 90), (20, 10), (40, 20), (45, 5), (120, 10)]));
        let thread = &threads[&0];
        assert_eq!(thread.busy, [Interval::new(10, 100), Interval::new(120, 130)]);
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
        fn a_cut_is_whole(
            rows in prop::collection::vec((0_u64..60, 0_u64..30), 0..20),
            from in 0_u64..60,
            long in 0_u64..60,
        ) {
            let threads = threads(&tree(&rows));
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
