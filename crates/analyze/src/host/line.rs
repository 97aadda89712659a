//! The place of a thread: the line of the user's own code, and the code that it called.

use tprof_facts::functions::in_sentence;
use tprof_facts::labels::base_name;

use crate::rank::samples::{
    Func, FunctionTable, Layer, Part, Stack, is_interpreter, joins, loads_inline,
};
use tprof_trace::model::ThreadState;

/// A part of the time, a line, and the code below it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub part: Part,
    /// The innermost function of the user's own Python code; if there is none, of Python; otherwise
    /// of compiled code. Empty if the stack is unknown.
    pub function: String,
    /// File of the function; empty if unknown.
    pub file: String,
    /// Line in the file; 0 if unknown.
    pub line: u32,
    /// Whether the function is of the user's own code.
    pub is_own: bool,
    /// The innermost function below it, the interpreter's and the kernel's left out; empty if
    /// there is none.
    pub below: String,
    /// Base name of that function's module, if it is compiled code.
    pub library: String,
    /// A checkpoint or a file is saved here, by the functions on the stack.
    pub saves: bool,
    /// Whether a database's library is on the stack: it waits for its own files when it commits.
    pub of_database: bool,
    /// For [`Part::Data`]: whether the thread makes the data itself, or waits for what it makes it
    /// from.
    pub is_inline: bool,
    /// For [`Part::Other`]: what the thread waits for.
    pub cause: OtherCause,
    /// The thread that this time belongs to, if the driving thread waits for it; otherwise empty.
    pub thread: String,
    /// The line is the one that waits: the thread has no code of the user's own there.
    pub is_of_waiter: bool,
}

/// What a thread waits for, if it is not a file, peer, lock, data, device or other rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OtherCause {
    /// Any event that is none of the others.
    #[default]
    Event,
    /// The end of child processes.
    Child,
    /// A process of `multiprocessing`, or its fork server, to begin.
    Start,
    /// The end of threads of its process.
    Thread,
    /// The work of another thread, by a condition or the like: it is unknown which thread that is.
    Work,
    /// A time to pass.
    Sleep,
    /// Something that the program says it synchronises with.
    Sync,
}

impl OtherCause {
    /// Finds the cause of a wait by the functions of its stack, including the kernel's.
    fn of<'f>(
        state: ThreadState,
        mut functions: impl Iterator<Item = &'f Func> + Clone,
    ) -> OtherCause {
        let waits_for_child = |func: &Func| match func.layer {
            Layer::Python => CHILD_FILES.iter().any(|file| func.file.ends_with(file)),
            // A wait in `futex_do_wait` is not for a child.
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

    /// Whether the wait is for threads of the process.
    pub fn is_of_thread(self) -> bool {
        matches!(self, OtherCause::Thread | OtherCause::Work)
    }
}

/// Python's files with functions that wait for child processes, and parts of the names of others.
const CHILD_FILES: [&str; 3] = ["/subprocess.py", "/popen_fork.py", "/popen_spawn_posix.py"];
const CHILD_CALLS: [&str; 4] = ["wait4", "waitpid", "waitid", "do_wait"];

impl Place {
    /// Finds the place of a part by its stack; `state` is the state in which the thread waits
    /// there.
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
        let is_python = |func: &Func| func.layer == Layer::Python;
        let at = find(&|func, _| is_python(func) && func.is_own() && !func.is_import())
            .or_else(|| find(&|func, _| is_python(func) && !func.is_import()))
            .or_else(|| find(&|func, _| is_python(func)))
            .or_else(|| find(&|func, line| line > 0 && func.is_own()))
            // A linker's stub is a part of the call.
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

    /// The place without the code that the line calls; `None` without a function and a file.
    pub(super) fn line_only(self) -> Option<Place> {
        let is_line = !self.function.is_empty() && !self.file.is_empty();
        is_line.then(|| Place { below: String::new(), library: String::new(), ..self })
    }

    /// Whether a thread at this place works, or waits for what it needs for its work: not for its
    /// next task.
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
    fn a_linkers_stub_counts_for_its_caller() {
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
    fn the_end_of_a_thread_is_not_that_of_a_child() {
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
