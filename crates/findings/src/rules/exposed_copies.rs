//! ExposedCopies: asynchronous copies of pinned memory run alone, although kernels behind them on
//! their stream had already been launched.

use rustc_hash::FxHashMap;
use tprof_facts::units::{bytes, duration};
use tprof_rank::base::intervals::{Cover, Union};
use tprof_rank::{Work, WorkKind};
use tprof_trace::model::{CopyKind, MemoryKind};

use crate::absent::SearchTarget;
use crate::finding::Finding;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::{time, times};

/// The rule that judges copies for which kernels on the same stream wait.
pub(super) struct ExposedCopies;

const COPY: SearchTarget =
    SearchTarget::new("asynchronous copy of pinned memory, or between devices");
const ADVICE: &str = "Copy on a stream of its own and order the two with events: \
    the copy waits for the kernel that makes its data, and only what uses or overwrites the copied \
    memory waits for the copy. With two buffers in turn one is copied while the other is computed.";

/// The directions of copies, each with the subject and the title of its finding.
const KINDS: [(CopyKind, &str, &str); 3] = [
    (
        CopyKind::DeviceToHost,
        "to the host",
        "copies to the host run between kernels, not beside them",
    ),
    (
        CopyKind::HostToDevice,
        "to the device",
        "copies to the device run between kernels, not beside them",
    ),
    (
        CopyKind::PeerToPeer,
        "between devices",
        "copies between devices run between kernels, not beside them",
    ),
];

impl Rule for ExposedCopies {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "ExposedCopies",
            found_if: "asynchronous copies with pinned memory, or between devices, with a kernel behind \
                 them on their stream that was launched before they were over",
            gain: "min(time with only these copies, time of kernels without one beside): the longer \
                 remains",
            needs: "device work and calls",
            remedy: "copy the next batch on a stream of its own",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_device() {
            return verdict;
        }
        let all = |at: &usize| is_overlappable(scene, *at);
        let copies: Vec<usize> = (0..scene.rank.work.len()).filter(all).collect();
        let in_window: Vec<usize> =
            copies.iter().copied().filter(|at| scene.work_in_window_ns[*at] > 0).collect();
        if in_window.is_empty() {
            return scene.no_calls().unwrap_or_else(|| {
                Verdict::nothing_to_judge(scene.none(&COPY, !copies.is_empty()))
            });
        }
        let held = holding(scene, &in_window);
        let found = KINDS.into_iter().filter_map(|(kind, subject, what)| {
            let copies = held.iter().copied().filter(|at| kind_of(&scene.rank.work[*at]) == kind);
            let copies: Vec<usize> = copies.collect();
            (!copies.is_empty()).then(|| finding(scene, &copies, subject, what))
        });
        let found: Vec<Finding> = found.collect();
        match found.is_empty() {
            true => Verdict::no_problem(format!(
                "no kernel {} was launched behind a copy before that was over",
                scene.place()
            )),
            false => Verdict::Found(found),
        }
    }
}

fn kind_of(work: &Work) -> CopyKind {
    match work.kind {
        WorkKind::Copy { kind, .. } => kind,
        _ => CopyKind::Unknown,
    }
}

/// Whether a piece of work is a copy that could run at the same time as other work. It could if an
/// asynchronous call made it and the host memory is pinned. A copy in a graph doesn't count,
/// because the graph sets its order.
fn is_overlappable(scene: &Scene<'_>, at: usize) -> bool {
    let work = &scene.rank.work[at];
    let WorkKind::Copy { kind, from, to } = work.kind else { return false };
    let is_pinned = match kind {
        CopyKind::HostToDevice => from == MemoryKind::Pinned,
        CopyKind::DeviceToHost => to == MemoryKind::Pinned,
        CopyKind::PeerToPeer => true,
        _ => false,
    };
    let by_call = || scene.rank.launches.call_of(at).map(|call| scene.rank.calls[call].name);
    is_pinned
        && work.graph.is_none()
        && by_call().is_some_and(|name| scene.rank.name(name).contains("Async"))
}

/// Returns the copies that held up a kernel. Such a kernel is behind the copy on its stream and was
/// launched before the copy ended, so without the copy it could have run earlier.
fn holding(scene: &Scene<'_>, copies: &[usize]) -> Vec<usize> {
    let rank = scene.rank;
    let mut held = Vec::new();
    // For each stream, the time at which the launch of its next kernel ended.
    let mut next_ns: FxHashMap<u32, Option<u64>> = FxHashMap::default();
    let mut copies = copies.iter().rev().peekable();
    for (at, work) in rank.work.iter().enumerate().rev() {
        if work.is_kernel() {
            let call = rank.launches.call_of(at);
            next_ns.insert(work.stream, call.map(|call| rank.calls[call].end_ns()));
        }
        if copies.next_if_eq(&&at).is_some() {
            let launched_ns = next_ns.get(&work.stream).copied().flatten();
            if launched_ns.is_some_and(|launched_ns| launched_ns <= work.end_ns()) {
                held.push(at);
            }
        }
    }
    held.reverse();
    held
}

/// Returns the finding on these copies.
fn finding(scene: &Scene<'_>, copies: &[usize], subject: &str, what: &str) -> Finding {
    let (mut taken, mut others) = (Union::default(), Union::default());
    let mut next_copy = copies.iter().peekable();
    for (at, work) in scene.rank.work.iter().enumerate() {
        let is_one = next_copy.next_if_eq(&&at).is_some();
        if is_one { &mut taken } else { &mut others }.add(work.interval());
    }
    let (taken, others) = (taken.finish().intersection(&scene.window), others.finish());
    let alone = taken.without(&others);
    let kernels = scene.compute.union(&scene.communication);
    // A kernel that already runs at the same time as a copy can't hide another copy instead.
    let beside: Cover = kernels.without(&taken);
    let rows = copies.iter().map(|&at| &scene.rank.work[at]);
    let sizes: Vec<u64> = rows.clone().filter_map(|work| work.bytes.get()).collect();
    let size = match (sizes.iter().min(), sizes.iter().max()) {
        (Some(least), Some(most)) if least == most => format!(" of {}", bytes(*least)),
        (Some(least), Some(most)) => format!(" of {} to {}", bytes(*least), bytes(*most)),
        _ => String::new(),
    };
    let calls: Vec<usize> =
        copies.iter().filter_map(|&at| scene.rank.launches.call_of(at)).collect();
    let seen = format!(
        "{}{size}, {subject}, with kernels behind them on their stream that were launched already. \
         They take {}, {} of it with nothing beside; kernels take {} without a copy beside them: the \
         shorter of these could run meanwhile.",
        times(scene, copies.len(), "copies"),
        time(scene, taken.length()),
        duration(scene.per_step(alone.length())),
        time(scene, beside.length()),
    );
    scene
        .finding(what)
        .local()
        .about(subject)
        .seen(seen)
        .advice(ADVICE)
        .in_pytorch("torch.cuda.Stream, and record_stream() on what it copies.")
        .bound(alone.length().min(beside.length()))
        .on_line(scene.line_of_calls(&calls))
        .at(rows.map(|work| scene.work_place(work)))
}
