//! Reads the Python frames of other processes' threads, from outside.

use super::find::{FoundPython, find, may_be};
use super::function::PyFunction;
use super::memory::ProcessMemory;
use super::{code, stack};
use crate::modules::Spaces;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// One Python frame.
#[derive(Clone, Debug)]
pub struct PyFrame {
    /// What it is.
    pub named: Arc<PyFunction>,
    /// It is the outermost that its call of the interpreter's loop runs.
    pub entry: bool,
}

/// A thread's Python frames.
#[derive(Clone, Debug, Default)]
pub struct PyStack {
    /// Innermost first.
    pub frames: Vec<PyFrame>,
    /// The reading ended early.
    pub cut: bool,
    /// Whether the thread held the lock.
    pub gil: Option<bool>,
}

/// A process, as far as Python is concerned.
enum PyProcess {
    /// No interpreter among that many mappings.
    None(usize),
    /// An interpreter that cannot be read, and why.
    Refused,
    /// One that can.
    Python(Box<Interpreter>),
}

/// A process's interpreter.
struct Interpreter {
    found: FoundPython,
    /// Address of each thread's state, by tid.
    threads: HashMap<u32, u64>,
    codes: code::Codes,
    named: HashMap<(u64, u32), Arc<PyFunction>>,
    /// Where its lock lies; of several, the one that was last read.
    lock: Option<Range<u64>>,
}

/// All processes.
#[derive(Default)]
pub struct Pythons {
    of: HashMap<u32, PyProcess>,
    /// Interpreters that cannot be read, not reported yet.
    pub refused: Vec<(String, String)>,
}

impl Pythons {
    /// The Python frames of a thread; `None` if its process runs no Python, or
    /// the thread none.
    pub fn stack(&mut self, pid: u32, tid: u32, spaces: &mut Spaces) -> Option<PyStack> {
        let PyProcess::Python(interpreter) = self.process(pid, spaces) else { return None };
        interpreter.stack(pid, tid)
    }

    /// Where the lock of a process's interpreter lies, once it was read.
    pub fn lock(&self, pid: u32) -> Option<&Range<u64>> {
        match self.of.get(&pid)? {
            PyProcess::Python(interpreter) => interpreter.lock.as_ref(),
            _ => None,
        }
    }

    /// Whether a process is known to run Python.
    pub fn is_python(&self, pid: u32) -> bool {
        matches!(self.of.get(&pid), Some(PyProcess::Python(_)))
    }

    /// Whether any process is known to.
    pub fn any(&self) -> bool {
        self.of.values().any(|process| matches!(process, PyProcess::Python(_)))
    }

    /// Whether a return address lies in the interpreter's loop.
    pub fn is_loop(&mut self, pid: u32, address: u64) -> bool {
        match self.of.get_mut(&pid) {
            Some(PyProcess::Python(interpreter)) => interpreter.found.is_loop(address),
            _ => false,
        }
    }

    /// A process runs another program, or is gone.
    pub fn forget(&mut self, pid: u32) {
        self.of.remove(&pid);
    }

    fn process(&mut self, pid: u32, spaces: &mut Spaces) -> &mut PyProcess {
        let count = spaces.count(pid);
        let look = match self.of.get(&pid) {
            None => true,
            Some(PyProcess::None(before)) => *before != count,
            Some(_) => false,
        };
        if look {
            let mappings = spaces.mappings(pid).into_iter().filter(|m| may_be(&m.path));
            let modules: Vec<_> = mappings.map(|m| spaces.identify(pid, &m)).collect();
            let process = match find(pid, modules) {
                None => PyProcess::None(count),
                Some(Err(why)) => {
                    self.refused.push(why);
                    PyProcess::Refused
                }
                Some(Ok(found)) => PyProcess::Python(Box::new(Interpreter {
                    found,
                    threads: HashMap::new(),
                    codes: code::Codes::default(),
                    named: HashMap::new(),
                    lock: None,
                })),
            };
            self.of.insert(pid, process);
        }
        self.of.entry(pid).or_insert(PyProcess::Refused)
    }
}

impl Interpreter {
    fn stack(&mut self, pid: u32, tid: u32) -> Option<PyStack> {
        let memory = ProcessMemory::new(pid);
        let state = self.thread(&memory, tid)?;
        let layout = &self.found.known.layout;
        let (raw, cut) = stack::read(&memory, layout, state)?;
        let lock = stack::look_at_lock(&memory, &self.found.known, self.found.runtime, state);
        let gil = lock.as_ref().and_then(|lock| lock.held);
        self.lock = lock.map(|lock| lock.place).or(self.lock.take());
        let mut stack = PyStack { cut, gil, ..PyStack::default() };
        for frame in raw {
            let Some(code) = self.codes.get(&memory, layout, frame.code) else {
                stack.cut = true;
                break;
            };
            if code.is_own {
                // It may have begun the call of the loop all the same.
                if let Some(last) = stack.frames.last_mut() {
                    last.entry |= frame.entry;
                }
                continue;
            }
            let line = code.line(layout, frame.code, frame.instruction);
            let named = self.named.entry((frame.code, line)).or_insert_with(|| {
                Arc::new(PyFunction { function: code.name.clone(), file: code.file.clone(), line })
            });
            if named.function != code.name || named.file != code.file {
                // Other code lies where this one was.
                let (function, file) = (code.name.clone(), code.file.clone());
                *named = Arc::new(PyFunction { function, file, line });
            }
            stack.frames.push(PyFrame { named: Arc::clone(named), entry: frame.entry });
        }
        (!stack.frames.is_empty()).then_some(stack)
    }

    /// The state of a thread, found once and then checked.
    fn thread(&mut self, memory: &ProcessMemory, tid: u32) -> Option<u64> {
        let layout = &self.found.known.layout;
        if let Some(state) = self.threads.get(&tid)
            && stack::tid_of(memory, layout, *state) == Some(tid)
        {
            return Some(*state);
        }
        self.threads.clear();
        for state in stack::thread_states(memory, layout, self.found.runtime) {
            if let Some(tid) = stack::tid_of(memory, layout, state) {
                self.threads.insert(tid, state);
            }
        }
        self.threads.get(&tid).copied()
    }
}
