//! Sums the work of a rank's operators by training step and by module.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use tprof_facts::flops::Work;
use tprof_facts::modules::ModuleName;
use tprof_rank::{CallTree, Moment, RankTrace, Step, enclosing, nesting_order, parents, step_at};
use tprof_trace::model::{NameId, SpanKind};

use super::count::{CountedRun, CountedRuns};
use super::joined::AutogradLinks;
use super::roof::LeastTime;
use super::sums::{FlopSums, ModuleSums, StepSums};

/// Returns the sums of each training step.
pub(super) fn steps<'c>(
    rank: &RankTrace<'_>,
    tree: &CallTree,
    counted: &'c CountedRuns,
    of_run: impl Fn(&CountedRun) -> (&'c Work, LeastTime, bool),
) -> Vec<StepSums> {
    let steps = rank.steps();
    let mut sums = vec![FlopSums::none(); steps.len()];
    let processes: FxHashMap<u32, u32> =
        rank.spans(SpanKind::Operator).iter().map(|span| (span.thread, span.process)).collect();
    for run in &counted.runs {
        let span = &tree.spans[run.at as usize];
        let Some(process) = processes.get(&span.thread) else { continue };
        let Some(step) = step_at(&steps, *process, span.start_ns) else { continue };
        let (work, least, recomputes) = of_run(run);
        sums[step as usize].add(run, work, &least, recomputes);
    }
    let one = |(step, sums): (&Step, FlopSums)| StepSums {
        number: step.number,
        wall_ns: step.time().length(),
        sums,
    };
    steps.iter().zip(sums).map(one).collect()
}

/// Returns the sums of each module. A backward operator belongs to the module of its forward
/// operator.
pub(super) fn modules<'c>(
    rank: &RankTrace<'_>,
    tree: &CallTree,
    counted: &'c CountedRuns,
    joined: &AutogradLinks,
    of_run: impl Fn(&CountedRun) -> (&'c Work, LeastTime, bool),
) -> BTreeMap<(String, String), ModuleSums> {
    let calls = rank.module_calls();
    if calls.is_empty() {
        return BTreeMap::new();
    }
    let callers = parents(&calls);
    let around = |places: &[u32]| -> FxHashMap<u32, u32> {
        let moment = |&at: &u32| {
            let span = &tree.spans[at as usize];
            Moment { thread: span.thread, time_ns: span.start_ns, of: at }
        };
        let mut moments: Vec<Moment<u32>> = places.iter().map(moment).collect();
        moments.sort_by_key(nesting_order);
        let found = enclosing(&calls, &moments).zip(&moments);
        found.filter_map(|(call, moment)| Some((moment.of, call?))).collect()
    };
    let forwards = joined.forwards(tree);
    let places: Vec<u32> = counted.runs.iter().map(|run| run.at).collect();
    let of_runs = around(&places);
    let numbered: Vec<u32> = forwards.values().copied().collect();
    let of_forwards = around(&numbered);
    let mut by_id: FxHashMap<NameId, ModuleSums> = FxHashMap::default();
    let none = ModuleSums { total: FlopSums::none(), own: FlopSums::none(), backward: 0 };
    for run in &counted.runs {
        let forward = || joined.forward(&forwards, run.at);
        // An operator of a recomputed forward pass lies in a call of its module even during the
        // backward pass.
        let (call, is_backward) = match of_runs.get(&run.at) {
            Some(call) => (Some(*call), false),
            None => (forward().and_then(|at| of_forwards.get(&at).copied()), true),
        };
        let Some(call) = call else { continue };
        let (work, least, recomputes) = of_run(run);
        let mut names: BTreeSet<NameId> = BTreeSet::new();
        for at in std::iter::successors(Some(call), |at| callers[*at as usize]) {
            if !names.insert(calls[at as usize].name) {
                continue;
            }
            let sums = by_id.entry(calls[at as usize].name).or_insert(none);
            sums.total.add(run, work, &least, recomputes);
            if at == call {
                sums.own.add(run, work, &least, recomputes);
            }
            if is_backward {
                sums.backward = sums.backward.saturating_add(work.flops);
            }
        }
    }
    let named = |(id, sums): (NameId, ModuleSums)| {
        let name = ModuleName::of(rank.name(id))?;
        Some(((name.path.to_owned(), name.class.to_owned()), sums))
    };
    by_id.into_iter().filter_map(named).collect()
}
