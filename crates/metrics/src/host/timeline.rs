//! Finds the times in which another thread of the driving thread's process worked.

use rustc_hash::FxHashMap;
use tprof_facts::pass_through::is_of_tprof;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::samples::{CpuTrace, Layer, Part};
use tprof_trace::TraceFile;
use tprof_trace::model::{Sample, StackId, Thread, ThreadIndex, ThreadState};

use super::concurrent::name;
use super::cut::{extent, rows_in, wait_ns_in};
use super::driver::Driver;
use super::line::{OtherCause, Place, is_of_pool};
use super::paused::paused;
use super::wait_sites::LOOKED_AT_NS;

/// The activity of another thread that a row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowActivity {
    /// The thread is on a core, or it would be if other threads did not use the cores or hold a
    /// lock.
    Work,
    /// The thread waits for a file or a peer in code of the user's own.
    Wait,
    /// The thread sleeps in code of the user's own.
    Sleep,
    /// The thread waits for its next task or for something unknown.
    Nothing,
}

/// The times in which a thread worked, ran, waited and slept.
#[derive(Debug)]
pub(super) struct ThreadWork {
    pub thread: ThreadIndex,
    /// The thread's own name, or its number.
    pub name: String,
    /// The thread's name without digits. Any thread with this name may do the next task.
    pub team: String,
    /// The end of the thread, ns, if it was recorded.
    pub end_ns: Option<u64>,
    /// Whether the thread runs tasks of one of Python's pools.
    pub is_of_pool: bool,
    /// All its time except for waits for tasks.
    pub busy: Cover,
    /// The part of `busy` on a core.
    pub ran: Cover,
    /// The part of `busy` in waits for files and peers, or in sleeps.
    pub waits: Cover,
    /// The part of `waits` in sleeps.
    pub asleep: Cover,
    /// Time on a core, ns. [`Self::sampled_ns`] is the part of it that has samples.
    pub running_ns: u64,
    pub sampled_ns: u64,
    rows: Vec<(Sample, RowActivity)>,
    /// For each row, the latest end among this row and all rows before it.
    ends: Vec<u64>,
}

/// Returns the timelines of the other threads of the driving thread's process that may have worked
/// for it in a window.
pub(super) fn timelines(
    file: &TraceFile,
    cpu: &CpuTrace,
    driver: &Driver,
    window: Interval,
) -> Vec<ThreadWork> {
    let mut rows: FxHashMap<ThreadIndex, Vec<Sample>> = FxHashMap::default();
    for row in file.blocks::<Sample>().flatten() {
        if row.process == driver.process && row.thread != driver.thread {
            rows.entry(row.thread).or_default().push(row);
        }
    }
    let recorded = Cover::of([window]).without(&paused(file));
    let threads = file.threads().iter().filter(|thread| thread.process == driver.process);
    let of = |thread: &Thread| {
        ThreadWork::of(file, cpu, thread, rows.get(&thread.thread)?, (window, &recorded))
    };
    threads.filter_map(of).collect()
}

impl ThreadWork {
    /// Reads a thread's rows in a window, of which only `recorded` was recorded. Returns `None` for
    /// a thread of tprof and for a thread that only waited for tasks.
    pub fn of(
        file: &TraceFile,
        cpu: &CpuTrace,
        thread: &Thread,
        rows: &[Sample],
        (window, recorded): (Interval, &Cover),
    ) -> Option<ThreadWork> {
        let own = file.thread_name(thread.thread).unwrap_or_default();
        if own.starts_with("tprof-") || is_of_tprofs_own(rows, cpu) {
            return None;
        }
        let mut known: FxHashMap<(StackId, ThreadState), RowActivity> = FxHashMap::default();
        let mut rows: Vec<(Sample, RowActivity)> = rows_in(rows, window)
            .into_iter()
            .map(|row| {
                let does = known.entry((row.stack, row.state)).or_insert_with(|| does(&row, cpu));
                (row, *does)
            })
            .collect();
        rows.sort_by_key(|(row, _)| row.time_ns);
        unseen(&mut rows);
        let end_ns = file.thread_end(thread.thread);
        let life = Interval::new(thread.start_ns, end_ns.unwrap_or(u64::MAX)).overlap(window);
        let life = recorded.within(life);
        let off = |passes: &dyn Fn(RowActivity) -> bool| {
            let off = rows.iter().filter(|(row, does)| {
                // A row that sums several waits has no exact times. Its whole extent counts if the
                // waits fill at least half of it.
                let is_most = row.weight_ns.saturating_mul(2) >= extent(row).length();
                row.state != ThreadState::Running && is_most && passes(*does)
            });
            Cover::of(off.map(|(row, _)| extent(row)))
        };
        let idle = off(&|does| does == RowActivity::Nothing);
        let busy = life.without(&idle);
        let ran = busy.without(&off(&|does| does != RowActivity::Nothing));
        let waits =
            busy.intersection(&off(&|does| matches!(does, RowActivity::Wait | RowActivity::Sleep)));
        let asleep = waits.intersection(&off(&|does| does == RowActivity::Sleep));
        if busy.is_empty() {
            return None;
        }
        let sum = |is_off: bool| -> u64 {
            let of = rows.iter().filter(|(row, _)| (row.state != ThreadState::Running) == is_off);
            of.map(|(row, _)| row.weight_ns).sum()
        };
        let (running_ns, sampled_ns) = (life.length().saturating_sub(sum(true)), sum(false));
        let mut latest_ns = 0;
        let ends = rows.iter().map(|(row, _)| {
            latest_ns = latest_ns.max(extent(row).end);
            latest_ns
        });
        let ends = ends.collect();
        let is_of_pool = rows.iter().any(|(row, _)| {
            let stack = &cpu.stack(row.process, row.stack).functions;
            stack.iter().any(|id| is_of_pool(cpu.names.get(*id)))
        });
        let (process, thread) = (thread.process, thread.thread);
        let name = name(file, process, thread).trim_start_matches("thread ").to_owned();
        let team = own.chars().filter(|c| !c.is_ascii_digit()).collect();
        Some(ThreadWork {
            thread,
            name,
            team,
            end_ns,
            is_of_pool,
            busy,
            ran,
            waits,
            asleep,
            running_ns,
            sampled_ns,
            rows,
            ends,
        })
    }

    /// Returns the activity in a part of the thread's time in which it mostly worked: its rows
    /// there, and the time that it waited for tasks somewhere in the part, ns.
    pub fn work_in(&self, part: Interval) -> (Vec<Sample>, u64) {
        let first = self.ends.partition_point(|end| *end <= part.start);
        let inside = self.rows[first..].iter().take_while(|(row, _)| row.time_ns < part.end);
        let (mut work, mut idle_ns) = (Vec::new(), 0);
        for (row, does) in inside {
            if row.state == ThreadState::Running {
                work.extend((row.time_ns >= part.start).then_some(*row));
                continue;
            }
            let weight_ns = wait_ns_in(row, part);
            let within = extent(row).overlap(part);
            match does {
                RowActivity::Nothing => idle_ns += weight_ns,
                _ if weight_ns == 0 => {}
                _ => work.push(Sample {
                    time_ns: within.start,
                    weight_ns,
                    spread_ns: row.spread_ns.map(|_| within.length()),
                    ..*row
                }),
            }
        }
        (work, idle_ns.min(part.length()))
    }
}

/// Whether all known stacks of a thread lie in tprof's code.
fn is_of_tprofs_own(rows: &[Sample], cpu: &CpuTrace) -> bool {
    let mut stacks = rows.iter().map(|row| &cpu.stack(row.process, row.stack).functions);
    let mut known = stacks.by_ref().filter(|stack| !stack.is_empty()).peekable();
    known.peek().is_some()
        && known.all(|stack| {
            let native = stack.iter().rev().map(|id| cpu.names.get(*id));
            let mut native = native.filter(|func| func.layer == Layer::Native);
            native
                .find(|func| !func.module.starts_with("libc.so"))
                .is_some_and(|func| is_of_tprof(&func.module))
        })
}

/// Makes short waits without a stack count as work if most short waits with a stack do.
fn unseen(rows: &mut [(Sample, RowActivity)]) {
    let is_short = |row: &Sample| {
        let is_wait = !matches!(row.state, ThreadState::Running | ThreadState::Runnable);
        is_wait && row.weight_ns < LOOKED_AT_NS
    };
    let mut sums = [0, 0];
    for (row, does) in rows.iter().filter(|(row, _)| is_short(row) && row.stack != 0) {
        sums[usize::from(*does == RowActivity::Work)] += row.weight_ns;
    }
    if sums[1] > sums[0] {
        let all = rows.iter_mut().filter(|(row, _)| is_short(row) && row.stack == 0);
        all.for_each(|(_, does)| *does = RowActivity::Work);
    }
}

fn does(row: &Sample, cpu: &CpuTrace) -> RowActivity {
    let state = cpu.state(row.process, row.stack, row.state);
    if matches!(state, ThreadState::Running | ThreadState::Runnable | ThreadState::Gil) {
        return RowActivity::Work;
    }
    let stack = cpu.stack(row.process, row.stack);
    let part = cpu.part(row.process, row.stack, row.state).unwrap_or(Part::Unknown);
    if stack.functions.is_empty() {
        return RowActivity::Nothing;
    }
    let place = Place::of(part, state, stack, &cpu.names);
    match part {
        Part::Unknown | Part::Data => RowActivity::Nothing,
        Part::FileIo | Part::Socket if place.is_own => RowActivity::Wait,
        // A server thread of a library waits for its next request like this, so this is not work.
        Part::FileIo | Part::Socket => RowActivity::Nothing,
        Part::Other if place.cause == OtherCause::Child => RowActivity::Work,
        Part::Other if place.cause == OtherCause::Sleep && place.is_own => RowActivity::Sleep,
        Part::Other => RowActivity::Nothing,
        _ => RowActivity::Work,
    }
}
