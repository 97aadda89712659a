//! Shares findings, verdicts and texts among the rules on copies and memsets.

use tprof_facts::units::{bytes, duration};
use tprof_rank::base::intervals::Cover;

use crate::absent::SearchTarget;
use crate::blocking::Blocking;
use crate::finding::Finding;
use crate::scene::{Copy, Scene};
use crate::severity::LEAST_SHARE;
use crate::verdict::Verdict;
use crate::words::{time, times};

/// A problem with some copies or memsets, in words.
pub(super) struct CopyProblem {
    /// The problem, in a sentence without a full stop.
    pub what: &'static str,
    /// A description of the copies: `asynchronous, to pageable memory`. Empty if `what` already
    /// describes the copies.
    pub sort: &'static str,
    /// The plural noun for the copies or memsets: `copies`.
    pub things: &'static str,
    /// The subject of a finding, if the rule has several.
    pub subject: &'static str,
    /// The advice: how to fix it.
    pub advice: &'static str,
    /// What that means in PyTorch; empty for nothing particular.
    pub in_pytorch: &'static str,
}

/// Returns the finding on these copies and the calls that started them.
///
/// A fix removes the copies, but the threads and the devices still have their other work to do. So
/// the gain has two limits: the time of the calls and copies, and the time in which the device
/// waits for the host or does nothing but these copies.
pub(super) fn finding(scene: &Scene<'_>, copies: &[Copy], words: &CopyProblem) -> Finding {
    let rank = &scene.rank;
    let on_device = Cover::of(copies.iter().map(Copy::interval)).intersection(&scene.window);
    let mut calls: Vec<usize> = copies.iter().filter_map(|copy| copy.call).collect();
    calls.sort_unstable();
    calls.dedup();
    let blocking = Blocking::of(scene, calls);
    let busy = scene.compute.union(&scene.communication);
    let alone = on_device.without(&busy);
    let taken = blocking.wait.union(&on_device).length();
    let direct = alone.length() + blocking.idle.length();
    let bound = taken.min(scene.late.length() + alone.length());
    let total: u64 = copies.iter().filter_map(|copy| copy.row.bytes).sum();
    let moved = match copies.iter().all(|copy| copy.row.bytes.is_some()) {
        true => format!(", {} together", bytes(total / scene.steps.max(1) as u64)),
        false => String::new(),
    };
    let mut seen = format!(
        "{}{}{moved}. On the device they take {}, {} of it without other work; their calls block \
         host threads for {}.",
        times(scene, copies.len(), words.things),
        words.sort,
        time(scene, on_device.length()),
        duration(scene.per_step(alone.length())),
        time(scene, blocking.wait.length()),
    );
    if !blocking.idle.is_empty() {
        let idle = time(scene, blocking.idle.length());
        seen += &format!(" After them the device waits for the host for {idle}.");
    }
    let calls = scene.call_places(&blocking.calls);
    let places = calls.chain(copies.iter().map(|copy| copy.place(rank)));
    // If the device keeps working during the copies, it isn't shown that the copies cost time.
    let bound = if scene.share(direct) < LEAST_SHARE { bound.min(direct) } else { bound };
    scene
        .finding(words.what)
        .local()
        .about(words.subject)
        .seen(seen)
        .advice(words.advice)
        .in_pytorch(words.in_pytorch)
        .bound(bound)
        .on_line(scene.line_of_calls(&blocking.calls))
        .at(places)
}

/// Returns the verdict on copies or memsets whose calls block their thread.
pub(super) fn judge_synchronous(
    scene: &Scene<'_>,
    thing: &SearchTarget,
    words: &CopyProblem,
    is_one: impl Fn(&Copy) -> bool,
) -> Verdict {
    if let Some(verdict) = scene.no_device() {
        return verdict;
    }
    let copies = scene.copies(&is_one);
    if !copies.is_empty() {
        return Verdict::Found(vec![finding(scene, &copies, words)]);
    }
    let all = scene.copies(|_| true);
    match !all.is_empty() && all.iter().all(|copy| copy.is_asynchronous(scene.rank).is_none()) {
        true => Verdict::unchecked(
            "which call started which copy was not recorded",
            "CUDA or HIP runtime calls with the correlations of their copies",
        ),
        false => scene.no_calls().filter(|_| !all.is_empty()).unwrap_or_else(|| {
            Verdict::nothing_to_judge(scene.none(thing, scene.has_copies(is_one)))
        }),
    }
}

/// Whether the name of the call that made the copy passes. If the call was not recorded, returns
/// whether the trace marks the copy as synchronous.
pub(super) fn by_a_call_named(scene: &Scene<'_>, copy: &Copy, passes: fn(&str) -> bool) -> bool {
    match copy.call {
        Some(call) => passes(scene.rank.name(scene.rank.calls[call].name)),
        None => copy.row.asynchronous == Some(false),
    }
}
