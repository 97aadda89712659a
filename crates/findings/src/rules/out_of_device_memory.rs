//! OutOfDeviceMemory: a framework's allocator had no memory for a block.

use tprof_facts::units::{bytes, counted, duration, signal};
use tprof_metrics::gpu::device_memory::{
    DeviceBlock, Fit, Holder, OutOfMemory, failed_requests, holders,
};
use tprof_rank::base::intervals::Interval;
use tprof_trace::model::ProcessEnd;

use crate::finding::{Evidence, Finding, SourceLine, Track};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The rule that judges requests that failed although the allocator had released what it could.
pub(super) struct OutOfDeviceMemory;

/// The share of a failure that the job survived. It makes a finding of at most medium severity.
const SURVIVED: f64 = 0.099;
/// Maximum number of holders that are named.
const MOST_HOLDERS: usize = 3;

const NO_TIME: &str = "an error costs the job, or nothing";

impl Rule for OutOfDeviceMemory {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "OutOfDeviceMemory",
            found_if: "a framework's allocator had no memory for a block, after it had given back all \
                 that it cached",
            gain: "none in time; critical where the job ended with it, or had no such block later",
            needs: "what the framework's allocator reports: a tprof recording, or a memory snapshot \
                    with its history",
            remedy: "hold less: the finding names who holds it",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let errors = failed_requests(scene.rank);
        let blocks = scene.blocks();
        let Some(last) = errors.last() else {
            if blocks.is_empty() {
                return scene.without_blocks();
            }
            return Verdict::no_problem(format!(
                "the allocator had memory for each of {}",
                counted(blocks.len() as u64, "block", "blocks")
            ));
        };
        Verdict::Found(vec![finding(scene, &errors, last, blocks)])
    }
}

fn finding(
    scene: &Scene<'_>,
    errors: &[OutOfMemory],
    last: &OutOfMemory,
    blocks: &[DeviceBlock],
) -> Finding {
    let of_device =
        |block: &&DeviceBlock| block.process == last.process && block.pool.device == last.device;
    let held = last.time_ns.map(|time_ns| {
        let held = blocks.iter().filter(of_device);
        holders(held.filter(|block| block.is_held_at(time_ns)))
    });
    let end = ended(scene, last);
    let is_later = |block: &&DeviceBlock| {
        last.time_ns.is_some_and(|time_ns| block.taken_ns > time_ns) && block.bytes >= last.asked
    };
    let survived = end.is_none() && blocks.iter().filter(of_device).any(|block| is_later(&block));
    let seen = format!(
        "{}{} were asked for{}{}.{}{}",
        match errors.len() {
            1 => String::new(),
            times => format!("{times} times; at last "),
        },
        bytes(last.asked),
        last.device.map_or(String::new(), |device| format!(" on device {device}")),
        totals(last),
        most(scene, held.as_deref().unwrap_or_default()),
        end.unwrap_or_default(),
    );
    let is_fragmented = match last.pieces {
        Some(pieces) => pieces.fit(last.asked) == Fit::InPieces,
        None => last
            .allocated
            .zip(last.reserved)
            .is_some_and(|(allocated, reserved)| reserved.saturating_sub(allocated) >= last.asked),
    };
    let advice = match is_fragmented {
        true => {
            "As much was free in the allocator, in pieces: set \
             PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, pad inputs to few sizes, and take \
             large buffers before the first step."
        }
        false => {
            "Hold less: a smaller batch, activation checkpointing, lists that keep no tensors with \
             their graphs, torch.no_grad() where nothing is learnt, a sharded optimizer. \
             `tprof report device-memory` has who holds what."
        }
    };
    let place = |error: &OutOfMemory| {
        Some(Evidence {
            interval: Interval::new(error.time_ns?, error.time_ns?),
            place: Track::Thread(error.thread?),
            name: format!("{} asked for", bytes(error.asked)).into(),
        })
    };
    let mut finding = scene
        .finding("the device ran out of memory")
        .local()
        .seen(seen)
        .advice(advice)
        .on_line(line(scene, last))
        .at(errors.iter().filter_map(place))
        .unknown_gain(NO_TIME);
    finding.share = Some(if survived { SURVIVED } else { 1.0 });
    finding
}

/// Returns the line that asked.
fn line(scene: &Scene<'_>, last: &OutOfMemory) -> Option<SourceLine> {
    if scene.is_brief {
        return None;
    }
    let near = || scene.line_near(last.thread?, last.time_ns?);
    last.line.clone().map(SourceLine::from).or_else(near)
}

/// Says what the allocator had when the request failed.
fn totals(last: &OutOfMemory) -> String {
    let (Some(allocated), Some(reserved)) = (last.allocated, last.reserved) else {
        return last.device_free.map_or(String::new(), |free| {
            format!(", when {} of the device were free", bytes(free))
        });
    };
    let pieces = match last.pieces {
        Some(pieces) if pieces.bytes > 0 => {
            format!(" in pieces of at most {}", bytes(pieces.largest))
        }
        _ => String::new(),
    };
    format!(
        ", when {} were given out and {} free{pieces} in what the allocator held of the device",
        bytes(allocated),
        bytes(reserved.saturating_sub(allocated)),
    )
}

/// Names the code that held most.
fn most(scene: &Scene<'_>, held: &[Holder]) -> String {
    let named = held.iter().filter_map(|holder| {
        let line = holder.code.line.clone().map(|line| SourceLine::from(line).shown());
        let operator = holder.code.operator.map(|name| scene.rank.name(name).to_owned());
        let who = match (operator, line) {
            (Some(operator), Some(line)) => format!("{operator} at {line}"),
            (one, other) => one.or(other)?,
        };
        let blocks = counted(holder.blocks, "block", "blocks");
        Some(format!("{} in {blocks} by {who}", bytes(holder.bytes)))
    });
    let named: Vec<String> = named.take(MOST_HOLDERS).collect();
    match named.is_empty() {
        true => String::new(),
        false => format!(" Most was held by: {}.", named.join(", ")),
    }
}

/// Says how the process failed after the request; `None` if it didn't fail.
fn ended(scene: &Scene<'_>, last: &OutOfMemory) -> Option<String> {
    let (time_ns, end) = scene.rank.file.process_end(last.process)?;
    let how = match end {
        ProcessEnd::Exited(status) if status != 0 => format!("ended with status {status}"),
        ProcessEnd::Signal(number) => format!("was ended by {}", signal(number)),
        _ => return None,
    };
    let after_ns = time_ns.saturating_sub(last.time_ns?);
    Some(format!(" Its process {how} {} later.", duration(after_ns)))
}
