//! Which of the hooks' calls started which work, where CUPTI does not record these calls
//! (`--cuda-calls hooks`) and so gives none of them the number that its records of work carry.
//!
//! Order decides. CUPTI numbers calls as they begin, whether or not it records them, and a stream
//! runs its work in order: the k-th launch of a kernel on a stream is the k-th record of that kernel on
//! that stream; of copies and fills, of so many bytes. Calls that CUPTI does record have both a number
//! and a time: they part calls and work into stretches, so that a lost record shifts
//! nothing beyond its own stretch. In a stretch with as many calls as records each call has its
//! record; where the two differ nobody knows which is missing, and none is joined: they are counted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;
use tprof_trace::model::{Span, ThreadIndex};
use tprof_wire::calls::{LEGACY_STREAM, THREADS_STREAM};

/// How late a record of a call may be: CUPTI's come with a flush, once a second.
const LATE_NS: u64 = 2_500_000_000;
/// How long a call waits for its work where later work of its stream is known.
const PATIENCE_NS: u64 = 30_000_000_000;
/// Number of calls joined at a time: sorting all that wait at each pass would cost more.
const BETWEEN_NS: u64 = 500_000_000;
/// So many times as long as joining took passes before the next: much may wait where no records come.
const RESTS: u64 = 16;
/// Calls and work that wait, at most: beyond it the oldest are not joined.
const WAITING_MOST: usize = 1 << 18;
/// Calls of CUPTI's that are kept.
const CALLS_MOST: usize = 1 << 20;
/// Numbers of joined work that are kept, twice.
const JOINED_MOST: usize = 1 << 16;
/// How far the joined clocks may lie apart, ns.
const APART_NS: u64 = 100_000;

/// The work that a call starts, as far as both sides know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartedWork {
    /// A kernel, by [`hash_of`] its name.
    Kernel(u64),
    /// A copy of so many bytes.
    Copy(u64),
    /// A fill of so many bytes.
    Fill(u64),
}

/// A kernel's name, as the linker has it.
pub fn hash_of(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// The meaning of a handle, from a moment on.
#[derive(Clone, Copy, Debug)]
pub enum Handle {
    /// A stream, which CUPTI numbers so (its context in the high half): to this thread, if it is a default
    /// one.
    Stream(u64, ThreadIndex, u64),
    /// A stub or handle of a kernel with a name of this hash.
    Kernel(u64, u64),
}

/// A call of the hooks' that started work.
#[derive(Clone, Copy, Debug)]
pub struct StartingCall {
    /// The call's row.
    pub row: Span,
    /// The handle of its stream, by [`tprof_wire::calls::stream_of`].
    pub stream: u64,
    /// The work that it started: for a kernel, its stub or handle.
    pub work: StartedWork,
    /// A stream was captured meanwhile: it may have gone into a graph.
    pub may_be_captured: bool,
}

/// StartedWork that ran, as CUPTI recorded it.
#[derive(Clone, Copy, Debug)]
pub struct RanWork {
    /// Number of the call that started it.
    pub correlation: u32,
    /// When it began.
    pub start_ns: u64,
    /// CUPTI's context in the high half, and its stream.
    pub stream: u64,
    /// The work itself, as its record names it.
    pub work: StartedWork,
}

/// Work and calls that could not be joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithoutCall {
    /// Kernels that were launched and have no record.
    pub missing_kernels: u64,
    /// StartedWork of stretches in which calls and records do not add up.
    pub unclear: u64,
    /// StartedWork of which no hook has a call.
    pub unseen: u64,
    /// Calls of which neither is known to a hook: the kernel's name, or CUPTI's number of the stream.
    pub unknown: u64,
    /// StartedWork that was joined, and of which CUPTI has recorded another call since.
    pub contradicted: u64,
}

type Key = (u64, StartedWork);
/// Meanings of a handle over time.
type Meanings = Vec<(u64, u64)>;

/// See the module.
#[derive(Debug, Default)]
pub struct ByOrder {
    calls: Vec<StartingCall>,
    ran: Vec<RanWork>,
    /// When calls that CUPTI recorded began, by number.
    recorded: BTreeMap<u32, u64>,
    /// Numbers of the work that was joined last, and of that before it.
    joined: [HashSet<u32>; 2],
    /// CUPTI's streams by handle; of default streams by thread.
    streams: HashMap<(u64, Option<ThreadIndex>), Meanings>,
    /// Names of kernels, as hashes, by stub or handle.
    kernels: HashMap<u64, Meanings>,
    /// The last call of each stream with known work.
    last_of: HashMap<u64, u32>,
    next_ns: u64,
    /// Results so far.
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
    /// What a handle is from then on.
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

    /// A hook recorded a call that started work.
    pub fn called(&mut self, call: StartingCall) {
        self.calls.push(call);
    }

    /// CUPTI recorded work.
    pub fn ran(&mut self, work: RanWork) {
        self.ran.push(work);
    }

    /// CUPTI recorded a call.
    pub fn recorded(&mut self, correlation: u32, start_ns: u64) {
        self.recorded.insert(correlation, start_ns);
        if self.recorded.len() > CALLS_MOST {
            self.recorded.pop_first();
        }
        if self.joined.iter().any(|joined| joined.contains(&correlation)) {
            self.found.contradicted += 1;
        }
    }

    /// Joins what is certain by then, and gives up what never will be: rows of calls, with the numbers
    /// of their work where these are known. All of them at the end.
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

    /// Joins the calls and the work of a stretch, keeps them for later, or gives them up.
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
        // What may be captured and has no work by now was captured.
        if !is_over {
            self.calls.append(&mut stretch.calls);
            self.ran.append(&mut stretch.ran);
            return;
        }
        match (calls, ran) {
            (0, ran) => self.found.unseen += ran as u64,
            (_, ran) => self.found.unclear += ran as u64,
        }
        if let StartedWork::Kernel(_) = work {
            self.found.missing_kernels += sure.saturating_sub(ran) as u64;
        }
        rows.extend(stretch.calls.iter().map(|call| call.row));
    }

    /// Forgets calls of CUPTI's that part nothing which may yet come.
    fn forget(&mut self, ripe_ns: u64) {
        let waiting = self.calls.iter().map(|call| call.row.start_ns).min();
        let until_ns = waiting.unwrap_or(ripe_ns).min(ripe_ns.saturating_sub(PATIENCE_NS));
        // StartedWork may wait in its stream for long: its call is told by its number.
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

/// Calls that CUPTI recorded, in order of both their numbers and their times.
struct Parts(Vec<(u32, u64)>);

/// Calls and work between two of them.
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

    /// The number of the call that ends a stretch.
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
        // A hook reads the clock a little before CUPTI numbers the call: of another thread's call
        // between the two a call lies on the wrong side, and the next stretch has its work.
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
