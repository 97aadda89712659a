//! Measures what the rank's other threads did while the driving thread was blocked. This shows
//! which of them may have held the lock that the driving thread waited for, or used its core.

use std::cmp::Reverse;
use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_facts::pass_through::is_of_tprof;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{CpuTrace, Part};
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, Sample, StackId, ThreadIndex, ThreadState};

use super::driver::Driver;
use super::line::{OtherCause, Place};

/// Another thread's time at one place.
#[derive(Clone, Debug)]
pub struct ThreadAtPlace {
    /// The thread's own name, or its number.
    pub thread: String,
    /// The process of the thread.
    pub process: ProcessIndex,
    /// Index of the thread in the file.
    pub index: ThreadIndex,
    /// Whether the process is another one than the driving thread's.
    pub is_of_other: bool,
    /// Whether the thread is the first thread of its process.
    pub is_first: bool,
    /// The place. Its part tells what the thread did there.
    pub place: Place,
    /// Time there while the driving thread was blocked, ns.
    pub ns: u64,
    /// Time there in the rest of the judged time, ns.
    pub outside_ns: u64,
}

impl ThreadAtPlace {
    /// Formats the thread and its place: `thread hog in spin (a.py:3)`.
    pub fn shown(&self) -> String {
        format!("{} in {}", self.thread, self.place.shown())
    }

    /// Whether the thread may have held a lock. This is possible if the thread ran, or if it waited
    /// in the user's own code for something that it needed, since that code may hold a lock
    /// meanwhile. Threads of tprof take no lock of the job, and a thread that waits for its next
    /// task holds no lock.
    fn may_hold(&self) -> bool {
        let place = &self.place;
        let is_of_tprof = is_of_tprof(&place.library) || place.function.starts_with("tprof_");
        let waits = match place.part {
            Part::Lock | Part::Data | Part::Unknown | Part::Tprof => true,
            Part::FileIo | Part::Socket => !place.is_own,
            Part::Other => !(place.is_own && place.cause == OtherCause::Sleep),
            _ => false,
        };
        !waits && !is_of_tprof && !place.function.is_empty()
    }
}

/// The activity of other threads while the driving thread was blocked by one cause.
#[derive(Clone, Debug, Default)]
pub struct ConcurrentWork {
    /// Time for which the driving thread was blocked, ns.
    pub blocked_ns: u64,
    /// Length of the rest of the judged time, ns.
    pub outside_ns: u64,
    /// The other threads by place, most time first.
    pub threads: Vec<ThreadAtPlace>,
}

/// The time that the threads which the driving thread waits for spend in one part.
#[derive(Clone, Debug)]
pub struct Delay {
    pub ns: u64,
    /// `ns` divided by the time in which the threads work, or wait for something that their work
    /// needs.
    pub share: f64,
    /// Upper bound of the time by which the threads would finish earlier if they spent no time in
    /// the part, ns.
    pub bound_ns: u64,
    /// The places at which the time was spent, most first.
    pub places: Vec<(Place, u64)>,
}

type Key = (ProcessIndex, ThreadIndex, StackId, ThreadState);

impl ConcurrentWork {
    /// Measures the other threads while the driving thread was blocked (`kept`), which is a part of
    /// the judged time (`window`).
    pub fn of(
        file: &TraceFile,
        cpu: &CpuTrace,
        driver: &Driver,
        kept: &Cover,
        window: Interval,
    ) -> ConcurrentWork {
        let outside = Cover::of([window]).without(kept);
        let (inside, rest) = (kept.measure(), outside.measure());
        let mut sums: FxHashMap<Key, [u64; 2]> = FxHashMap::default();
        for row in file.blocks::<Sample>().flatten() {
            let is_own = row.process == driver.process && row.thread == driver.thread;
            let has_place = row.state != ThreadState::Running || row.cpu.is_some();
            if is_own || !has_place {
                continue;
            }
            let part = |measure: &tprof_rank::base::intervals::Measure<'_>| match row.state {
                // A sample counts with its whole weight or not at all, by the moment at which it
                // was taken.
                ThreadState::Running => {
                    row.weight_ns * measure.within(Interval::new(row.time_ns, row.time_ns + 1))
                }
                _ => measure.within(lasted(&row)),
            };
            let sum = sums.entry((row.process, row.thread, row.stack, row.state)).or_default();
            sum[0] += part(&inside);
            sum[1] += part(&rest);
        }
        let mut threads: FxHashMap<(ProcessIndex, ThreadIndex, Place), [u64; 2]> =
            FxHashMap::default();
        for ((process, thread, stack, state), ns) in sums {
            let Some(part) = cpu.part(process, stack, state) else { continue };
            let waits = cpu.state(process, stack, state);
            let place = Place::of(part, waits, cpu.stack(process, stack), &cpu.names);
            let sum = threads.entry((process, thread, place)).or_default();
            (sum[0], sum[1]) = (sum[0] + ns[0], sum[1] + ns[1]);
        }
        let pids: FxHashMap<ProcessIndex, u32> =
            file.processes().iter().map(|row| (row.process, row.pid)).collect();
        let firsts = file.threads().iter().filter(|row| pids.get(&row.process) == Some(&row.tid));
        let firsts: FxHashSet<ThreadIndex> = firsts.map(|row| row.thread).collect();
        let other =
            |((process, thread, place), ns): ((ProcessIndex, ThreadIndex, Place), [u64; 2])| {
                let (index, is_first) = (thread, firsts.contains(&thread));
                let thread = name(file, process, thread);
                let is_of_other = process != driver.process;
                let [ns, outside_ns] = ns;
                ThreadAtPlace {
                    thread,
                    process,
                    index,
                    is_of_other,
                    is_first,
                    place,
                    ns,
                    outside_ns,
                }
            };
        let mut threads: Vec<ThreadAtPlace> =
            threads.into_iter().filter(|(_, ns)| ns[0] > 0).map(other).collect();
        threads.sort_rows_by(|a, b| (b.ns, &a.thread, &a.place).cmp(&(a.ns, &b.thread, &b.place)));
        ConcurrentWork { blocked_ns: kept.length(), outside_ns: outside.length(), threads }
    }

    /// Returns the thread and place that most likely held the lock that the driving thread waited
    /// for. It is a thread of the same process that was at this place while the driving thread
    /// waited, and less so at other times.
    pub fn holder(&self) -> Option<&ThreadAtPlace> {
        let may_hold = |other: &&ThreadAtPlace| !other.is_of_other && other.may_hold();
        // For a thread that is ready but has no core, the place at which it lost its core is mostly
        // unknown. That time is added to the thread's places in proportion to their time.
        let mut threads: FxHashMap<&str, [u64; 2]> = FxHashMap::default();
        for other in self.threads.iter().filter(|other| !other.is_of_other) {
            let [placed_ns, ready_ns] = threads.entry(&other.thread).or_default();
            *placed_ns += if other.may_hold() { other.ns } else { 0 };
            let is_ready = other.place.part == Part::NoCore && other.place.function.is_empty();
            *ready_ns += if is_ready { other.ns } else { 0 };
        }
        let all = |other: &ThreadAtPlace| {
            let [placed_ns, ready_ns] = threads[&*other.thread];
            other.ns as f64 * (1.0 + ready_ns as f64 / placed_ns.max(1) as f64)
        };
        let weight = |other: &ThreadAtPlace| {
            let inside = all(other) / self.blocked_ns.max(1) as f64;
            let outside = other.outside_ns as f64 / self.outside_ns.max(1) as f64;
            // A sample may reach beyond the end of a wait. If the time between waits is very short,
            // most of it comes from such samples and shows nothing.
            let is_told = self.outside_ns as f64 >= LEAST_BETWEEN * self.blocked_ns as f64;
            all(other) * (inside - if is_told { outside } else { 0.0 }).max(0.0)
        };
        let found = self.threads.iter().filter(may_hold);
        let found = found.max_by(|a, b| weight(a).total_cmp(&weight(b)))?;
        (all(found) >= LEAST_HELD * self.blocked_ns as f64 && weight(found) > 0.0).then_some(found)
    }

    /// Returns the thread that did most of the work, at the line on which it spent the most time.
    /// Only threads of the driving thread's process for which `may_be` holds count.
    pub fn maker(&self, may_be: impl Fn(ThreadIndex) -> bool) -> Option<ThreadAtPlace> {
        let works = |other: &ThreadAtPlace| other.place.is_work() && other.place.part != Part::Lock;
        let makes =
            |other: &&ThreadAtPlace| !other.is_of_other && works(other) && may_be(other.index);
        let thread = |other: &ThreadAtPlace| other.thread.clone();
        let (thread, ns) = longest(self.threads.iter().filter(makes), thread)?;
        if (ns as f64) < LEAST_HELD * self.blocked_ns as f64 {
            return None;
        }
        let own = self.threads.iter().filter(makes).filter(|other| other.thread == thread);
        let placed = own.filter(|other| !other.place.file.is_empty());
        let (line, ns) = longest(placed.clone(), |other| other.place.shown())?;
        let there = placed.filter(|other| other.place.shown() == line);
        let (part, _) = longest(there.clone(), |other| other.place.part)?;
        let most = there.max_by_key(|other| (other.place.part == part, other.ns))?;
        Some(ThreadAtPlace { ns, ..most.clone() })
    }

    /// Returns the time of the other threads of the driving thread's process at places that pass.
    pub fn of_threads(&self, is_of: impl Fn(&Place) -> bool) -> u64 {
        let threads = self.threads.iter().filter(|other| !other.is_of_other);
        threads.filter(|other| is_of(&other.place)).map(|other| other.ns).sum()
    }

    /// Returns the time that these threads spend in a part, compared with their time at work.
    pub fn delay(&self, part: Part) -> Delay {
        let is_of = |other: &&ThreadAtPlace| !other.is_of_other && other.place.part == part;
        let mut sums: FxHashMap<&Place, u64> = FxHashMap::default();
        let waits = self.threads.iter().filter(is_of);
        waits.for_each(|other| *sums.entry(&other.place).or_default() += other.ns);
        let mut places: Vec<(Place, u64)> =
            sums.into_iter().map(|(place, ns)| (place.clone(), ns)).collect();
        places.sort_rows_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        let ns = places.iter().map(|(_, ns)| ns).sum();
        let share = ns as f64 / self.of_threads(Place::is_work).max(1) as f64;
        Delay { ns, share, bound_ns: (self.blocked_ns as f64 * share) as u64, places }
    }

    /// Returns the threads on a core, most time first.
    pub fn running(&self) -> impl Iterator<Item = &ThreadAtPlace> {
        self.threads.iter().filter(|other| other.place.part.is_running())
    }
}

/// Returns the key with the most time, and that time.
fn longest<'d, K: Hash + Ord + Clone>(
    threads: impl Iterator<Item = &'d ThreadAtPlace>,
    key: impl Fn(&ThreadAtPlace) -> K,
) -> Option<(K, u64)> {
    let mut sums: FxHashMap<K, u64> = FxHashMap::default();
    threads.for_each(|other| *sums.entry(key(other)).or_default() += other.ns);
    sums.into_iter().max_by_key(|(key, ns)| (*ns, Reverse(key.clone())))
}

/// A thread that holds a lock, or makes data, must be at its place for at least this share of the
/// wait.
const LEAST_HELD: f64 = 0.3;
/// Finding a lock's holder compares the waits with the time between them. That time must be at
/// least this share of the waits, or it is ignored.
const LEAST_BETWEEN: f64 = 0.05;

fn lasted(row: &Sample) -> Interval {
    Interval::new(row.time_ns, row.time_ns.saturating_add(row.weight_ns))
}

/// Names a thread: `thread hog`, `thread 4711`, `process 4712`.
pub(super) fn name(file: &TraceFile, process: ProcessIndex, thread: ThreadIndex) -> String {
    let row = file.thread(thread);
    let of = file.process(process);
    let tid = row.map_or(0, |row| row.tid);
    let program = of.map_or("", |of| tprof_facts::labels::program(file.name(of.command)));
    let own = file.thread_name(thread).filter(|own| !program.starts_with(own));
    match (own, of.is_some_and(|of| of.pid == tid)) {
        (Some(own), true) => format!("process {tid} ({own})"),
        (Some(own), false) => format!("thread {own}"),
        (None, true) => format!("process {tid}"),
        (None, false) => format!("thread {tid}"),
    }
}
