//! Reads the spans that a program named through tprof's API, in nesting order, and finds the span
//! around each.

use std::cmp::Reverse;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, NamedSpan, OWN_SPANS, SpanKind};

use crate::memory::HeldWindow;

/// A span that the program named through tprof's API.
pub(super) struct OwnSpan {
    pub row: NamedSpan,
    /// Whether any thread may end the span. Such a span does not describe what one thread did.
    pub any_thread: bool,
    /// Floating-point operations that the program stated for the span.
    pub flops: u64,
    /// The value of the span's argument `bytes`.
    pub bytes: Option<u64>,
    /// The value of the span's argument `category`.
    pub category: Option<Rc<str>>,
    /// Index of the innermost span around it on its thread.
    pub parent: Option<u32>,
}

impl OwnSpan {
    /// Returns the end of the span, ns.
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

/// Returns the spans by thread, then by start, outer spans first. Spans that can't be read are
/// listed among the rank's problems.
pub(super) fn of_file(file: &TraceFile) -> Vec<OwnSpan> {
    let mut stated: FxHashMap<NameId, OwnArgs> = FxHashMap::default();
    let mut all = Vec::new();
    for block in file.blocks::<NamedSpan>() {
        for row in block.iter().filter(|row| row.kind == SpanKind::Annotation) {
            if file.name(row.category) != OWN_SPANS {
                continue;
            }
            let OwnArgs { any_thread, flops, bytes, category } =
                stated.entry(row.args).or_insert_with(|| read(file.name(row.args))).clone();
            all.push(OwnSpan { row: *row, any_thread, flops, bytes, category, parent: None });
        }
    }
    all.sort_by_key(|span| (span.row.thread, span.row.start_ns, Reverse(span.end_ns())));
    nest(&mut all);
    all
}

fn read(args: &str) -> OwnArgs {
    let args: serde_json::Value = serde_json::from_str(args).unwrap_or_default();
    let any_thread = args.get("style").is_some_and(|style| style == "start/end");
    let number = |key: &str| args.get(key).and_then(|number| number.as_u64());
    let category = args.get("category").and_then(|text| text.as_str()).map(Rc::from);
    OwnArgs { any_thread, flops: number("flops").unwrap_or(0), bytes: number("bytes"), category }
}

fn nest(all: &mut [OwnSpan]) {
    let mut open: Vec<u32> = Vec::new();
    for at in 0..all.len() {
        let (thread, start_ns, end_ns) =
            (all[at].row.thread, all[at].row.start_ns, all[at].end_ns());
        if all[at].any_thread {
            continue;
        }
        let holds = |outer: &OwnSpan| outer.row.thread == thread && outer.end_ns() >= end_ns;
        let is_over = |outer: &OwnSpan| outer.end_ns() <= start_ns && outer.row.duration_ns > 0;
        while let Some(&last) = open.last()
            && (!holds(&all[last as usize]) || is_over(&all[last as usize]))
        {
            open.pop();
        }
        all[at].parent = open.last().copied();
        open.push(at as u32);
    }
}
