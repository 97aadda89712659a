//! NVTX ranges: begun and ended by records of their own, spans once they are over.

use std::collections::HashMap;
use tprof_trace::TraceWriter;
use tprof_trace::model::*;
use tprof_wire::gpu::Range;
use tprof_wire::record::ExtKind;

/// Ranges that may be open at one time in one process.
const OPEN_MOST: usize = 1 << 20;

/// A range that has begun.
#[derive(Clone, Copy)]
struct Open {
    range: Range,
    thread: ThreadIndex,
    start_ns: u64,
}

/// A range that is over, or an instant; its name may not have come yet.
#[derive(Clone, Copy)]
struct Over {
    open: Open,
    end_ns: u64,
    mark: bool,
}

/// See the module.
#[derive(Default)]
pub struct Ranges {
    /// Innermost last, by thread and domain.
    stacks: HashMap<(ThreadIndex, u32), Vec<Open>>,
    /// By id: those that any thread may end.
    free: HashMap<u64, Open>,
    over: Vec<Over>,
    open: usize,
    /// Ends without a beginning: what began before recording did.
    pub stray: u64,
}

impl Ranges {
    /// Takes an event of a thread.
    pub fn take(&mut self, kind: ExtKind, range: &Range, thread: ThreadIndex, time_ns: u64) {
        let open = Open { range: *range, thread, start_ns: time_ns };
        match kind {
            ExtKind::RangePush if self.open < OPEN_MOST => {
                self.open += 1;
                self.stacks.entry((thread, range.domain)).or_default().push(open);
            }
            ExtKind::RangePop => {
                let found = self.stacks.get_mut(&(thread, range.domain)).and_then(Vec::pop);
                self.end(found, time_ns);
            }
            ExtKind::RangeStart if self.open < OPEN_MOST => {
                self.open += 1;
                self.free.insert(range.id, open);
            }
            ExtKind::RangeEnd => {
                let found = self.free.remove(&range.id);
                self.end(found, time_ns);
            }
            ExtKind::RangeMark => self.over.push(Over { open, end_ns: time_ns, mark: true }),
            _ => {}
        }
    }

    fn end(&mut self, found: Option<Open>, end_ns: u64) {
        match found {
            Some(open) => {
                self.open -= 1;
                self.over.push(Over { open, end_ns, mark: false });
            }
            None => self.stray += 1,
        }
    }

    /// Turns what is over into spans, as far as names are known.
    pub fn settle(
        &mut self,
        process: ProcessIndex,
        spans: &mut Vec<Span>,
        writer: &mut TraceWriter,
        name: &mut dyn FnMut(u32, &mut TraceWriter) -> Option<NameId>,
    ) {
        self.over.retain(|over| {
            let Over { open, end_ns, mark } = over;
            let range = &open.range;
            let names = (name(range.name, writer), name(range.domain, writer));
            let (Some(text), Some(domain)) = names else { return true };
            let category = name(range.category_name, writer).unwrap_or_default();
            let args = arguments(range, category, writer);
            if *mark {
                writer.mark(Mark {
                    time_ns: open.start_ns,
                    process: Some(process),
                    name: text,
                    kind: MarkKind::Mark,
                });
            } else {
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
            false
        });
    }

    /// Ends what is open; how many that were, and how many had no name.
    pub fn close(&mut self, end_ns: u64) -> (u64, u64) {
        let nameless = self.over.len() as u64;
        self.over.clear();
        let stacks = std::mem::take(&mut self.stacks).into_values().flatten();
        let open: Vec<Open> = stacks.chain(std::mem::take(&mut self.free).into_values()).collect();
        let cut = open.len() as u64;
        self.over.extend(open.into_iter().map(|open| Over { open, end_ns, mark: false }));
        self.open = 0;
        (cut, nameless)
    }
}

/// Category, colour and payload, as a JSON object; 0 if it has none.
fn arguments(range: &Range, _category: NameId, writer: &mut TraceWriter) -> NameId {
    let mut all = serde_json::Map::new();
    if range.category != 0 {
        all.insert("category".to_owned(), range.category.into());
    }
    if range.colour != 0 {
        all.insert("colour".to_owned(), format!("#{:06x}", range.colour & 0xff_ffff).into());
    }
    let value = range.value;
    let payload: Option<serde_json::Value> = match range.value_type {
        1 => Some(value.into()),
        2 => Some((value as i64).into()),
        3 => Some(f64::from_bits(value).into()),
        4 => Some((value as u32).into()),
        5 => Some((value as i32).into()),
        6 => Some(f64::from(f32::from_bits(value as u32)).into()),
        _ => None,
    };
    if let Some(payload) = payload {
        all.insert("payload".to_owned(), payload);
    }
    if all.is_empty() {
        return NameId::default();
    }
    writer.name(&serde_json::Value::Object(all).to_string())
}
