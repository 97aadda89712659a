//! FragmentedMemory: the framework's allocator reserves more memory of the device although it has
//! enough free memory in sum, because each free piece is too small. Where the device has no more, the
//! allocator first gives back what it has cached.

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_facts::units::{bytes, count, counted, percent};
use tprof_metrics::gpu::device_memory::{Fit, Retry, SegmentSums, held};
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::sort_rows::SortRows;
use tprof_trace::model::{Allocator, DeviceAllocation, ThreadIndex};

use crate::finding::{Evidence, SourceLine, Track};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
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
    /// The misfit that asked for most.
    largest: Misfit,
}

/// A request that took more of the device although as much was free.
#[derive(Clone, Copy, Debug, Default)]
struct Misfit {
    asked: u64,
    /// Bytes that were free in what the allocator had reserved.
    free: u64,
    reserved: u64,
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
        let retries: Vec<&Retry> =
            scene.retries().iter().filter(|retry| is_in_pieces(retry)).collect();
        let pool = pools.values().max_by_key(|pool| (pool.misfit_bytes, pool.peak_allocated));
        let pool = pool.copied().unwrap_or_default();
        if pool.misfits == 0 && retries.is_empty() {
            return match judge_snapshot(scene) {
                Some(verdict) if pools.is_empty() || matches!(verdict, Verdict::Found(_)) => {
                    verdict
                }
                _ if !pools.is_empty() => Verdict::no_problem(format!(
                    "no misfit in the recording; at the peak {} of {} held are free",
                    bytes(pool.peak_reserved.saturating_sub(pool.peak_allocated)),
                    bytes(pool.peak_reserved)
                )),
                _ => scene.no_device().unwrap_or_else(|| {
                    Verdict::unchecked(
                        "the totals of the framework's allocator were not recorded",
                        "allocator events with both totals: torch.profiler(profile_memory=True)",
                    )
                }),
            };
        }
        let threads: FxHashSet<ThreadIndex> = misfits
            .iter()
            .map(|row| row.thread)
            .chain(retries.iter().map(|retry| retry.thread))
            .collect();
        let calls = scene.cover_of_calls(&scene.device_allocations_of(&threads));
        let seen = format!(
            "{}{}Calls that take and give back device memory take {}.",
            misfits_text(&pool),
            retries_text(&retries),
            time(scene, calls.length()),
        );
        let of_retries = || match scene.is_brief {
            true => None,
            false => retries.iter().find_map(|retry| retry.line.clone()).map(SourceLine::from),
        };
        let mut finding = scene
            .finding("free device memory is fragmented")
            .local()
            .seen(seen)
            .advice(ADVICE)
            .bound(calls.length())
            .on_line(line(scene, &misfits).or_else(of_retries))
            .at(places);
        // Fragmented memory is worth reporting even if it costs no time.
        finding.keep = true;
        Verdict::Found(vec![finding])
    }
}

/// Whether a request that failed at first would have fit into what was free, but for its pieces.
pub(super) fn is_in_pieces(retry: &Retry) -> bool {
    retry.fit() == Some(Fit::InPieces)
}

fn misfits_text(pool: &CachingAllocator) -> String {
    if pool.misfits == 0 {
        return String::new();
    }
    let Misfit { asked, free, reserved } = pool.largest;
    format!(
        "In the recording {} of its requests took {} more from the device although as many bytes \
         were free; the largest asked for {} when {} of {} ({}) were free. ",
        count(pool.misfits),
        bytes(pool.misfit_bytes),
        bytes(asked),
        bytes(free),
        bytes(reserved),
        percent(free as f64 / reserved.max(1) as f64),
    )
}

/// Describes the requests for which the allocator had to give back memory first.
fn retries_text(retries: &[&Retry]) -> String {
    let Some(most) = retries.iter().max_by_key(|retry| retry.asked) else { return String::new() };
    let pieces = most.pieces.unwrap_or_default();
    format!(
        "{} the device had no more memory, until the allocator had given back {} that it had \
         cached; the largest asked for {} when {} were free in pieces of at most {}. ",
        counted(retries.len() as u64, "time", "times"),
        bytes(retries.iter().map(|retry| retry.freed_bytes).sum()),
        bytes(most.asked.unwrap_or(0)),
        bytes(pieces.bytes),
        bytes(pieces.largest),
    )
}

/// Returns the source line of the largest misfit whose stack has one, or else of the largest misfit
/// by CPU samples near its time. Returns `None` if only the size of the problem is asked for.
fn line(scene: &Scene<'_>, misfits: &[&DeviceAllocation]) -> Option<SourceLine> {
    if scene.is_brief {
        return None;
    }
    let mut rows = misfits.to_vec();
    rows.sort_rows_by_key(|row| Reverse(row.bytes));
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
            let asked = row.bytes.unwrap_or(0);
            if asked >= self.largest.asked {
                self.largest = Misfit { asked, free: was_free, reserved: self.reserved };
            }
        }
        (self.allocated, self.reserved) = (allocated, reserved);
        if allocated > self.peak_allocated {
            (self.peak_allocated, self.peak_reserved) = (allocated, reserved);
        }
        is_misfit
    }
}
