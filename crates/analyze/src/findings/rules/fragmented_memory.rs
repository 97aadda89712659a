//! FragmentedMemory: the framework's allocator takes more memory from the device
//! although it holds enough, in pieces that do not fit.

use rustc_hash::FxHashMap;
use tprof_facts::units::{bytes, count, percent};
use tprof_trace::model::{Allocator, DeviceAllocation};

use crate::base::intervals::Interval;
use crate::findings::finding::{Evidence, Track};
use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::scene::calls::is_device_allocation;
use crate::findings::verdict::Verdict;
use crate::findings::words::time;
use crate::gpu::device_memory::{SegmentSums, held};

const ADVICE: &str = "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, pad inputs to few \
                      sizes, and allocate large buffers once, before the first step.";

/// Growth of the reserved memory that free reserved memory would have spared.
pub(super) struct FragmentedMemory;

/// A framework's allocator on one device, event by event.
#[derive(Clone, Copy, Debug, Default)]
struct CachingAllocator {
    /// Bytes allocated after the last event.
    allocated: u64,
    reserved: u64,
    /// Bytes allocated at the moment at which most was allocated.
    peak_allocated: u64,
    peak_reserved: u64,
    /// Requests that grew it although as many bytes were free.
    grown: u64,
    grown_bytes: u64,
}

impl Rule for FragmentedMemory {
    fn name(&self) -> &'static str {
        "FragmentedMemory"
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let mut pools: FxHashMap<(u32, u32), CachingAllocator> = FxHashMap::default();
        let mut places = Vec::new();
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
            if pool.follows(row, allocated, reserved) {
                places.push(Evidence {
                    interval: Interval::new(row.time_ns, row.time_ns),
                    place: Track::Thread(row.thread),
                    name: format!("{} asked for", bytes(row.bytes.unwrap_or(0))).into(),
                });
            }
        }
        let snapshot = of_snapshot(scene);
        let Some(pool) = pools.values().max_by_key(|pool| (pool.grown_bytes, pool.peak_allocated))
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
        if pool.grown == 0 {
            if let Some(verdict @ Verdict::Found(_)) = snapshot {
                return verdict;
            }
            return Verdict::clear(format!(
                "no misfit in the recording; at the peak {} of {} held are free",
                bytes(free),
                bytes(pool.peak_reserved)
            ));
        }
        let calls = scene.cover_of_calls(&scene.calls_named(is_device_allocation));
        let seen = format!(
            "In the recording {} of its requests took {} more from the device although as many \
             bytes were free; {peak}. Calls that take and give back device memory take {}.",
            count(pool.grown),
            bytes(pool.grown_bytes),
            time(scene, calls.length()),
        );
        let mut finding = scene
            .finding("free device memory is fragmented")
            .seen(seen)
            .advice(ADVICE)
            .bound(calls.length())
            .at(places);
        // Memory is worth a note, even where no time is lost to it.
        finding.keep = true;
        Verdict::Found(vec![finding])
    }
}

/// Bytes that are worth a note: PyTorch takes large segments of 20 MiB, so that less than one of
/// these cannot be given back in any case.
const LEAST_STRANDED: u64 = 20 << 20;
/// Least share of the held memory that is worth a note.
const LEAST_SHARE: f64 = 0.25;

/// The verdict from a memory snapshot, by pieces that are free within used segments; `None` if the
/// rank is not a snapshot.
fn of_snapshot(scene: &Scene<'_>) -> Option<Verdict> {
    let mut devices: FxHashMap<u32, SegmentSums> = FxHashMap::default();
    for (group, held) in held(scene.rank.file) {
        if let Some(device) = group.device {
            devices.entry(device).or_default().add(&held);
        }
    }
    let (device, held) = devices.into_iter().max_by_key(|(_, held)| held.stranded)?;
    let share = held.stranded as f64 / held.reserved.max(1) as f64;
    if held.stranded < LEAST_STRANDED || share < LEAST_SHARE {
        return Some(Verdict::clear(format!(
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
    /// Takes an event in; returns whether it grew the pool for want of a fit.
    fn follows(&mut self, row: &DeviceAllocation, allocated: u64, reserved: u64) -> bool {
        let was_free = self.reserved.saturating_sub(self.allocated);
        let known = self.reserved > 0;
        let grew = !row.free && known && reserved > self.reserved;
        let is_unfit = grew && row.bytes.is_some_and(|bytes| bytes <= was_free);
        if is_unfit {
            self.grown += 1;
            self.grown_bytes += reserved - self.reserved;
        }
        (self.allocated, self.reserved) = (allocated, reserved);
        if allocated > self.peak_allocated {
            (self.peak_allocated, self.peak_reserved) = (allocated, reserved);
        }
        is_unfit
    }
}
