//! Finds the thread that drives a rank: the thread that runs the training loop, so that each of its
//! waits delays the rank.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_facts::labels;
use tprof_rank::samples::{CpuTrace, Layer};
use tprof_rank::{RankTrace, Step, descends};
use tprof_trace::model::{Process, ProcessIndex, SpanKind, Thread, ThreadIndex, ThreadState};

/// The thread that drives a rank.
#[derive(Clone, Debug)]
pub struct Driver {
    pub process: ProcessIndex,
    pub thread: ThreadIndex,
    /// Thread id as the process itself sees it.
    pub tid: u32,
    /// Name of the thread's program, with the thread's own name if that differs.
    pub name: String,
    /// The beginning of the thread's process image, ns on the file's clock.
    pub start_ns: u64,
    /// The end of the thread, its process or the recording, whichever is first, ns.
    pub end_ns: u64,
}

/// CPU time of a process, and whether Python ran on its first thread.
#[derive(Default)]
struct Activity {
    running_ns: u64,
    has_python: bool,
}

impl Driver {
    /// Returns the thread that marks the steps. Without steps, it is the first thread of the
    /// busiest outermost process with Python. If no process has Python, processes with at least
    /// half of the largest CPU time count instead. Returns `None` if no thread was sampled.
    pub fn of(rank: &RankTrace<'_>, cpu: &CpuTrace, steps: &[Step]) -> Option<Driver> {
        let file = rank.file;
        let activity = activity(cpu);
        let process = match steps.first() {
            Some(step) => step.process,
            None => outermost(rank, &activity)?,
        };
        let row = file.process(process);
        let threads = || file.threads().iter().filter(|row| row.process == process);
        let begins: FxHashSet<u64> = steps.iter().map(|step| step.interval.start).collect();
        let marks = rank.spans(SpanKind::Annotation).iter();
        let stepping = marks
            .filter(|span| span.process == process && begins.contains(&span.start_ns))
            .map(|span| span.thread)
            .next();
        let found = match stepping {
            Some(thread) => threads().find(|row| row.thread == thread),
            None => first_thread(row, threads()),
        }?;
        let program = row.map_or("", |row| labels::program(file.name(row.command)));
        let own = file.thread_name(found.thread).filter(|own| !program.starts_with(own));
        let name = match own {
            Some(own) => format!("{own} of {program}"),
            None => program.to_owned(),
        };
        let of_process = file.process_end(process).map(|(end_ns, _)| end_ns);
        let end_ns = [file.thread_end(found.thread), of_process].into_iter().flatten().min();
        Some(Driver {
            process,
            thread: found.thread,
            tid: found.tid,
            name,
            start_ns: row.map_or(found.start_ns, |row| row.start_ns),
            end_ns: end_ns.unwrap_or_else(|| file.last_ns()),
        })
    }
}

fn first_thread<'t>(
    process: Option<&Process>,
    threads: impl Iterator<Item = &'t Thread> + Clone,
) -> Option<&'t Thread> {
    let is_first = |row: &&Thread| process.is_some_and(|process| process.pid == row.tid);
    // In a container, the id of a process's first thread may differ from the recorded pid. Then the
    // thread that started first is taken.
    threads.clone().find(is_first).or_else(|| threads.min_by_key(|row| (row.start_ns, row.thread)))
}

fn activity(cpu: &CpuTrace) -> FxHashMap<ProcessIndex, Activity> {
    let mut all: FxHashMap<ProcessIndex, Activity> = FxHashMap::default();
    for stretch in &cpu.stretches {
        let of = all.entry(stretch.process).or_default();
        if stretch.state == ThreadState::Running {
            of.running_ns += stretch.weight_ns;
        }
        let mut functions = stretch.stack.iter().map(|id| cpu.names.get(*id));
        of.has_python |= functions.any(|func| func.layer == Layer::Python);
    }
    all
}

fn outermost(
    rank: &RankTrace<'_>,
    activity: &FxHashMap<ProcessIndex, Activity>,
) -> Option<ProcessIndex> {
    let processes = rank.file.processes();
    let most_ns = activity.values().map(|of| of.running_ns).max()?;
    let python = activity.values().any(|of| of.has_python);
    let counts = |of: &Activity| match python {
        true => of.has_python,
        false => of.running_ns * 2 >= most_ns,
    };
    let among: FxHashSet<ProcessIndex> =
        activity.iter().filter(|(_, of)| counts(of)).map(|(process, _)| *process).collect();
    let by_pid: FxHashMap<u32, &Process> = processes.iter().map(|row| (row.pid, row)).collect();
    let outer = processes.iter().filter(|row| {
        among.contains(&row.process) && !descends(row, &by_pid, &among, processes.len())
    });
    let busiest =
        |row: &&Process| (activity[&row.process].running_ns, std::cmp::Reverse(row.process));
    outer.max_by_key(busiest).map(|row| row.process)
}
