//! Which span a thread was in at each moment: the innermost one.

use rustc_hash::FxHashMap;
use tprof_trace::model::ThreadIndex;

use super::find::OwnSpan;
use crate::base::intervals::Interval;

/// None is open.
const NONE: u32 = u32::MAX;

/// By thread: from when on which span is the innermost, in order of time.
pub(super) struct OpenSpans {
    changes: FxHashMap<ThreadIndex, Vec<(u64, u32)>>,
}

impl OpenSpans {
    /// Of spans in the order in which they nest; those that any thread may end are on no thread.
    pub fn of(spans: &[OwnSpan]) -> OpenSpans {
        let mut changes = FxHashMap::default();
        let mut from = 0;
        for of_thread in spans.chunk_by(|a, b| a.row.thread == b.row.thread) {
            let indices = (from..).zip(of_thread).filter(|(_, span)| !span.any_thread);
            changes
                .insert(of_thread[0].row.thread, of_one_thread(spans, indices.map(|(at, _)| at)));
            from += of_thread.len() as u32;
        }
        OpenSpans { changes }
    }

    /// The innermost span of a thread at a moment.
    pub fn at(&self, thread: ThreadIndex, time_ns: u64) -> Option<u32> {
        let changes = self.changes.get(&thread)?;
        let after = changes.partition_point(|(from_ns, _)| *from_ns <= time_ns);
        changes[..after].last().map(|(_, at)| *at).filter(|at| *at != NONE)
    }

    /// The innermost spans of a thread over an interval, and for how long each.
    pub fn within(
        &self,
        thread: ThreadIndex,
        interval: Interval,
    ) -> impl Iterator<Item = (u32, u64)> {
        let changes = self.changes.get(&thread).map_or(&[][..], Vec::as_slice);
        let after = changes.partition_point(|(from_ns, _)| *from_ns <= interval.start);
        let first = after.saturating_sub(1);
        let ends = changes[first..].iter().skip(1).map(|(to_ns, _)| *to_ns).chain([u64::MAX]);
        let parts = changes[first..].iter().zip(ends);
        let parts = parts.take_while(move |((from_ns, _), _)| *from_ns < interval.end);
        parts.filter(|((_, at), _)| *at != NONE).filter_map(move |((from_ns, at), to_ns)| {
            let ns = Interval::new(*from_ns, to_ns).overlap(interval).length();
            (ns > 0).then_some((*at, ns))
        })
    }
}

fn of_one_thread(spans: &[OwnSpan], indices: impl Iterator<Item = u32>) -> Vec<(u64, u32)> {
    let mut changes: Vec<(u64, u32)> = Vec::new();
    let mut change = |from_ns: u64, at: u32| match changes.last_mut() {
        Some(last) if last.0 == from_ns => last.1 = at,
        _ => changes.push((from_ns, at)),
    };
    let end_ns = |at: &u32| spans[*at as usize].end_ns();
    let mut open: Vec<u32> = Vec::new();
    let close = |open: &mut Vec<u32>, until_ns: u64, change: &mut dyn FnMut(u64, u32)| {
        while let Some(first_ns) = open.iter().map(end_ns).min().filter(|ns| *ns <= until_ns) {
            open.retain(|at| end_ns(at) != first_ns);
            change(first_ns, open.last().copied().unwrap_or(NONE));
        }
    };
    for at in indices.filter(|at| spans[*at as usize].row.duration_ns > 0) {
        let start_ns = spans[at as usize].row.start_ns;
        close(&mut open, start_ns, &mut change);
        open.push(at);
        change(start_ns, at);
    }
    close(&mut open, u64::MAX, &mut change);
    changes
}
