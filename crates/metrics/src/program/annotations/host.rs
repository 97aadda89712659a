//! Finds the GPU time that ranges of host threads caused.
//!
//! A range caused the work that was launched within it on its own thread. An autograd thread works
//! for the thread that runs the training loop, so its launches also belong to the ranges that are
//! open on the training thread at that moment. The training thread is the one that names steps. In
//! a process without steps, it is the only other thread with an open range; then the launches
//! belong to its ranges only while the launching thread has no open range itself.

use rustc_hash::FxHashMap;
use tprof_facts::modules::ModuleName;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::{HostSpan, PROFILER_STEP, RankTrace};
use tprof_trace::model::{NameId, SpanKind};

use super::effects::{EffectsByName, RangeEffects};

/// Finds the effects of the ranges by name. Calls of modules are left out, because they have their
/// own table.
pub(super) fn caused(rank: &RankTrace<'_>) -> EffectsByName {
    let ranges: Vec<&HostSpan> = [SpanKind::Annotation, SpanKind::Nvtx]
        .into_iter()
        .flat_map(|kind| rank.spans(kind))
        .filter(|range| ModuleName::of(rank.name(range.name)).is_none())
        .collect();
    let mut named = EffectsByName::default();
    for (name, caused) in caused_by(rank, ranges, |range| range.name.0) {
        named.entry(rank.name(NameId(name)).to_owned()).or_insert(caused);
    }
    named
}

/// Finds the effects of ranges, and adds up the effects of ranges with the same key.
pub(crate) fn caused_by(
    rank: &RankTrace<'_>,
    mut ranges: Vec<&HostSpan>,
    key: impl Fn(&HostSpan) -> u32,
) -> FxHashMap<u32, RangeEffects> {
    ranges.sort_by_key(|range| (range.start_ns, std::cmp::Reverse(range.duration_ns)));
    let mut by_key: FxHashMap<u32, Building> = FxHashMap::default();
    for range in &ranges {
        let building = by_key.entry(key(range)).or_default();
        building.runs += 1;
        building.host.push(range.interval());
    }
    let mut open = Open { step_threads: step_threads(rank), ..Open::default() };
    let mut next = ranges.iter().peekable();
    for (at, call) in rank.calls.iter().enumerate() {
        while let Some(range) = next.next_if(|range| range.start_ns <= call.start_ns) {
            open.push(range, key(range));
        }
        let work = rank.launches.work_of(at);
        if work.is_empty() {
            continue;
        }
        let (keys, elsewhere) = open.around(call);
        for key in keys {
            let building = by_key.entry(key).or_default();
            for &at in work {
                let work = &rank.work[at as usize];
                building.kernels += 1;
                building.elsewhere += u64::from(elsewhere);
                building.sum_ns += work.duration_ns;
                building.device.push(work.interval());
            }
        }
    }
    by_key.into_iter().map(|(key, building)| (key, building.done())).collect()
}

#[derive(Default)]
struct Building {
    runs: u64,
    host: Vec<Interval>,
    kernels: u64,
    elsewhere: u64,
    sum_ns: u64,
    device: Vec<Interval>,
}

impl Building {
    fn done(self) -> RangeEffects {
        RangeEffects {
            runs: self.runs,
            host_ns: Cover::of(self.host).length(),
            kernels: self.kernels,
            kernels_of_other_threads: self.elsewhere,
            busy_ns: Cover::of(self.device).length(),
            sum_ns: self.sum_ns,
        }
    }
}

/// Ranges that have begun and may not have ended, by process and thread.
#[derive(Default)]
struct Open {
    /// For each process, the thread that names steps.
    step_threads: FxHashMap<u32, u32>,
    /// Keys and ends of the open ranges, by process and thread.
    threads: FxHashMap<(u32, u32), Vec<(u32, u64)>>,
}

impl Open {
    fn push(&mut self, range: &HostSpan, key: u32) {
        let open = self.threads.entry((range.process, range.thread)).or_default();
        open.retain(|(_, end_ns)| *end_ns > range.start_ns);
        open.push((key, range.end_ns()));
    }

    /// Returns the keys of the ranges around a call, each once, and whether the call's own thread
    /// has no open range.
    fn around(&self, call: &HostSpan) -> (Vec<u32>, bool) {
        let own = self.open_on((call.process, call.thread), call.start_ns);
        let mut keys: Vec<u32> = own.collect();
        let is_own = !keys.is_empty();
        if let Some(other) = self.works_for(call, is_own) {
            keys.extend(self.open_on(other, call.start_ns));
        }
        keys.sort_unstable();
        keys.dedup();
        (keys, !is_own)
    }

    fn open_on(&self, thread: (u32, u32), time_ns: u64) -> impl Iterator<Item = u32> {
        let open = self.threads.get(&thread).into_iter().flatten();
        open.filter(move |(_, end_ns)| *end_ns > time_ns).map(|(key, _)| *key)
    }

    /// Returns the other thread that a call's thread works for, if any.
    fn works_for(&self, call: &HostSpan, has_own: bool) -> Option<(u32, u32)> {
        match self.step_threads.get(&call.process) {
            Some(thread) if *thread == call.thread => None,
            Some(thread) => Some((call.process, *thread)),
            None if has_own => None,
            None => {
                let is_open = |key: &&(u32, u32)| {
                    key.0 == call.process && self.open_on(**key, call.start_ns).next().is_some()
                };
                let mut others = self.threads.keys().filter(is_open);
                others.next().copied().filter(|_| others.next().is_none())
            }
        }
    }
}

/// Returns for each process the thread that names most steps.
fn step_threads(rank: &RankTrace) -> FxHashMap<u32, u32> {
    let mut steps: FxHashMap<(u32, u32), u64> = FxHashMap::default();
    let mut is_step: FxHashMap<NameId, bool> = FxHashMap::default();
    for span in rank.spans(SpanKind::Annotation) {
        let named = || rank.name(span.name).starts_with(PROFILER_STEP);
        if *is_step.entry(span.name).or_insert_with(named) {
            *steps.entry((span.process, span.thread)).or_default() += 1;
        }
    }
    let mut rows: Vec<((u32, u32), u64)> = steps.into_iter().collect();
    rows.sort_by_key(|(key, steps)| (*steps, std::cmp::Reverse(*key)));
    rows.into_iter().map(|((process, thread), _)| (process, thread)).collect()
}
