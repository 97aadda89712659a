//! Divides a thread's wall time in a window by part and place.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tprof_rank::base::apportion::apportion;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{CpuTrace, Func, Part, Stretch, UnsampledShare};
use tprof_trace::TraceFile;
use tprof_trace::model::{Sample, ThreadState};

use super::awaited_threads::AwaitedThreads;
use super::line::Place;
use super::paused::paused;

/// If the samples stand for at least this share of the time on a core, all of that time is divided
/// by the samples. Otherwise the time that they do not stand for is unknown.
const LEAST_SAMPLED: f64 = 0.8;
/// All of the time is also divided by the samples if they lack at most this many sampling periods.
const MOST_PERIODS: u64 = 4;

/// Time with its uncertainty.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallTime {
    /// The time, ns.
    pub ns: u64,
    /// The part of the time on a core, ns. A page fault that reads a file is off a core; polling
    /// for a device is on a core.
    pub running_ns: u64,
    /// Number of samples on a core from which the time was computed.
    pub samples: u64,
    /// The share of waits without a stack that was added to the time.
    pub shared: UnsampledShare,
}

impl WallTime {
    fn add(&mut self, other: WallTime) {
        self.ns += other.ns;
        self.running_ns += other.running_ns;
        self.samples += other.samples;
        self.shared.add(&other.shared);
    }
}

/// A thread's wall time in a window.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Length of the window, which is the sum of all parts, ns.
    pub wall_ns: u64,
    /// The part of the window on a core, ns.
    pub running_ns: u64,
    /// Number of samples on a core.
    pub samples: u64,
    /// Time by part.
    pub parts: FxHashMap<Part, WallTime>,
    /// Time by line of code.
    pub places: FxHashMap<Place, WallTime>,
    /// Time of waits, ns, by part, by whether they are for saving, and by the awaited file or peer.
    /// Waits with an unknown file or peer are left out.
    pub waited_for: FxHashMap<(Part, bool, Arc<str>), u64>,
    /// Time of other threads that this thread waits for: by the thread, the place of the wait, and
    /// the part that tells what the thread does.
    pub followed: FxHashMap<(String, Place, Part), WallTime>,
}

impl Ledger {
    /// Sums a thread's rows in a window, which `rows_in` returned. Some of the rows
    /// may be those of awaited threads, which replaced its waits.
    pub fn of(
        file: &TraceFile,
        inside: &[Sample],
        window: Interval,
        awaited_threads: &AwaitedThreads,
    ) -> (Ledger, CpuTrace) {
        let trace = CpuTrace::of_rows(file, inside.iter().copied());
        let mut ledger = Ledger { wall_ns: window.length(), ..Ledger::default() };
        let (running, off): (Vec<&Stretch>, Vec<&Stretch>) =
            trace.stretches.iter().partition(|stretch| stretch.state == ThreadState::Running);
        let sum = |of: &[&Stretch]| -> u64 { of.iter().map(|one| one.weight_ns).sum() };
        // Rows of another tool may overlap, so their sum may exceed the window.
        let off_ns = sum(&off).min(ledger.wall_ns);
        // Rows cover the time in which recording was off only where a wait reaches into it. The
        // rest of that time is unknown.
        let waits = inside.iter().filter(|row| row.state != ThreadState::Running);
        let waits = Cover::of(waits.map(lasted));
        let paused_ns = paused(file).within(window).without(&waits).length();
        let paused_ns = paused_ns.min(ledger.wall_ns - off_ns);
        ledger.running_ns = ledger.wall_ns - off_ns - paused_ns;
        let period_ns =
            inside.iter().filter(|row| row.cpu.is_some()).map(|row| row.weight_ns).max();
        let sampled_ns = sum(&running);
        let missing_ns = ledger.running_ns.saturating_sub(sampled_ns);
        let is_sampled = sampled_ns > 0
            && (sampled_ns as f64 >= LEAST_SAMPLED * ledger.running_ns as f64
                || missing_ns <= MOST_PERIODS * period_ns.unwrap_or(0));
        let known_ns = if is_sampled { ledger.running_ns } else { sampled_ns };
        ledger.enter(&trace, &off, off_ns, awaited_threads);
        ledger.enter(&trace, &running, known_ns.min(ledger.running_ns), awaited_threads);
        let unknown_ns = paused_ns + ledger.running_ns - known_ns.min(ledger.running_ns);
        if unknown_ns > 0 {
            let unknown = WallTime { ns: unknown_ns, ..WallTime::default() };
            ledger.parts.entry(Part::Unknown).or_default().add(unknown);
        }
        (ledger, trace)
    }

    /// Divides `all_ns` among stretches by their weights.
    fn enter(
        &mut self,
        trace: &CpuTrace,
        stretches: &[&Stretch],
        all_ns: u64,
        awaited_threads: &AwaitedThreads,
    ) {
        let weights = stretches.iter().map(|stretch| stretch.weight_ns);
        for (stretch, ns) in stretches.iter().zip(apportion(all_ns, weights)) {
            let stated = awaited_threads.stated(stretch.thread, stretch.id, stretch.state);
            let part = stated
                .unwrap_or_else(|| Part::of_driver(stretch.state, &stretch.stack, &trace.names));
            let is_running = stretch.state == ThreadState::Running;
            let samples = if is_running && !stretch.stack.is_empty() { stretch.samples } else { 0 };
            let running_ns = if is_running { ns } else { 0 };
            let amount = WallTime { ns, running_ns, samples, shared: stretch.shared };
            self.samples += samples;
            self.parts.entry(part).or_default().add(amount);
            let of_awaited = awaited_threads.place(stretch.thread, stretch.id, stretch.state);
            let place = of_awaited.cloned().unwrap_or_else(|| {
                let stack = trace.stack(stretch.process, stretch.id);
                Place::of(part, stretch.state, stack, &trace.names)
            });
            if let Some(awaited_thread) = awaited_threads.get(stretch.thread) {
                let key = (awaited_thread.name.clone(), awaited_thread.at.clone(), part);
                self.followed.entry(key).or_default().add(amount);
            }
            let mut frames = stretch.stack.iter().map(|id| trace.names.get(*id));
            if let Some(what) = frames.find_map(Func::waited_for).filter(|_| !is_running) {
                *self.waited_for.entry((part, place.saves, what.into())).or_default() += ns;
            }
            self.places.entry(place).or_default().add(amount);
        }
    }

    /// Returns the time of a part.
    pub fn ns(&self, part: Part) -> u64 {
        self.parts.get(&part).map_or(0, |amount| amount.ns)
    }

    /// Returns the wall time without the time in which the thread was ready and had no core, ns. What
    /// other programs do to the job lengthens the wall time, but not this.
    pub fn with_core_ns(&self) -> u64 {
        self.wall_ns - self.ns(Part::NoCore)
    }

    /// Returns half the width of the 95 % confidence interval of an amount, ns. It follows from the
    /// amount's share of all samples on a core.
    pub fn error_ns(&self, amount: &WallTime) -> u64 {
        let share = amount.samples as f64 / self.samples.max(1) as f64;
        let spread = share * (1.0 - share) / self.samples.max(1) as f64;
        let of_samples = (self.running_ns as f64).powi(2) * spread;
        (1.96 * (of_samples + amount.shared.variance()).sqrt()).round() as u64
    }

    /// Returns the files or peers that a part waits for, except for saving, most time first.
    pub fn waited_for(&self, part: Part) -> Vec<(&str, u64)> {
        let is_of = |of: Part, saves: bool| of == part && !saves;
        let of = self.waited_for.iter().filter(|((of, saves, _), _)| is_of(*of, *saves));
        let of = of.filter(|(_, ns)| **ns > 0);
        let mut all: Vec<(&str, u64)> = of.map(|((_, _, what), ns)| (&**what, *ns)).collect();
        all.sort_rows_by(|a, b| (b.1, a.0).cmp(&(a.1, b.0)));
        all
    }

    /// Returns the places of a part, or all places, most time first.
    pub fn places(&self, part: Option<Part>) -> Vec<(&Place, &WallTime)> {
        let of = |place: &&Place| part.is_none_or(|part| place.part == part);
        let mut all: Vec<_> = self.places.iter().filter(|(place, _)| of(place)).collect();
        all.retain(|(_, amount)| amount.ns > 0);
        all.sort_rows_by(|a, b| (b.1.ns, a.0).cmp(&(a.1.ns, b.0)));
        all
    }
}

/// Returns the interval of a wait.
fn lasted(row: &Sample) -> Interval {
    Interval::new(row.time_ns, row.time_ns.saturating_add(row.weight_ns))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tprof_fixture::Fixture;
    use tprof_trace::model::{Mark, MarkKind, SYNTHETIC_FRAME, Stack, Symbol};

    use super::*;
    use crate::host::cut::rows_in;

    /// Builds a file with one stack, of a Python function.
    fn made() -> Fixture {
        let mut made = Fixture::new();
        let [function, file, module] = ["train", "/me/train.py", "[python]"].map(|t| made.name(t));
        let address = SYNTHETIC_FRAME | 1;
        let symbol = Symbol { process: 0, address, depth: 0, function, file, line: 7, module };
        made.writer.symbol(&symbol);
        made.writer.stack(&Stack { process: 0, stack: 1, end: 0, frames: vec![address] });
        made
    }

    fn row(time_ns: u64, weight_ns: u64, state: ThreadState, stack: u32) -> Sample {
        let cpu = (state == ThreadState::Running && stack > 0).then_some(0);
        Sample { time_ns, weight_ns, state, stack, cpu, ..Sample::default() }
    }

    fn of(file: &TraceFile, rows: &[Sample], window: Interval) -> Ledger {
        Ledger::of(file, &rows_in(rows, window), window, &AwaitedThreads::default()).0
    }

    fn parts(rows: &[Sample], window: Interval) -> Vec<(Part, u64)> {
        let ledger = of(&made().finish(), rows, window);
        let mut parts: Vec<_> = ledger.parts.iter().map(|(part, all)| (*part, all.ns)).collect();
        parts.retain(|(_, ns)| *ns > 0);
        parts.sort();
        parts
    }

    use ThreadState::{Blocked, Lock, Runnable, Running};

    #[test]
    fn samples_divide_what_waits_leave_of_the_wall_time() {
        let rows = [
            row(90, 20, Lock, 1),
            row(120, 10, Running, 1),
            row(130, 10, Running, 1),
            // Time on a core without a sample. The ledger ignores this row, since it computes time
            // on a core as the rest of the window.
            row(0, 500, Running, 0),
            row(140, 30, Runnable, 0),
            row(190, 50, Blocked, 0),
        ];
        let expected =
            [(Part::Python, 50), (Part::Lock, 10), (Part::NoCore, 30), (Part::Unknown, 10)];
        assert_eq!(parts(&rows, Interval::new(100, 200)), expected);
    }

    #[test]
    fn time_on_a_core_that_was_hardly_sampled_is_unknown() {
        let rows = [row(10, 10, Running, 1), row(400, 100, Lock, 1)];
        let expected = [(Part::Python, 10), (Part::Lock, 100), (Part::Unknown, 890)];
        assert_eq!(parts(&rows, Interval::new(0, 1000)), expected);
        assert_eq!(parts(&[], Interval::new(0, 1000)), [(Part::Unknown, 1000)]);
    }

    #[test]
    fn a_place_separates_its_time_on_a_core_from_its_waits() {
        let rows = [row(10, 10, Running, 1), row(10, 30, Lock, 1)];
        let ledger = of(&made().finish(), &rows, Interval::new(0, 50));
        let amount = |part| {
            let amount = &ledger.parts[&part];
            (amount.ns, amount.running_ns)
        };
        assert_eq!((amount(Part::Python), amount(Part::Lock)), ((20, 20), (30, 0)));
    }

    #[test]
    fn time_in_which_recording_was_off_is_unknown() {
        let mut made = made();
        let (name, kind) = (made.name(""), MarkKind::RecordingOn);
        made.writer.mark(Mark { time_ns: 60, process: None, name, kind });
        let rows = [row(20, 30, Lock, 1), row(70, 10, Running, 1), row(90, 10, Running, 1)];
        let ledger = of(&made.finish(), &rows, Interval::new(10, 100));
        assert_eq!((ledger.running_ns, ledger.ns(Part::Unknown)), (40, 20));
        assert_eq!(ledger.ns(Part::Lock), 30);
    }

    #[test]
    fn a_line_is_that_of_the_stack() {
        let rows = [row(10, 10, Running, 1)];
        let ledger = of(&made().finish(), &rows, Interval::new(0, 20));
        let (place, amount) = ledger.places(Some(Part::Python))[0];
        assert_eq!((place.shown(), place.line, amount.ns), ("train (train.py:7)".into(), 7, 20));
        assert_eq!(ledger.error_ns(amount), 0);
    }

    #[test]
    fn a_databases_commit_saves_no_checkpoint() {
        let mut made = Fixture::new();
        let stacks: [&[(&str, &str)]; 2] = [
            &[("fdatasync", "libc.so.6"), ("insert", "[python]")],
            &[("fdatasync", "libc.so.6"), ("os_sync", "libsqlite3.so.0"), ("insert", "[python]")],
        ];
        for (stack, functions) in (1_u32..).zip(stacks) {
            let mut frames = vec![];
            for (at, (function, module)) in functions.iter().enumerate() {
                let address = SYNTHETIC_FRAME | (u64::from(stack) * 16 + at as u64);
                let file = made.name(if *module == "[python]" { "/me/etl.py" } else { "" });
                let [function, module] = [function, module].map(|text| made.name(text));
                let symbol =
                    Symbol { process: 0, address, depth: 0, function, file, line: 7, module };
                made.writer.symbol(&symbol);
                frames.push(address);
            }
            made.writer.stack(&Stack { process: 0, stack, end: 0, frames });
        }
        let rows = [row(0, 10, ThreadState::Io, 1), row(10, 30, ThreadState::Io, 2)];
        let ledger = of(&made.finish(), &rows, Interval::new(0, 40));
        let is = |ns, saves, of_database| {
            let places = ledger.places(Some(Part::FileIo));
            let found = places.iter().find(|(_, amount)| amount.ns == ns);
            found.is_some_and(|(at, _)| (at.saves, at.of_database) == (saves, of_database))
        };
        assert!(is(10, true, false) && is(30, false, true), "{:?}", ledger.places);
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_wall_time(
            rows in prop::collection::vec((0_u64..1000, 1_u64..300, 0_u8..4, 0_u32..2), 0..30),
            start in 0_u64..500,
            length in 0_u64..800,
        ) {
            let states = [Running, Runnable, Lock, Blocked];
            let rows: Vec<Sample> = rows
                .into_iter()
                .map(|(time, weight, state, stack)| row(time, weight, states[state as usize], stack))
                .collect();
            let window = Interval::new(start, start + length);
            let sum: u64 = parts(&rows, window).iter().map(|(_, ns)| ns).sum();
            prop_assert_eq!(sum, length);
        }
    }
}
