//! DeviceAllocations: the job allocates device memory, or pinned host memory, from the driver and
//! frees it in the middle of steps.

use std::collections::BTreeMap;
use tprof_rank::base::sort_rows::SortRows;

use tprof_facts::units::percent;
use tprof_metrics::gpu::gpu_time::IdleCause;
use tprof_trace::calls::function;

use super::empty_cache::{EmptyCache, is_fragmented};
use crate::absent::SearchTarget;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::scene::calls::{is_device_allocation, is_pinned_allocation};
use crate::severity::Severity;
use crate::verdict::Verdict;
use crate::words::{time, times};

/// The rule that judges calls like `cudaMalloc` and `cudaFree` within steps.
pub(super) struct DeviceAllocations;

const CALL: SearchTarget = SearchTarget::of_main_threads("call such as cudaMalloc or cudaFree");
/// With fewer steps than this, memory that a job allocates once can't be distinguished from memory
/// that it allocates again and again.
const LEAST_STEPS: usize = 4;
/// Functions of PyTorch that free the memory that its allocator has cached.
const EMPTYING: [&str; 4] =
    ["empty_cache", "emptyCache", "release_cached_blocks", "release_available_cached_blocks"];

impl Rule for DeviceAllocations {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "DeviceAllocations",
            found_if: "calls such as `cudaMalloc`, `cudaFree` and `cudaHostAlloc` on main threads",
            gain: "late time in these calls, and after those that give back until their thread's \
                   next launch",
            needs: "device work and calls",
            remedy: "a caching allocator, buffers that are used again, no `empty_cache()`",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_device() {
            return verdict;
        }
        if let Some(verdict) = scene.no_calls() {
            return verdict;
        }
        if let Verdict::Found(_) = EmptyCache.judge(scene) {
            return Verdict::no_problem("EmptyCache has the calls of the steps");
        }
        if is_fragmented(scene) {
            return Verdict::no_problem("FragmentedMemory has the calls of the steps");
        }
        let takes = |name: &str| is_device_allocation(name) || is_pinned_allocation(name);
        let calls = scene.calls_named(takes);
        if calls.is_empty() {
            return Verdict::nothing_to_judge(scene.none(&CALL, scene.has_calls(takes)));
        }
        let pins = |at: &usize| is_pinned_allocation(scene.rank.name(scene.rank.calls[*at].name));
        let pinned = calls.iter().filter(|at| pins(at)).count();
        let cover = scene.cover_of_calls(&calls);
        let idle_ns = scene.idle_ns(IdleCause::Allocation);
        let start = match scene.steps {
            0 => " No steps were recorded, so this may be the start of the job.",
            steps if steps < LEAST_STEPS => " In so few steps this may be the start of the job.",
            _ => "",
        };
        let sampled = match scene.is_brief {
            true => Default::default(),
            false => scene
                .sampled_in(&calls, |name| EMPTYING.iter().any(|emptying| name.contains(emptying))),
        };
        let emptied = match sampled.named_ns {
            0 => String::new(),
            ns => format!(
                " empty_cache() or its like is on the stacks of {} of the time sampled in them.",
                percent(ns as f64 / sampled.all_ns.max(1) as f64)
            ),
        };
        let seen = format!(
            "{} block host threads for {}: {}; cudaFree also waits for the device. The devices are \
             idle for {} in them and after them, until the next launch.{emptied}{start}",
            times(scene, calls.len(), "calls"),
            time(scene, cover.length()),
            by_function(scene, &calls),
            time(scene, idle_ns),
        );
        let (advice, in_pytorch) = match sampled.named_ns {
            _ if pinned == calls.len() => (
                "Pin host memory once and use it again: a pool of pinned buffers, or a data loader that \
                 keeps its own.",
                "pin_memory=True with persistent_workers=True.",
            ),
            0 => (
                "Keep buffers over steps or take them from a caching or stream-ordered pool \
                 (cudaMallocAsync).",
                "leave out empty_cache() if it is called, and free memory for the cache.",
            ),
            _ => (
                "Leave out empty_cache(): PyTorch's allocator uses again what it has cached, and \
                 without the call the next step takes nothing from the driver. Against fragments set \
                 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
                "",
            ),
        };
        let mut finding = scene
            .finding(match pinned == calls.len() {
                true => "the driver pins and releases host memory",
                false => "the driver allocates and frees device memory",
            })
            .seen(seen)
            .advice(advice)
            .in_pytorch(in_pytorch)
            // The devices still have their work to do, so a fix can gain only their idle time.
            .bound(idle_ns)
            .local()
            .on_line(sampled.line())
            .at(scene.call_places(&calls));
        if scene.steps < LEAST_STEPS {
            finding.max_severity = Some(Severity::Low);
        }
        Verdict::Found(vec![finding])
    }
}

/// Formats how often each function is called: `7 cudaFree, 7 cudaMalloc`.
fn by_function(scene: &Scene<'_>, calls: &[usize]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for &at in calls {
        *counts.entry(function(scene.rank.name(scene.rank.calls[at].name))).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_rows_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    let shown = counts.iter().take(4).map(|(name, count)| times(scene, *count, name));
    shown.collect::<Vec<String>>().join(", ")
}
