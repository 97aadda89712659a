//! EmptyCache: a caching allocator gives its memory back to the driver and takes it again, step by
//! step.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use tprof_facts::units::{bytes, counted};
use tprof_metrics::gpu::gpu_time::IdleCause;
use tprof_rank::base::intervals::Interval;
use tprof_trace::model::{Allocator, DeviceAllocation, ThreadIndex};

use crate::finding::{Evidence, SourceLine, Track};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::scene::calls::is_device_allocation;
use crate::verdict::Verdict;
use crate::words::time;

/// With fewer steps than this, the start of a job looks like repetition.
const LEAST_STEPS: usize = 4;

/// The rule that judges segments that are given back and taken again.
pub(super) struct EmptyCache;

impl Rule for EmptyCache {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "EmptyCache",
            found_if: "in half of the steps or more, memory of a caching allocator goes back to the \
                 driver, and the job takes memory again",
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
        let threads: FxHashSet<ThreadIndex> =
            frees.iter().chain(&takes).map(|row| row.thread).collect();
        let calls = scene.rank.calls.iter().enumerate();
        let calls: Vec<usize> = calls
            .filter(|(_, call)| threads.contains(&call.thread))
            .filter(|(_, call)| is_device_allocation(scene.rank.name(call.name)))
            .map(|(at, _)| at)
            .collect();
        let bound = match scene.no_device() {
            Some(_) => scene.cover_of_calls(&calls).length(),
            None => scene.idle_ns(IdleCause::Allocation),
        };
        let size: u64 = takes.iter().filter_map(|row| row.bytes).sum();
        let seen = format!(
            "In {both} of {judged} steps the allocator gives memory back to the driver and takes \
             memory again: {} given back and {} of together {} taken. Calls to the driver for it \
             take {}.",
            counted(frees.len() as u64, "segment was", "segments were"),
            counted(takes.len() as u64, "segment", "segments"),
            bytes(size),
            time(scene, scene.cover_of_calls(&calls).length()),
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
            .advice(
                "Leave out empty_cache() within steps: PyTorch's allocator uses again what it has \
                 cached. If no code calls it, the device is full and the allocator gives back what \
                 it can at each request: hold less, or set \
                 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
            )
            .bound(bound)
            .on_line(line(scene, &frees))
            .at(places);
        finding.keep = true;
        Verdict::Found(vec![finding])
    }
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
    stacks.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let of_stacks =
        stacks.iter().find_map(|((process, stack), _)| scene.line_of_stack(*process, *stack));
    of_stacks.or_else(|| {
        let last = frees.last()?;
        scene.line_near(last.thread, last.time_ns)
    })
}
