//! Finds the calls of PyTorch's modules, which tprof and torch.profiler record differently.

use rustc_hash::FxHashSet;
use tprof_facts::modules::ModuleName;
use tprof_trace::model::{NameId, SpanKind, SpanOutline};

use super::nesting::nesting_order;
use super::rows::HostSpan;
use super::trace::RankTrace;

impl RankTrace<'_> {
    /// Returns the calls of modules in order, callers before callees. They are read from
    /// annotations, which must have been loaded. If no annotation is a call of a module, they are
    /// read from Python functions, which this loads itself.
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
