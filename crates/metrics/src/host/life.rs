//! Divides a driving thread's life into start-up, the judged time and the rest.

use tprof_rank::Step;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::samples::{CpuTrace, Func, Layer, Part, Role};
use tprof_trace::model::{Sample, ThreadState};

use super::driver::Driver;

/// A pause between imports ends start-up only if it is longer than this.
const LEAST_BREAK_NS: u64 = 50_000_000;
/// The pause must also be longer than the time of all imports so far, divided by this.
const SHARE_OF_BREAK: u64 = 5;

/// The beginning of the judged time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowStart {
    /// The first step. The window ends with the last step.
    FirstStep,
    /// The first batch that was taken from PyTorch's DataLoader.
    FirstBatch,
    /// The end of start-up. As with [`WindowStart::FirstBatch`], the window ends where Python last
    /// ran.
    AfterStartUp,
    /// The end of `MPI_Init`, with which the start-up of an MPI rank ends.
    AfterMpiInit,
    /// The beginning of the thread's life, because the thread runs no Python.
    Beginning,
    /// The time at which recording began, because it was off before.
    Recording,
    /// The beginning of the part of the run that is read, which has no steps; the window ends with
    /// the part.
    Part,
}

impl WindowStart {
    /// Returns words for a report, to follow "from".
    pub fn words(self) -> &'static str {
        match self {
            WindowStart::FirstStep => "the first step to the last",
            WindowStart::FirstBatch => "the first batch",
            WindowStart::AfterStartUp => "the end of start-up",
            WindowStart::AfterMpiInit => "the end of MPI_Init",
            WindowStart::Beginning => "its beginning",
            WindowStart::Recording => "the beginning of the recording",
            WindowStart::Part => "the beginning of the part to its end",
        }
    }
}

/// The phases of a driving thread's life.
#[derive(Clone, Copy, Debug)]
pub struct ThreadLife {
    /// The whole life of the thread.
    pub whole: Interval,
    /// The time from the beginning to the first step or batch. If there is neither, the
    /// interpreter's start, imports and `MPI_Init`. Empty if the thread has none of these, or if
    /// its beginning was not recorded.
    pub start_up: Interval,
    /// The judged time of the thread.
    pub window: Interval,
    /// The kind of event at which the window begins.
    pub start: WindowStart,
}

impl ThreadLife {
    /// Divides the life of a driver. `rows` are the driver's rows in order of time; `paused` is the
    /// time in which recording was off.
    pub fn of(
        driver: &Driver,
        steps: &[Step],
        rows: &[Sample],
        trace: &CpuTrace,
        paused: &Cover,
    ) -> ThreadLife {
        let first_ns = rows.first().map_or(driver.start_ns, began);
        let whole = Interval::new(driver.start_ns.min(first_ns), driver.end_ns);
        let phases: Vec<RowPhase> = rows.iter().map(|row| RowPhase::of(row, trace)).collect();
        let has_python = phases.iter().any(RowPhase::is_python);
        let imports_end = if has_python { end_of_start_up(rows, &phases) } else { 0 };
        let connected = end_of_mpi_init(rows, trace);
        let start_up_end = imports_end.max(connected).clamp(whole.start, whole.end);
        let start_up = Interval::new(whole.start, start_up_end);
        // The end of the interpreter and of libraries isn't part of the job's work.
        let last = rows.iter().zip(&phases).filter(|(_, phase)| phase.is_python());
        let last_ns = last.map(|(row, _)| ended(row)).max();
        let end_ns = last_ns.unwrap_or(whole.end).clamp(start_up.end, whole.end);
        let first_batch = rows.iter().zip(&phases).find(|(_, phase)| **phase == RowPhase::Batch);
        let (start, window) = match (time_of_steps(steps), first_batch) {
            (Some(of_steps), _) => (WindowStart::FirstStep, of_steps),
            (_, Some((row, _))) => {
                let from = began(row).max(start_up.end);
                (WindowStart::FirstBatch, Interval::new(from, end_ns))
            }
            _ if connected > imports_end => {
                (WindowStart::AfterMpiInit, Interval::new(start_up.end, end_ns))
            }
            _ if has_python => (WindowStart::AfterStartUp, Interval::new(start_up.end, end_ns)),
            _ => (WindowStart::Beginning, whole),
        };
        let (start, window) = match start {
            WindowStart::FirstStep => (start, window),
            _ => match recorded_part(window, paused) {
                recorded if recorded.start > window.start => (WindowStart::Recording, recorded),
                recorded => (start, recorded),
            },
        };
        let start_up = match start {
            // If recording was off before the first recorded step, earlier steps may be missing. So
            // the time up to the first step counts as start-up only if all of it was recorded.
            WindowStart::FirstStep | WindowStart::FirstBatch if start_up.length() > 0 => {
                let between = Interval::new(start_up.end, window.start.max(start_up.end));
                let is_recorded = paused.within(between).length() == 0;
                if is_recorded { Interval::new(start_up.start, between.end) } else { start_up }
            }
            _ => start_up,
        };
        ThreadLife { whole, start_up, window, start }
    }

    /// Returns the life of a thread within a part of a run: a cycle, what `--keep` left, or a time
    /// that the user chose. `times_ns` has the beginning and the exclusive end of each time in which
    /// the part was recorded; only times in the driver's life count.
    pub fn of_part(driver: &Driver, steps: &[Step], times_ns: &[(u64, u64)]) -> ThreadLife {
        let life = Interval::new(driver.start_ns, driver.end_ns);
        let of_process = times_ns.iter().map(|(from, to)| Interval::new(*from, *to).overlap(life));
        let of_process = of_process.filter(|part| part.length() > 0);
        let all = of_process.reduce(|a, b| Interval::new(a.start.min(b.start), a.end.max(b.end)));
        let whole = all.unwrap_or(Interval::new(driver.end_ns, driver.end_ns));
        let start_up = Interval::new(whole.start, whole.start);
        // Such a part may also hold imports before the first step and the interpreter's end after
        // the last one, which are no step's time.
        let of_steps = time_of_steps(steps).map(|of_steps| of_steps.overlap(whole));
        let (start, window) = match of_steps.filter(|of_steps| of_steps.length() > 0) {
            Some(of_steps) => (WindowStart::FirstStep, of_steps),
            None => (WindowStart::Part, whole),
        };
        ThreadLife { whole, start_up, window, start }
    }

    /// Cuts the life to a part of the time.
    pub fn within(self, part: Interval) -> ThreadLife {
        let [whole, start_up, window] =
            [self.whole, self.start_up, self.window].map(|of| of.overlap(part));
        ThreadLife { whole, start_up, window, start: self.start }
    }
}

/// Returns the time from the beginning of the first step to the end of the last one. Returns `None`
/// if there are no steps.
fn time_of_steps(steps: &[Step]) -> Option<Interval> {
    let start = steps.first()?.interval.start;
    let end = steps.iter().map(|step| step.interval.end).max()?;
    Some(Interval::new(start, end))
}

/// Returns a window without its first and its last part if recording was off there. Otherwise what
/// was recorded would look small.
fn recorded_part(window: Interval, paused: &Cover) -> Interval {
    let recorded = Cover::of([window]).without(paused);
    match (recorded.parts().first(), recorded.parts().last()) {
        (Some(first), Some(last)) => Interval::new(first.start, last.end),
        _ => window,
    }
}

/// Returns the beginning of the time that a row stands for.
fn began(row: &Sample) -> u64 {
    match row.state {
        ThreadState::Running => row.time_ns.saturating_sub(row.weight_ns),
        _ => row.time_ns,
    }
}

fn ended(row: &Sample) -> u64 {
    match row.state {
        ThreadState::Running => row.time_ns,
        _ => row.time_ns.saturating_add(row.weight_ns),
    }
}

/// The phase of a thread's life that a row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowPhase {
    /// The row has no stack.
    Unknown,
    /// The stack has no Python function.
    Native,
    Import,
    /// A batch is taken from the DataLoader.
    Batch,
    /// The thread waits for other ranks, for example while a group of ranks is set up.
    Collective,
    Python,
}

impl RowPhase {
    fn is_python(&self) -> bool {
        !matches!(self, RowPhase::Unknown | RowPhase::Native)
    }

    pub(super) fn of(row: &Sample, trace: &CpuTrace) -> RowPhase {
        let stack = trace.stack(row.process, row.stack);
        if stack.functions.is_empty() {
            return RowPhase::Unknown;
        }
        let functions = || stack.functions.iter().map(|id| trace.names.get(*id));
        let mut python = functions().filter(|func| func.layer == Layer::Python).peekable();
        if python.peek().is_none() {
            return RowPhase::Native;
        }
        // The modules with which the interpreter begins are frozen into it, so a stack with only
        // such Python code belongs to start-up.
        let is_frozen =
            |func: &Func| func.layer != Layer::Python || func.file.starts_with("<frozen");
        if functions().any(Func::is_import) || functions().all(is_frozen) {
            return RowPhase::Import;
        }
        let roles = python.filter_map(|func| Role::of(&func.name, &func.file));
        match Role::of_all(roles) {
            Some(Role::Consumer) => RowPhase::Batch,
            _ if Part::of(row.state, &stack.functions, &trace.names) == Part::Collective => {
                RowPhase::Collective
            }
            _ => RowPhase::Python,
        }
    }
}

/// Returns the end of the imports with which the thread begins. Returns 0 if there is neither
/// Python nor an import.
pub(super) fn end_of_start_up(rows: &[Sample], phases: &[RowPhase]) -> u64 {
    let (mut end_ns, mut imports_ns, mut break_ns) = (0, 0, 0);
    let mut is_before_python = true;
    for (row, phase) in rows.iter().zip(phases) {
        // For time on a core without a sample, it is unknown when in the thread's life it was.
        if row.state == ThreadState::Running && row.cpu.is_none() {
            continue;
        }
        match phase {
            // During a wait, Python's frames can't always be read in time, so a wait without them
            // doesn't show that Python has not begun.
            RowPhase::Native if is_before_python && row.state == ThreadState::Running => {
                end_ns = ended(row);
            }
            // Python's frames could not be read, for example because the code had just been loaded.
            RowPhase::Unknown | RowPhase::Native => {}
            RowPhase::Collective => is_before_python = false,
            RowPhase::Import => {
                imports_ns += row.weight_ns + std::mem::take(&mut break_ns);
                end_ns = ended(row);
                is_before_python = false;
            }
            RowPhase::Batch | RowPhase::Python => {
                is_before_python = false;
                break_ns += row.weight_ns;
                if break_ns > LEAST_BREAK_NS.max(imports_ns / SHARE_OF_BREAK) {
                    break;
                }
            }
        }
    }
    end_ns
}

/// Returns the time at which the thread was last seen in `MPI_Init`, or 0. The ranks wait for each
/// other there, and none has begun to work.
fn end_of_mpi_init(rows: &[Sample], trace: &CpuTrace) -> u64 {
    let connects = |row: &&Sample| {
        let stack = trace.stack(row.process, row.stack);
        stack.functions.iter().any(|id| trace.names.get(*id).starts_ranks())
    };
    rows.iter().filter(connects).map(ended).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_without_pythons_frames_do_not_extend_start_up() {
        let row = |time_ns, weight_ns, state| {
            let cpu = (state == ThreadState::Running).then_some(0);
            Sample { time_ns, weight_ns, state, cpu, ..Sample::default() }
        };
        let rows = [
            row(10, 10, ThreadState::Running),
            row(20, 5, ThreadState::Running),
            row(30, 500, ThreadState::Sleep),
            row(540, 10, ThreadState::Running),
        ];
        let phases = [RowPhase::Native, RowPhase::Import, RowPhase::Native, RowPhase::Python];
        assert_eq!(end_of_start_up(&rows, &phases), 20);
        // Without an import, start-up ends where Python begins.
        let phases = [RowPhase::Native, RowPhase::Native, RowPhase::Native, RowPhase::Python];
        assert_eq!(end_of_start_up(&rows, &phases), 20);
    }

    #[test]
    fn of_a_part_with_steps_only_these_are_judged() {
        let driver = Driver {
            process: 0,
            thread: 0,
            tid: 7,
            name: "python".into(),
            start_ns: 100,
            end_ns: 900,
        };
        let step = |number, start, end| Step::on_host(number, 0, Interval::new(start, end));
        let life = |steps: &[Step]| {
            let life = ThreadLife::of_part(&driver, steps, &[(200, u64::MAX)]);
            (life.window.start, life.window.end, life.start)
        };
        let steps = [step(7, 250, 400), step(8, 400, 700)];
        assert_eq!(life(&steps), (250, 700, WindowStart::FirstStep));
        assert_eq!(life(&[step(6, 150, 300)]), (200, 300, WindowStart::FirstStep), "cut off");
        assert_eq!(life(&[]), (200, 900, WindowStart::Part));
    }

    #[test]
    fn time_before_and_after_the_recording_is_not_judged() {
        let window = Interval::new(100, 900);
        let judged = |paused: &[(u64, u64)]| {
            let paused = paused.iter().map(|(from, to)| Interval::new(*from, *to));
            let part = recorded_part(window, &Cover::of(paused));
            (part.start, part.end)
        };
        assert_eq!(judged(&[]), (100, 900));
        assert_eq!(judged(&[(0, 300), (400, 500), (800, u64::MAX)]), (300, 800));
        assert_eq!(judged(&[(400, 500)]), (100, 900), "a gap in the middle stays unknown time");
        assert_eq!(judged(&[(0, 1000)]), (100, 900), "nothing was recorded");
    }
}
