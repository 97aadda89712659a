//! Finds the other processes that make the data for which the driving thread waits.
//!
//! A job also has processes that wait on purpose: multiprocessing's fork server and resource
//! tracker, services of loggers, monitors. Their waits delay nothing. A worker differs from them as
//! follows:
//!
//! - If the samples show processes of `multiprocessing` (DataLoader's workers, pools), only these
//!   can be workers.
//! - A worker runs while the driving thread waits, or right before these waits end. It does so more
//!   often than a process whose times are unrelated to the waits.
//! - If another process's work ends the waits, a process that is always busy isn't the awaited one.
//!
//! Workers that run the same function are a team: any of them may make the next data.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{CpuTrace, FuncId, Layer, Part, Stack};
use tprof_trace::TraceFile;
use tprof_trace::model::{
    Process, ProcessIndex, Sample, StackId, Thread, ThreadIndex, ThreadState,
};

use super::concurrent::{ConcurrentWork, ThreadAtPlace};
use super::cut::{extent, rows_in};
use super::driver::Driver;
use super::imports;
use super::life::{RowPhase, end_of_start_up};
use super::line::Place;

/// A process that runs for at least this share of the waits counts as working during them.
const LEAST_RUNNING: f64 = 0.1;
/// A process that runs for at least this share of the time is almost always on a core when a wait
/// ends. If it runs for this share of the waits, its own waits count as part of its work.
const MOSTLY_RUNNING: f64 = 0.5;
/// Largest score of a single wait, however soon its end follows a run of the process.
const MOST_SCORE: f64 = 7.0;
/// Score of a wait that ends as soon after a run as one in five would by chance.
const SOON: f64 = 1.609_437_9;
/// For a clear result, waits must end sooner after a run of the process than by chance. The
/// difference must be at least this many standard errors.
const LEAST_ERRORS: f64 = 3.0;
/// For a clear result, the mean score must also exceed the mean by chance by this much. If
/// unrelated processes share a core, brief ones run one after another, which by itself makes a
/// difference of 1.1.
const LEAST_MORE: f64 = 1.5;
/// A process that ends a wait by handing over its data ran within this time before the wait's end,
/// ns.
const HANDS_OVER_NS: u64 = 1_000_000;
/// A process counts as one that hands over data if it ends at least this share of the waits, or if so
/// many end soon after it ran.
const MOST_ENDS: f64 = 2.0 / 3.0;
/// A process works alone if the others of its team wait for tasks for at least this share of the
/// waits.
const LEAST_ALONE: f64 = 0.5;
/// An awaited child ends during a wait or at most this long after it, ns.
const ENDS_WITHIN_NS: u64 = 2_000_000;

/// The processes and threads that the driving thread waits for.
#[derive(Clone, Debug, Default)]
pub struct Workers {
    /// Processes in which `multiprocessing` runs a function.
    of_pool: FxHashSet<ProcessIndex>,
    /// Processes that make the data for which the driving thread waits.
    makers: FxHashSet<ProcessIndex>,
    /// Makers whose own waits delay that data.
    delayed: FxHashSet<ProcessIndex>,
    /// Threads of the driving thread's process for which it waits.
    threads: FxHashSet<ThreadIndex>,
    /// Time in which the driving thread waits, a worker is starting, and no worker has begun to
    /// work.
    pub starting: Cover,
    /// Time of workers in `starting` by imported module, ns, most first.
    pub imports: Vec<(String, u64)>,
    /// The process that most often worked alone in its team, if only one process of the team worked
    /// for most of the waits; with the time for which only one worked, ns.
    pub alone: Option<(ProcessIndex, u64)>,
}

/// The activity of workers while the driving thread waited for them and they had begun.
#[derive(Clone, Debug, Default)]
pub struct WorkersTime {
    /// Time in which the workers ran on a core, ns.
    pub running_ns: u64,
    /// Time in which the workers were ready but had no core, ns.
    pub ready_ns: u64,
    /// The lines with most time on a core, most first.
    pub running: Vec<(Place, u64)>,
    /// The lines with most time in sleeps, files and sockets, most first.
    pub waiting: Vec<(Place, u64)>,
}

/// Another process, with the times of its activity.
struct Worker {
    process: ProcessIndex,
    /// The function that `multiprocessing` runs in the process.
    target: Option<FuncId>,
    start_up: Interval,
    imports: Vec<(Interval, String)>,
    /// The time from the end of the process's start-up to its own end.
    life: Interval,
    /// Time in which at least one of its threads was on a core.
    ran: Cover,
    /// Time in which at least one of its threads was on a core or ready for one.
    busy: Cover,
    /// Time in which the first thread waits for something other than its next task.
    waits: Cover,
}

impl Worker {
    /// Returns the time in which the worker works, or, if `is_delayed`, waits for something that it
    /// needs for its work.
    fn work(&self, is_delayed: bool) -> Cover {
        let begun = self.busy.without(&Cover::of([self.start_up]));
        if is_delayed {
            begun.union(&self.waits.without(&Cover::of([self.start_up])))
        } else {
            begun
        }
    }
}

impl Workers {
    /// Finds the workers in a window by the driving thread's waits for data.
    pub fn of(
        file: &TraceFile,
        cpu: &CpuTrace,
        driver: &Driver,
        waits: &[Interval],
        window: Interval,
    ) -> Workers {
        let kept = Cover::of(waits.iter().copied()).intersection(&Cover::of([window]));
        let others = cpu.stretches.iter().filter(|one| one.process != driver.process);
        let of_pool = others.filter(|one| bootstrap(cpu.stack(one.process, one.id), cpu).is_some());
        let of_pool = of_pool.map(|one| one.process).collect();
        let mut found = Workers { of_pool, ..Workers::default() };
        if kept.is_empty() {
            return found;
        }
        let mut rows: FxHashMap<ProcessIndex, FxHashMap<ThreadIndex, Vec<Sample>>> =
            FxHashMap::default();
        for row in file.blocks::<Sample>().flatten() {
            rows.entry(row.process).or_default().entry(row.thread).or_default().push(row);
        }
        let of_driver = rows.remove(&driver.process).unwrap_or_default();
        let all = workers(file, cpu, rows, window);
        let mut teams: FxHashMap<(Option<FuncId>, ProcessIndex), Vec<&Worker>> =
            FxHashMap::default();
        for one in all.iter().filter(|one| one.target.is_some() || found.of_pool.is_empty()) {
            let alone = if one.target.is_some() { 0 } else { one.process };
            teams.entry((one.target, alone)).or_default().push(one);
        }
        let sum = |team: &[&Worker], of: fn(&Worker) -> &Cover| {
            Cover::any(team.iter().map(|one| of(one)))
        };
        let of_kept = |cover: &Cover| cover.shared(&kept) as f64 / kept.length() as f64;
        let teams: Vec<(Vec<&Worker>, f64)> = teams
            .into_values()
            .map(|team| {
                let share = of_kept(&sum(&team, |one| &one.busy));
                (team, share)
            })
            .collect();
        let ahead: Vec<HeadStart> = teams
            .iter()
            .map(|(team, _)| ahead(&sum(team, |one| &one.ran), waits, window))
            .collect();
        let ends = teams.iter().zip(&ahead).any(|((team, _), ahead)| {
            ahead.is_clear && ends_waits(&sum(team, |one| &one.ran), waits, window)
        });
        let is_busy = |share: f64| share >= MOSTLY_RUNNING;
        // If one team is busy during most of the waits, its work explains them, and not the sleep
        // of another process. The exception is a process whose work clearly ends the waits.
        let is_explained = !ends && teams.iter().any(|(_, share)| is_busy(*share));
        // If no process is clearly awaited, choose the most likely one.
        let is_clear = ahead.iter().any(|one| one.is_clear);
        let best = ahead.iter().map(|one| one.errors).fold(LEAST_ERRORS, f64::max);
        // Beside a team that runs right before most waits end, one that does so before some of them
        // may wake in step with every third wait, say.
        let runs_before_most = |one: &HeadStart| one.is_clear && one.soon >= MOST_ENDS;
        let has_one = ahead.iter().any(runs_before_most);
        for ((team, share), ahead) in teams.iter().zip(&ahead) {
            let is_best = !is_clear && ahead.errors >= best;
            let is_by_chance = has_one && !runs_before_most(ahead);
            let is_ahead = !is_explained && (ahead.is_clear || is_best) && !is_by_chance;
            let is_awaited = is_ahead || is_busy(*share) && !ends;
            if is_awaited || *share >= LEAST_RUNNING && !(is_busy(*share) && ends) {
                found.makers.extend(team.iter().map(|one| one.process));
            }
            if is_awaited {
                found.delayed.extend(team.iter().map(|one| one.process));
            }
        }
        let others = file.threads().iter().filter(|one| one.thread != driver.thread);
        for thread in others {
            let Some(rows) = of_driver.get(&thread.thread) else { continue };
            let life = Cover::of([life_of(file, thread).overlap(window)]);
            if is_awaited(&life.without(&off(rows, |_| true)), waits, &kept, window) {
                found.threads.insert(thread.thread);
            }
        }
        let makers = || all.iter().filter(|one| found.makers.contains(&one.process));
        let works = Cover::any(makers().map(|one| one.work(found.delayed.contains(&one.process))));
        let starts = Cover::of(makers().map(|one| one.start_up));
        found.starting = kept.intersection(&starts).without(&works);
        let measure = found.starting.measure();
        let mut modules: FxHashMap<&str, u64> = FxHashMap::default();
        for (interval, module) in makers().flat_map(|one| &one.imports) {
            *modules.entry(module).or_default() += measure.within(*interval);
        }
        let modules = modules.into_iter().filter(|(_, ns)| *ns > 0);
        let mut imports: Vec<_> = modules.map(|(name, ns)| (name.to_owned(), ns)).collect();
        imports.sort_rows_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        let rest = kept.without(&found.starting);
        let alone = teams.iter().filter_map(|(team, _)| alone(team, &found.delayed, &rest));
        found.alone = alone.max_by_key(|(process, ns)| (*ns, *process));
        found.imports = imports;
        found
    }

    /// Whether other processes run functions of `multiprocessing` for the driving thread.
    pub fn are_there(&self) -> bool {
        !self.of_pool.is_empty()
    }

    /// Whether `multiprocessing` runs a function in a process.
    pub fn is_of_pool(&self, process: ProcessIndex) -> bool {
        self.of_pool.contains(&process)
    }

    /// Whether the driving thread waits for this thread of its process.
    pub fn has_thread(&self, thread: ThreadIndex) -> bool {
        self.threads.contains(&thread)
    }

    /// Returns the activity of the workers during these waits.
    pub fn made(&self, concurrent: &ConcurrentWork) -> WorkersTime {
        let makes = |other: &&ThreadAtPlace| self.makers.contains(&other.process);
        let waits = |other: &&ThreadAtPlace| {
            let place = &other.place;
            let is_slow = matches!(place.part, Part::FileIo | Part::Socket)
                || place.part == Part::Other && !place.cause.is_of_thread();
            other.is_first && is_slow && self.delayed.contains(&other.process)
        };
        let threads = || concurrent.threads.iter().filter(makes);
        let running = || threads().filter(|other| other.place.part.is_running());
        let ready = threads().filter(|other| other.place.part == Part::NoCore);
        WorkersTime {
            running_ns: running().map(|other| other.ns).sum(),
            ready_ns: ready.map(|other| other.ns).sum(),
            running: by_line(running()),
            waiting: by_line(threads().filter(waits)),
        }
    }
}

/// Returns the activity of children that ended with a wait for them. If no child did, returns that
/// of all other processes.
pub(super) fn of_children(
    file: &TraceFile,
    concurrent: &ConcurrentWork,
    waits: &Cover,
) -> WorkersTime {
    let ends = |process: &Process| {
        file.process_end(process.process).is_some_and(|(end_ns, _)| {
            waits.touches(Interval::new(end_ns.saturating_sub(ENDS_WITHIN_NS), end_ns + 1))
        })
    };
    let ended: FxHashSet<ProcessIndex> =
        file.processes().iter().filter(|one| ends(one)).map(|one| one.process).collect();
    let any = ended.is_empty();
    let threads = concurrent.threads.iter();
    let of = threads.filter(|other| other.is_of_other && (any || ended.contains(&other.process)));
    let running = of.filter(|other| other.place.part.is_running());
    WorkersTime {
        running_ns: running.clone().map(|other| other.ns).sum(),
        running: by_line(running),
        ..WorkersTime::default()
    }
}

fn by_line<'d>(threads: impl Iterator<Item = &'d ThreadAtPlace>) -> Vec<(Place, u64)> {
    let mut sums: FxHashMap<Place, u64> = FxHashMap::default();
    for other in threads {
        let unknown = Place { part: Part::Unknown, ..other.place.clone() };
        if let Some(place) = unknown.line_only() {
            *sums.entry(place).or_default() += other.ns;
        }
    }
    let mut all: Vec<(Place, u64)> = sums.into_iter().collect();
    all.sort_rows_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    all
}

/// Measures how much sooner waits end after a process ran than by chance.
#[derive(Clone, Copy, Debug, Default)]
struct HeadStart {
    /// The difference from chance in standard errors.
    errors: f64,
    /// The share of the waits that end so soon after a run of the process as one in five would by
    /// chance.
    soon: f64,
    /// Whether the difference is larger than a busy machine causes for processes that only happen
    /// to run at the same times.
    is_clear: bool,
}

/// Measures the [`HeadStart`] of a process. A wait's score is the negative logarithm of the
/// probability that a random moment of the window follows a run of the process this soon. By
/// chance, these probabilities are evenly distributed.
fn ahead(ran: &Cover, waits: &[Interval], window: Interval) -> HeadStart {
    let gaps = Cover::of([window]).without(ran);
    let mut lengths: Vec<u64> = gaps.parts().iter().map(|gap| gap.length()).collect();
    lengths.sort_unstable();
    let mut sum = 0;
    let upto: Vec<u64> = std::iter::once(0)
        .chain(lengths.iter().map(|length| {
            sum += length;
            sum
        }))
        .collect();
    let window_ns = window.length().max(1) as f64;
    let ran_ns = window.length() - gaps.length();
    let share = |lag_ns: u64| {
        let shorter = lengths.partition_point(|length| *length <= lag_ns);
        let longer = (lengths.len() - shorter) as u64;
        (ran_ns + upto[shorter] + longer * lag_ns) as f64 / window_ns
    };
    let score = |wait: &Interval| {
        let at = gaps.parts().partition_point(|gap| gap.end < wait.end);
        let gap = gaps.parts().get(at).filter(|gap| gap.start < wait.end);
        let lag_ns = gap.map_or(0, |gap| wait.end - gap.start);
        -share(lag_ns).max((-MOST_SCORE).exp()).ln()
    };
    let ends = waits.iter().filter(|wait| (window.start..window.end).contains(&wait.end));
    let scores: Vec<f64> = ends.map(score).collect();
    // By chance, a score is the negative logarithm of a value that is evenly distributed from 0 to
    // 1, but at least `lowest`. These are the mean and the mean square of such a score.
    let lowest = share(0).max((-MOST_SCORE).exp());
    let mean = 1.0 - lowest;
    let square = 2.0 + 2.0 * lowest * lowest.ln() - 2.0 * lowest;
    let count = scores.len() as f64;
    let error = (square - mean * mean).max(0.0).sqrt() / count.sqrt();
    if scores.is_empty() || error == 0.0 {
        return HeadStart::default();
    }
    let more = scores.iter().sum::<f64>() / count - mean;
    // The score of a process that runs for much of the time can't be far above chance, so less is
    // required of it.
    let least = ((-lowest.ln() - mean) / 2.0).min(LEAST_MORE);
    let errors = more / error;
    let soon = scores.iter().filter(|score| **score >= SOON).count() as f64 / count;
    HeadStart { errors, soon, is_clear: errors >= LEAST_ERRORS && more >= least }
}

/// Whether most waits end when a process hands over its data. It must have run within each such
/// wait right before its end, but not for most of the window.
fn ends_waits(ran: &Cover, waits: &[Interval], window: Interval) -> bool {
    let of_window = |wait: &&Interval| (window.start..window.end).contains(&wait.end);
    let (mut ended, mut count) = (0, 0);
    for wait in waits.iter().filter(of_window) {
        let from_ns = wait.end.saturating_sub(HANDS_OVER_NS).max(wait.start);
        ended += u64::from(ran.touches(Interval::new(from_ns, wait.end)));
        count += 1;
    }
    let share = ran.shared(&Cover::of([window])) as f64 / window.length().max(1) as f64;
    ended as f64 >= MOST_ENDS * count as f64 && share < MOSTLY_RUNNING
}

/// Whether the driving thread waits for a process or thread: it runs for most of the waits, or
/// right before they end.
fn is_awaited(ran: &Cover, waits: &[Interval], kept: &Cover, window: Interval) -> bool {
    let share = ran.shared(kept) as f64 / kept.length().max(1) as f64;
    share >= MOSTLY_RUNNING || ahead(ran, waits, window).is_clear
}

/// Returns the process that most often worked alone in its team, and the time for which only one
/// process of the team worked, ns. `None` if that time is a smaller share of the waits than
/// [`LEAST_ALONE`].
fn alone(
    team: &[&Worker],
    delayed: &FxHashSet<ProcessIndex>,
    kept: &Cover,
) -> Option<(ProcessIndex, u64)> {
    let works: Vec<(ProcessIndex, Cover)> = team
        .iter()
        .map(|one| (one.process, one.work(delayed.contains(&one.process)).intersection(kept)))
        .collect();
    if works.len() < 2 {
        return None;
    }
    // Only time in which two members of the team lived counts, since a single member always works
    // alone.
    let lives = team.iter().map(|one| Cover::of([one.life]));
    let (_, alive) = once_and_twice(lives);
    let (once, twice) = once_and_twice(works.iter().map(|(_, work)| work.intersection(&alive)));
    let alone_ns = once.without(&twice).length();
    let own = works
        .iter()
        .map(|(process, work)| (work.intersection(&alive).without(&twice).length(), *process));
    let (_, process) = own.max()?;
    (alone_ns as f64 >= LEAST_ALONE * kept.length().max(1) as f64).then_some((process, alone_ns))
}

/// Returns the time covered at least once, and the time covered at least twice.
fn once_and_twice(all: impl Iterator<Item = Cover>) -> (Cover, Cover) {
    all.fold((Cover::default(), Cover::default()), |(once, twice), one| {
        (once.union(&one), twice.union(&once.intersection(&one)))
    })
}

/// Returns all other processes with rows in a window.
fn workers(
    file: &TraceFile,
    cpu: &CpuTrace,
    mut rows: FxHashMap<ProcessIndex, FxHashMap<ThreadIndex, Vec<Sample>>>,
    window: Interval,
) -> Vec<Worker> {
    let mut threads: FxHashMap<ProcessIndex, Vec<&Thread>> = FxHashMap::default();
    for thread in file.threads() {
        threads.entry(thread.process).or_default().push(thread);
    }
    let of = |process: &Process| {
        let rows = rows.remove(&process.process)?;
        let threads = threads.get(&process.process)?;
        Some(worker(file, cpu, process, threads, rows, window))
    };
    file.processes().iter().filter_map(of).collect()
}

fn worker(
    file: &TraceFile,
    cpu: &CpuTrace,
    process: &Process,
    threads: &[&Thread],
    mut rows: FxHashMap<ThreadIndex, Vec<Sample>>,
    window: Interval,
) -> Worker {
    let mut known: FxHashMap<StackId, (RowPhase, Option<FuncId>)> = FxHashMap::default();
    let mut of = |row: &Sample| {
        *known.entry(row.stack).or_insert_with(|| {
            let stack = cpu.stack(row.process, row.stack);
            (phase(row, stack, cpu), target(stack, cpu))
        })
    };
    let first = threads.iter().find(|thread| thread.tid == process.pid).map(|one| one.thread);
    let mut of_first = first.and_then(|first| rows.get(&first).cloned()).unwrap_or_default();
    of_first.sort_by_key(|row| row.time_ns);
    let (phases, targets): (Vec<RowPhase>, Vec<Option<FuncId>>) =
        of_first.iter().map(&mut of).unzip();
    let end_ns = end_of_start_up(&of_first, &phases);
    let start_up = Interval::new(process.start_ns, end_ns.max(process.start_ns)).overlap(window);
    let module = |row: &Sample| {
        let stack = cpu.stack(row.process, row.stack);
        imports::imported_package(stack.functions.iter().map(|id| cpu.names.get(*id)))
    };
    let imports = of_first.iter().filter(|row| row.time_ns < end_ns).filter_map(|row| {
        let all = match row.state {
            ThreadState::Running if row.cpu.is_none() => return None,
            ThreadState::Running => {
                Interval::new(row.time_ns.saturating_sub(row.weight_ns), row.time_ns)
            }
            _ => extent(row),
        };
        Some((all, module(row)?))
    });
    let imports = imports.collect();
    let waits = rows_in(&of_first, window).into_iter().filter(|row| {
        let part = cpu.part(row.process, row.stack, row.state).unwrap_or(Part::Unknown);
        let state = cpu.state(row.process, row.stack, row.state);
        let place = || Place::of(part, state, cpu.stack(row.process, row.stack), &cpu.names);
        match part {
            Part::Other => !place().cause.is_of_thread(),
            Part::FileIo | Part::Socket => true,
            _ => false,
        }
    });
    let waits = Cover::of(waits.map(|row| extent(&row)));
    let of_process = file.process_end(process.process).map_or(u64::MAX, |(end_ns, _)| end_ns);
    let life = Interval::new(start_up.end, of_process).overlap(window);
    let (mut ran, mut busy) = (Cover::default(), Cover::default());
    for thread in threads {
        let name = file.thread_name(thread.thread).unwrap_or_default();
        let Some(rows) = rows.remove(&thread.thread).filter(|_| !name.starts_with("tprof-")) else {
            continue;
        };
        let life = life_of(file, thread).overlap(window);
        ran = ran.union(&Cover::of([life]).without(&off(&rows, |_| true)));
        let waits = |row: &Sample| row.state != ThreadState::Runnable;
        busy = busy.union(&Cover::of([life]).without(&off(&rows, waits)));
    }
    let target = targets.into_iter().flatten().next();
    Worker { process: process.process, target, start_up, imports, life, ran, busy, waits }
}

fn life_of(file: &TraceFile, thread: &Thread) -> Interval {
    let of_process = file.process_end(thread.process).map(|(end_ns, _)| end_ns);
    let end_ns = [file.thread_end(thread.thread), of_process].into_iter().flatten().min();
    Interval::new(thread.start_ns, end_ns.unwrap_or(u64::MAX))
}

/// Returns the time in which a thread was off a core, for rows that pass.
fn off(rows: &[Sample], passes: impl Fn(&Sample) -> bool) -> Cover {
    let off = rows.iter().filter(|row| {
        // A row that sums several waits has no exact times. Its whole extent counts if the waits
        // fill at least half of it.
        let is_most = row.weight_ns.saturating_mul(2) >= extent(row).length();
        row.state != ThreadState::Running && is_most && passes(row)
    });
    Cover::of(off.map(extent))
}

/// Returns the index of the frame at which `multiprocessing` begins to run a process's own
/// function. Outer frames belong to its start, or to the process from which it was forked.
fn bootstrap(stack: &Stack, cpu: &CpuTrace) -> Option<usize> {
    stack.functions.iter().position(|id| {
        let func = cpu.names.get(*id);
        func.layer == Layer::Python
            && func.file.ends_with("multiprocessing/process.py")
            && func.name.ends_with("_bootstrap")
    })
}

fn target(stack: &Stack, cpu: &CpuTrace) -> Option<FuncId> {
    let inner = stack.functions[..bootstrap(stack, cpu)?].iter().rev();
    let is_own = |id: &&FuncId| {
        let func = cpu.names.get(**id);
        func.layer == Layer::Python && !func.file.ends_with("multiprocessing/process.py")
    };
    inner.copied().find(|id| is_own(&id))
}

/// Returns the phase of a process's start that a row shows.
fn phase(row: &Sample, stack: &Stack, cpu: &CpuTrace) -> RowPhase {
    let Some(at) = bootstrap(stack, cpu) else {
        let prepares = stack.functions.iter().map(|id| cpu.names.get(*id)).any(|func| {
            func.layer == Layer::Python && func.file.ends_with("multiprocessing/spawn.py")
        });
        return if prepares { RowPhase::Import } else { RowPhase::of(row, cpu) };
    };
    let mut inner = stack.functions[..at].iter().map(|id| cpu.names.get(*id));
    match inner.any(|func| func.is_import()) {
        true => RowPhase::Import,
        false => RowPhase::Python,
    }
}
