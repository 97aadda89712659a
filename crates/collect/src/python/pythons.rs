//! Reads the Python frames of other processes' threads, from outside.

use super::find::{FoundPython, find, may_be};
use super::function::PyFunction;
use super::memory::{Places, ProcessMemory};
use super::names::{NamingFrame, ThreadNames};
use super::{code, stack};
use crate::modules::AddressSpaces;
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// One Python frame.
#[derive(Clone, Debug)]
pub struct PyFrame {
    /// The function, file and line.
    pub named: Arc<PyFunction>,
    /// Whether it is the outermost frame of its call of the interpreter's loop.
    pub entry: bool,
}

/// A thread's Python frames.
#[derive(Clone, Debug, Default)]
pub struct PyStack {
    /// Frames, the innermost first.
    pub frames: Vec<PyFrame>,
    /// Whether the reading ended early.
    pub cut: bool,
    /// Whether the thread held the GIL, if that is known.
    pub gil: Option<bool>,
}

/// The result of looking for an interpreter in a process.
enum PyProcess {
    /// No interpreter was found among this many mappings.
    None(usize),
    /// The process has an interpreter that cannot be read.
    Refused,
    /// The frames of the process can be read.
    Python(Box<Interpreter>),
}

/// A process's interpreter.
struct Interpreter {
    found: FoundPython,
    /// Address of each thread's state, by tid, as long as there is one interpreter.
    threads: HashMap<u32, u64>,
    /// Places that were read for each thread, by tid.
    places: HashMap<u32, Places>,
    codes: code::CodeCache,
    named: FxHashMap<(u64, u32), Arc<PyFunction>>,
    /// Addresses of the GILs that were read, the latest last. Several interpreters may each have
    /// their own.
    locks: Vec<Range<u64>>,
    names: ThreadNames,
    /// Number of stacks without a readable frame; `None` once a frame was read.
    unread: Option<u32>,
}

/// If this many stacks had no readable frame and no stack had one, that is no accident.
const MAX_UNREAD: u32 = 16;

/// Number of GILs that are remembered.
const MAX_LOCKS: usize = 64;

/// A thread that Python gave a name.
pub struct PyThreadName {
    /// Pid of the process.
    pub pid: u32,
    /// Tid of the thread.
    pub tid: u32,
    /// The thread's name.
    pub name: String,
}

/// All processes that are examined.
#[derive(Default)]
pub struct PythonProcesses {
    by_pid: HashMap<u32, PyProcess>,
    /// Interpreters that cannot be read and were not reported yet.
    pub refused: Vec<(String, String)>,
    /// Names of threads that were not reported yet.
    pub new_names: Vec<PyThreadName>,
}

impl PythonProcesses {
    /// Returns the Python frames of a thread; `None` if its process does not run Python, or the
    /// thread does not.
    pub fn stack(&mut self, pid: u32, tid: u32, spaces: &mut AddressSpaces) -> Option<PyStack> {
        let PyProcess::Python(interpreter) = self.process(pid, spaces) else { return None };
        let read = interpreter.stack(pid, tid);
        if interpreter.unread == Some(MAX_UNREAD) {
            interpreter.unread = None;
            let why = "its functions could not be read: it may lay its objects out differently";
            let process = interpreter.found.process.clone();
            self.refused.push((process, why.to_owned()));
        }
        let (stack, name) = read?;
        self.new_names.extend(name.map(|name| PyThreadName { pid, tid, name }));
        Some(stack)
    }

    /// Whether an address lies in a GIL of a process's interpreters that was read before.
    pub fn is_lock(&self, pid: u32, address: u64) -> bool {
        match self.by_pid.get(&pid) {
            Some(PyProcess::Python(interpreter)) => {
                interpreter.locks.iter().any(|lock| lock.contains(&address))
            }
            _ => false,
        }
    }

    /// Whether a process is known to run Python.
    pub fn is_python(&self, pid: u32) -> bool {
        matches!(self.by_pid.get(&pid), Some(PyProcess::Python(_)))
    }

    /// Whether any process is known to run Python.
    pub fn any(&self) -> bool {
        self.by_pid.values().any(|process| matches!(process, PyProcess::Python(_)))
    }

    /// Whether a return address is in the interpreter's loop.
    pub fn is_loop(&mut self, pid: u32, address: u64) -> bool {
        match self.by_pid.get_mut(&pid) {
            Some(PyProcess::Python(interpreter)) => interpreter.found.is_loop(address),
            _ => false,
        }
    }

    /// Removes a thread that has ended. Its name is reported again, since Python's name for a
    /// thread takes precedence over the kernel's.
    pub fn thread_ended(&mut self, pid: u32, tid: u32) {
        let Some(PyProcess::Python(interpreter)) = self.by_pid.get_mut(&pid) else { return };
        let name = interpreter.names.forget(tid);
        self.new_names.extend(name.map(|name| PyThreadName { pid, tid, name }));
    }

    /// Removes a process that has ended or runs another program, with all its threads.
    pub fn forget(&mut self, pid: u32) {
        if let Some(PyProcess::Python(interpreter)) = self.by_pid.remove(&pid) {
            let names = interpreter.names.into_all();
            self.new_names.extend(names.map(|(tid, name)| PyThreadName { pid, tid, name }));
        }
    }

    /// Removes all processes, and reports the names of their threads again.
    pub fn forget_all(&mut self) {
        for pid in self.by_pid.keys().copied().collect::<Vec<u32>>() {
            self.forget(pid);
        }
    }

    fn process(&mut self, pid: u32, spaces: &mut AddressSpaces) -> &mut PyProcess {
        let count = spaces.count(pid);
        let look = match self.by_pid.get(&pid) {
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
                    places: HashMap::new(),
                    codes: code::CodeCache::default(),
                    named: FxHashMap::default(),
                    locks: Vec::new(),
                    names: ThreadNames::default(),
                    unread: Some(0),
                })),
            };
            self.by_pid.insert(pid, process);
        }
        self.by_pid.entry(pid).or_insert(PyProcess::Refused)
    }
}

impl Interpreter {
    /// Returns a thread's frames, and its name if that is new.
    fn stack(&mut self, pid: u32, tid: u32) -> Option<(PyStack, Option<String>)> {
        let memory = match self.places.get(&tid) {
            Some(places) => ProcessMemory::with(pid, places),
            None => ProcessMemory::new(pid),
        };
        let states = self.states(&memory, tid);
        let layout = &self.found.known.layout;
        // If one interpreter runs code in another, the frames of the inner one come before those of
        // the outer one.
        let (mut raw, mut cut, mut inner) = (Vec::new(), false, None);
        for state in &states {
            let (frames, is_cut) = stack::read(&memory, layout, *state)?;
            if !frames.is_empty() && inner.is_none() {
                inner = Some(*state);
            }
            raw.extend(frames);
            cut |= is_cut;
        }
        let state = inner.or(states.last().copied())?;
        let lock = stack::read_lock(&memory, &self.found.known, self.found.runtime, state);
        let mut gil = lock.as_ref().and_then(|lock| lock.held);
        // A thread that holds an interpreter's own GIL has no state in another interpreter. So with
        // several states it can only hold the main interpreter's GIL.
        if states.len() > 1
            && let Some(lock) = &lock
            && let Some(main) = stack::lock_of_main(&memory, &self.found.known, self.found.runtime)
        {
            gil = gil.map(|held| held && lock.place.start == main);
        }
        if let Some(lock) = lock {
            self.locks.retain(|known| *known != lock.place);
            self.locks.push(lock.place);
            let too_many = self.locks.len().saturating_sub(MAX_LOCKS);
            self.locks.drain(..too_many);
        }
        // Code objects are read less often, so their places are not among these.
        self.places.insert(tid, memory.places());
        memory.read_ahead(self.codes.due(raw.iter().map(|frame| frame.code)));
        let mut stack = PyStack { cut, gil, ..PyStack::default() };
        // A worker has the frames of the process that it was forked from around its own.
        let mut naming = None;
        for frame in raw {
            let Some(code) = self.codes.get(&memory, layout, frame.code) else {
                stack.cut = true;
                break;
            };
            if code.is_own {
                // This frame is dropped, but it may be the outermost of its call of the loop.
                if let Some(last) = stack.frames.last_mut() {
                    last.entry |= frame.entry == 1;
                }
                continue;
            }
            if let (None, Some(by)) = (naming, code.named_by) {
                naming = Some(NamingFrame { by, frame: frame.at, code: frame.code });
            }
            let line = code.line(layout, frame.code, frame.instruction);
            let named = self.named.entry((frame.code, line)).or_insert_with(|| {
                Arc::new(PyFunction { function: code.name.clone(), file: code.file.clone(), line })
            });
            if named.function != code.name || named.file != code.file {
                // Another code object is at this address now.
                let (function, file) = (code.name.clone(), code.file.clone());
                *named = Arc::new(PyFunction { function, file, line });
            }
            stack.frames.push(PyFrame { named: Arc::clone(named), entry: frame.entry == 1 });
        }
        let name = naming
            .zip(self.found.known.objects)
            .and_then(|(from, objects)| self.names.read_name(tid, from, &memory, layout, objects));
        match stack.frames.is_empty() {
            false => self.unread = None,
            true if stack.cut => self.unread = self.unread.map(|stacks| stacks + 1),
            true => {}
        }
        (!stack.frames.is_empty()).then_some((stack, name))
    }

    /// Returns the states of a thread, beginning with the interpreter that it entered last. If
    /// there is only one interpreter, its state is looked up once and then only checked.
    fn states(&mut self, memory: &ProcessMemory, tid: u32) -> Vec<u64> {
        let layout = &self.found.known.layout;
        let runtime = self.found.runtime;
        if !stack::has_one_interpreter(memory, layout, runtime) {
            self.threads.clear();
            let all = stack::thread_states(memory, layout, runtime);
            return stack::states_of(memory, layout, &all, tid);
        }
        if let Some(state) = self.threads.get(&tid)
            && stack::tid_of(memory, layout, *state) == Some(tid)
        {
            return vec![*state];
        }
        self.threads.clear();
        self.places.clear();
        for state in stack::thread_states(memory, layout, runtime) {
            if let Some(tid) = stack::tid_of(memory, layout, state.at) {
                self.threads.insert(tid, state.at);
            }
        }
        self.threads.get(&tid).copied().into_iter().collect()
    }
}
