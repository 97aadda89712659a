//! Sums up kernels, operators, calls and collectives by name, for each step of a rank.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_metrics::program::flops::sized_runs;
use tprof_rank::{Class, RankTrace, Step, step_at};
use tprof_trace::kernel_name::canonical;
use tprof_trace::model::{NameId, SpanKind};

/// The kinds of names that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NameKind {
    /// Kernels, copies and memsets.
    Work,
    /// Operators of a framework, and also annotations once `join_annotations` was called.
    Operator,
    /// Annotations of the program.
    Annotation,
    /// Calls of the runtime and the driver.
    Call,
    /// Collectives between ranks.
    Collective,
    /// Counted operators, with the sizes of their inputs.
    Shape,
}

/// Totals of one name in one step. They are whole numbers, so the sum doesn't depend on the order
/// in which ranks are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameTotals {
    /// Number of executions under this name.
    pub count: u64,
    /// Total duration, nanoseconds; for a collective, that of its kernels.
    pub ns: u64,
    /// Bytes that copies and collectives moved.
    pub bytes: u64,
    /// Number of floating-point operations that the results need, for operators with known sizes.
    pub flops: u64,
}

impl NameTotals {
    pub(super) fn add(&mut self, other: NameTotals) {
        self.count += other.count;
        self.ns = self.ns.saturating_add(other.ns);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.flops = self.flops.saturating_add(other.flops);
    }
}

/// Totals of each name in each step, by the step's number.
pub type TimesByName = FxHashMap<(NameKind, String), BTreeMap<u64, NameTotals>>;

/// Sums up each name in each step.
pub(super) fn names(rank: &RankTrace<'_>, steps: &[Step], stepped: bool) -> TimesByName {
    let mut names: FxHashMap<(NameKind, NameId, u64), NameTotals> = FxHashMap::default();
    let at = |process: u32, time_ns: u64| match stepped {
        true => step_at(steps, process, time_ns).map(|at| steps[at as usize].number),
        false => Some(0),
    };
    let step_of_work = rank.steps_of_work(steps);
    // Copies may have no name in the trace, so they are summed by the name that reports print.
    let mut copies: FxHashMap<(String, u64), NameTotals> = FxHashMap::default();
    for (work, step) in rank.work.iter().zip(&step_of_work) {
        let step = match stepped {
            true => step.map(|at| steps[at as usize].number),
            false => Some(0),
        };
        let Some(step) = step else { continue };
        let bytes = work.bytes.get().unwrap_or(0);
        let took = NameTotals { count: 1, ns: work.duration_ns, bytes, flops: 0 };
        match work.is_kernel() {
            true => names.entry((NameKind::Work, work.name, step)).or_default().add(took),
            false => {
                copies.entry((rank.work_name(work).into_owned(), step)).or_default().add(took);
            }
        }
    }
    let spans =
        [(NameKind::Operator, SpanKind::Operator), (NameKind::Annotation, SpanKind::Annotation)];
    let spans = spans.into_iter().map(|(sort, kind)| (sort, rank.spans(kind)));
    for (sort, spans) in spans.chain([(NameKind::Call, rank.calls.as_slice())]) {
        for span in spans {
            let Some(step) = at(span.process, span.start_ns) else { continue };
            let took = NameTotals { count: 1, ns: span.duration_ns, ..NameTotals::default() };
            names.entry((sort, span.name, step)).or_default().add(took);
        }
    }
    collectives(rank, &at, &mut names);
    let mut all = TimesByName::default();
    for ((sort, name, step), took) in names {
        let name = match (sort, rank.name(name)) {
            // Another tool may demangle the same name differently, so bring the name into one form.
            (NameKind::Work, name) => canonical(name).into_owned(),
            (_, name) => name.to_owned(),
        };
        all.entry((sort, name)).or_default().entry(step).or_default().add(took);
    }
    for ((name, step), took) in copies {
        all.entry((NameKind::Work, name)).or_default().entry(step).or_default().add(took);
    }
    shapes(rank, &at, &mut all);
    all
}

/// Moves annotations to the kind of operators, because one tool may record a range as an annotation
/// and another one as an operator. If `operators_are_whole` is false, recorded operators are
/// dropped first: once tprof stopped recording them, a step may have run operators that it lacks.
pub(super) fn join_annotations(names: &mut TimesByName, operators_are_whole: bool) {
    if !operators_are_whole {
        names.retain(|(sort, _), _| !matches!(sort, NameKind::Operator | NameKind::Shape));
    }
    let is_annotation = |(sort, _): &&(NameKind, String)| *sort == NameKind::Annotation;
    let annotations: Vec<_> = names.keys().filter(is_annotation).cloned().collect();
    for key in annotations {
        let Some(by_step) = names.remove(&key) else { continue };
        let of_name = names.entry((NameKind::Operator, key.1)).or_default();
        for (step, took) in by_step {
            of_name.entry(step).or_default().add(took);
        }
    }
}

/// Sums up operators by the sizes of their inputs.
fn shapes(rank: &RankTrace<'_>, at: &impl Fn(u32, u64) -> Option<u64>, all: &mut TimesByName) {
    let (names, runs) = sized_runs(rank);
    let mut by_shape: FxHashMap<(u32, u64), NameTotals> = FxHashMap::default();
    for run in runs {
        let Some(step) = at(run.process, run.start_ns) else { continue };
        let bytes = run.work.bytes().unwrap_or(0);
        let took = NameTotals { count: 1, ns: run.time_ns, bytes, flops: run.work.needed };
        by_shape.entry((run.name, step)).or_default().add(took);
    }
    for ((name, step), took) in by_shape {
        let key = (NameKind::Shape, names[name as usize].clone());
        all.entry(key).or_default().entry(step).or_default().add(took);
    }
}

/// Sums up each collective. If one kernel runs several grouped collectives, its time counts once.
fn collectives(
    rank: &RankTrace<'_>,
    at: &impl Fn(u32, u64) -> Option<u64>,
    names: &mut FxHashMap<(NameKind, NameId, u64), NameTotals>,
) {
    let mut kernels: FxHashMap<(u32, u64), u64> = FxHashMap::default();
    for work in rank.work.iter().filter(|work| work.class == Class::Communication) {
        if let Some(correlation) = work.correlation.get() {
            *kernels.entry((rank.stream(work).process, correlation)).or_default() +=
                work.duration_ns;
        }
    }
    for row in &rank.collectives {
        let Some(step) = at(row.process, row.start_ns) else { continue };
        let kernel = row.correlation.and_then(|number| kernels.remove(&(row.process, number)));
        let (ns, bytes) = (kernel.unwrap_or(0), row.bytes.unwrap_or(0));
        let took = NameTotals { count: 1, ns, bytes, flops: 0 };
        names.entry((NameKind::Collective, row.name, step)).or_default().add(took);
    }
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_rank::Needs;
    use tprof_trace::model::Kernel;

    use super::*;

    /// Compares a kernel's name as an older tprof recorded it with the name in a trace of
    /// torch.profiler.
    #[test]
    fn a_kernel_has_the_same_name_whichever_tool_recorded_it() {
        let of = |name: &str| {
            let mut made = Fixture::new();
            let row = Kernel { start_ns: 10, duration_ns: 10, ..Kernel::default() };
            made.kernel(row, name);
            let file = made.finish();
            let rank = RankTrace::load(&file, Needs::WORK);
            names(&rank, &[], false).into_keys().collect::<Vec<_>>()
        };
        let before = of("at::fill<std::array<char*, (unsigned long)1> >(int)");
        assert_eq!(before, of("void at::fill<std::array<char*, 1ul> >(int)"));
        assert_eq!(before.len(), 1);
    }
}
