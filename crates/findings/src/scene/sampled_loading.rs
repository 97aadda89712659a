//! Finds the time in PyTorch's DataLoader by CPU samples: when the threads that take batches are in
//! the loader, and what its workers do.

use rustc_hash::FxHashMap;
use tprof_rank::RankTrace;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::Role;
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, Sample, StackId, ThreadIndex, ThreadState};

use super::main_threads::MainThreads;
use crate::finding::{Evidence, Track};

/// What a rank's CPU samples show of the loader.
#[derive(Debug, Default)]
pub(crate) struct SampledLoading {
    /// The stretches of time in which a main thread was in the loader.
    stretches: Vec<InLoader>,
    /// Time of the workers on a core by Python function, ns, most first.
    pub workers: Vec<(String, u64)>,
    /// Time of the main threads on a core within the loader by Python function, ns, most first.
    pub own: Vec<(String, u64)>,
    /// Whether any thread was in the loader at any time.
    pub is_recorded: bool,
}

/// An interval in which a thread was in the loader: a wait, or the period of a sample.
#[derive(Clone, Copy, Debug)]
struct InLoader {
    interval: Interval,
    thread: ThreadIndex,
    waits: bool,
    role: Role,
}

/// A stack's role in the loader, and the stack's innermost Python function; `None` if the stack
/// isn't in the loader.
type Known = Option<(Role, String)>;

impl SampledLoading {
    /// Reads the samples of a rank. If the main threads were only guessed from ranges, and none of
    /// them is in the loader, the thread that is in the loader longest is treated as the main
    /// thread.
    pub fn of(rank: &RankTrace<'_>, main: &MainThreads, window: &Cover) -> SampledLoading {
        let file = rank.file;
        let mut known: FxHashMap<(ProcessIndex, StackId), Known> = FxHashMap::default();
        let mut workers: FxHashMap<String, u64> = FxHashMap::default();
        let mut own: FxHashMap<(ThreadIndex, String), u64> = FxHashMap::default();
        let mut found = SampledLoading::default();
        for row in file.blocks::<Sample>().flatten() {
            let key = (row.process, row.stack);
            let known = known.entry(key).or_insert_with(|| role(file, row.process, row.stack));
            let Some((role, function)) = known else { continue };
            let runs = row.state == ThreadState::Running;
            let interval = match runs {
                true => Interval::new(row.time_ns.saturating_sub(row.weight_ns), row.time_ns),
                false => Interval::new(row.time_ns, row.time_ns.saturating_add(row.weight_ns)),
            };
            match (*role, runs) {
                (Role::Worker, false) => continue,
                (Role::Worker, true) => {
                    *workers.entry(function.clone()).or_default() += row.weight_ns;
                    continue;
                }
                (_, true) => {
                    let sum = own.entry((row.thread, function.clone())).or_default();
                    *sum += row.weight_ns;
                }
                (_, false) => {}
            }
            let stretch = InLoader { interval, thread: row.thread, waits: !runs, role: *role };
            found.stretches.push(stretch);
        }
        found.is_recorded = !found.stretches.is_empty();
        let longest = found.longest();
        // Main threads that were guessed from ranges may not be the threads that take batches.
        let is_known =
            main.are_certain() || found.stretches.iter().any(|one| main.contains(one.thread));
        let is_main = |thread| match is_known {
            true => main.contains(thread),
            false => Some(thread) == longest,
        };
        found
            .stretches
            .retain(|stretch| is_main(stretch.thread) && window.touches(stretch.interval));
        let own = own.into_iter().filter(|((thread, _), _)| is_main(*thread));
        found.own = by_time(own.map(|((_, function), ns)| (function, ns)));
        found.workers = by_time(workers.into_iter());
        found
    }

    /// Whether no main thread was sampled in the loader.
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// Returns the number of waits and samples of main threads in the loader.
    pub fn len(&self) -> usize {
        self.stretches.len()
    }

    /// Returns the time in which a main thread was in the loader.
    pub fn cover(&self) -> Cover {
        self.cover_where(|_| true)
    }

    /// Returns the part of `cover` in which the thread waited for a batch.
    pub fn waiting(&self) -> Cover {
        self.cover_where(|stretch| stretch.waits && stretch.role == Role::Consumer)
    }

    /// Returns the part of `cover` in which the thread made the loader and started its workers.
    pub fn starting(&self) -> Cover {
        self.cover_where(|stretch| stretch.role == Role::Starter)
    }

    /// Returns the stretches in the loader as evidence of a finding.
    pub fn places(&self) -> impl Iterator<Item = Evidence<'static>> {
        self.stretches.iter().map(|stretch| Evidence {
            interval: stretch.interval,
            place: Track::Thread(stretch.thread),
            name: match (stretch.role, stretch.waits) {
                (Role::Starter, _) => "starting the loader".into(),
                (_, true) => "waiting for a batch".into(),
                (_, false) => "loading a batch".into(),
            },
        })
    }

    fn cover_where(&self, passes: impl Fn(&InLoader) -> bool) -> Cover {
        Cover::of(self.stretches.iter().filter(|one| passes(one)).map(|one| one.interval))
    }

    /// Returns the thread that is in the loader longest.
    fn longest(&self) -> Option<ThreadIndex> {
        let mut sums: FxHashMap<ThreadIndex, u64> = FxHashMap::default();
        for stretch in &self.stretches {
            *sums.entry(stretch.thread).or_default() += stretch.interval.length();
        }
        let longest = sums.into_iter().max_by_key(|(thread, ns)| (*ns, std::cmp::Reverse(*thread)));
        longest.map(|(thread, _)| thread)
    }
}

fn by_time(sums: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut all: FxHashMap<String, u64> = FxHashMap::default();
    for (function, ns) in sums {
        *all.entry(function).or_default() += ns;
    }
    let mut all: Vec<(String, u64)> = all.into_iter().collect();
    all.sort_rows_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    all
}

fn role(file: &TraceFile, process: ProcessIndex, stack: StackId) -> Known {
    let stack = file.stack(process, stack)?;
    let symbols = stack.frames.iter().flat_map(|&frame| file.symbols(process, frame));
    let python = symbols.filter(|symbol| file.name(symbol.module) == "[python]");
    let mut python =
        python.map(|symbol| (file.name(symbol.function), file.name(symbol.file))).peekable();
    let innermost = python.peek()?.0.to_owned();
    let roles = python.filter_map(|(function, source)| Role::of(function, source));
    Some((Role::of_all(roles)?, innermost))
}
