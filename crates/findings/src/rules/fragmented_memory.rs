//! FragmentedMemory: the framework's allocator reserves more memory of the device although it has
//! enough free memory in sum, because each free piece is too small.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use tprof_facts::units::{bytes, count, percent};
use tprof_metrics::gpu::device_memory::{SegmentSums, held};
use tprof_rank::base::intervals::Interval;
use tprof_trace::model::{Allocator, DeviceAllocation};

use crate::finding::{Evidence, SourceLine, Track};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::scene::calls::is_device_allocation;
use crate::verdict::Verdict;
use crate::words::time;

const ADVICE: &str = "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, pad inputs to few \
                      sizes, and allocate large buffers once, before the first step.";

/// Maximum number of requests whose stacks are searched for a line, because that takes long.
const MAX_STACKS: usize = 64;

/// The rule that judges misfits: requests for which the allocator reserved more memory although at
/// least as many of the reserved bytes were free.
pub(super) struct FragmentedMemory;

/// The state of a framework's allocator on one device, after some of its events.
#[derive(Clone, Copy, Debug, Default)]
struct CachingAllocator {
    /// Bytes allocated after the last event.
    allocated: u64,
    /// Bytes reserved after the last event, free ones included; 0 before the first event.
    reserved: u64,
    /// Bytes allocated when the allocated memory peaked.
    peak_allocated: u64,
    /// Bytes reserved at that moment.
    peak_reserved: u64,
    /// Number of misfits.
    misfits: u64,
    /// Bytes that the allocator reserved for misfits.
    misfit_bytes: u64,
}

impl Rule for FragmentedMemory {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "FragmentedMemory",
            found_if: "the allocator took device memory though it held as much free; in a snapshot also: \
                 ≥ 25 % and ≥ 20 MiB free in segments in use",
            gain: "time in calls that take or give back device memory; 0 without any, as a note",
            needs: "the allocator's totals",
            remedy: "`expandable_segments:True`, fewer different sizes",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let mut pools: FxHashMap<(u32, u32), CachingAllocator> = FxHashMap::default();
        let (mut places, mut misfits) = (Vec::new(), Vec::new());
        let rows =
            scene.rank.allocations.iter().filter(|row| row.allocator == Allocator::Framework);
        for row in rows {
            let Some(device) = row.device else { continue };
            let (Some(allocated), Some(reserved)) =
                (row.total_allocated_bytes, row.total_reserved_bytes)
            else {
                continue;
            };
            let pool = pools.entry((row.process, device)).or_default();
            if pool.is_misfit(row, allocated, reserved) {
                misfits.push(row);
                places.push(Evidence {
                    interval: Interval::new(row.time_ns, row.time_ns),
                    place: Track::Thread(row.thread),
                    name: format!("{} asked for", bytes(row.bytes.unwrap_or(0))).into(),
                });
            }
        }
        let snapshot = judge_snapshot(scene);
        let Some(pool) = pools.values().max_by_key(|pool| (pool.misfit_bytes, pool.peak_allocated))
        else {
            if let Some(verdict) = snapshot {
                return verdict;
            }
            return scene.no_device().unwrap_or_else(|| {
                Verdict::unchecked(
                    "the totals of the framework's allocator were not recorded",
                    "allocator events with both totals: torch.profiler(profile_memory=True)",
                )
            });
        };
        let free = pool.peak_reserved.saturating_sub(pool.peak_allocated);
        let peak = format!(
            "at its peak the allocator has given out {} of its {}; {} ({}) is free",
            bytes(pool.peak_allocated),
            bytes(pool.peak_reserved),
            bytes(free),
            percent(free as f64 / pool.peak_reserved.max(1) as f64),
        );
        if pool.misfits == 0 {
            if let Some(verdict @ Verdict::Found(_)) = snapshot {
                return verdict;
            }
            return Verdict::no_problem(format!(
                "no misfit in the recording; at the peak {} of {} held are free",
                bytes(free),
                bytes(pool.peak_reserved)
            ));
        }
        let calls = scene.cover_of_calls(&scene.calls_named(is_device_allocation));
        let seen = format!(
            "In the recording {} of its requests took {} more from the device although as many \
             bytes were free; {peak}. Calls that take and give back device memory take {}.",
            count(pool.misfits),
            bytes(pool.misfit_bytes),
            time(scene, calls.length()),
        );
        let mut finding = scene
            .finding("free device memory is fragmented")
            .seen(seen)
            .advice(ADVICE)
            .bound(calls.length())
            .on_line(line(scene, &misfits))
            .at(places);
        // Fragmented memory is worth reporting even if it costs no time.
        finding.keep = true;
        Verdict::Found(vec![finding])
    }
}

/// Returns the source line of the largest misfit whose stack has one, or else of the largest misfit
/// by CPU samples near its time. Returns `None` if only the size of the problem is asked for.
fn line(scene: &Scene<'_>, misfits: &[&DeviceAllocation]) -> Option<SourceLine> {
    if scene.is_brief {
        return None;
    }
    let mut rows = misfits.to_vec();
    rows.sort_by_key(|row| Reverse(row.bytes));
    let of_row = |row: &&DeviceAllocation| scene.line_of_stack(row.process, row.stack);
    let with_stack = rows.iter().filter(|row| row.stack != 0);
    let largest = rows.first()?;
    let near = || scene.line_near(largest.thread, largest.time_ns);
    with_stack.take(MAX_STACKS).find_map(of_row).or_else(near)
}

/// The smallest number of free bytes in used segments that makes a finding. PyTorch allocates large
/// segments of 20 MiB, so a part of one segment is always left over.
const LEAST_STRANDED: u64 = 20 << 20;
/// The smallest share of such bytes in the reserved memory that makes a finding.
const LEAST_SHARE: f64 = 0.25;

/// Returns the verdict by a memory snapshot, from the bytes that are free within used segments of
/// the device with most of them. Returns `None` if the rank has no snapshot.
fn judge_snapshot(scene: &Scene<'_>) -> Option<Verdict> {
    let mut devices: FxHashMap<u32, SegmentSums> = FxHashMap::default();
    for (group, held) in held(scene.rank.file) {
        if let Some(device) = group.device {
            devices.entry(device).or_default().add(&held);
        }
    }
    let (device, held) = devices.into_iter().max_by_key(|(_, held)| held.stranded)?;
    let share = held.stranded as f64 / held.reserved.max(1) as f64;
    if held.stranded < LEAST_STRANDED || share < LEAST_SHARE {
        return Some(Verdict::no_problem(format!(
            "in the snapshot {} of {} held are free within segments in use",
            bytes(held.stranded),
            bytes(held.reserved)
        )));
    }
    let seen = format!(
        "When the snapshot was taken, {} of the {} that the allocator held of device {device} \
         ({}) were free within segments that other blocks use: the device cannot get them back. \
         The largest free block has {}.",
        bytes(held.stranded),
        bytes(held.reserved),
        percent(share),
        bytes(held.largest_free),
    );
    let mut finding =
        scene.finding("free device memory is fragmented").seen(seen).advice(ADVICE).bound(0);
    finding.keep = true;
    Some(Verdict::Found(vec![finding]))
}

impl CachingAllocator {
    /// Updates the state by an event, after which these bytes are allocated and reserved. Returns
    /// whether the event is a misfit.
    fn is_misfit(&mut self, row: &DeviceAllocation, allocated: u64, reserved: u64) -> bool {
        let was_free = self.reserved.saturating_sub(self.allocated);
        let is_first = self.reserved == 0;
        let has_grown = !row.free && !is_first && reserved > self.reserved;
        let is_misfit = has_grown && row.bytes.is_some_and(|bytes| bytes <= was_free);
        if is_misfit {
            self.misfits += 1;
            self.misfit_bytes += reserved - self.reserved;
        }
        (self.allocated, self.reserved) = (allocated, reserved);
        if allocated > self.peak_allocated {
            (self.peak_allocated, self.peak_reserved) = (allocated, reserved);
        }
        is_misfit
    }
}
