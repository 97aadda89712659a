//! Calls of PyTorch's modules, as any of the profilers recorded them.

use rustc_hash::FxHashSet;
use tprof_facts::modules::ModuleName;
use tprof_trace::model::{NameId, SpanKind, SpanOutline};

use super::nesting::nesting_order;
use super::rows::HostSpan;
use super::trace::RankTrace;

impl RankTrace<'_> {
    /// Returns the calls of modules in order, callers before callees. These are annotations, which
    /// must have been loaded. If there are no such annotations, they are Python functions, which
    /// need not have been loaded.
    pub fn module_calls(&self) -> Vec<HostSpan> {
        let is_module = |(id, name): (NameId, &str)| ModuleName::of(name).map(|_| id);
        let names: FxHashSet<NameId> = self.file.names().filter_map(is_module).collect();
        if names.is_empty() {
            return Vec::new();
        }
        let annotations = self.spans(SpanKind::Annotation).iter();
        let mut calls: Vec<HostSpan> =
            annotations.filter(|span| names.contains(&span.name)).cloned().collect();
        if calls.is_empty() {
            for block in self.file.blocks::<SpanOutline>().by_ref() {
                let functions = block.iter().filter(|row| row.kind == SpanKind::Python);
                let functions = functions.filter(|row| names.contains(&row.name));
                calls.extend(functions.map(HostSpan::from));
            }
            calls.sort_by_key(nesting_order);
        }
        calls
    }
}
