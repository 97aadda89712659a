//! Searches a scene for calls, spans, copies and work, by name and kind.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_rank::base::intervals::Cover;
use tprof_rank::{HostSpan, SpanPurpose, Work};
use tprof_trace::model::{NameId, SpanKind};

use super::Scene;
use super::copies::Copy;

impl Scene<'_> {
    /// Returns the main threads' calls in the window whose name passes.
    pub fn calls_named(&self, passes: impl Fn(&str) -> bool) -> Vec<usize> {
        let mut names: FxHashMap<NameId, bool> = FxHashMap::default();
        let mut named = |id| *names.entry(id).or_insert_with(|| passes(self.rank.name(id)));
        let Some(span) = self.window.span() else { return Vec::new() };
        let calls = self.rank.calls.iter().enumerate();
        calls
            .filter(|(_, call)| self.main_threads.contains(call.thread))
            .filter(|(_, call)| call.interval().overlap(span).length() > 0)
            .filter(|(_, call)| named(call.name))
            .map(|(at, _)| at)
            .collect()
    }

    /// Returns the copies and memsets in the window that pass.
    pub fn copies(&self, passes: impl Fn(&Copy) -> bool) -> Vec<Copy> {
        let rows = self.copy_rows.iter().filter(|copy| self.window.touches(copy.interval()));
        rows.filter(|copy| passes(copy)).copied().collect()
    }

    /// Whether the recording has a copy or a memset that passes.
    pub fn has_copies(&self, passes: impl Fn(&Copy) -> bool) -> bool {
        self.copy_rows.iter().any(passes)
    }

    /// Returns the work in the window.
    pub fn work(&self) -> impl Iterator<Item = &Work> {
        let rows = self.rank.work.iter().zip(&self.work_in_window_ns);
        rows.filter(|(_, ns)| **ns > 0).map(|(work, _)| work)
    }

    /// Returns the time in the window during which any of these calls lasted.
    pub fn cover_of_calls(&self, calls: &[usize]) -> Cover {
        let intervals = calls.iter().map(|&at| self.rank.calls[at].interval());
        Cover::of(intervals).intersection(&self.window)
    }

    /// Whether the recording has a call whose name passes.
    pub fn has_calls(&self, passes: impl Fn(&str) -> bool) -> bool {
        self.has_named(self.rank.calls.iter(), passes)
    }

    /// Whether the recording has a host span of these kinds with this purpose.
    pub fn has_spans(&self, kinds: &[SpanKind], stated: SpanPurpose) -> bool {
        let mut states = self.states(stated);
        kinds.iter().flat_map(|kind| self.rank.spans(*kind)).any(&mut states)
    }

    /// Returns the main threads' spans of these kinds with this purpose.
    pub fn spans_stated(&self, kinds: &[SpanKind], stated: SpanPurpose) -> Vec<&HostSpan> {
        let mut states = self.states(stated);
        let spans = kinds.iter().flat_map(|kind| self.rank.spans(*kind));
        spans.filter(|span| self.main_threads.contains(span.thread) && states(span)).collect()
    }

    fn states(&self, stated: SpanPurpose) -> impl FnMut(&HostSpan) -> bool {
        let mut known: FxHashMap<(NameId, NameId), bool> = FxHashMap::default();
        move |span| {
            *known.entry((span.name, span.args)).or_insert_with(|| {
                SpanPurpose::of(self.rank.name(span.name), self.rank.name(span.args))
                    == Some(stated)
            })
        }
    }

    fn has_named<'s>(
        &self,
        mut spans: impl Iterator<Item = &'s HostSpan>,
        passes: impl Fn(&str) -> bool,
    ) -> bool {
        let mut failed: FxHashSet<NameId> = FxHashSet::default();
        spans.any(|span| {
            !failed.contains(&span.name) && {
                let passed = passes(self.rank.name(span.name));
                failed.insert(span.name);
                passed
            }
        })
    }

    /// Returns the main threads' spans of these kinds whose name passes.
    pub fn spans_named(&self, kinds: &[SpanKind], passes: impl Fn(&str) -> bool) -> Vec<&HostSpan> {
        let mut names: FxHashMap<NameId, bool> = FxHashMap::default();
        let mut named = |id| *names.entry(id).or_insert_with(|| passes(self.rank.name(id)));
        let spans = kinds.iter().flat_map(|kind| self.rank.spans(*kind));
        spans.filter(|span| self.main_threads.contains(span.thread) && named(span.name)).collect()
    }
}
