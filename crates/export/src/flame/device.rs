//! Adds device time and device memory to trees, below the host code that caused them.
//!
//! If several kernels run on a device at once, they share the time equally, so that the total is
//! the time in which the device was busy and not a sum of overlapping durations.

use rustc_hash::FxHashMap;
use tprof_facts::communication::Communication;
use tprof_facts::copies::{self, CopyNameKey};
use tprof_trace::model::{Kernel, MemoryCopy, NameId, ProcessIndex};

use super::labels::Labels;
use super::profile::{Measure, Profile};
use super::spans::{LaunchSite, SpanSites};
use super::tree::{FrameKind, FrameTable};
use crate::rows::wanted;
use crate::{OpenRank, Written};

pub(crate) const TIME_MEASURES: [Measure; 3] = [
    Measure {
        label: "GPU time",
        unit: "ns",
        about: "time in which the device was busy; concurrent work shares it equally",
    },
    Measure { label: "Kernels and copies", unit: "count", about: "kernels, copies and memsets" },
    Measure { label: "Copied", unit: "bytes", about: "bytes of copies and memsets" },
];

pub(crate) const MEMORY_MEASURES: [Measure; 2] = [
    Measure {
        label: "Requested device memory",
        unit: "bytes",
        about: "requested bytes, freed or not",
    },
    Measure { label: "Allocations", unit: "count", about: "allocations of device memory" },
];

/// A kernel or a copy.
struct Work {
    start_ns: u64,
    end_ns: u64,
    process: ProcessIndex,
    device: u32,
    frame: u32,
    bytes: u64,
    correlation: Option<u64>,
    external: Option<u64>,
}

/// Adds the device's work below the ranges and operators of the tree `host`, and below the stacks
/// that were recorded at the launches.
pub(crate) fn collect(
    part: &OpenRank<'_>,
    written: &mut Written,
    labels: &mut Labels<'_>,
    table: &mut FrameTable,
    host: &Profile,
    places: &SpanSites,
    [by_range, by_stack]: [&mut Profile; 2],
) {
    let mut work = work(part, written, table);
    let shares = shares(&mut work);
    let mut paths = HostPaths::default();
    for (work, share) in work.iter().zip(shares) {
        let find = |map: &FxHashMap<(ProcessIndex, u64), LaunchSite>, key: Option<u64>| {
            map.get(&(work.process, key?)).copied()
        };
        let place = find(&places.correlations, work.correlation)
            .or_else(|| find(&places.externals, work.external));
        let above = labels.above(work.process, place.map(|place| place.thread), table).to_vec();
        let missing = table.frame(FrameKind::Unknown, "(launch not recorded)", "");
        let range = match place {
            Some(place) => paths.range(host, table, place.node).to_vec(),
            None => vec![missing],
        };
        let mut nodes = vec![(&mut *by_range, range)];
        if let Some((place, stack)) = place.and_then(|place| Some((place, place.stack?))) {
            let mut frames = labels.stack(work.process, stack, table).to_vec();
            frames.extend(paths.operator(host, table, place.node));
            nodes.push((&mut *by_stack, frames));
        }
        for (profile, frames) in nodes {
            let node = profile.node(&above, &frames);
            let node = profile.tree.child(node, work.frame);
            profile.add(node, 0, share);
            profile.add(node, 1, 1.0);
            profile.add(node, 2, work.bytes as f64);
        }
    }
}

/// Adds device allocations below the spans and stacks in which they were made.
pub(crate) fn memory(
    labels: &mut Labels<'_>,
    table: &mut FrameTable,
    host: &Profile,
    places: &SpanSites,
    profile: &mut Profile,
) {
    let mut paths = HostPaths::default();
    for (row, place) in &places.allocations {
        if row.device.is_none() {
            continue;
        }
        let above = labels.above(row.process, Some(row.thread), table).to_vec();
        let stack = Some(row.stack).filter(|&stack| stack != 0).or_else(|| place.as_ref()?.stack);
        let mut frames: Vec<u32> = Vec::new();
        if let Some(stack) = stack.filter(|_| row.stack != 0) {
            frames.extend(labels.stack(row.process, stack, table));
        } else if let Some(place) = place {
            frames.extend(paths.range(host, table, place.node));
        }
        if frames.is_empty() {
            frames.push(table.frame(FrameKind::Unknown, "(outside any range)", ""));
        }
        let node = profile.node(&above, &frames);
        profile.add(node, 0, row.bytes.unwrap_or(0) as f64);
        profile.add(node, 1, 1.0);
    }
}

fn work(part: &OpenRank<'_>, written: &mut Written, table: &mut FrameTable) -> Vec<Work> {
    let file = &part.trace;
    let mut work = Vec::new();
    let mut frames: FxHashMap<(NameId, bool), u32> = FxHashMap::default();
    let mut communication = Communication::read(file);
    for row in wanted::<Kernel>(part, written) {
        let communicates = communication.holds(row.process, row.correlation, row.name);
        let (start_ns, end_ns) = part.window.clip(row.start_ns, row.duration_ns);
        work.push(Work {
            start_ns,
            end_ns,
            process: row.process,
            device: row.device,
            frame: *frames
                .entry((row.name, communicates))
                .or_insert_with(|| kernel_frame(file.name(row.name), communicates, table)),
            bytes: 0,
            correlation: row.correlation,
            external: row.external,
        });
    }
    let mut frames: FxHashMap<CopyNameKey, u32> = FxHashMap::default();
    for row in wanted::<MemoryCopy>(part, written) {
        let (start_ns, end_ns) = part.window.clip(row.start_ns, row.duration_ns);
        let copied = CopyNameKey::from(&row);
        work.push(Work {
            start_ns,
            end_ns,
            process: row.process,
            device: row.device,
            frame: *frames
                .entry(copied)
                .or_insert_with(|| table.frame(FrameKind::Copy, &copies::name(file, copied), "")),
            bytes: row.bytes.unwrap_or(0),
            correlation: row.correlation,
            external: row.external,
        });
    }
    work
}

fn kernel_frame(name: &str, communicates: bool, table: &mut FrameTable) -> u32 {
    let kind = if communicates { FrameKind::Collective } else { FrameKind::Kernel };
    table.frame(kind, if name.is_empty() { "(unnamed kernel)" } else { name }, "")
}

/// Returns each piece's share of the busy time. Sorts the work by device and start.
fn shares(work: &mut [Work]) -> Vec<f64> {
    work.sort_by_key(|work| (work.process, work.device, work.start_ns));
    let mut shares = Vec::with_capacity(work.len());
    for work in work.chunk_by(|a, b| (a.process, a.device) == (b.process, b.device)) {
        let mut bounds: Vec<(u64, bool, usize)> = (work.iter().enumerate())
            .filter(|(_, work)| work.end_ns > work.start_ns)
            .flat_map(|(at, work)| [(work.start_ns, true, at), (work.end_ns, false, at)])
            .collect();
        bounds.sort_unstable();
        // `received`: the time that a piece which runs from the beginning would have received so far.
        // While `running` pieces run, each receives an equal part of the time.
        let (mut received, mut running, mut now_ns) = (0.0, 0u32, 0);
        let mut received_by = vec![0.0; work.len()];
        for (time_ns, begins, at) in bounds {
            if running > 0 {
                received += (time_ns - now_ns) as f64 / f64::from(running);
            }
            now_ns = time_ns;
            running = if begins { running + 1 } else { running - 1 };
            received_by[at] = if begins { -received } else { received_by[at] + received };
        }
        shares.extend(received_by.into_iter().map(|share| share.max(0.0)));
    }
    shares
}

/// Converts nodes of the host tree to the frames that are drawn above a kernel: ranges and
/// operators, but not the calls that launched it.
#[derive(Default)]
struct HostPaths {
    ranges: FxHashMap<u32, Vec<u32>>,
}

/// Number of frames at the beginning of every path of the host tree: rank, process and thread.
const ABOVE: usize = 3;

impl HostPaths {
    fn range(&mut self, host: &Profile, table: &mut FrameTable, node: u32) -> &[u32] {
        self.ranges.entry(node).or_insert_with(|| {
            let mut frames = host.tree.frames_of(node).split_off(ABOVE);
            frames.retain(|&frame| table.kinds[frame as usize] != FrameKind::Call);
            if frames.is_empty() {
                frames.push(table.frame(FrameKind::Unknown, "(outside any range)", ""));
            }
            frames
        })
    }

    /// Returns the innermost operator above a launch.
    fn operator(&mut self, host: &Profile, table: &mut FrameTable, node: u32) -> Option<u32> {
        let frames = self.range(host, table, node).to_vec();
        let operator = |frame: &&u32| table.kinds[**frame as usize] == FrameKind::Operator;
        frames.iter().rev().find(operator).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(start_ns: u64, end_ns: u64) -> Work {
        Work {
            start_ns,
            end_ns,
            process: 0,
            device: 0,
            frame: 0,
            bytes: 0,
            correlation: None,
            external: None,
        }
    }

    #[test]
    fn work_that_runs_at_once_shares_the_time() {
        let mut work = vec![at(0, 100), at(50, 150), at(200, 210), at(205, 205)];
        assert_eq!(shares(&mut work), [75.0, 75.0, 10.0, 0.0]);
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_busy_time(spans in prop::collection::vec((0u64..500, 0u64..80), 1..40)) {
            let mut work: Vec<Work> = spans.iter().map(|(start, length)| at(*start, start + length)).collect();
            let busy = (0..600).filter(|t| work.iter().any(|w| w.start_ns <= *t && *t < w.end_ns)).count();
            let sum: f64 = shares(&mut work).iter().sum();
            prop_assert!((sum - busy as f64).abs() < 1e-6, "{sum} {busy}");
        }
    }
}
