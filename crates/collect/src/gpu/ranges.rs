//! NVTX ranges: begun and ended by records of their own, spans once they are over.

use super::texts::Texts;
use std::collections::HashMap;
use tprof_trace::TraceWriter;
use tprof_trace::model::*;
use tprof_wire::gpu::{NO_LEVEL, Range};
use tprof_wire::record::ExtKind;

/// Ranges that may be open at one time in one process.
const MAX_OPEN: usize = 1 << 20;

/// Ends that are remembered without a beginning.
const MAX_EARLY: usize = 1 << 16;

/// A range that has begun.
#[derive(Clone, Copy)]
struct OpenNvtxRange {
    range: Range,
    thread: ThreadIndex,
    start_ns: u64,
}

/// The kind of row that an event becomes once its names are known.
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

/// A range that is over, or an instant; its name may not have come yet.
#[derive(Clone, Copy)]
struct FinishedRange {
    open: OpenNvtxRange,
    end_ns: u64,
    becomes: RowKind,
}

/// Ranges that could not be recorded, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unrecorded {
    /// Ranges that were open when their process ended: they last until then.
    pub cut: u64,
    /// Ranges and marks without their names.
    pub nameless: u64,
    /// Ranges without a recorded end.
    pub endless: u64,
    /// Names of threads that nothing else is known of.
    pub unknown_threads: u64,
}

/// A thread and a domain.
type RangeOwner = (ThreadIndex, u32);

/// Open ranges, innermost last, by thread and domain. The list that was used last is remembered: a
/// thread that opens ranges fast has one domain.
#[derive(Default)]
struct Stacks {
    places: HashMap<RangeOwner, usize>,
    lists: Vec<Vec<OpenNvtxRange>>,
    last: Option<(RangeOwner, usize)>,
}

impl Stacks {
    /// Returns the list; `None` if nothing was ever pushed there.
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

/// See the module.
#[derive(Default)]
pub struct Ranges {
    stacks: Stacks,
    /// Ranges that any thread may end, by id.
    free: HashMap<u64, OpenNvtxRange>,
    /// Times by id: ends in another thread's ring that came before the beginning, and ends of
    /// ranges that began while recording was off.
    early: HashMap<u64, u64>,
    over: Vec<FinishedRange>,
    /// Number of these that came since they were last turned into rows.
    fresh: usize,
    open: usize,
    endless: u64,
}

impl Ranges {
    /// Takes an event of a thread. An end without a beginning makes no row: its range began while
    /// recording was off.
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
                // An earlier end belongs to another range with the same id: NVTX never reuses one,
                // ITT often does.
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
                // The end of one before it, which was given up, and counted, for this one.
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

    /// Ends ranges that lie deeper than this event, and so must be over: their ends were lost. A
    /// push also ends a range at its own depth.
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

    /// Returns how many may become rows that could not before.
    pub fn fresh(&self) -> usize {
        self.fresh
    }

    /// Turns finished ranges into rows, as far as names are known; `threads` are the rows of the
    /// process's threads, by their ids.
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

    /// Ends what is open at the end of its process; ranges that cannot be recorded any more are
    /// counted.
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

/// Category, colour, payload, and whether any thread might end it, as a JSON object; 0
/// where there is no note.
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

/// Returns the number that the program gave; as text where JSON has none for it.
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
    fn ranges_end_in_the_order_of_their_depth() {
        let mut ranges = Ranges::default();
        push(&mut ranges, 0, 1);
        push(&mut ranges, 1, 2);
        pop(&mut ranges, 1, 3);
        pop(&mut ranges, 0, 4);
        assert_eq!(over(&ranges), [(2, 3), (1, 4)]);
        assert_eq!(ranges.close(9).endless, 0);
    }

    #[test]
    fn a_lost_pop_costs_its_own_range_alone() {
        let mut ranges = Ranges::default();
        push(&mut ranges, 0, 1);
        push(&mut ranges, 1, 2);
        // Its pop is missing; another range at its depth follows, then the outer one's end.
        push(&mut ranges, 1, 5);
        pop(&mut ranges, 1, 6);
        pop(&mut ranges, 0, 7);
        assert_eq!(over(&ranges), [(5, 6), (1, 7)]);
        assert_eq!((ranges.endless, ranges.open), (1, 0));
    }

    #[test]
    fn a_pop_of_what_was_not_recorded_ends_nothing() {
        let mut ranges = Ranges::default();
        push(&mut ranges, 0, 1);
        pop(&mut ranges, 1, 2);
        pop(&mut ranges, 0, 3);
        assert_eq!(over(&ranges), [(1, 3)]);
        assert_eq!(ranges.endless, 0);
    }

    #[test]
    fn an_end_may_come_before_its_beginning() {
        let mut ranges = Ranges::default();
        let range = Range { id: 7, ..Range::default() };
        ranges.take(ExtKind::RangeEnd, &range, 1, 9);
        ranges.take(ExtKind::RangeStart, &range, 0, 4);
        assert_eq!(over(&ranges), [(4, 9)]);
        assert_eq!(ranges.close(20), Unrecorded { nameless: 1, ..Unrecorded::default() });
    }

    #[test]
    fn an_end_of_an_earlier_range_of_the_same_id_ends_no_later_one() {
        let mut ranges = Ranges::default();
        let range = Range { id: 7, ..Range::default() };
        // The beginning of this range was not recorded.
        ranges.take(ExtKind::RangeEnd, &range, 0, 5);
        ranges.take(ExtKind::RangeStart, &range, 0, 7);
        ranges.take(ExtKind::RangeEnd, &range, 0, 9);
        assert_eq!(over(&ranges), [(7, 9)]);
        // These are the ends of two ranges of another thread, whose ring is read later.
        ranges.take(ExtKind::RangeStart, &range, 0, 10);
        ranges.take(ExtKind::RangeStart, &range, 0, 12);
        ranges.take(ExtKind::RangeEnd, &range, 1, 11);
        ranges.take(ExtKind::RangeEnd, &range, 1, 13);
        assert_eq!(over(&ranges), [(7, 9), (12, 13)]);
        assert_eq!((ranges.endless, ranges.open), (1, 0));
    }

    #[test]
    fn what_is_open_at_the_end_lasts_until_then() {
        let mut ranges = Ranges::default();
        push(&mut ranges, NO_LEVEL, 1);
        ranges.take(ExtKind::RangeStart, &Range { id: 3, ..Range::default() }, 0, 2);
        assert_eq!(ranges.close(9), Unrecorded { cut: 2, ..Unrecorded::default() });
        assert_eq!(over(&ranges), [(1, 9), (2, 9)]);
    }
}
