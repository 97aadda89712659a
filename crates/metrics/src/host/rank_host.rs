//! Collects everything that is known about the thread that drives a rank.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::base::stats::Repeats;
use tprof_rank::samples::{CpuTrace, Part};
use tprof_rank::{Needs, RankTrace, Step, steps_of_one_process};
use tprof_trace::model::{Sample, ThreadIndex, ThreadState};

use crate::files::LineBytes;

use super::awaited_threads::AwaitedThreads;
use super::concurrent::ConcurrentWork;
use super::cut::rows_in;
use super::driver::Driver;
use super::follow::follow;
use super::gil_holders::GilHolders;
use super::imports;
use super::ledger::Ledger;
use super::life::ThreadLife;
use super::line::{OtherCause, Place};
use super::paused::paused;
use super::sampled_code::SampledCode;
use super::stated::in_spans;
use super::steps::{OF_STEPS, StepTime};
use super::workers::{Workers, WorkersTime, of_children};

/// The driving thread of a rank: its time by part, place and step.
#[derive(Clone, Debug)]
pub struct RankHost {
    /// The thread, with the beginning and the end of its life.
    pub driver: Driver,
    /// The phases of the thread's life.
    pub life: ThreadLife,
    /// The parts of the judged time.
    pub ledger: Ledger,
    /// The parts of start-up.
    pub start_up: Ledger,
    /// Wall time of start-up by imported module, most first. Time without a named module is left
    /// out.
    pub imports: Vec<(String, u64)>,
    /// The time of each step.
    pub steps: Vec<StepTime>,
    /// The other threads of the driving thread's process that held Python's lock.
    pub gil_holders: GilHolders,
    /// The processes that make the data for which the driving thread waits. [`Self::made`] has
    /// their activity during those waits, once they had begun. [`Self::children`] has the activity
    /// of child processes while the driving thread waited for their end.
    pub workers: Workers,
    /// Time in which the driving thread waits until processes of `multiprocessing` begin.
    pub for_start: Cover,
    /// Activity of [`Self::workers`] while the driving thread waited for their data.
    pub made: WorkersTime,
    /// Activity of child processes while the driving thread waited for their end.
    pub children: WorkersTime,
    /// The activity of other threads while the driving thread waited for a lock. The next three
    /// fields have that activity during waits for other threads' work or end, during waits for
    /// data, and during time without a core. A field is empty if the driving thread waited so for
    /// less than 1 % of the judged time. Except in [`Self::awaiting`], the time of awaited threads
    /// counts as the driving thread's own, not as a wait.
    pub locked: ConcurrentWork,
    /// Activity of other threads while the driving thread waited for their work or end.
    pub awaiting: ConcurrentWork,
    /// Activity of other threads while the driving thread waited for data.
    pub without_data: ConcurrentWork,
    /// Activity of other threads while the driving thread was ready but had no core.
    pub without_core: ConcurrentWork,
    /// The kinds of functions that the samples show.
    pub visible: SampledCode,
    /// Waits and samples in collectives in the judged time.
    pub collective: Vec<Interval>,
    /// The longest waits and samples at each place in the judged time, longest first.
    pub longest: Vec<TimeAt>,
    /// What the driving thread read and wrote in the judged time, by line. Only [`Self::with_bytes`]
    /// computes it. `None` also if calls on files were not recorded.
    pub bytes: Option<LineBytes>,
}

const ALL_TIME: Interval = Interval { start: 0, end: u64::MAX };

/// An interval of the driving thread's time, with what it spent it on.
#[derive(Clone, Debug)]
pub struct TimeAt {
    /// The code in which the thread ran or waited.
    pub place: Arc<Place>,
    /// The thread that was there: the driving thread, or one that it waits for.
    pub thread: ThreadIndex,
    /// The wait, or the time of the sample.
    pub interval: Interval,
}

/// Number of the longest waits and samples that are stored for each place, and of the places that a
/// finding lists.
pub const LONGEST: usize = 20;

impl RankHost {
    /// The tables that the analysis reads.
    pub const NEEDS: Needs = Needs::SAMPLES.and(Needs::STEPS);

    /// Measures a rank. Returns `None` if no thread was sampled.
    pub fn of(rank: &RankTrace<'_>) -> Option<RankHost> {
        RankHost::within(rank, |_| ALL_TIME)
    }

    /// Like [`Self::of`], for the part of the rank's life that `part_of` returns for its steps, on
    /// the file's clock. If only a part of the file is read, only that part counts.
    pub fn within(
        rank: &RankTrace<'_>,
        part_of: impl FnOnce(&[Step]) -> Interval,
    ) -> Option<RankHost> {
        let own;
        let cpu = match rank.needs.has(Needs::SAMPLES) {
            true => &rank.cpu,
            false => {
                own = CpuTrace::load(rank.file);
                &own
            }
        };
        let mut steps = steps_of_one_process(rank);
        let driver = Driver::of(rank, cpu, &steps)?;
        let is_own = |row: &Sample| row.process == driver.process && row.thread == driver.thread;
        // Errors are ignored here, since unreadable blocks were reported when the samples were
        // first read.
        let mut rows: Vec<Sample> = rank.file.blocks::<Sample>().flatten().filter(is_own).collect();
        rows.sort_by_key(|row| row.time_ns);
        let part = part_of(&steps);
        let life = match rank.file.part() {
            None => ThreadLife::of(&driver, &steps, &rows, cpu, &paused(rank.file)),
            Some(of_file) => ThreadLife::of_part(&driver, &steps, &of_file.recorded_ns),
        };
        let life = life.within(part);
        steps.retain(|step| part == ALL_TIME || step.interval.overlap(part).length() > 0);
        let judged = rows_in(&rows, life.window);
        let first = rank.file.threads().iter().map(|row| row.thread + 1).max().unwrap_or(0);
        let mut awaited_threads = AwaitedThreads::from(first);
        let judged = in_spans(rank.file, cpu, &driver, judged, &mut awaited_threads);
        let waiting = intervals(&judged, cpu, &awaited_threads);
        let (judged, awaited_threads) =
            follow(rank.file, cpu, &driver, judged, life.window, awaited_threads);
        let (ledger, _) = Ledger::of(rank.file, &judged, life.window, &awaited_threads);
        let before = Interval::new(life.start_up.start, life.start_up.end.min(life.window.start));
        let starting = rows_in(&rows, before);
        let (start_up, trace) =
            Ledger::of(rank.file, &starting, before, &AwaitedThreads::default());
        let imports = imports_of(&starting, &start_up, &trace);
        let earlier = rows_in(&rows, Interval::new(0, life.window.start));
        let later = rows_in(&rows, Interval::new(life.window.end, u64::MAX));
        let rows = [earlier, judged.clone(), later].concat();
        let steps = StepTime::all(&steps, &rows, cpu, &awaited_threads);
        let all = intervals(&judged, cpu, &awaited_threads);
        let at = |all: &[TimeAt], kept: &dyn Fn(&Place) -> bool| {
            let kept = all.iter().filter(|one| kept(&one.place)).map(|one| one.interval);
            kept.collect::<Vec<Interval>>()
        };
        let collective = at(&all, &|place| place.part == Part::Collective);
        let concurrent_of = |kept: Vec<Interval>, but: &Cover| {
            let kept = Cover::of(kept).intersection(&Cover::of([life.window])).without(but);
            match !kept.is_empty() && kept.length() * 100 >= ledger.wall_ns {
                true => ConcurrentWork::of(rank.file, cpu, &driver, &kept, life.window),
                false => ConcurrentWork::default(),
            }
        };
        let concurrent = |all: &[TimeAt], kept: &dyn Fn(&Place) -> bool| {
            concurrent_of(at(all, kept), &Cover::default())
        };
        let [locked, without_core, without_gil] = [Part::Lock, Part::NoCore, Part::Gil]
            .map(|part| concurrent(&all, &|place| place.part == part));
        let gil_holders = GilHolders::of(&driver, cpu, &without_gil);
        let for_data = at(&all, &|place| place.part == Part::Data && !place.is_inline);
        let is_start =
            |place: &Place| place.part == Part::Other && place.cause == OtherCause::Start;
        let for_start = Cover::of(at(&all, &is_start)).intersection(&Cover::of([life.window]));
        let is_much = |ns: u64| ns > 0 && ns.saturating_mul(100) >= ledger.wall_ns;
        let waits = is_much(for_data.iter().map(|one| one.length()).sum());
        let workers = match waits || is_much(ledger.ns(Part::NoCore)) {
            true => Workers::of(rank.file, cpu, &driver, &for_data, life.window),
            false => Workers::default(),
        };
        let without_data = concurrent_of(for_data, &workers.starting);
        let made = workers.made(&without_data);
        let is_of_child =
            |place: &Place| place.part == Part::Other && place.cause == OtherCause::Child;
        let for_children = Cover::of(at(&all, &is_of_child));
        let children = of_children(rank.file, &concurrent(&all, &is_of_child), &for_children);
        let awaiting =
            concurrent(&waiting, &|place| place.part == Part::Other && place.cause.is_of_thread());
        let longest = longest(all);
        let visible = SampledCode::of(cpu);
        Some(RankHost {
            driver,
            life,
            ledger,
            start_up,
            imports,
            steps,
            gil_holders,
            workers,
            for_start,
            made,
            children,
            locked,
            awaiting,
            without_data,
            without_core,
            visible,
            collective,
            longest,
            bytes: None,
        })
    }

    /// Adds the bytes that the driving thread read and wrote at each line.
    pub fn with_bytes(self, rank: &RankTrace<'_>) -> RankHost {
        let bytes = LineBytes::of(rank.file, self.driver.thread, self.life.window);
        RankHost { bytes, ..self }
    }

    /// Returns the wall time outside of start-up and the judged time.
    pub fn outside_ns(&self) -> u64 {
        let judged = self.ledger.wall_ns + self.start_up.wall_ns;
        self.life.whole.length().saturating_sub(judged)
    }

    /// Returns the variance of a part's time over the judged time that is due to differences
    /// between steps, ns²; 0 if there are fewer than two steps. Parts on a core share the variance
    /// of the whole time on a core.
    pub fn variance_by_step(&self, part: Part) -> f64 {
        let at = OF_STEPS.iter().position(|of| *of == part);
        let share = self.ledger.ns(part) as f64 / self.ledger.running_ns.max(1) as f64;
        let of_step = |step: &StepTime| match at {
            Some(at) => step.parts_ns[at] as f64,
            None => step.running_ns as f64 * share,
        };
        let values: Vec<f64> = self.steps.iter().map(of_step).collect();
        Repeats::of(&values).map_or(0.0, |of| of.variance * of.count as f64)
    }

    /// Returns each line with its time on a core and its time in waits, most first.
    pub fn lines(&self) -> Vec<(LineKey, [u64; 2])> {
        let mut lines: HashMap<LineKey, [u64; 2]> = HashMap::new();
        for (place, amount) in &self.ledger.places {
            if place.part == Part::Unknown || place.function.is_empty() {
                continue;
            }
            let key = (place.file.clone(), place.line, place.function.clone());
            let [running_ns, waited_ns] = lines.entry(key).or_default();
            *running_ns += amount.running_ns;
            *waited_ns += amount.ns - amount.running_ns;
        }
        let mut lines: Vec<_> = lines.into_iter().filter(|(_, ns)| ns[0] + ns[1] > 0).collect();
        lines.sort_rows_by(|a, b| (b.1[0] + b.1[1], &a.0).cmp(&(a.1[0] + a.1[1], &b.0)));
        lines
    }
}

/// The identity of a line: file, line number, function.
pub type LineKey = (String, u32, String);

/// Returns the place and the interval of each row.
fn intervals(rows: &[Sample], trace: &CpuTrace, awaited_threads: &AwaitedThreads) -> Vec<TimeAt> {
    let mut places: FxHashMap<(u32, u32, ThreadState), Arc<Place>> = FxHashMap::default();
    let mut found: Vec<TimeAt> = Vec::new();
    for row in rows {
        let place = places.entry((row.thread, row.stack, row.state)).or_insert_with(|| {
            let state = trace.state(row.process, row.stack, row.state);
            Arc::new(awaited_threads.place(row.thread, row.stack, state).cloned().unwrap_or_else(
                || {
                    let part = trace
                        .driver_part(row.process, row.stack, row.state)
                        .unwrap_or(Part::Unknown);
                    Place::of(part, state, trace.stack(row.process, row.stack), &trace.names)
                },
            ))
        });
        let start_ns = match row.state {
            ThreadState::Running => row.time_ns.saturating_sub(row.weight_ns),
            _ => row.time_ns,
        };
        let interval = Interval::new(start_ns, start_ns.saturating_add(row.weight_ns));
        let thread = awaited_threads.own(row.thread).unwrap_or(row.thread);
        found.push(TimeAt { place: Arc::clone(place), thread, interval });
    }
    found
}

fn longest(mut found: Vec<TimeAt>) -> Vec<TimeAt> {
    found.sort_by_key(|one| (std::cmp::Reverse(one.interval.length()), one.interval));
    let mut counts: FxHashMap<Arc<Place>, usize> = FxHashMap::default();
    found.retain(|one| {
        let count = counts.entry(Arc::clone(&one.place)).or_default();
        *count += 1;
        *count <= LONGEST
    });
    found
}

/// Divides the wall time of start-up among modules by the weights of its rows.
fn imports_of(rows: &[Sample], start_up: &Ledger, trace: &CpuTrace) -> Vec<(String, u64)> {
    let mut names: FxHashMap<u32, Option<String>> = FxHashMap::default();
    let mut sums: HashMap<Option<String>, u64> = HashMap::new();
    for row in rows {
        let name = names.entry(row.stack).or_insert_with(|| {
            let stack = trace.stack(row.process, row.stack);
            imports::imported_package(stack.functions.iter().map(|id| trace.names.get(*id)))
        });
        *sums.entry(name.clone()).or_default() += row.weight_ns;
    }
    let all_ns: u64 = sums.values().sum();
    let scale = start_up.wall_ns as f64 / all_ns.max(1) as f64;
    let named = sums.into_iter().filter_map(|(name, ns)| Some((name?, (ns as f64 * scale) as u64)));
    let mut named: Vec<(String, u64)> = named.collect();
    named.sort_rows_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: u32) -> Arc<Place> {
        Arc::new(Place {
            part: Part::FileIo,
            function: "f".into(),
            file: "a.py".into(),
            line,
            is_own: true,
            below: String::new(),
            library: String::new(),
            saves: false,
            of_database: false,
            is_inline: false,
            of_pool: false,
            cause: crate::host::OtherCause::default(),
            thread: String::new(),
            is_of_waiter: false,
        })
    }

    #[test]
    fn the_longest_waits_are_kept_for_each_line_separately() {
        let at = |start: u64, length: u64| Interval::new(start, start + length);
        let of = |place: Arc<Place>, interval| TimeAt { place, thread: 0, interval };
        let mut all: Vec<_> = (0..30).map(|i| of(place(7), at(i * 100, 50))).collect();
        all.extend([of(place(9), at(5000, 1)), of(place(9), at(6000, 2))]);
        let kept = longest(all);
        let of = |line: u32| kept.iter().filter(|one| one.place.line == line).count();
        assert_eq!((of(7), of(9)), (LONGEST, 2));
        assert_eq!(kept.last().unwrap().interval, at(5000, 1));
    }
}
