//! Finds steps that PyTorch's own ranges show: updates of optimizers and fetches of data loaders.
//! Since version 1.8, PyTorch itself puts ranges around these calls (`Optimizer.profile_hook_step`
//! and `_BaseDataLoaderIter.__next__`), without a change to the program.

use std::collections::BTreeMap;

use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, ProcessIndex, SpanKind};
use tprof_trace::pytorch::{LOADER_FETCH, OPTIMIZER_STEP};

use super::skipped;
use super::step::{Batches, Step, StepRange};
use super::windows::Windows;

/// Whether a range with this kind and name is an update, a fetch or an operator of a gradient
/// scaler.
pub(super) fn is_sign(kind: SpanKind, name: &str) -> bool {
    sign_of(kind, name).is_some() || skipped::is_sign(kind, name)
}

/// Returns the ranges whose names begin with a prefix, by process and in order of time. Ranges
/// within another one are left out.
pub(super) fn named(
    file: &TraceFile,
    ranges: &[StepRange],
    start: &str,
) -> BTreeMap<ProcessIndex, Vec<StepRange>> {
    let mut found: BTreeMap<ProcessIndex, Vec<StepRange>> = BTreeMap::new();
    let is_named = |range: &&StepRange| {
        range.kind == SpanKind::Annotation && file.name(range.name).starts_with(start)
    };
    for range in ranges.iter().filter(is_named) {
        found.entry(range.process).or_default().push(*range);
    }
    found.values_mut().for_each(outermost);
    found
}

/// Sorts ranges by time and removes those within another one.
pub(super) fn outermost(ranges: &mut Vec<StepRange>) {
    ranges.sort_by_key(|range| (range.start_ns, std::cmp::Reverse(range.end_ns)));
    let mut end_ns = 0;
    ranges.retain(|range| {
        let is_outer = range.start_ns >= end_ns;
        end_ns = end_ns.max(range.end_ns);
        is_outer
    });
}

/// The event in a step that one of PyTorch's ranges shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepSign {
    /// An update of an optimizer.
    Update,
    /// A fetch of a data loader.
    Fetch,
}

/// Returns the event that a range with this kind and name shows, if any.
pub(super) fn sign_of(kind: SpanKind, name: &str) -> Option<StepSign> {
    match kind {
        SpanKind::Annotation if name.starts_with(OPTIMIZER_STEP) => Some(StepSign::Update),
        SpanKind::Annotation if name.starts_with(LOADER_FETCH) => Some(StepSign::Fetch),
        _ => None,
    }
}

/// Returns the steps that the optimizer's updates show; each step ends with an update.
///
/// Several optimizers form a group: a step ends with the last update before one of them updates
/// again. If most batches are followed by several groups, these belong to one step.
///
/// A step begins where the previous one ended, or at the end of an update that a gradient scaler
/// skipped since then. If more batches were fetched since then than a step usually has, the earlier
/// ones belong to validation, to the end of an epoch, or to a skipped update without a record. The
/// step then begins with the fetch of its own batches, which are the last ones. The first step also
/// begins with the fetch of its batches. If nothing was fetched, there is no first step, since its
/// beginning is unknown.
pub(super) fn updates(file: &TraceFile, ranges: &[StepRange]) -> Vec<Step> {
    let fetches = named(file, ranges, LOADER_FETCH);
    let mut steps = Vec::new();
    for (process, updates) in named(file, ranges, OPTIMIZER_STEP) {
        let fetches = fetches.get(&process).map_or(&[][..], Vec::as_slice);
        let ends = last_of_each_batch(ends_of_groups(&updates), fetches);
        let windows = Windows::of(file, process);
        let skipped = skipped::of_process(file, ranges, process, &updates).unwrap_or_default();
        steps.extend(between(process, &ends, fetches, &windows, &skipped, 0));
    }
    steps
}

/// Returns the number of updates that may end steps.
pub(super) fn update_count(file: &TraceFile, ranges: &[StepRange]) -> usize {
    let fetches = named(file, ranges, LOADER_FETCH);
    let ends = named(file, ranges, OPTIMIZER_STEP).into_iter().map(|(process, updates)| {
        let fetches = fetches.get(&process).map_or(&[][..], Vec::as_slice);
        last_of_each_batch(ends_of_groups(&updates), fetches).len()
    });
    ends.sum()
}

/// Returns the ends of a process's updates in order, ns, including updates that a gradient scaler
/// skipped. Several updates for one batch count as one, as in [`updates`].
pub(super) fn attempted(
    file: &TraceFile,
    ranges: &[StepRange],
    process: ProcessIndex,
    fetches: &[StepRange],
) -> Vec<u64> {
    let updates = named(file, ranges, OPTIMIZER_STEP).remove(&process).unwrap_or_default();
    let mut ends = last_of_each_batch(ends_of_groups(&updates), fetches);
    ends.extend(skipped::of_process(file, ranges, process, &updates).unwrap_or_default());
    ends.sort_unstable();
    ends
}

/// Returns the times of skipped updates by process, ns, for processes with a gradient scaler.
fn skipped_updates(file: &TraceFile, ranges: &[StepRange]) -> BTreeMap<ProcessIndex, Vec<u64>> {
    let of = |(process, updates): (ProcessIndex, Vec<StepRange>)| {
        Some((process, skipped::of_process(file, ranges, process, &updates)?))
    };
    named(file, ranges, OPTIMIZER_STEP).into_iter().filter_map(of).collect()
}

/// Returns the number of updates that a gradient scaler skipped; `None` if no scaler was recorded.
pub(super) fn skipped_count(file: &TraceFile, ranges: &[StepRange]) -> Option<usize> {
    let skipped = skipped_updates(file, ranges);
    (!skipped.is_empty()).then(|| skipped.values().map(Vec::len).sum())
}

/// Returns the ends of groups of updates. A group ends before one of its optimizers updates again.
pub(super) fn ends_of_groups(updates: &[StepRange]) -> Vec<u64> {
    let mut ends = Vec::new();
    let mut group: Vec<NameId> = Vec::new();
    let mut end_ns = 0;
    for update in updates {
        if group.contains(&update.name) {
            ends.push(end_ns);
            group.clear();
        }
        group.push(update.name);
        end_ns = update.end_ns;
    }
    if !group.is_empty() {
        ends.push(end_ns);
    }
    ends
}

/// Returns the ends of steps, given the ends of groups. If most fetches are followed by several
/// groups, only the last group after each fetch ends a step. That happens with two optimizers of
/// one class, whose ranges have the same name (as in a GAN), and with several updates for one
/// batch.
pub(super) fn last_of_each_batch(ends: Vec<u64>, fetches: &[StepRange]) -> Vec<u64> {
    let fetched = |ns: &u64| fetches.partition_point(|fetch| fetch.end_ns <= *ns);
    let is_same = |a: &u64, b: &u64| fetched(a) == fetched(b);
    let groups: Vec<&[u64]> = ends.chunk_by(is_same).collect();
    match !fetches.is_empty() && usual(groups.iter().map(|group| group.len())) > 1 {
        true => groups.iter().filter_map(|group| group.last().copied()).collect(),
        false => ends,
    }
}

/// Returns the steps that end at `ends`. The ends are numbered from `next`, and a step has the
/// number of its end.
pub(super) fn between(
    process: ProcessIndex,
    ends: &[u64],
    fetches: &[StepRange],
    windows: &Windows,
    skipped: &[u64],
    mut next: u64,
) -> Vec<Step> {
    let after = |ns: u64| fetches.partition_point(|fetch| fetch.end_ns <= ns);
    let usual = usual(ends.windows(2).map(|pair| after(pair[1]) - after(pair[0])));
    let mut steps = Vec::new();
    let mut last_ns = None;
    for &end_ns in ends {
        let mut number = next;
        // If recording was switched on since the last end, the step begins there, not at the last
        // end.
        if let Some((on_ns, of)) = windows.begins_within(last_ns.unwrap_or(0), end_ns) {
            (last_ns, number) = (of.map(|_| on_ns).or(last_ns), of.unwrap_or(number));
        }
        next = number.saturating_add(1);
        let before = skipped.partition_point(|skipped_ns| *skipped_ns < end_ns);
        last_ns = last_ns.max(before.checked_sub(1).map(|at| skipped[at]));
        let fetched = &fetches[last_ns.map_or(0, after)..after(end_ns)];
        // For the first step, only its batches show where it begins.
        let own = if last_ns.is_none() { usual.max(1) } else { usual };
        let of_batches = match own > 0 && (fetched.len() > own || last_ns.is_none()) {
            true => fetched.len().checked_sub(own).and_then(|at| fetched.get(at)),
            false => None,
        };
        if let Some(start_ns) = of_batches.map(|fetch| fetch.start_ns).or(last_ns) {
            steps.push(Step { start_ns, end_ns, process, number });
        }
        last_ns = Some(end_ns);
    }
    steps
}

/// Returns the median of counts, or 1 if there are none.
pub(super) fn usual(counts: impl Iterator<Item = usize>) -> usize {
    let mut counts: Vec<usize> = counts.collect();
    counts.sort_unstable();
    counts.get(counts.len() / 2).copied().unwrap_or(1)
}

/// Returns the batches of steps, if batches were recorded. A skipped update accounts for the
/// batches before it, but for at most as many as a step has.
pub(super) fn batches(file: &TraceFile, ranges: &[StepRange], steps: &[Step]) -> Option<Batches> {
    let fetches = named(file, ranges, LOADER_FETCH);
    let within = |step: &Step| {
        let fetches = fetches.get(&step.process).map_or(&[][..], Vec::as_slice);
        let from = fetches.partition_point(|fetch| fetch.start_ns < step.start_ns);
        fetches.partition_point(|fetch| fetch.start_ns < step.end_ns) - from
    };
    let updates: BTreeMap<_, _> = named(file, ranges, OPTIMIZER_STEP)
        .into_iter()
        .map(|(process, updates)| (process, ends_of_groups(&updates)))
        .collect();
    let updates_within = |step: &Step| {
        let ends = updates.get(&step.process).map_or(&[][..], Vec::as_slice);
        let from = ends.partition_point(|end_ns| *end_ns <= step.start_ns);
        ends.partition_point(|end_ns| *end_ns <= step.end_ns) - from
    };
    let all: usize = fetches.values().map(Vec::len).sum();
    let of_steps: Vec<usize> = steps.iter().map(within).collect();
    let a_step = usual(of_steps.iter().copied());
    let mut of_skipped = 0;
    for (process, skipped) in skipped_updates(file, ranges) {
        let fetches = fetches.get(&process).map_or(&[][..], Vec::as_slice);
        let ends = || steps.iter().filter(|step| step.process == process).map(|step| step.end_ns);
        for (at, &ns) in skipped.iter().enumerate() {
            let before = at.checked_sub(1).map_or(0, |at| skipped[at]);
            let from_ns = ends().filter(|end_ns| *end_ns < ns).fold(before, u64::max);
            let from = fetches.partition_point(|fetch| fetch.start_ns < from_ns);
            let until = fetches.partition_point(|fetch| fetch.start_ns < ns);
            of_skipped += (until - from).min(a_step);
        }
    }
    let outside = all.saturating_sub(of_steps.iter().sum::<usize>() + of_skipped);
    let updates = usual(steps.iter().map(updates_within));
    (all > 0).then_some(Batches { a_step, updates, outside })
}

/// Returns the steps that the data loader's batches show. Each begins with a fetch and lasts until
/// the next one. The last fetch usually finds no batch, and ends the last step.
pub(super) fn fetches(file: &TraceFile, ranges: &[StepRange]) -> Vec<Step> {
    let mut steps = Vec::new();
    for (process, fetches) in named(file, ranges, LOADER_FETCH) {
        for (pair, number) in fetches.windows(2).zip(0..) {
            let [start_ns, end_ns] = [pair[0].start_ns, pair[1].start_ns];
            steps.push(Step { start_ns, end_ns, process, number });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::super::{Bounds, StepSource, Steps, of_file};
    use super::*;
    use tprof_trace::model::Span;
    use tprof_trace::{TraceHeader, TraceWriter};

    const NEXT: &str = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    const ADAM: &str = "Optimizer.step#Adam.step";
    const SGD: &str = "Optimizer.step#SGD.step";

    /// Finds steps in ranges of 5 ns that begin at these times.
    fn of(ranges: &[(u64, &str)], wanted: Option<StepSource>) -> Steps {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let mut spans: Vec<Span> = Vec::new();
        for (start_ns, name) in ranges {
            let (kind, name) = (SpanKind::Annotation, writer.name(name));
            spans.push(Span { start_ns: *start_ns, duration_ns: 5, kind, name, ..Span::default() });
        }
        writer.write(&mut spans).unwrap();
        writer.finish().unwrap();
        of_file(&TraceFile::open(&path).unwrap(), wanted)
    }

    fn times(steps: &Steps) -> Vec<(u64, u64)> {
        steps.all.iter().map(|step| (step.start_ns, step.end_ns)).collect()
    }

    #[test]
    fn a_step_ends_with_an_update_and_accumulates_batches() {
        let ranges: Vec<(u64, &str)> = (0..4)
            .flat_map(|step: u64| {
                let at = 1000 + 100 * step;
                [(at, NEXT), (at + 40, NEXT), (at + 80, SGD)]
            })
            .collect();
        let steps = of(&ranges, None);
        assert_eq!(times(&steps), [(1000, 1085), (1085, 1185), (1185, 1285), (1285, 1385)]);
        assert_eq!(steps.batches, Some(Batches { a_step: 2, updates: 1, outside: 0 }));
        assert_eq!(steps.others, [(StepSource::Loader, 7)]);
        assert_eq!(steps.bounds, Some(Bounds { recorded: 4, open: 0 }));
    }

    #[test]
    fn several_optimizers_that_each_update_once_share_a_step() {
        let ranges: Vec<(u64, &str)> = (0..3)
            .flat_map(|step: u64| {
                let at = 1000 + 100 * step;
                [(at, NEXT), (at + 50, ADAM), (at + 80, SGD)]
            })
            .collect();
        assert_eq!(times(&of(&ranges, None)), [(1000, 1085), (1085, 1185), (1185, 1285)]);
    }

    #[test]
    fn optimizers_of_one_class_update_within_one_step() {
        let ranges: Vec<(u64, &str)> = (0..3)
            .flat_map(|step: u64| {
                let at = 1000 + 100 * step;
                [(at, NEXT), (at + 50, ADAM), (at + 80, ADAM)]
            })
            .collect();
        let steps = of(&ranges, None);
        assert_eq!(times(&steps), [(1000, 1085), (1085, 1185), (1185, 1285)]);
        assert_eq!(steps.batches, Some(Batches { a_step: 1, updates: 2, outside: 0 }));
    }

    #[test]
    fn without_batches_the_first_step_has_no_beginning() {
        let steps = of(&[(100, SGD), (200, SGD), (300, SGD)], None);
        assert_eq!(times(&steps), [(105, 205), (205, 305)]);
        assert_eq!(steps.all.iter().map(|step| step.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(steps.batches, None);
        assert_eq!(steps.bounds, Some(Bounds { recorded: 3, open: 1 }));
    }

    #[test]
    fn validation_and_skipped_updates_lie_between_steps() {
        let mut ranges = vec![(100, NEXT), (150, SGD), (200, NEXT), (250, SGD)];
        // The fetch that ends the epoch, two fetches of validation, and the fetch that ends
        // validation.
        ranges.extend([(300, NEXT), (310, NEXT), (320, NEXT), (330, NEXT)]);
        ranges.extend([(400, NEXT), (450, SGD), (500, NEXT), (550, SGD), (600, NEXT)]);
        let steps = of(&ranges, None);
        assert_eq!(times(&steps), [(100, 155), (155, 255), (400, 455), (455, 555)]);
        assert_eq!(steps.batches, Some(Batches { a_step: 1, updates: 1, outside: 5 }));
    }

    #[test]
    fn an_update_within_another_update_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let (outer, inner) = (writer.name("Optimizer.step#Wrapper.step"), writer.name(SGD));
        let span = |start_ns, duration_ns, name| Span {
            start_ns,
            duration_ns,
            name,
            kind: SpanKind::Annotation,
            ..Span::default()
        };
        let at = |step: u64| [span(100 * step, 50, outer), span(100 * step + 10, 20, inner)];
        let mut spans: Vec<Span> = (1..4).flat_map(at).collect();
        writer.write(&mut spans).unwrap();
        writer.finish().unwrap();
        let steps = of_file(&TraceFile::open(&path).unwrap(), None);
        assert_eq!(times(&steps), [(150, 250), (250, 350)]);
    }

    #[test]
    fn a_fetch_begins_a_step_of_the_loader() {
        let ranges = [(100, NEXT), (200, NEXT), (350, NEXT)];
        assert_eq!(times(&of(&ranges, None)), [(100, 200), (200, 350)]);
    }
}
