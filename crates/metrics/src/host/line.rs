//! Finds the place of a thread from its stack: the line of the user's own code, and the code that
//! the line called.

use tprof_facts::functions::in_sentence;
use tprof_facts::labels::base_name;
use tprof_facts::owner::{Code, line_of_program};
use tprof_rank::samples::{
    Func, FunctionTable, Layer, Part, Stack, is_interpreter, joins, loads_inline,
};
use tprof_trace::model::ThreadState;

/// A line of code, with the kind of time that a thread spends there ([`Part`]) and the code that
/// the line calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The kind of time that the thread spends there.
    pub part: Part,
    /// The innermost function of the user's own Python code. If there is none, the innermost Python
    /// function, or else a compiled function. Empty if the stack is unknown.
    pub function: String,
    /// File of the function; empty if unknown.
    pub file: String,
    /// Line in the file; 0 if unknown.
    pub line: u32,
    /// Whether the function belongs to the user's own code.
    pub is_own: bool,
    /// The innermost function that `function` called, directly or not, leaving out functions of the
    /// interpreter and the kernel; empty if there is none.
    pub below: String,
    /// Base name of the module of the function in `below`, if that is compiled code.
    pub library: String,
    /// Whether a function on the stack saves a checkpoint or a file.
    pub saves: bool,
    /// Whether a database's library is on the stack. Databases wait for their own files when they
    /// commit.
    pub of_database: bool,
    /// For [`Part::Data`]: whether the thread makes the data itself, or waits for the input of that
    /// work. Otherwise the thread waits for another thread or process that makes the data.
    pub is_inline: bool,
    /// For [`Part::Data`]: whether the thread waits for results of one of Python's pools or
    /// executors. What these compute is not known to be data that a job reads.
    pub of_pool: bool,
    /// For [`Part::Other`]: what the thread waits for.
    pub cause: OtherCause,
    /// The thread that this time belongs to, if the driving thread waits for it; otherwise empty.
    pub thread: String,
    /// Whether the line is that of the waiting thread, because the awaited thread runs no code of
    /// the user's own.
    pub is_of_waiter: bool,
}

/// The cause of a thread's wait, if it is not a file, peer, lock, data, device or other rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OtherCause {
    /// Any other event.
    #[default]
    Event,
    /// The end of child processes.
    Child,
    /// The start of a process of `multiprocessing`, or of its fork server.
    Start,
    /// The end of threads of the same process.
    Thread,
    /// The work of another thread, for example a signal to a condition variable. It is unknown
    /// which thread.
    Work,
    /// The passing of a time.
    Sleep,
    /// A synchronisation, according to the category or name of a span of the program.
    Sync,
}

impl OtherCause {
    /// Finds the cause of a wait by the functions on its stack, including the kernel's.
    fn of<'f>(
        state: ThreadState,
        mut functions: impl Iterator<Item = &'f Func> + Clone,
    ) -> OtherCause {
        let waits_for_child = |func: &Func| match func.layer {
            Layer::Python => CHILD_FILES.iter().any(|file| func.file.ends_with(file)),
            // The name `futex_do_wait` also contains `do_wait`, but such a wait isn't for a child.
            _ => {
                let is_call = CHILD_CALLS.iter().any(|call| func.name.contains(call));
                is_call && !func.name.starts_with("futex_")
            }
        };
        if functions.clone().any(Func::starts_worker) {
            return OtherCause::Start;
        }
        match functions.clone().any(waits_for_child) {
            true => OtherCause::Child,
            false if joins(ThreadState::Lock, functions.clone()) => OtherCause::Thread,
            false if state == ThreadState::Lock => OtherCause::Work,
            false if state == ThreadState::Sleep => OtherCause::Sleep,
            false if functions.any(|func| func.name.contains("nanosleep")) => OtherCause::Sleep,
            false => OtherCause::Event,
        }
    }

    /// Whether the wait is for threads of the same process.
    pub fn is_of_thread(self) -> bool {
        matches!(self, OtherCause::Thread | OtherCause::Work)
    }
}

/// Python files whose functions wait for child processes. [`CHILD_CALLS`] has parts of the names of
/// other such functions.
const CHILD_FILES: [&str; 3] = ["/subprocess.py", "/popen_fork.py", "/popen_spawn_posix.py"];
const CHILD_CALLS: [&str; 4] = ["wait4", "waitpid", "waitid", "do_wait"];

/// Whether a function belongs to one of Python's executors or pools.
pub(super) fn is_of_pool(func: &Func) -> bool {
    func.layer == Layer::Python
        && (func.file.contains("concurrent/futures/")
            || func.file.ends_with("multiprocessing/pool.py"))
}

impl Place {
    /// Finds the place of a thread by its stack. `part` is the kind of time that the thread spends
    /// there, and `state` is the thread's state.
    pub fn of(part: Part, state: ThreadState, stack: &Stack, names: &FunctionTable) -> Place {
        let frames: Vec<(&Func, u32)> = (stack.functions.iter())
            .zip(&stack.lines)
            .map(|(id, line)| (names.get(*id), *line))
            .filter(|(func, _)| func.layer != Layer::Kernel)
            .collect();
        let all = || stack.functions.iter().map(|id| names.get(*id));
        let find = |passes: &dyn Fn(&Func, u32) -> bool| {
            frames.iter().position(|(func, line)| passes(func, *line))
        };
        let codes: Vec<(Code<'_>, u32)> =
            frames.iter().map(|(func, line)| (func.code(), *line)).collect();
        let at = line_of_program(&codes)
            // A linker's stub isn't the place itself, but a part of the call that its caller makes.
            .or_else(|| find(&|func, _| !func.is_system() && !func.is_stub()))
            .or(if frames.is_empty() { None } else { Some(0) });
        let of_database = frames.iter().any(|(func, _)| func.is_of_database());
        let saves = |func: &Func| func.is_save() && !(of_database && func.layer == Layer::Native);
        let mut place = Place {
            part,
            function: String::new(),
            file: String::new(),
            line: 0,
            is_own: false,
            below: String::new(),
            library: String::new(),
            saves: frames.iter().any(|(func, _)| saves(func)),
            of_database,
            is_inline: part == Part::Data && loads_inline(all()),
            of_pool: part == Part::Data && all().any(is_of_pool),
            cause: match part {
                Part::Other => OtherCause::of(state, all()),
                _ => OtherCause::default(),
            },
            thread: String::new(),
            is_of_waiter: false,
        };
        let Some(at) = at else { return place };
        let (func, line) = frames[at];
        (place.function, place.file, place.line) =
            (func.name.to_string(), func.file.to_string(), line);
        place.is_own = func.is_own() && !func.is_import();
        let inner = frames[..at].iter().find(|(func, _)| !is_interpreter(&func.module));
        if let Some((inner, _)) = inner {
            place.below = inner.name.to_string();
            if inner.layer == Layer::Native {
                place.library = inner.module.to_string();
            }
        } else if func.layer == Layer::Native {
            place.library = func.module.to_string();
        }
        place
    }

    /// Returns the place without the code that the line calls; `None` if the function or the file
    /// is unknown.
    pub(super) fn line_only(self) -> Option<Place> {
        let is_line = !self.function.is_empty() && !self.file.is_empty();
        is_line.then(|| Place { below: String::new(), library: String::new(), ..self })
    }

    /// Whether a thread at this place works, or waits for something that it needs for its work, as
    /// opposed to its next task.
    pub fn is_work(&self) -> bool {
        match self.part {
            Part::Data | Part::Unknown => false,
            Part::Other => {
                matches!(self.cause, OtherCause::Child | OtherCause::Start | OtherCause::Sleep)
            }
            _ => true,
        }
    }

    /// Formats the place as `function (file.py:12)`.
    pub fn shown(&self) -> String {
        match (self.file.is_empty(), self.line) {
            (true, _) if self.function.is_empty() => "(stack unknown)".to_owned(),
            (true, _) => in_sentence(&self.function),
            (false, 0) => format!("{} ({})", in_sentence(&self.function), base_name(&self.file)),
            (false, line) => {
                format!("{} ({}:{line})", in_sentence(&self.function), base_name(&self.file))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_of_the_linker_is_named_as_part_of_the_call() {
        let mut names = FunctionTable::default();
        let mut id = |name: &str, module: &str| {
            let (name, module) = (name.into(), module.into());
            names.id(Func { name, file: "".into(), module, layer: Layer::Native })
        };
        let functions = vec![id("memcmp@plt", "job"), id("contains", "job"), id("main", "job")];
        let stack = Stack { lines: vec![0; functions.len()], functions, ..Stack::default() };
        let place = Place::of(Part::Native, ThreadState::Running, &stack, &names);
        assert_eq!((&*place.function, &*place.below), ("contains", "memcmp@plt"));
    }

    #[test]
    fn a_wait_for_a_threads_end_is_not_a_wait_for_a_child() {
        let of = |state, functions: &[(&str, Layer)]| {
            let func = |(name, layer): &(&str, Layer)| Func {
                name: (*name).into(),
                file: "".into(),
                module: "".into(),
                layer: *layer,
            };
            let functions: Vec<Func> = functions.iter().map(func).collect();
            OtherCause::of(state, functions.iter())
        };
        use Layer::{Kernel, Native};
        use ThreadState::{Blocked, Lock, Poll, Sleep};
        let wait = ("futex_do_wait", Kernel);
        assert_eq!(of(Lock, &[wait, ("__pthread_clockjoin_ex", Native)]), OtherCause::Thread);
        assert_eq!(of(Lock, &[wait, ("pthread_cond_wait", Native)]), OtherCause::Work);
        assert_eq!(of(Blocked, &[("do_wait", Kernel), ("wait4", Native)]), OtherCause::Child);
        assert_eq!(of(Sleep, &[]), OtherCause::Sleep);
        assert_eq!(of(Poll, &[("poll", Native)]), OtherCause::Event);
    }
}
