//! Shares functions among the rules on logs of `torch.compile`.

use tprof_facts::compile::{NO_LOG, ReadLog};
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_trace::compile_log::CompiledFrame;

use crate::finding::{Evidence, SourceLine, Track};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The data that these rules need, in words.
pub(super) const NEEDS_LOG: &str =
    "PyTorch's log of torch.compile: tprof run --compile, or TORCH_TRACE=DIR and tprof import DIR";

/// Returns the verdict if the rank has no log to judge.
pub(super) fn no_log(scene: &Scene<'_>) -> Option<Verdict> {
    let none = || Verdict::nothing_recorded(NO_LOG.split(':').next().unwrap_or(NO_LOG), NEEDS_LOG);
    scene.rank.compile.logs.is_empty().then(none)
}

/// Returns the verdict if the logs show no problem. If a log was read only in part, its rest may
/// show a problem, so the verdict is then that the rule was not checked.
pub(super) fn clear(scene: &Scene<'_>, why: impl Into<String>) -> Verdict {
    if scene.rank.compile.logs.iter().all(|read| read.log.is_whole()) {
        return Verdict::no_problem(why);
    }
    Verdict::unchecked(
        "the part of the log of torch.compile that was read does not show it, and the rest was left out",
        "a log within its bounds: `tprof report compile` notes what was left out",
    )
}

/// Returns every compilation of a rank, with its log.
pub(super) fn frames<'s>(
    scene: &'s Scene<'_>,
) -> impl Iterator<Item = (&'s ReadLog, &'s CompiledFrame)> {
    scene
        .rank
        .compile
        .logs
        .iter()
        .flat_map(|read| read.log.frames.iter().map(move |one| (read, one)))
}

/// Returns the interval of a compilation on the file's clock.
pub(super) fn interval(read: &ReadLog, frame: &CompiledFrame) -> Option<Interval> {
    read.interval_ns(frame).map(|(start, end)| Interval::new(start, end))
}

/// Returns the time in which at least one of the compilations ran.
pub(super) fn cover<'s>(frames: impl Iterator<Item = (&'s ReadLog, &'s CompiledFrame)>) -> Cover {
    Cover::of(frames.filter_map(|(read, frame)| interval(read, frame)))
}

/// Returns the time from the first to the last line of a rank's logs, ns.
pub(super) fn logged_ns(scene: &Scene<'_>) -> u64 {
    let extent = |read: &ReadLog| {
        let (start, end) = read.log.extent_unix_us?;
        Some(Interval::new(read.time_ns(start)?, read.time_ns(end)?))
    };
    Cover::of(scene.rank.compile.logs.iter().filter_map(extent)).length()
}

/// Returns the line at which a compiled function begins.
pub(super) fn line_of(frame: &CompiledFrame) -> Option<SourceLine> {
    Some(SourceLine {
        function: frame.function.clone()?,
        file: frame.file.clone().unwrap_or_default(),
        line: frame.line.unwrap_or(0),
    })
}

/// Returns compilations as places in a timeline.
pub(super) fn places<'s>(
    frames: impl Iterator<Item = (&'s ReadLog, &'s CompiledFrame)>,
) -> impl Iterator<Item = Evidence<'s>> {
    frames.filter_map(|(read, frame)| {
        let name = frame.function.as_deref().unwrap_or("torch.compile");
        let name = format!("{} {name}", frame.id).into();
        Some(Evidence { interval: interval(read, frame)?, place: Track::Idle, name })
    })
}
