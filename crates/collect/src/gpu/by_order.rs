//! Finds which call started which work, for calls that CUPTI leaves out (`--cuda-calls hooks`).
//! Only hooks record these calls. They don't know the correlation by which CUPTI's records of work
//! refer to calls.
//!
//! Calls and work are therefore joined by their order. CUPTI numbers calls as they begin, even
//! those that it leaves out, and a stream runs its work in order.
//!
//! - The k-th launch of a kernel on a stream is the k-th record of that kernel on that stream. For
//!   copies and fills, the number of bytes takes the place of the kernel.
//! - Calls that CUPTI does record have both a correlation and a time. They divide calls and work
//!   into stretches, so a lost record only affects its own stretch.
//! - If a stretch has as many calls as records, each call gets its record. Otherwise it is unknown
//!   which record or call is missing, so none is joined and all are counted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;
use tprof_trace::model::{Span, ThreadIndex};
use tprof_wire::calls::{LEGACY_STREAM, THREADS_STREAM};

/// CUPTI's record of a call arrives at most this long after the call, ns. CUPTI's buffers are
/// flushed once a second.
pub const LATE_NS: u64 = 2_500_000_000;
/// Longest time that a call waits for its work once later work of its stream is known, ns.
const PATIENCE_NS: u64 = 30_000_000_000;
/// Least time between two attempts to join, ns. Each attempt sorts everything that waits.
const BETWEEN_NS: u64 = 500_000_000;
/// The time between two attempts is at least this many times the time that an attempt takes. If no
/// records come, much may wait, and attempts take long.
const RESTS: u64 = 16;
/// Number of calls and records of work that may wait. If there are more, all are joined or given
/// up.
const WAITING_MOST: usize = 1 << 18;
/// Number of calls recorded by CUPTI that are remembered.
const CALLS_MOST: usize = 1 << 20;
/// Number of joined correlations that are remembered in each of two sets.
const JOINED_MOST: usize = 1 << 16;
/// Largest error between the hooks' clock and CUPTI's, ns.
const APART_NS: u64 = 100_000;

/// The work that a call starts, described by what hooks and CUPTI both know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartedWork {
    /// A kernel, by the [hash](hash_of) of its name.
    Kernel(u64),
    /// A copy of this many bytes.
    Copy(u64),
    /// A fill of this many bytes.
    Fill(u64),
}

/// Returns the hash of a kernel's mangled name.
pub fn hash_of(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// What a handle means from some moment on.
#[derive(Clone, Copy, Debug)]
pub enum Handle {
    /// A stream: its handle, the thread that used it, and CUPTI's number of it, with the context in
    /// the high half. The thread matters only for default streams, whose handle means another
    /// stream in each thread.
    Stream(u64, ThreadIndex, u64),
    /// A kernel: its stub or handle, and the hash of its name.
    Kernel(u64, u64),
}

/// A call that started work, as a hook recorded it.
#[derive(Clone, Copy, Debug)]
pub struct StartingCall {
    /// The call's row.
    pub row: Span,
    /// The handle of its stream, by [`tprof_wire::calls::stream_of`].
    pub stream: u64,
    /// The work that it started. A kernel is given by its stub or handle instead of its hash.
    pub work: StartedWork,
    /// Whether any stream was being captured, so that the work may have become part of a graph.
    pub may_be_captured: bool,
}

/// Work that ran, as CUPTI recorded it.
#[derive(Clone, Copy, Debug)]
pub struct RanWork {
    /// CUPTI's number of the call that started it.
    pub correlation: u32,
    /// Time when it began, ns.
    pub start_ns: u64,
    /// CUPTI's number of the context in the high half, and of the stream.
    pub stream: u64,
    /// The work, as CUPTI's record describes it.
    pub work: StartedWork,
}

/// Counts of work and calls that could not be joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithoutCall {
    /// Kernels that were launched but have no record.
    pub missing_kernels: u64,
    /// Work in stretches whose calls and records differ in number.
    pub unclear: u64,
    /// Work for which no hook recorded a call.
    pub unseen: u64,
    /// Calls for which the kernel's name or CUPTI's number of the stream is unknown.
    pub unknown: u64,
    /// Work that was joined with a call, although CUPTI recorded another call for it later.
    pub contradicted: u64,
}

type Key = (u64, StartedWork);
/// What a handle meant over time: pairs of a time and the meaning from then on.
type Meanings = Vec<(u64, u64)>;

/// Joins calls with the work that they started, as the module's documentation describes.
#[derive(Debug, Default)]
pub struct ByOrder {
    calls: Vec<StartingCall>,
    ran: Vec<RanWork>,
    /// Times when the calls that CUPTI recorded began, by correlation.
    recorded: BTreeMap<u32, u64>,
    /// Correlations of the work that was joined recently, in a newer and an older set.
    joined: [HashSet<u32>; 2],
    /// CUPTI's numbers of streams by handle, and for default streams also by thread.
    streams: HashMap<(u64, Option<ThreadIndex>), Meanings>,
    /// Hashes of kernels' names, by stub or handle.
    kernels: HashMap<u64, Meanings>,
    /// For each stream, the largest correlation among its known work.
    last_of: HashMap<u64, u32>,
    next_ns: u64,
    /// Counts of the calls and work that could not be joined so far.
    pub found: WithoutCall,
}

fn thread_of(handle: u64, thread: ThreadIndex) -> Option<ThreadIndex> {
    matches!(handle, LEGACY_STREAM | THREADS_STREAM).then_some(thread)
}

/// Returns what a handle meant at a moment.
fn meant(meanings: &Meanings, then_ns: u64) -> Option<u64> {
    let at = meanings.partition_point(|(from_ns, _)| *from_ns <= then_ns);
    Some(meanings.get(at.checked_sub(1)?)?.1)
}

impl ByOrder {
    /// Records what a handle means from a moment on.
    pub fn is_from(&mut self, handle: Handle, from_ns: u64) {
        let (meanings, now) = match handle {
            Handle::Stream(of, thread, stream) => {
                (self.streams.entry((of, thread_of(of, thread))).or_default(), stream)
            }
            Handle::Kernel(of, name) => (self.kernels.entry(of).or_default(), name),
        };
        let at = meanings.partition_point(|(before_ns, _)| *before_ns <= from_ns);
        if at == 0 || meanings[at - 1].1 != now {
            meanings.insert(at, (from_ns, now));
        }
    }

    fn key_of(&self, call: &StartingCall) -> Option<Key> {
        let until_ns = call.row.start_ns + call.row.duration_ns;
        let thread = thread_of(call.stream, call.row.thread);
        let stream = meant(self.streams.get(&(call.stream, thread))?, until_ns)?;
        let work = match call.work {
            StartedWork::Kernel(stub) => {
                StartedWork::Kernel(meant(self.kernels.get(&stub)?, until_ns)?)
            }
            other => other,
        };
        (stream != u64::MAX).then_some((stream, work))
    }

    /// Returns when the launches from before a time began that have not been joined with a kernel,
    /// ns.
    pub fn waiting_since(&self, before_ns: u64) -> Vec<u64> {
        let launches = self
            .calls
            .iter()
            .filter(|call| matches!(call.work, StartedWork::Kernel(_)) && !call.may_be_captured);
        launches.map(|call| call.row.start_ns).filter(|start_ns| *start_ns < before_ns).collect()
    }

    /// Adds a call that started work, which a hook recorded.
    pub fn called(&mut self, call: StartingCall) {
        self.calls.push(call);
    }

    /// Adds work that CUPTI recorded.
    pub fn ran(&mut self, work: RanWork) {
        self.ran.push(work);
    }

    /// Adds a call that CUPTI recorded.
    pub fn recorded(&mut self, correlation: u32, start_ns: u64) {
        self.recorded.insert(correlation, start_ns);
        if self.recorded.len() > CALLS_MOST {
            self.recorded.pop_first();
        }
        if self.joined.iter().any(|joined| joined.contains(&correlation)) {
            self.found.contradicted += 1;
        }
    }

    /// Joins the calls and work whose neighbours have all arrived, and gives up those that can't be
    /// joined any more. With `last`, handles everything. Returns the rows of the handled calls,
    /// with the correlations of their work where known.
    pub fn settle(&mut self, now_ns: u64, last: bool) -> Vec<Span> {
        if self.calls.is_empty() && self.ran.is_empty() || !last && now_ns < self.next_ns {
            return Vec::new();
        }
        let began = Instant::now();
        let ripe_ns = if last { u64::MAX } else { now_ns.saturating_sub(LATE_NS) };
        let is_full = self.calls.len() + self.ran.len() > WAITING_MOST;
        let mut sorted = Sorted::default();
        let mut rows = Vec::new();
        for call in std::mem::take(&mut self.calls) {
            if call.row.start_ns > ripe_ns {
                self.calls.push(call);
                continue;
            }
            match self.key_of(&call) {
                Some(key) => sorted.of(key).0.push(call),
                None => {
                    self.found.unknown += 1;
                    rows.push(call.row);
                }
            }
        }
        let recorded = &self.recorded;
        self.ran.retain(|work| !recorded.contains_key(&work.correlation));
        for work in std::mem::take(&mut self.ran) {
            match work.start_ns > ripe_ns {
                true => self.ran.push(work),
                false => {
                    let latest = self.last_of.entry(work.stream).or_default();
                    *latest = work.correlation.max(*latest);
                    sorted.of((work.stream, work.work)).1.push(work);
                }
            }
        }
        let parts = Parts::of(&self.recorded);
        let until_ns = if last || is_full { u64::MAX } else { ripe_ns.saturating_sub(PATIENCE_NS) };
        for (key, (mut calls, mut ran)) in sorted.by_key {
            calls.sort_by_key(|call| call.row.start_ns);
            ran.sort_by_key(|work| work.correlation);
            for stretch in parts.stretches(calls, ran) {
                self.judge(key, stretch, &parts, until_ns, &mut rows);
            }
        }
        self.forget(ripe_ns);
        let took_ns = began.elapsed().as_nanos() as u64;
        self.next_ns = now_ns + BETWEEN_NS.max(RESTS * took_ns);
        rows
    }

    /// Joins the calls and the work of a stretch, keeps them for a later attempt, or gives them up.
    fn judge(
        &mut self,
        (stream, work): Key,
        mut stretch: CallStretch,
        parts: &Parts,
        until_ns: u64,
        rows: &mut Vec<Span>,
    ) {
        let sure = stretch.calls.iter().filter(|call| !call.may_be_captured).count();
        let (calls, ran) = (stretch.calls.len(), stretch.ran.len());
        if ran > 0 && (ran == calls || ran == sure) {
            let is_concerned = |call: &&mut StartingCall| ran == calls || !call.may_be_captured;
            let asked = stretch.calls.iter_mut().filter(is_concerned);
            let mut pairs: Vec<_> = asked.zip(&stretch.ran).collect();
            let begins_before = |(call, of): &(&mut StartingCall, &RanWork)| {
                of.start_ns + APART_NS < call.row.start_ns
            };
            if !pairs.iter().any(begins_before) {
                for (call, of) in &mut pairs {
                    call.row.correlation = Some(of.correlation.into());
                    self.joined[0].insert(of.correlation);
                }
                return rows.extend(stretch.calls.iter().map(|call| call.row));
            }
        }
        let is_old = |at_ns: u64| at_ns < until_ns;
        let passed =
            self.last_of.get(&stream).is_some_and(|latest| *latest > parts.end(stretch.at));
        let is_over = stretch.calls.iter().all(|call| is_old(call.row.start_ns))
            && stretch.ran.iter().all(|work| is_old(work.start_ns))
            && (until_ns == u64::MAX || ran >= sure || passed);
        if !is_over {
            self.calls.append(&mut stretch.calls);
            self.ran.append(&mut stretch.ran);
            return;
        }
        // Calls that may have been captured and still have no work were captured. `sure` doesn't
        // count them, so they don't count as missing.
        match (calls, ran) {
            (0, ran) => self.found.unseen += ran as u64,
            (_, ran) => self.found.unclear += ran as u64,
        }
        if let StartedWork::Kernel(_) = work {
            self.found.missing_kernels += sure.saturating_sub(ran) as u64;
        }
        rows.extend(stretch.calls.iter().map(|call| call.row));
    }

    /// Forgets the recorded calls that divide only calls and work that have already been handled.
    fn forget(&mut self, ripe_ns: u64) {
        let waiting = self.calls.iter().map(|call| call.row.start_ns).min();
        let until_ns = waiting.unwrap_or(ripe_ns).min(ripe_ns.saturating_sub(PATIENCE_NS));
        // Work may wait for a long time in its stream, and the records of its neighbours are needed
        // then.
        let first = self.ran.iter().map(|work| work.correlation).min().unwrap_or(u32::MAX);
        while let Some((number, _)) = self.recorded.first_key_value()
            && *number < first
            && self.recorded.iter().nth(1).is_some_and(|(_, start_ns)| *start_ns < until_ns)
        {
            self.recorded.pop_first();
        }
        if self.joined[0].len() > JOINED_MOST {
            self.joined.swap(0, 1);
            self.joined[0].clear();
        }
        for meanings in self.streams.values_mut().chain(self.kernels.values_mut()) {
            let passed = meanings.partition_point(|(from_ns, _)| *from_ns <= until_ns);
            meanings.drain(..passed.saturating_sub(1));
        }
    }
}

#[derive(Default)]
struct Sorted {
    by_key: HashMap<Key, (Vec<StartingCall>, Vec<RanWork>)>,
}

impl Sorted {
    fn of(&mut self, key: Key) -> &mut (Vec<StartingCall>, Vec<RanWork>) {
        self.by_key.entry(key).or_default()
    }
}

/// The calls recorded by CUPTI that divide the others into stretches. Only those are used that are
/// in order both by correlation and by time.
struct Parts(Vec<(u32, u64)>);

/// The calls and the work between two neighbouring calls of [`Parts`].
#[derive(Default)]
struct CallStretch {
    at: usize,
    calls: Vec<StartingCall>,
    ran: Vec<RanWork>,
}

impl CallStretch {
    fn more_calls(&self) -> i64 {
        self.calls.len() as i64 - self.ran.len() as i64
    }
}

impl Parts {
    fn of(recorded: &BTreeMap<u32, u64>) -> Parts {
        let mut parts: Vec<(u32, u64)> = Vec::new();
        for (number, start_ns) in recorded {
            if parts.last().is_none_or(|(_, before_ns)| before_ns < start_ns) {
                parts.push((*number, *start_ns));
            }
        }
        Parts(parts)
    }

    /// Returns the correlation of the call that ends a stretch.
    fn end(&self, at: usize) -> u32 {
        self.0.get(at).map_or(u32::MAX, |(number, _)| *number)
    }

    fn stretches(&self, calls: Vec<StartingCall>, ran: Vec<RanWork>) -> Vec<CallStretch> {
        let mut all: BTreeMap<usize, CallStretch> = BTreeMap::new();
        for call in calls {
            let at = self.0.partition_point(|(_, start_ns)| *start_ns <= call.row.start_ns);
            all.entry(at).or_default().calls.push(call);
        }
        for work in ran {
            let at = self.0.partition_point(|(number, _)| *number <= work.correlation);
            all.entry(at).or_default().ran.push(work);
        }
        // A hook reads the clock a little before CUPTI numbers the call. If another thread's call
        // comes in between, the hook's call is in the stretch before its work. So if one stretch
        // has as many calls too many as the next one has too few, both are handled as one.
        let mut joined: Vec<CallStretch> = Vec::new();
        for (at, stretch) in all {
            let stretch = CallStretch { at, ..stretch };
            match joined.last_mut() {
                Some(before)
                    if before.at + 1 == at
                        && before.more_calls() != 0
                        && before.more_calls() == -stretch.more_calls() =>
                {
                    before.at = at;
                    before.calls.extend(stretch.calls);
                    before.ran.extend(stretch.ran);
                }
                _ => joined.push(stretch),
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests;
