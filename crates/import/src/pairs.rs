//! Joins begin events with their end events.

use rustc_hash::FxHashMap;
use tprof_trace::model::{NameId, Span, ThreadIndex};

/// Largest number of pending begin events, over all threads.
const MAX_OPEN: usize = 1 << 18;

/// The open spans of a thread.
///
/// An end event without a name ends the innermost span. An end event with a name ends the innermost
/// span of that name. Spans that began within the ended span stay open, but only for end events
/// with their names. Most of them never end.
#[derive(Debug, Default)]
struct Thread {
    /// Names and numbers of spans that an end without a name may end, innermost last.
    nested: Vec<(NameId, u64)>,
    /// All open spans by name, innermost last, with their numbers.
    by_name: FxHashMap<NameId, Vec<(u64, Span)>>,
    /// Number of spans begun so far.
    begun: u64,
}

impl Thread {
    fn begin(&mut self, span: Span) {
        self.begun += 1;
        self.nested.push((span.name, self.begun));
        self.by_name.entry(span.name).or_default().push((self.begun, span));
    }

    fn end(&mut self) -> Option<Span> {
        let (name, number) = self.nested.pop()?;
        let open = self.by_name.get_mut(&name)?;
        let at = open.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        let (_, span) = open.remove(at);
        self.forget_if_empty(name);
        Some(span)
    }

    fn end_named(&mut self, name: NameId) -> Option<Span> {
        let (number, span) = self.by_name.get_mut(&name)?.pop()?;
        self.forget_if_empty(name);
        if let Ok(at) = self.nested.binary_search_by_key(&number, |(_, number)| *number) {
            self.nested.truncate(at);
        }
        Some(span)
    }

    fn forget_if_empty(&mut self, name: NameId) {
        if self.by_name.get(&name).is_some_and(Vec::is_empty) {
            self.by_name.remove(&name);
        }
    }
}

/// Open spans of all threads.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    open: FxHashMap<ThreadIndex, Thread>,
    count: usize,
}

impl Pairs {
    /// Adds a begin event; false if too many are pending.
    pub fn begin(&mut self, span: Span) -> bool {
        if self.count == MAX_OPEN {
            return false;
        }
        self.count += 1;
        self.open.entry(span.thread).or_default().begin(span);
        true
    }

    /// Returns the span that an end event on a thread ends; `None` if no open span has its name.
    pub fn end(&mut self, thread: ThreadIndex, name: Option<NameId>) -> Option<Span> {
        let thread = self.open.get_mut(&thread)?;
        let span = match name {
            Some(name) => thread.end_named(name),
            None => thread.end(),
        }?;
        self.count -= 1;
        Some(span)
    }

    /// Number of spans that are still open.
    pub fn open(&self) -> u64 {
        self.count as u64
    }
}
