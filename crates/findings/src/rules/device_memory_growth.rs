//! DeviceMemoryGrowth: a process holds more and more of a device's memory, step by step.

use std::collections::BTreeMap;

use tprof_facts::units::{bytes, counted, duration};
use tprof_metrics::gpu::device_memory::{HeldOverTime, KeptBlock};
use tprof_metrics::host::CodeLine;
use tprof_rank::base::intervals::Interval;
use tprof_trace::model::{Device, ThreadIndex};

use super::growing::grows_from;
use super::growth_time::NOT_STEADY;
use crate::finding::{Evidence, Finding, SourceLine, Track};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::scene::calls::is_device_allocation;
use crate::verdict::Verdict;

/// The smallest growth that counts: two segments of PyTorch's allocator.
const LEAST_BYTES: u64 = 40 << 20;
/// The smallest growth that counts, as a share of the memory held at the end.
const LEAST_OF_HELD: f64 = 0.05;
/// If there are at least this many steps, memory is compared at their boundaries.
const LEAST_STEPS: usize = 4;
/// Without enough steps, the judged time is divided into this many equal parts.
const PARTS: u64 = 256;
/// The smallest number of rises that the growth must consist of.
const LEAST_RISES: usize = 4;
/// Without enough steps, a shorter time than this, ns, shows only the start of a job.
const LEAST_NS: u64 = 10_000_000_000;
/// If the device will be full within this time, ns, the job is lost. If it takes longer than
/// [`LATE_NS`], the severity is at most medium.
const SOON_NS: u64 = 3_600_000_000_000;
const LATE_NS: u64 = 24 * SOON_NS;

/// The rule that judges the bytes held on each device, at each step or at regular moments.
pub(super) struct DeviceMemoryGrowth;

/// Growth of the device memory that a process holds.
struct DeviceGrowth<'h> {
    held: &'h HeldOverTime,
    first: u64,
    last: u64,
    /// The time from the first moment to the last.
    time: Interval,
    intervals: usize,
    goes_on: bool,
}

impl Rule for DeviceMemoryGrowth {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "DeviceMemoryGrowth",
            found_if: "what a process holds of a device rises steadily and to the end, by 40 MiB and 5 % \
                 of what it holds",
            gain: "none in time: `size_bytes` is the growth; the share is by the time until the \
                   device is full",
            needs: "device memory; four steps or 10 s",
            remedy: "release outputs and losses that are kept with their graphs (`.item()`, \
                     `.detach()`)",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let mut held = HeldOverTime::of_rank(scene.rank);
        held.extend(HeldOverTime::of_program(scene.blocks()));
        if held.is_empty() {
            return scene.no_device().unwrap_or_else(|| {
                Verdict::unchecked(
                    "no device memory was recorded as taken from the driver",
                    "device allocations: a tprof recording with `--activities gpu`",
                )
            });
        }
        let Some(moments) = moments(scene) else {
            return Verdict::unchecked(
                "fewer than four steps, and less than 10 s are judged",
                "more steps, or a longer run",
            );
        };
        let grown = held.iter().filter_map(|held| DeviceGrowth::of(held, &moments));
        // The program's blocks show who holds the memory, the driver's only who asked last.
        let rank = |growth: &DeviceGrowth<'_>| {
            let is_found = growth.is_found();
            (is_found, is_found && growth.held.is_of_program, growth.bytes())
        };
        let Some(most) = grown.max_by_key(rank) else {
            return Verdict::no_problem("the device memory that is held does not grow");
        };
        if !most.is_found() {
            let how = match most.bytes() >= LEAST_BYTES {
                true => NOT_STEADY,
                false => "",
            };
            return Verdict::no_problem(format!(
                "memory held of device {} grows by {}{how}",
                most.held.device,
                bytes(most.bytes())
            ));
        }
        Verdict::Found(vec![finding(scene, &most)])
    }
}

impl<'h> DeviceGrowth<'h> {
    /// Measures the growth between these moments; `None` if there are too few moments.
    fn of(held: &'h HeldOverTime, moments: &[u64]) -> Option<DeviceGrowth<'h>> {
        let levels: Vec<u64> = moments.iter().map(|at| held.at(*at)).collect();
        let from = grows_from(&levels, LEAST_RISES, counts);
        let (levels, moments) = (&levels[from.unwrap_or(0)..], &moments[from.unwrap_or(0)..]);
        let (first, last) = (*levels.first()?, *levels.last()?);
        Some(DeviceGrowth {
            held,
            first,
            last,
            time: Interval::new(*moments.first()?, *moments.last()?),
            intervals: moments.len() - 1,
            goes_on: from.is_some(),
        })
    }

    fn bytes(&self) -> u64 {
        self.last.saturating_sub(self.first)
    }

    fn is_found(&self) -> bool {
        self.goes_on && counts(self.first, self.last)
    }

    /// Returns the time until a device with this much memory is full, at the same rate of growth.
    fn left_ns(&self, memory_bytes: u64) -> u64 {
        let rate = self.bytes() as f64 / self.time.length().max(1) as f64;
        (memory_bytes.saturating_sub(self.last) as f64 / rate) as u64
    }
}

/// Whether the growth is larger than the growth during a job's start.
fn counts(first: u64, last: u64) -> bool {
    let grown = last.saturating_sub(first);
    grown >= LEAST_BYTES && grown as f64 >= LEAST_OF_HELD * last as f64
}

/// Returns the start of each step except the first, and the end of the last step. Without enough
/// steps, returns regular moments.
fn moments(scene: &Scene<'_>) -> Option<Vec<u64>> {
    if scene.steps >= LEAST_STEPS {
        let mut times: Vec<u64> = scene.later_steps.iter().map(|step| step.start).collect();
        times.extend(scene.later_steps.last().map(|step| step.end.saturating_sub(1)));
        return Some(times);
    }
    let window = scene.window.span().filter(|window| window.length() >= LEAST_NS)?;
    let part = window.length() / PARTS;
    Some((0..=PARTS).map(|at| window.start + at * part).collect())
}

fn finding(scene: &Scene<'_>, growth: &DeviceGrowth<'_>) -> Finding {
    let (held, time) = (growth.held, growth.time);
    let is_later = |block: &&KeptBlock| (time.start..=time.end).contains(&block.taken_ns);
    let kept: Vec<&KeptBlock> = held.kept.iter().filter(is_later).collect();
    let devices = scene.rank.file.devices();
    let is = |row: &&Device| (row.process, row.device) == (held.process, held.device);
    let memory_bytes = devices.iter().rfind(is).and_then(|device| device.memory_bytes);
    let left_ns = memory_bytes.map(|all| growth.left_ns(all));
    let rate = match scene.steps >= LEAST_STEPS {
        true => {
            let rate = growth.bytes() / growth.intervals.max(1) as u64;
            format!("{} a step, over {}", bytes(rate), steps(growth.intervals))
        }
        false => {
            let rate = growth.bytes() as f64 * 6e10 / time.length().max(1) as f64;
            format!("{} a minute", bytes(rate as u64))
        }
    };
    let until = match (left_ns, memory_bytes) {
        (Some(left_ns), Some(all)) => {
            format!(
                " At this rate its {} are used up in another {}.",
                bytes(all),
                duration(left_ns)
            )
        }
        _ => String::new(),
    };
    let seen = format!(
        "What the {} of device {} grows from {} to {} in {} ({rate}); {} taken since then {} never \
         given back.{until}",
        if held.is_of_program { "program holds in blocks" } else { "process holds" },
        held.device,
        bytes(growth.first),
        bytes(growth.last),
        duration(time.length()),
        counted(kept.len() as u64, "block", "blocks"),
        if kept.len() == 1 { "was" } else { "were" },
    );
    let share = match left_ns {
        Some(left_ns) if left_ns <= SOON_NS => 1.0,
        Some(left_ns) if left_ns > LATE_NS => 0.099,
        _ => 0.2,
    };
    let places = kept.iter().map(|block| Evidence {
        interval: Interval::new(block.taken_ns, block.taken_ns),
        place: Track::Thread(block.thread),
        name: format!("{} taken", bytes(block.bytes)).into(),
    });
    let advice = match held.is_of_program {
        true => {
            "Release what is kept: outputs and losses that are kept with their graphs (use .item() \
             or .detach()), lists and caches that only grow. The line is where most of the kept \
             blocks were taken."
        }
        false => {
            "Release what is kept: outputs and losses that are kept with their graphs (use .item() \
             or .detach()), lists and caches that only grow. A caching allocator takes more for the \
             thread that finds no block free, which need not be the one that keeps them: \
             torch.cuda.memory._snapshot() after _record_memory_history() has the stack of each."
        }
    };
    let mut finding = scene
        .finding("device memory in use grows all the time")
        .local()
        .bytes(growth.bytes(), share)
        .seen(seen)
        .advice(advice)
        .on_line(line(scene, &kept))
        .at(places);
    finding.keep = true;
    finding
}

fn steps(number: usize) -> String {
    counted(number as u64, "step", "steps")
}

/// Returns the line that took most of the kept memory. Without such lines, returns the line of
/// samples within the calls that allocated it. Without such samples, returns the line of the sample
/// closest to the last of these calls.
fn line(scene: &Scene<'_>, kept: &[&KeptBlock]) -> Option<SourceLine> {
    if scene.is_brief {
        return None;
    }
    let mut by_line: BTreeMap<&CodeLine, u64> = BTreeMap::new();
    for block in kept {
        if let Some(line) = &block.line {
            *by_line.entry(line).or_default() += block.bytes;
        }
    }
    if let Some((line, _)) = by_line.into_iter().max_by_key(|(_, bytes)| *bytes) {
        return Some(line.clone().into());
    }
    let took = |thread: ThreadIndex, within: Interval| {
        let from = kept.partition_point(|block| block.taken_ns < within.start);
        let mut later = kept[from..].iter().take_while(|block| block.taken_ns <= within.end);
        later.any(|block| block.thread == thread)
    };
    let calls = scene.rank.calls.iter().enumerate();
    let calls: Vec<usize> = calls
        .filter(|(_, call)| {
            is_device_allocation(scene.rank.name(call.name)) && took(call.thread, call.interval())
        })
        .map(|(at, _)| at)
        .collect();
    scene.sampled_in(&calls, |_| false).line().or_else(|| {
        let last = kept.last()?;
        scene.line_near(last.thread, last.taken_ns)
    })
}
