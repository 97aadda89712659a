//! EmptyCache: a caching allocator gives its memory back to the driver and takes it again, step by
//! step.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use tprof_facts::units::{bytes, counted};
use tprof_metrics::gpu::gpu_time::IdleCause;
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::sort_rows::SortRows;
use tprof_trace::model::{Allocator, DeviceAllocation, ThreadIndex};

use super::fragmented_memory::is_in_pieces;
use crate::finding::{Evidence, SourceLine, Track};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::time;

/// With fewer steps than this, the start of a job looks like repetition.
const LEAST_STEPS: usize = 4;

const EMPTIED: &str = "Leave out empty_cache() within steps: PyTorch's allocator uses again what it \
                       has cached. If no code calls it, the device is full and the allocator gives \
                       back what it can at each request: hold less, or set \
                       PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.";
const FULL: &str = "The device is full, so that the allocator gives back what it has cached before it \
                    can take more. Hold less, or take blocks of fewer sizes: a smaller batch, \
                    activation checkpointing, inputs padded to few lengths, \
                    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.";

/// The rule that judges segments that are given back and taken again.
pub(super) struct EmptyCache;

impl Rule for EmptyCache {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "EmptyCache",
            found_if: "in half of the steps or more, memory of a caching allocator goes back to the \
                 driver, and the job takes memory again; not where most of it goes back because free \
                 memory is in pieces (FragmentedMemory)",
            gain: "late time in these calls, and after those that give back until their thread's \
                   next launch; without device work, the time in these calls",
            needs: "blocks of a framework's allocator, its segments, and four steps",
            remedy: "no `empty_cache()` within steps; `expandable_segments:True` against fragments",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let rows = &scene.rank.allocations;
        if !rows.iter().any(|row| row.allocator == Allocator::Framework) {
            return scene.without_blocks();
        }
        if scene.steps < LEAST_STEPS {
            return Verdict::unchecked("fewer than four steps are judged", "more steps");
        }
        let frees: Vec<&DeviceAllocation> = segments(scene, true);
        let takes: Vec<&DeviceAllocation> = segments(scene, false);
        let steps = scene.later_steps.iter();
        let has = |rows: &[&DeviceAllocation], step: &Interval| {
            rows.iter().any(|row| (step.start..step.end).contains(&row.time_ns))
        };
        let both = steps.filter(|step| has(&frees, step) && has(&takes, step)).count();
        let judged = scene.later_steps.len();
        if 2 * both < judged || both == 0 {
            return Verdict::no_problem(format!(
                "memory goes back to the driver and is taken again in {both} of {judged} steps"
            ));
        }
        if let Some(in_pieces) = most_in_pieces(scene, &frees) {
            return Verdict::no_problem(format!(
                "{in_pieces} of {} are given back because free memory is in pieces: \
                 FragmentedMemory has them",
                counted(frees.len() as u64, "segment", "segments"),
            ));
        }
        let (retried, emptied): (Vec<&DeviceAllocation>, Vec<&DeviceAllocation>) =
            frees.iter().partition(|row| scene.retry_of(row).is_some());
        let is_full = retried.len() > emptied.len();
        let threads: FxHashSet<ThreadIndex> =
            frees.iter().chain(&takes).map(|row| row.thread).collect();
        let calls = scene.device_allocations_of(&threads);
        let bound = match scene.no_device() {
            Some(_) => scene.cover_of_calls(&calls).length(),
            None => scene.idle_ns(IdleCause::Allocation),
        };
        let size: u64 = takes.iter().filter_map(|row| row.bytes).sum();
        let seen = format!(
            "In {both} of {judged} steps the allocator gives memory back to the driver and takes \
             memory again: {} given back and {} of together {} taken. Calls to the driver for it \
             take {}.{}",
            counted(frees.len() as u64, "segment was", "segments were"),
            counted(takes.len() as u64, "segment", "segments"),
            bytes(size),
            time(scene, scene.cover_of_calls(&calls).length()),
            match retried.len() {
                0 => String::new(),
                retried => format!(
                    " {} given back by requests that the device had no memory for at first.",
                    counted(retried as u64, "segment was", "segments were"),
                ),
            },
        );
        let places = frees.iter().map(|row| Evidence {
            interval: Interval::new(row.time_ns, row.time_ns),
            place: Track::Thread(row.thread),
            name: "given back".into(),
        });
        let mut finding = scene
            .finding("cached device memory is given back and taken again")
            .local()
            .seen(seen)
            .advice(if is_full { FULL } else { EMPTIED })
            .bound(bound)
            .on_line(line(scene, if is_full { &retried } else { &emptied }))
            .at(places);
        finding.keep = true;
        Verdict::Found(vec![finding])
    }
}

/// Returns how many of these releases were made by requests that would have fit into what was free,
/// but for its pieces; `None` if it's not most of them.
fn most_in_pieces(scene: &Scene<'_>, frees: &[&DeviceAllocation]) -> Option<usize> {
    let is_of_pieces = |row: &&&DeviceAllocation| scene.retry_of(row).is_some_and(is_in_pieces);
    let in_pieces = frees.iter().filter(is_of_pieces).count();
    (2 * in_pieces > frees.len()).then_some(in_pieces)
}

/// Whether most memory that goes back to the driver within steps does because free memory is in
/// pieces.
pub(super) fn is_fragmented(scene: &Scene<'_>) -> bool {
    most_in_pieces(scene, &segments(scene, true)).is_some()
}

/// Returns the judged changes of memory between the process and the driver.
fn segments<'s>(scene: &'s Scene<'_>, free: bool) -> Vec<&'s DeviceAllocation> {
    let from_driver =
        |row: &&DeviceAllocation| matches!(row.allocator, Allocator::Library | Allocator::Virtual);
    let rows = scene.rank.allocations.iter().filter(from_driver);
    rows.filter(|row| row.free == free && row.address != 0 && row.device.is_some())
        .filter(|row| {
            scene.later_steps.iter().any(|step| (step.start..step.end).contains(&row.time_ns))
        })
        .collect()
}

/// Returns the line that gives back most often.
fn line(scene: &Scene<'_>, frees: &[&DeviceAllocation]) -> Option<SourceLine> {
    if scene.is_brief {
        return None;
    }
    let mut stacks: BTreeMap<_, u64> = BTreeMap::new();
    for row in frees.iter().filter(|row| row.stack != 0) {
        *stacks.entry((row.process, row.stack)).or_default() += 1;
    }
    let mut stacks: Vec<_> = stacks.into_iter().collect();
    stacks.sort_rows_by_key(|(_, count)| std::cmp::Reverse(*count));
    let of_stacks =
        stacks.iter().find_map(|((process, stack), _)| scene.line_of_stack(*process, *stack));
    of_stacks.or_else(|| {
        let last = frees.last()?;
        scene.line_near(last.thread, last.time_ns)
    })
}
