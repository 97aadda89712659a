//! Reads the spans that a program named through tprof's API, and finds the span around each. Outer
//! spans come before those within them.

use std::cmp::Reverse;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, NamedSpan, OWN_SPANS, SpanKind};

use crate::memory::HeldWindow;

/// A span that the program named through tprof's API.
pub(super) struct OwnSpan {
    /// The span as it was recorded.
    pub row: NamedSpan,
    /// Whether any thread may end the span. Such a span does not describe what one thread did.
    pub any_thread: bool,
    /// Floating-point operations that the program stated for the span; 0 if it stated none.
    pub flops: u64,
    /// The value of the span's argument `bytes`, if it has one.
    pub bytes: Option<u64>,
    /// The value of the span's argument `category`, if it has one.
    pub category: Option<Rc<str>>,
    /// Index of the innermost span around it on its thread, if there is one. A span that any thread
    /// may end has none and is in no other's.
    pub parent: Option<u32>,
}

impl OwnSpan {
    /// Returns the end of the span on the file's clock, ns.
    pub fn end_ns(&self) -> u64 {
        self.row.start_ns.saturating_add(self.row.duration_ns)
    }

    /// Returns the time in which the span was open, with its process.
    pub fn window(&self) -> HeldWindow {
        let (process, start_ns) = (self.row.process, self.row.start_ns);
        HeldWindow { process, start_ns, end_ns: self.end_ns() }
    }
}

/// The arguments of a span, read from its interned JSON object.
#[derive(Clone, Default)]
struct OwnArgs {
    any_thread: bool,
    flops: u64,
    bytes: Option<u64>,
    category: Option<Rc<str>>,
}

/// Returns the spans by thread, then by start, outer spans first. Spans in damaged blocks are left
/// out; the file's problems list these blocks.
pub(super) fn of_file(file: &TraceFile) -> Vec<OwnSpan> {
    let mut args_by_text: FxHashMap<NameId, OwnArgs> = FxHashMap::default();
    let mut all = Vec::new();
    for block in file.blocks::<NamedSpan>() {
        for row in block.iter().filter(|row| row.kind == SpanKind::Annotation) {
            if file.name(row.category) != OWN_SPANS {
                continue;
            }
            let OwnArgs { any_thread, flops, bytes, category } =
                args_by_text.entry(row.args).or_insert_with(|| parse(file.name(row.args))).clone();
            all.push(OwnSpan { row: *row, any_thread, flops, bytes, category, parent: None });
        }
    }
    all.sort_by_key(|span| (span.row.thread, span.row.start_ns, Reverse(span.end_ns())));
    set_parents(&mut all);
    all
}

/// Reads a span's arguments from JSON. What is missing or of another type has its default.
fn parse(args: &str) -> OwnArgs {
    let args: serde_json::Value = serde_json::from_str(args).unwrap_or_default();
    let any_thread = args.get("style").is_some_and(|style| style == "start/end");
    let number = |key: &str| args.get(key).and_then(|number| number.as_u64());
    let category = args.get("category").and_then(|text| text.as_str()).map(Rc::from);
    OwnArgs { any_thread, flops: number("flops").unwrap_or(0), bytes: number("bytes"), category }
}

/// Sets the parent of each span. `all` must be in the order that [`of_file`] states.
fn set_parents(all: &mut [OwnSpan]) {
    // The spans that contain the current one, the outermost first.
    let mut open: Vec<u32> = Vec::new();
    for index in 0..all.len() {
        let span = &all[index];
        let (thread, start_ns, end_ns) = (span.row.thread, span.row.start_ns, span.end_ns());
        if span.any_thread {
            continue;
        }
        let contains = |outer: &OwnSpan| outer.row.thread == thread && outer.end_ns() >= end_ns;
        // A span without length contains those of the same moment that come after it.
        let has_ended = |outer: &OwnSpan| outer.end_ns() <= start_ns && outer.row.duration_ns > 0;
        while let Some(&last) = open.last()
            && (!contains(&all[last as usize]) || has_ended(&all[last as usize]))
        {
            open.pop();
        }
        all[index].parent = open.last().copied();
        open.push(index as u32);
    }
}
