//! Computes `get_aten_op_kernels_and_delay` as Holistic Trace Analysis 0.5.0 does.
//!
//! Only operators named `aten::…`, and calls whose names match HTA's pattern for kernel launches,
//! count. A launch belongs to the operator, of any thread, that began last among those that contain
//! the call in time. Operators with the same thread, name and start count as one.

use rustc_hash::FxHashMap;
use tprof_rank::{HostSpan, RankTrace};
use tprof_trace::calls::function;
use tprof_trace::model::{NameId, SpanKind};

use super::costs::{Launched, OperatorCosts};
use crate::program::sequences::{WorkName, work_name};

/// Returns the kernel sequences by operator. There are no costs, because HTA has none.
pub(super) fn count(rank: &RankTrace) -> OperatorCosts {
    let operators: Vec<&HostSpan> = by_start(rank, |name| name.starts_with("aten::"));
    let mut open = OpenOperators::default();
    let mut next = operators.iter().peekable();
    let mut names: FxHashMap<NameId, bool> = FxHashMap::default();
    let mut runs: FxHashMap<(u32, NameId, u64), (Vec<WorkName>, Launched)> = FxHashMap::default();
    for (at, call) in rank.calls.iter().enumerate() {
        while let Some(operator) = next.next_if(|operator| operator.start_ns <= call.start_ns) {
            open.push(operator);
        }
        let is_launch = names.entry(call.name).or_insert_with(|| is_launch(rank.name(call.name)));
        let (true, Some(&work)) = (*is_launch, rank.launches.work_of(at).first()) else { continue };
        let Some(operator) = open.around(call) else { continue };
        let work = &rank.work[work as usize];
        let run = Launched::of(operator.start_ns, call, work.start_ns);
        let key = (operator.thread, operator.name, operator.start_ns);
        runs.entry(key).or_insert_with(|| (Vec::new(), run)).0.push(work_name(work));
    }
    let mut sequences: FxHashMap<(NameId, Vec<WorkName>), Launched> = FxHashMap::default();
    for ((_, name, _), (kernels, run)) in runs {
        sequences.entry((name, kernels)).or_default().add(&run);
    }
    OperatorCosts::named(rank, FxHashMap::default(), sequences, 0)
}

/// Returns the operators of all threads whose name passes, in order of start.
fn by_start<'r>(rank: &'r RankTrace, passes: impl Fn(&str) -> bool) -> Vec<&'r HostSpan> {
    let mut names: FxHashMap<NameId, bool> = FxHashMap::default();
    let mut operators: Vec<&HostSpan> = rank
        .spans(SpanKind::Operator)
        .iter()
        .filter(|span| *names.entry(span.name).or_insert_with(|| passes(rank.name(span.name))))
        .collect();
    operators.sort_by_key(|span| span.start_ns);
    operators
}

/// Whether the beginning of a function's name matches HTA's pattern
/// `(cuda.*LaunchKernel)|(cuLaunchKernel)|(^runFunction)`.
fn is_launch(name: &str) -> bool {
    let name = function(name);
    name.strip_prefix("cuda").is_some_and(|rest| rest.contains("LaunchKernel"))
        || name.starts_with("cuLaunchKernel")
        || name.starts_with("runFunction")
}

/// Operators that have begun and may not have ended, by thread.
#[derive(Default)]
struct OpenOperators<'r> {
    threads: FxHashMap<u32, Vec<&'r HostSpan>>,
}

impl<'r> OpenOperators<'r> {
    fn push(&mut self, operator: &'r HostSpan) {
        let open = self.threads.entry(operator.thread).or_default();
        while open.last().is_some_and(|last| last.end_ns() < operator.start_ns) {
            open.pop();
        }
        open.push(operator);
    }

    /// Returns the operator, of any thread, that began last among those around a call. If several
    /// began together, returns the outermost.
    fn around(&mut self, call: &HostSpan) -> Option<&'r HostSpan> {
        let mut best: Option<&HostSpan> = None;
        for open in self.threads.values_mut() {
            while open.last().is_some_and(|last| last.end_ns() < call.start_ns) {
                open.pop();
            }
            let mut around = open.iter().rev().filter(|one| one.end_ns() >= call.end_ns());
            let Some(mut found) = around.next() else { continue };
            for outer in around.take_while(|outer| outer.start_ns == found.start_ns) {
                found = outer;
            }
            let key = |span: &HostSpan| (span.start_ns, std::cmp::Reverse(span.thread));
            if best.is_none_or(|best| key(found) > key(best)) {
                best = Some(found);
            }
        }
        best
    }
}
