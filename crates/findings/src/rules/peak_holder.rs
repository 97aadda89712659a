//! PeakHolder: one line of code holds much of a device's memory at the peak.

use std::collections::BTreeMap;

use tprof_facts::units::{bytes, counted, percent};
use tprof_metrics::gpu::device_memory::DeviceBlock;
use tprof_metrics::host::CodeLine;
use tprof_rank::base::intervals::Interval;
use tprof_trace::model::{Device, ProcessIndex};

use crate::finding::{Evidence, Finding, Track};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The smallest share of the peak that a line must hold.
const LEAST_OF_PEAK: f64 = 1.0 / 3.0;
/// The smallest share of the device's memory that the peak must have.
const LEAST_OF_DEVICE: f64 = 0.5;

const NO_TIME: &str = "less memory gains time only if it is used for larger batches";

/// The rule that judges the blocks that were held when a device's memory was fullest.
pub(super) struct PeakHolder;

/// The blocks of a process on a device that were held at its peak.
struct PeakOfDevice<'b> {
    process: ProcessIndex,
    device: u32,
    time_ns: u64,
    bytes: u64,
    held: Vec<&'b DeviceBlock>,
}

impl Rule for PeakHolder {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "PeakHolder",
            found_if: "blocks of one line are ≥ 1/3 of the peak, and the peak is ≥ 50 % of the device's \
                 memory",
            gain: "none in time: `size_bytes` is what the line holds at the peak",
            needs: "blocks of a framework's allocator with a line, and the device's memory",
            remedy: "checkpointing, smaller batches, a fused loss, `set_to_none`",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let peaks = peaks(scene.blocks());
        let Some(most) = peaks.into_iter().max_by_key(|peak| peak.bytes) else {
            return scene.without_blocks();
        };
        let is = |row: &&Device| (row.process, row.device) == (most.process, most.device);
        let devices = scene.rank.file.devices();
        let Some(all) = devices.iter().rfind(is).and_then(|device| device.memory_bytes) else {
            return Verdict::unchecked(
                "how much memory the device has is not known",
                "properties of the device: a recording with CUPTI",
            );
        };
        let full = most.bytes as f64 / all.max(1) as f64;
        if full < LEAST_OF_DEVICE {
            return Verdict::no_problem(format!(
                "the peak is {} of the device's memory",
                percent(full)
            ));
        }
        let mut by_line: BTreeMap<&CodeLine, (u64, u64)> = BTreeMap::new();
        let mut without_line = 0;
        for block in &most.held {
            match &block.code.line {
                Some(line) => {
                    let sum = by_line.entry(line).or_default();
                    *sum = (sum.0 + 1, sum.1 + block.bytes);
                }
                None => without_line += block.bytes,
            }
        }
        let share = |bytes: u64| bytes as f64 / most.bytes.max(1) as f64;
        let holder = by_line.into_iter().max_by_key(|(_, (_, bytes))| *bytes);
        let held = holder.map_or(0, |(_, (_, held))| held);
        let Some((line, (blocks, _))) = holder.filter(|_| share(held) >= LEAST_OF_PEAK) else {
            // The line with most may hold these as well.
            if share(held + without_line) >= LEAST_OF_PEAK {
                return Verdict::unchecked(
                    format!(
                        "blocks with {} of the peak have no line",
                        percent(share(without_line))
                    ),
                    "blocks from 1 MiB on, with stacks",
                );
            }
            return Verdict::no_problem(format!(
                "no line holds over {} of the peak",
                percent(share(held))
            ));
        };
        Verdict::Found(vec![finding(scene, &most, all, (line, blocks, held))])
    }
}

fn finding(
    scene: &Scene<'_>,
    peak: &PeakOfDevice<'_>,
    all: u64,
    (line, blocks, held): (&CodeLine, u64, u64),
) -> Finding {
    let seen = format!(
        "At the peak the program held {} of the {} of device {}; {} ({}) are {} of this line.",
        bytes(peak.bytes),
        bytes(all),
        peak.device,
        bytes(held),
        percent(held as f64 / peak.bytes.max(1) as f64),
        counted(blocks, "block", "blocks"),
    );
    let of_line = |block: &&&DeviceBlock| block.code.line.as_ref() == Some(line);
    let places = peak.held.iter().filter(of_line).map(|block| Evidence {
        interval: Interval::new(block.taken_ns, block.given_ns.unwrap_or(peak.time_ns)),
        place: Track::Thread(block.thread),
        name: format!("{} held", bytes(block.bytes)).into(),
    });
    let mut finding = scene
        .finding("one line holds much of the device's memory at the peak")
        .local()
        .seen(seen)
        .advice(
            "Activations: checkpoint this part, or use smaller batches. Logits of a large \
             vocabulary: a fused or chunked loss. Gradients: zero_grad(set_to_none=True). Copies in \
             higher precision: a mixed-precision optimizer that keeps one.",
        )
        .on_line(Some(line.clone().into()))
        .at(places)
        .unknown_gain(NO_TIME);
    finding.bytes = Some(held);
    finding
}

/// Returns the peak of each process and device.
fn peaks(blocks: &[DeviceBlock]) -> Vec<PeakOfDevice<'_>> {
    let mut changes: BTreeMap<(ProcessIndex, u32), Vec<(u64, i128)>> = BTreeMap::new();
    for block in blocks {
        let Some(device) = block.pool.device else { continue };
        let of = changes.entry((block.process, device)).or_default();
        of.push((block.taken_ns, i128::from(block.bytes)));
        of.extend(block.given_ns.map(|given_ns| (given_ns, -i128::from(block.bytes))));
    }
    let peak = |((process, device), mut changes): ((ProcessIndex, u32), Vec<(u64, i128)>)| {
        changes.sort_unstable();
        let (mut level, mut most, mut time_ns) = (0, 0, 0);
        for (at_ns, bytes) in changes {
            level += bytes;
            if level > most {
                (most, time_ns) = (level, at_ns);
            }
        }
        let is_held = |block: &&DeviceBlock| {
            (block.process, block.pool.device) == (process, Some(device))
                && block.is_held_at(time_ns)
        };
        let held = blocks.iter().filter(is_held).collect();
        let bytes = u64::try_from(most).unwrap_or(0);
        PeakOfDevice { process, device, time_ns, bytes, held }
    };
    changes.into_iter().map(peak).collect()
}
