//! Pairs the beginnings and ends of NVTX ranges, which are separate records, and makes one span of
//! each pair.

use super::texts::Texts;
use std::collections::HashMap;
use tprof_trace::TraceWriter;
use tprof_trace::model::*;
use tprof_wire::gpu::{NO_LEVEL, Range};
use tprof_wire::record::ExtKind;

/// Number of ranges that may be open at the same time in one process.
const MAX_OPEN: usize = 1 << 20;

/// Number of ends without a beginning that are stored.
const MAX_EARLY: usize = 1 << 16;

/// A range that has begun.
#[derive(Clone, Copy)]
struct OpenNvtxRange {
    range: Range,
    thread: ThreadIndex,
    start_ns: u64,
}

/// What an event becomes once its names are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowKind {
    /// A range of one thread.
    Nested,
    /// A range that any thread may end.
    Free,
    /// A mark: an instant.
    Mark,
    /// The name of a thread.
    ThreadName,
}

/// A range that has ended, or an instant. Its name may not be defined yet.
#[derive(Clone, Copy)]
struct FinishedRange {
    open: OpenNvtxRange,
    end_ns: u64,
    becomes: RowKind,
}

/// Numbers of ranges that were not recorded completely, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unrecorded {
    /// Ranges that were still open when their process ended. They are written as if they had ended
    /// then.
    pub cut: u64,
    /// Ranges and marks whose names were not defined.
    pub nameless: u64,
    /// Ranges whose end was not recorded, so that they aren't written.
    pub endless: u64,
    /// Names of threads that are unknown because they have no other records.
    pub unknown_threads: u64,
}

/// The thread and the domain of a stack of ranges.
type RangeOwner = (ThreadIndex, u32);

/// Stacks of open ranges, innermost last, by thread and domain. The stack that was used last is
/// cached, because a thread that opens many ranges usually uses one domain.
#[derive(Default)]
struct Stacks {
    places: HashMap<RangeOwner, usize>,
    lists: Vec<Vec<OpenNvtxRange>>,
    last: Option<(RangeOwner, usize)>,
}

impl Stacks {
    /// Returns a stack; `None` if no range was ever pushed on it.
    fn find(&mut self, whose: RangeOwner) -> Option<&mut Vec<OpenNvtxRange>> {
        let at = match self.last {
            Some((last, at)) if last == whose => at,
            _ => {
                let at = *self.places.get(&whose)?;
                self.last = Some((whose, at));
                at
            }
        };
        self.lists.get_mut(at)
    }

    fn push(&mut self, whose: RangeOwner, open: OpenNvtxRange) {
        match self.find(whose) {
            Some(list) => list.push(open),
            None => {
                self.places.insert(whose, self.lists.len());
                self.lists.push(vec![open]);
            }
        }
    }
}

/// The ranges of a process that are open, wait for their beginning or wait for their names.
#[derive(Default)]
pub struct Ranges {
    stacks: Stacks,
    /// Ranges that any thread may end, by id.
    free: HashMap<u64, OpenNvtxRange>,
    /// Times of ends without a beginning, by id. Either the beginning is in a ring that is read
    /// later, or the range began while recording was off.
    early: HashMap<u64, u64>,
    over: Vec<FinishedRange>,
    /// Number of ranges that were added to `over` since the last call of [`Ranges::settle`].
    fresh: usize,
    open: usize,
    endless: u64,
}

impl Ranges {
    /// Adds an event of a thread. If a range began while recording was off, its end is ignored.
    pub fn take(&mut self, kind: ExtKind, range: &Range, thread: ThreadIndex, time_ns: u64) {
        let open = OpenNvtxRange { range: *range, thread, start_ns: time_ns };
        let instant = |becomes| FinishedRange { open, end_ns: time_ns, becomes };
        match kind {
            ExtKind::RangePush if self.open < MAX_OPEN => {
                self.unwind(thread, range, true);
                self.open += 1;
                self.stacks.push((thread, range.domain), open);
            }
            ExtKind::RangePop => {
                self.unwind(thread, range, false);
                let stack = self.stacks.find((thread, range.domain));
                let found = stack.and_then(|stack| stack.pop_if(|top| top.range.id == range.id));
                self.end(found, time_ns, RowKind::Nested);
            }
            ExtKind::RangeStart if self.open < MAX_OPEN => {
                // If the stored end is earlier than this beginning, it belongs to an earlier range
                // with the same id. NVTX never reuses an id, but ITT often does.
                let end = self.early.remove(&range.id).filter(|end_ns| *end_ns >= time_ns);
                if let Some(end_ns) = end {
                    self.push_over(FinishedRange { open, end_ns, becomes: RowKind::Free });
                } else if self.free.insert(range.id, open).is_none() {
                    self.open += 1;
                } else {
                    self.endless += 1;
                }
            }
            ExtKind::RangeEnd => match self.free.get(&range.id) {
                // The open range began later, so this is the end of an earlier range with the same
                // id. The open range has replaced that one, which was counted then.
                Some(open) if open.start_ns > time_ns => {}
                Some(_) => {
                    let open = self.free.remove(&range.id);
                    self.end(open, time_ns, RowKind::Free);
                }
                None => {
                    if self.early.len() >= MAX_EARLY {
                        self.early.clear();
                    }
                    self.early.insert(range.id, time_ns);
                }
            },
            ExtKind::RangePush | ExtKind::RangeStart => self.endless += 1,
            ExtKind::RangeMark => self.push_over(instant(RowKind::Mark)),
            ExtKind::RangeThread => self.push_over(instant(RowKind::ThreadName)),
            _ => {}
        }
    }

    /// Drops the ranges of the stack that are deeper than this event. They must have ended, and the
    /// records of their ends were lost. A push also drops a range at its own depth.
    fn unwind(&mut self, thread: ThreadIndex, range: &Range, push: bool) {
        if range.id == NO_LEVEL {
            return;
        }
        let Some(stack) = self.stacks.find((thread, range.domain)) else { return };
        let deeper =
            |top: &mut OpenNvtxRange| top.range.id > range.id || push && top.range.id == range.id;
        while stack.pop_if(deeper).is_some() {
            self.open -= 1;
            self.endless += 1;
        }
    }

    fn end(&mut self, found: Option<OpenNvtxRange>, end_ns: u64, becomes: RowKind) {
        if let Some(open) = found {
            self.open -= 1;
            self.push_over(FinishedRange { open, end_ns, becomes });
        }
    }

    fn push_over(&mut self, over: FinishedRange) {
        self.fresh += 1;
        self.over.push(over);
    }

    /// Returns the number of ranges that have ended since the last [`Ranges::settle`].
    pub fn fresh(&self) -> usize {
        self.fresh
    }

    /// Writes the ended ranges whose names are defined. `threads` maps thread ids to rows of
    /// threads.
    pub fn settle(
        &mut self,
        process: ProcessIndex,
        threads: &HashMap<u32, ThreadIndex>,
        spans: &mut Vec<Span>,
        writer: &mut TraceWriter,
        texts: &mut Texts,
    ) {
        self.fresh = 0;
        self.over.retain(|over| {
            let FinishedRange { open, end_ns, becomes } = *over;
            let range = &open.range;
            let names = (texts.plain(range.name, writer), texts.plain(range.domain, writer));
            let (Some(text), Some(domain)) = names else { return true };
            match becomes {
                RowKind::ThreadName => {
                    let thread = u32::try_from(range.id).ok().and_then(|tid| threads.get(&tid));
                    let Some(thread) = thread else { return true };
                    writer.thread_name(*thread, open.start_ns, text);
                }
                RowKind::Mark => writer.mark(Mark {
                    time_ns: open.start_ns,
                    process: Some(process),
                    name: text,
                    kind: MarkKind::Mark,
                }),
                RowKind::Nested | RowKind::Free => {
                    let category = texts.text(range.category_name).map(str::to_owned);
                    let args = arguments(range, category, becomes == RowKind::Free, writer);
                    spans.push(Span {
                        start_ns: open.start_ns,
                        duration_ns: end_ns.saturating_sub(open.start_ns),
                        process,
                        thread: open.thread,
                        kind: SpanKind::Nvtx,
                        name: text,
                        category: domain,
                        args,
                        ..Span::default()
                    });
                }
            }
            false
        });
    }

    /// Ends the ranges that are open when the process ends, for the last [`Ranges::settle`]. Counts
    /// the ranges that can't be written any more.
    pub fn close(&mut self, end_ns: u64) -> Unrecorded {
        let mut unrecorded =
            Unrecorded { endless: std::mem::take(&mut self.endless), ..Unrecorded::default() };
        for over in self.over.drain(..) {
            match over.becomes {
                RowKind::ThreadName => unrecorded.unknown_threads += 1,
                _ => unrecorded.nameless += 1,
            }
        }
        let close = |becomes| move |open| FinishedRange { open, end_ns, becomes };
        let stacks = std::mem::take(&mut self.stacks).lists.into_iter().flatten();
        self.over.extend(stacks.map(close(RowKind::Nested)));
        let free = std::mem::take(&mut self.free).into_values();
        self.over.extend(free.map(close(RowKind::Free)));
        unrecorded.cut = self.over.len() as u64;
        self.open = 0;
        unrecorded
    }
}

/// Formats category, colour, payload, and whether any thread might end the range as a JSON object,
/// and returns its id in the file; 0 if there is nothing to format.
fn arguments(
    range: &Range,
    category: Option<String>,
    free: bool,
    writer: &mut TraceWriter,
) -> NameId {
    let mut all = serde_json::Map::new();
    if free {
        all.insert("style".to_owned(), "start/end".into());
    }
    if range.category != 0 {
        let category = category.map_or_else(|| range.category.into(), serde_json::Value::from);
        all.insert("category".to_owned(), category);
    }
    if range.colour != 0 {
        all.insert("colour".to_owned(), format!("#{:06x}", range.colour & 0xff_ffff).into());
    }
    if let Some(payload) = payload(range) {
        all.insert("payload".to_owned(), payload);
    }
    if all.is_empty() {
        return NameId::default();
    }
    writer.name(&serde_json::Value::Object(all).to_string())
}

/// Returns the number that the program attached to a range. If JSON can't represent the number, it
/// becomes a text.
fn payload(range: &Range) -> Option<serde_json::Value> {
    let real = |value: f64| match value.is_finite() {
        true => serde_json::Value::from(value),
        false => serde_json::Value::from(value.to_string()),
    };
    let value = range.value;
    Some(match range.value_type {
        1 => value.into(),
        2 => (value as i64).into(),
        3 => real(f64::from_bits(value)),
        4 => (value as u32).into(),
        5 => (value as i32).into(),
        6 => real(f64::from(f32::from_bits(value as u32))),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(ranges: &mut Ranges, level: u64, at: u64) {
        ranges.take(ExtKind::RangePush, &Range { id: level, ..Range::default() }, 0, at);
    }

    fn pop(ranges: &mut Ranges, level: u64, at: u64) {
        ranges.take(ExtKind::RangePop, &Range { id: level, ..Range::default() }, 0, at);
    }

    fn over(ranges: &Ranges) -> Vec<(u64, u64)> {
        ranges.over.iter().map(|over| (over.open.start_ns, over.end_ns)).collect()
    }

    #[test]
    fn a_pop_ends_the_innermost_range() {
        let mut ranges = Ranges::default();
        push(&mut ranges, 0, 1);
        push(&mut ranges, 1, 2);
        pop(&mut ranges, 1, 3);
        pop(&mut ranges, 0, 4);
        assert_eq!(over(&ranges), [(2, 3), (1, 4)]);
        assert_eq!(ranges.close(9).endless, 0);
    }

    #[test]
    fn a_lost_pop_costs_only_its_own_range() {
        let mut ranges = Ranges::default();
        push(&mut ranges, 0, 1);
        push(&mut ranges, 1, 2);
        // The pop of this range is missing. A push at the same depth follows, and later the pop of
        // the outer range.
        push(&mut ranges, 1, 5);
        pop(&mut ranges, 1, 6);
        pop(&mut ranges, 0, 7);
        assert_eq!(over(&ranges), [(5, 6), (1, 7)]);
        assert_eq!((ranges.endless, ranges.open), (1, 0));
    }

    #[test]
    fn a_pop_of_an_unrecorded_range_is_ignored() {
        let mut ranges = Ranges::default();
        push(&mut ranges, 0, 1);
        pop(&mut ranges, 1, 2);
        pop(&mut ranges, 0, 3);
        assert_eq!(over(&ranges), [(1, 3)]);
        assert_eq!(ranges.endless, 0);
    }

    #[test]
    fn an_end_may_be_read_before_its_beginning() {
        let mut ranges = Ranges::default();
        let range = Range { id: 7, ..Range::default() };
        ranges.take(ExtKind::RangeEnd, &range, 1, 9);
        ranges.take(ExtKind::RangeStart, &range, 0, 4);
        assert_eq!(over(&ranges), [(4, 9)]);
        assert_eq!(ranges.close(20), Unrecorded { nameless: 1, ..Unrecorded::default() });
    }

    #[test]
    fn an_end_does_not_end_a_later_range_with_the_same_id() {
        let mut ranges = Ranges::default();
        let range = Range { id: 7, ..Range::default() };
        // The beginning of the first range was not recorded.
        ranges.take(ExtKind::RangeEnd, &range, 0, 5);
        ranges.take(ExtKind::RangeStart, &range, 0, 7);
        ranges.take(ExtKind::RangeEnd, &range, 0, 9);
        assert_eq!(over(&ranges), [(7, 9)]);
        // Another thread wrote the ends of the next two ranges, and its ring is read later.
        ranges.take(ExtKind::RangeStart, &range, 0, 10);
        ranges.take(ExtKind::RangeStart, &range, 0, 12);
        ranges.take(ExtKind::RangeEnd, &range, 1, 11);
        ranges.take(ExtKind::RangeEnd, &range, 1, 13);
        assert_eq!(over(&ranges), [(7, 9), (12, 13)]);
        assert_eq!((ranges.endless, ranges.open), (1, 0));
    }

    #[test]
    fn open_ranges_last_until_the_end_of_the_process() {
        let mut ranges = Ranges::default();
        push(&mut ranges, NO_LEVEL, 1);
        ranges.take(ExtKind::RangeStart, &Range { id: 3, ..Range::default() }, 0, 2);
        assert_eq!(ranges.close(9), Unrecorded { cut: 2, ..Unrecorded::default() });
        assert_eq!(over(&ranges), [(1, 9), (2, 9)]);
    }
}
