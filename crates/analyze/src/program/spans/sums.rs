//! Spans of one rank, added up by name.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_facts::Clock;
use tprof_trace::TraceFile;
use tprof_trace::model::NameId;

use super::allocated::{self, Allocated};
use super::find::{self, OwnSpan};
use crate::base::intervals::Interval;

/// Slowest spans that are kept of each name and rank.
pub(super) const SLOWEST: usize = 5;

/// The category of spans of one name that have several.
const SEVERAL: &str = "several";

/// By name, and whether any thread might end them.
pub type SumsByName = BTreeMap<(String, bool), SpanSums>;

/// The spans of one name.
#[derive(Clone, Debug)]
pub struct SpanSums {
    /// How long each lasted.
    pub(super) durations: Vec<u64>,
    /// Sum of these, less those within a span of the same name.
    pub(super) total_ns: u64,
    /// Sum without the spans directly within.
    pub(super) self_ns: u64,
    /// As `total_ns`.
    pub(super) allocated: Allocated,
    /// Operations that were stated of these spans.
    pub(super) flops: u64,
    /// Of them and the spans within, as `total_ns`.
    pub(super) flops_within: u64,
    /// Bytes by those that have an argument `bytes`, and how long these lasted.
    pub(super) moved: (u64, u64),
    /// By those that have an argument `category`; those of several are `several`.
    pub(super) category: Option<String>,
    /// The slowest ones first.
    pub(super) slowest: Vec<SlowSpan>,
}

/// One span.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowSpan {
    pub(super) duration_ns: u64,
    /// Since the run began.
    pub(super) start_ns: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) allocated: Allocated,
}

impl Default for SpanSums {
    fn default() -> SpanSums {
        SpanSums {
            durations: Vec::new(),
            total_ns: 0,
            self_ns: 0,
            allocated: Allocated::none(),
            flops: 0,
            flops_within: 0,
            moved: (0, 0),
            category: None,
            slowest: Vec::new(),
        }
    }
}

impl SpanSums {
    /// Of both.
    pub(super) fn add(&mut self, other: &SpanSums) {
        self.durations.extend(&other.durations);
        self.total_ns += other.total_ns;
        self.self_ns += other.self_ns;
        let mine = std::mem::replace(&mut self.allocated, Allocated::none());
        self.allocated = mine.plus(other.allocated.clone());
        self.flops = self.flops.saturating_add(other.flops);
        self.flops_within = self.flops_within.saturating_add(other.flops_within);
        self.moves(other.moved);
        self.is_of(other.category.as_deref());
    }

    fn moves(&mut self, (bytes, lasted_ns): (u64, u64)) {
        self.moved = (self.moved.0.saturating_add(bytes), self.moved.1 + lasted_ns);
    }

    fn is_of(&mut self, category: Option<&str>) {
        match (&self.category, category) {
            (None, Some(category)) => self.category = Some(category.to_owned()),
            (Some(mine), Some(category)) if mine != category => {
                self.category = Some(SEVERAL.to_owned());
            }
            _ => {}
        }
    }
}

/// The spans of a file that begin within an interval of its clock.
pub(super) fn of_rank(file: &TraceFile, wanted: Interval, clock: Clock) -> SumsByName {
    let spans = find::of_file(file);
    let allocated = allocated::of_spans(file, &spans);
    let (inner_ns, flops) = within(&spans);
    let mut by_id: FxHashMap<(NameId, bool), SpanSums> = FxHashMap::default();
    for (at, span) in spans.iter().enumerate() {
        let start_ns = span.row.start_ns;
        if start_ns < wanted.start || start_ns >= wanted.end {
            continue;
        }
        let sum = by_id.entry((span.row.name, span.any_thread)).or_default();
        let duration_ns = span.row.duration_ns;
        sum.durations.push(duration_ns);
        sum.self_ns += duration_ns.saturating_sub(inner_ns[at]);
        sum.flops = sum.flops.saturating_add(span.flops);
        sum.moves(span.bytes.map_or((0, 0), |bytes| (bytes, duration_ns)));
        sum.is_of(span.category.as_deref());
        if !has_own_name_around(&spans, span) {
            sum.total_ns += duration_ns;
            sum.flops_within = sum.flops_within.saturating_add(flops[at]);
            let so_far = std::mem::replace(&mut sum.allocated, Allocated::none());
            sum.allocated = so_far.plus(allocated[at].clone());
        }
        if sum.keeps(duration_ns) {
            sum.keep(slow(file, span, &allocated[at], clock));
        }
    }
    let named = |((name, any_thread), sums)| ((file.name(name).to_owned(), any_thread), sums);
    by_id.into_iter().map(named).collect()
}

/// Of each span, time in spans directly within it, and operations of it and all within.
fn within(spans: &[OwnSpan]) -> (Vec<u64>, Vec<u64>) {
    let mut inner_ns = vec![0_u64; spans.len()];
    let mut flops: Vec<u64> = spans.iter().map(|span| span.flops).collect();
    for at in (0..spans.len()).rev() {
        if let Some(parent) = spans[at].parent {
            inner_ns[parent as usize] += spans[at].row.duration_ns;
            flops[parent as usize] = flops[parent as usize].saturating_add(flops[at]);
        }
    }
    (inner_ns, flops)
}

fn has_own_name_around(spans: &[OwnSpan], span: &OwnSpan) -> bool {
    let mut around = span.parent;
    while let Some(at) = around {
        let outer = &spans[at as usize];
        if outer.row.name == span.row.name {
            return true;
        }
        around = outer.parent;
    }
    false
}

fn slow(file: &TraceFile, span: &OwnSpan, allocated: &Allocated, clock: Clock) -> SlowSpan {
    let row = &span.row;
    let process = file.processes().iter().find(|process| process.process == row.process);
    let thread = file.threads().iter().find(|thread| thread.thread == row.thread);
    SlowSpan {
        duration_ns: row.duration_ns,
        start_ns: clock.since_start(row.start_ns),
        pid: process.map_or(0, |process| process.pid),
        tid: thread.map_or(0, |thread| thread.tid),
        allocated: allocated.clone(),
    }
}

impl SpanSums {
    fn keeps(&self, duration_ns: u64) -> bool {
        let last = self.slowest.last().filter(|_| self.slowest.len() == SLOWEST);
        last.is_none_or(|last| last.duration_ns < duration_ns)
    }

    fn keep(&mut self, one: SlowSpan) {
        self.slowest.push(one);
        self.slowest.sort_by_key(|one| (Reverse(one.duration_ns), one.start_ns));
        self.slowest.truncate(SLOWEST);
    }
}
