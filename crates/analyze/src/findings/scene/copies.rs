//! Copies and memsets with the calls that started them, and what they cost.

use rustc_hash::FxHashMap;
use tprof_facts::copies;
use tprof_facts::units::{bytes, duration};
use tprof_trace::model::{CopyKind, MemoryCopy, NameId};

use super::calls::Blocking;
use crate::base::intervals::{Cover, Interval};
use crate::findings::join::LEAST_SHARE;
use crate::findings::rule::{Evidence, Finding, Place};
use crate::findings::scene::Scene;
use crate::findings::words::{time, times};
use crate::rank::{RankTrace, StreamKey};

/// A copy or a memset.
#[derive(Clone, Copy, Debug)]
pub(in crate::findings) struct Copy {
    /// As the trace has it.
    pub row: MemoryCopy,
    /// The call that started it, as an index.
    pub call: Option<usize>,
}

/// All of a rank, in order of start.
pub(in crate::findings) fn all(rank: &RankTrace<'_>) -> Vec<Copy> {
    let mut calls: FxHashMap<(u32, u64), usize> = FxHashMap::default();
    let mut names: FxHashMap<NameId, bool> = FxHashMap::default();
    let mut is_copy = |id| {
        let named = |id| rank.name(id).contains("Memcpy") || rank.name(id).contains("Memset");
        *names.entry(id).or_insert_with(|| named(id))
    };
    for (call, at) in rank.calls.iter().zip(0..) {
        if let (true, Some(number)) = (is_copy(call.name), call.correlation.get()) {
            // A runtime call lies around the driver's, and comes first.
            calls.entry((call.process, number)).or_insert(at);
        }
    }
    let (rows, _) = rank.file.rows::<MemoryCopy>();
    let call = |row: &MemoryCopy| calls.get(&(row.process, row.correlation?)).copied();
    rows.into_iter().map(|row| Copy { row, call: call(&row) }).collect()
}

impl Copy {
    pub(in crate::findings) fn interval(&self) -> Interval {
        Interval::new(self.row.start_ns, self.row.start_ns.saturating_add(self.row.duration_ns))
    }

    pub(in crate::findings) fn is_memset(&self) -> bool {
        self.row.kind == CopyKind::Memset
    }

    /// Whether the call could return before it was done: as the trace says, else
    /// as the call's name does.
    pub(in crate::findings) fn is_asynchronous(&self, rank: &RankTrace<'_>) -> Option<bool> {
        let by_name = |call: usize| rank.name(rank.calls[call].name).contains("Async");
        self.row.asynchronous.or_else(|| self.call.map(by_name))
    }

    fn place<'a>(&self, rank: &RankTrace<'a>) -> Evidence<'a> {
        let MemoryCopy { process, device, context, stream, .. } = self.row;
        let name = copies::name(rank.file, &self.row);
        let place = Place::Stream(StreamKey { process, device, context, stream });
        Evidence { interval: self.interval(), place, name }
    }
}

/// What is wrong with some copies, in words.
pub(in crate::findings) struct Words {
    /// What is wrong.
    pub what: &'static str,
    /// What sort of copies: `asynchronous, to pageable memory`; empty if `what` says it.
    pub sort: &'static str,
    /// `copies`.
    pub things: &'static str,
    /// What a finding is about, if the rule has several.
    pub subject: &'static str,
    /// What to do.
    pub advice: &'static str,
}

/// A finding on these copies and the calls that started them.
///
/// Without them the threads have still their other work to do, and the devices
/// theirs: no more is gained than the calls and copies take, nor than the device
/// waits for the host or does nothing but these copies.
pub(in crate::findings) fn finding(scene: &Scene<'_>, copies: &[Copy], words: &Words) -> Finding {
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
        "{}{}{moved}. On the device they take {}, {} of it alone; their calls hold host \
         threads for {}.",
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
    // Where the device goes on working meanwhile, nothing shows that they cost anything.
    let bound = if scene.share(direct) < LEAST_SHARE { bound.min(direct) } else { bound };
    scene
        .finding(words.what)
        .about(words.subject)
        .seen(seen)
        .advice(words.advice)
        .bound(bound)
        .at(places)
}
