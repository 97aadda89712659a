//! Adds up the spans of one rank by name.

use std::collections::BTreeMap;

use super::allocated::Allocated;
use super::launched::LaunchedWork;
use super::time::ThreadTime;
use crate::memory::HeldWithin;

/// The category that is shown if the spans of a name have several.
const SEVERAL: &str = "several";

/// Sums by name, and by whether any thread may end the spans.
pub type SumsByName = BTreeMap<(String, bool), SpanSums>;

/// The sums of the spans of one name.
#[derive(Clone, Debug)]
pub struct SpanSums {
    /// Duration of each span, ns.
    pub(super) durations: Vec<u64>,
    /// Sum of the durations, ns, excluding spans within a span of the same name.
    pub(super) total_ns: u64,
    /// Sum of the durations without the spans directly within, ns.
    pub(super) self_ns: u64,
    /// Allocations; excludes the same spans as `total_ns`.
    pub(super) allocated: Allocated,
    /// The most live bytes on the process's heap within one of the spans; `None` before the first
    /// span is added.
    pub(super) heap: Option<HeldWithin>,
    /// The most bytes of device memory that the process held within one of the spans.
    pub(super) device: Option<HeldWithin>,
    /// Activity of the threads; excludes the same spans as `total_ns`.
    pub(super) time: ThreadTime,
    /// Launched work; excludes the same spans as `total_ns`.
    pub(super) launched: LaunchedWork,
    /// Floating-point operations that the program stated for these spans.
    pub(super) flops: u64,
    /// Floating-point operations of these spans and of all spans within them; excludes the same
    /// spans as `total_ns`.
    pub(super) flops_within: u64,
    /// For the spans with an argument `bytes`: the sum of the bytes, and the sum of the durations,
    /// ns.
    pub(super) moved: (u64, u64),
    /// The category of the spans that have the argument `category`; `several` if they differ.
    pub(super) category: Option<String>,
    /// The slowest spans, slowest first.
    pub(super) slowest: Vec<SlowSpan>,
}

/// One of the slowest spans.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowSpan {
    pub(super) duration_ns: u64,
    /// The beginning of the span, in ns since the run began.
    pub(super) start_ns: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) allocated: Allocated,
    pub(super) heap: HeldWithin,
    pub(super) device: HeldWithin,
    pub(super) time: ThreadTime,
}

impl Default for SpanSums {
    fn default() -> SpanSums {
        SpanSums {
            durations: Vec::new(),
            total_ns: 0,
            self_ns: 0,
            allocated: Allocated::none(),
            heap: None,
            device: None,
            time: ThreadTime::none(),
            launched: LaunchedWork::none(),
            flops: 0,
            flops_within: 0,
            moved: (0, 0),
            category: None,
            slowest: Vec::new(),
        }
    }
}

impl SpanSums {
    /// Adds the spans of another rank.
    pub(super) fn add(&mut self, other: &SpanSums) {
        self.durations.extend(&other.durations);
        self.total_ns += other.total_ns;
        self.self_ns += other.self_ns;
        self.allocate(&other.allocated);
        self.holds(other.heap.as_ref(), other.device.as_ref());
        let mine = std::mem::replace(&mut self.time, ThreadTime::none());
        self.time = mine.plus(other.time.clone());
        let mine = std::mem::replace(&mut self.launched, LaunchedWork::none());
        self.launched = mine.plus(other.launched.clone());
        self.flops = self.flops.saturating_add(other.flops);
        self.flops_within = self.flops_within.saturating_add(other.flops_within);
        self.moves(other.moved);
        self.is_of(other.category.as_deref());
    }

    pub(super) fn allocate(&mut self, more: &Allocated) {
        let mine = std::mem::replace(&mut self.allocated, Allocated::none());
        self.allocated = mine.plus(more.clone());
    }

    pub(super) fn holds(&mut self, heap: Option<&HeldWithin>, device: Option<&HeldWithin>) {
        for (mine, more) in [(&mut self.heap, heap), (&mut self.device, device)] {
            let Some(more) = more else { continue };
            *mine = Some(match mine.take() {
                Some(held) => held.or_higher(more),
                None => more.clone(),
            });
        }
    }

    pub(super) fn moves(&mut self, (bytes, lasted_ns): (u64, u64)) {
        self.moved = (self.moved.0.saturating_add(bytes), self.moved.1 + lasted_ns);
    }

    pub(super) fn is_of(&mut self, category: Option<&str>) {
        match (&self.category, category) {
            (None, Some(category)) => self.category = Some(category.to_owned()),
            (Some(mine), Some(category)) if mine != category => {
                self.category = Some(SEVERAL.to_owned());
            }
            _ => {}
        }
    }
}
