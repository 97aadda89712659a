//! Reads the Python frames of threads in other processes.

use super::find::{FoundPython, find, may_be};
use super::function::PyFunction;
use super::memory::{Places, ProcessMemory};
use super::names::{NamingFrame, ThreadNames};
use super::{code, remote_stack};
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use tprof_unwind::modules::AddressSpaces;

/// One Python frame.
#[derive(Clone, Debug)]
pub struct PyFrame {
    /// The function, file and line.
    pub named: Arc<PyFunction>,
    /// Whether it is the outermost frame of a call of the interpreter's loop.
    pub entry: bool,
}

/// The Python frames of a thread.
#[derive(Clone, Debug, Default)]
pub struct PyStack {
    /// Frames, innermost first.
    pub frames: Vec<PyFrame>,
    /// Whether the reading ended before the outermost frame.
    pub cut: bool,
    /// Whether the thread held the GIL, if that is known.
    pub gil: Option<bool>,
}

/// The result of searching a process for an interpreter.
enum PyProcess {
    /// There was none among this many mappings.
    None(usize),
    /// There is one, but its frames can't be read.
    Refused,
    /// There is one, and its frames can be read.
    Python(Box<Interpreter>),
}

/// The interpreter of a process, and what was read of it.
struct Interpreter {
    found: FoundPython,
    /// Address of the state of each thread, by tid. Used if the process has only one interpreter.
    threads: HashMap<u32, u64>,
    /// Places that the last reading of each thread used, by tid.
    places: HashMap<u32, Places>,
    codes: code::CodeCache,
    named: FxHashMap<(u64, u32), Arc<PyFunction>>,
    /// Addresses of the GILs that were seen, the latest last. Several interpreters in a process may
    /// each have a GIL.
    locks: Vec<Range<u64>>,
    names: ThreadNames,
    /// Number of stacks in which no frame could be read; `None` once a frame was read.
    unread: Option<u32>,
}

/// If the first stacks of a process all have no readable frame, and they are this many, the process
/// is reported as unreadable.
const MAX_UNREAD: u32 = 16;

/// Number of GILs per process that are remembered.
const MAX_LOCKS: usize = 64;

/// A thread to which the Python program gave a name.
pub struct PyThreadName {
    /// Pid of the process.
    pub pid: u32,
    /// Tid of the thread.
    pub tid: u32,
    /// The thread's name.
    pub name: String,
}

/// All processes that were searched for an interpreter.
#[derive(Default)]
pub struct PythonProcesses {
    by_pid: HashMap<u32, PyProcess>,
    /// Interpreters whose frames can't be read, to be reported: the process, and the reason.
    pub refused: Vec<(String, String)>,
    /// Names of threads, to be reported.
    pub new_names: Vec<PyThreadName>,
}

impl PythonProcesses {
    /// Returns the Python frames of a thread; `None` if the thread or its process doesn't run
    /// Python.
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

    /// Whether an address is in a GIL of a process, as far as its GILs were seen.
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

    /// Removes a thread that has ended. Its name is reported again, so that it replaces the
    /// kernel's name for the thread.
    pub fn thread_ended(&mut self, pid: u32, tid: u32) {
        let Some(PyProcess::Python(interpreter)) = self.by_pid.get_mut(&pid) else { return };
        let name = interpreter.names.forget(tid);
        self.new_names.extend(name.map(|name| PyThreadName { pid, tid, name }));
    }

    /// Removes a process that has ended or runs another program, and reports the names of its
    /// threads again.
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
    /// Returns the frames of a thread, and the thread's name if that is new.
    fn stack(&mut self, pid: u32, tid: u32) -> Option<(PyStack, Option<String>)> {
        let memory = match self.places.get(&tid) {
            Some(places) => ProcessMemory::with(pid, places),
            None => ProcessMemory::new(pid),
        };
        let states = self.states(&memory, tid);
        let layout = &self.found.known.layout;
        // If one interpreter calls another, the frames of the inner interpreter come first.
        let (mut raw, mut cut, mut inner) = (Vec::new(), false, None);
        for state in &states {
            let (frames, is_cut) = remote_stack::read(&memory, layout, *state)?;
            if !frames.is_empty() && inner.is_none() {
                inner = Some(*state);
            }
            raw.extend(frames);
            cut |= is_cut;
        }
        let state = inner.or(states.last().copied())?;
        let lock = remote_stack::read_lock(&memory, &self.found.known, self.found.runtime, state);
        let mut gil = lock.as_ref().and_then(|lock| lock.held);
        // A thread that holds the own GIL of one interpreter has no state in another. So a thread
        // with several states can hold only the GIL of the main interpreter.
        if states.len() > 1
            && let Some(lock) = &lock
            && let Some(main) =
                remote_stack::lock_of_main(&memory, &self.found.known, self.found.runtime)
        {
            gil = gil.map(|held| held && lock.place.start == main);
        }
        if let Some(lock) = lock {
            self.locks.retain(|known| *known != lock.place);
            self.locks.push(lock.place);
            let too_many = self.locks.len().saturating_sub(MAX_LOCKS);
            self.locks.drain(..too_many);
        }
        // Code objects are read less often than frames, so their places aren't remembered here.
        self.places.insert(tid, memory.places());
        memory.read_ahead(self.codes.due(raw.iter().map(|frame| frame.code)));
        let mut stack = PyStack { cut, gil, ..PyStack::default() };
        // A forked worker has frames of the process that it was forked from, outside its own. So
        // the innermost such frame has the thread's name.
        let mut naming = None;
        for frame in raw {
            let Some(code) = self.codes.get(&memory, layout, frame.code) else {
                stack.cut = true;
                break;
            };
            if code.is_own {
                // This frame is left out, but it may be the outermost of its call of the loop.
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
                // Another code object is at the same address now.
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

    /// Returns the states of a thread, that of the interpreter entered last first. If the process
    /// has only one interpreter, the address of the state is looked up once and then only checked.
    fn states(&mut self, memory: &ProcessMemory, tid: u32) -> Vec<u64> {
        let layout = &self.found.known.layout;
        let runtime = self.found.runtime;
        if !remote_stack::has_one_interpreter(memory, layout, runtime) {
            self.threads.clear();
            let all = remote_stack::thread_states(memory, layout, runtime);
            return remote_stack::states_of(memory, layout, &all, tid);
        }
        if let Some(state) = self.threads.get(&tid)
            && remote_stack::tid_of(memory, layout, *state) == Some(tid)
        {
            return vec![*state];
        }
        self.threads.clear();
        self.places.clear();
        for state in remote_stack::thread_states(memory, layout, runtime) {
            if let Some(tid) = remote_stack::tid_of(memory, layout, state.at) {
                self.threads.insert(tid, state.at);
            }
        }
        self.threads.get(&tid).copied().into_iter().collect()
    }
}
