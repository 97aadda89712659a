//! Walks the threads and frames of an interpreter in another process.

use super::layout::{KnownLayout, LockLocation};
use super::memory::ProcessMemory;
use std::ops::Range;
use tprof_wire::python::{Frames, Layout, Memory as _, RawFrame, WalkEnd};

/// Largest number of Python frames in a stack.
const MAX_FRAMES: usize = 256;
/// Largest number of interpreters, and of threads, that are read.
const MAX_INTERPRETERS: usize = 64;
const MAX_THREADS: usize = 16_384;
/// Offset of the tid in glibc's `struct pthread` (x86-64, since glibc 2.4).
#[cfg(target_arch = "x86_64")]
const PTHREAD_TID: u64 = 720;
/// The same offset on aarch64.
#[cfg(not(target_arch = "x86_64"))]
const PTHREAD_TID: u64 = 208;

/// A thread's state in one interpreter. A thread that runs in several interpreters has a state in
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    pub at: u64,
    /// Whether it is a state in the main interpreter, and not in one that the program created.
    pub is_of_main: bool,
    /// The address of the thread's latest call of the loop, on the thread's own stack; `None` in
    /// versions whose state doesn't contain it.
    on_stack: Option<u64>,
}

/// Whether a process has only one interpreter. Nearly all processes have only one.
pub fn has_one_interpreter(mut memory: &ProcessMemory, layout: &Layout, runtime: u64) -> bool {
    let first = memory.u64(runtime + layout.interpreters).unwrap_or(0);
    first == 0 || memory.u64(first + layout.next_interpreter).is_none_or(|next| next == 0)
}

/// Returns the states of all threads, those in the youngest interpreter first.
pub fn thread_states(
    mut memory: &ProcessMemory,
    layout: &Layout,
    runtime: u64,
) -> Vec<ThreadState> {
    let mut states = Vec::new();
    let mut interpreter = memory.u64(runtime + layout.interpreters).unwrap_or(0);
    for _ in 0..MAX_INTERPRETERS {
        if interpreter == 0 {
            break;
        }
        let next = memory.u64(interpreter + layout.next_interpreter).unwrap_or(0);
        let mut at = memory.u64(interpreter + layout.threads).unwrap_or(0);
        while at != 0 && states.len() < MAX_THREADS {
            let (call, is_pointer) = (layout.frame.0, layout.frame.1.is_some());
            let on_stack = is_pointer.then(|| memory.u64(at + call)).flatten();
            states.push(ThreadState { at, is_of_main: next == 0, on_stack });
            at = memory.u64(at + layout.next_thread).unwrap_or(0);
        }
        interpreter = next;
    }
    states
}

/// Returns the states of a thread that may have frames on its stack, innermost first. Later
/// versions name the running thread in each state, and a thread that runs in several interpreters
/// most likely entered the youngest one last. Up to 3.12, a state in an interpreter that the
/// program created names the thread that created it, whichever thread runs in it. There, the
/// address on the stack tells which thread runs and which state called which.
pub fn states_of(
    memory: &ProcessMemory,
    layout: &Layout,
    states: &[ThreadState],
    tid: u32,
) -> Vec<u64> {
    let named: Vec<(ThreadState, u32)> = states
        .iter()
        .filter_map(|state| Some((*state, tid_of(memory, layout, state.at)?)))
        .collect();
    let is_main_of = |tid: u32| named.iter().any(|(state, of)| state.is_of_main && *of == tid);
    let runs = |(state, named_tid): &(ThreadState, u32)| {
        let Some(place) = state.on_stack.filter(|_| !state.is_of_main && is_main_of(*named_tid))
        else {
            return *named_tid;
        };
        let callers = named.iter().filter_map(|(caller, of)| {
            let on_stack = caller.on_stack.filter(|_| caller.is_of_main)?;
            (on_stack > place).then_some((on_stack, *of))
        });
        callers.min().map_or(*named_tid, |(_, of)| of)
    };
    let mut of_thread: Vec<ThreadState> =
        named.iter().filter(|one| runs(one) == tid).map(|(state, _)| *state).collect();
    of_thread.sort_by_key(|state| state.on_stack.unwrap_or(0));
    of_thread.into_iter().map(|state| state.at).collect()
}

/// Returns the tid that a state names.
pub fn tid_of(mut memory: &ProcessMemory, layout: &Layout, state: u64) -> Option<u32> {
    if let Some(tid) = layout.tid {
        return u32::try_from(memory.u64(state + tid)?).ok();
    }
    let pthread = memory.u64(state + layout.pthread)?;
    memory.u32(pthread.checked_add(PTHREAD_TID)?)
}

/// Returns the frames of a state, innermost first, and whether the reading ended early.
pub fn read(
    mut memory: &ProcessMemory,
    layout: &Layout,
    state: u64,
) -> Option<(Vec<RawFrame>, bool)> {
    let mut walk = Frames::of(&mut memory, layout, state, MAX_FRAMES)?;
    let mut frames = Vec::new();
    while let Some(frame) = walk.next(&mut memory) {
        frames.push(frame);
    }
    Some((frames, walk.ends() != WalkEnd::Whole))
}

/// Bytes of a GIL from its holder on: its locked flag, its switch count, and two condition
/// variables and two mutexes of pthreads.
const LOCK_BYTES: u64 = 24 + 2 * (48 + 40);

/// The GIL of the interpreter in which a thread runs.
pub struct LockState {
    /// Addresses that the GIL occupies.
    pub place: Range<u64>,
    /// Whether the thread has the GIL; `None` if unknown.
    pub held: Option<bool>,
}

/// Returns the address of the main interpreter's GIL; `None` if interpreters share one GIL.
pub fn lock_of_main(mut memory: &ProcessMemory, known: &KnownLayout, runtime: u64) -> Option<u64> {
    let LockLocation::Interpreter(pointer, holder, _) = known.lock else { return None };
    let mut interpreter = memory.u64(runtime + known.layout.interpreters)?;
    for _ in 0..MAX_INTERPRETERS {
        match memory.u64(interpreter + known.layout.next_interpreter)? {
            0 => return Some(memory.u64(interpreter + pointer)? + holder),
            next => interpreter = next,
        }
    }
    None
}

/// Reads the GIL for a thread's state; `None` if the build has no GIL or it can't be found.
pub fn read_lock(
    mut memory: &ProcessMemory,
    known: &KnownLayout,
    runtime: u64,
    state: u64,
) -> Option<LockState> {
    let (holder, locked) = match known.lock {
        LockLocation::Free => return None,
        LockLocation::Runtime(holder, locked) => (runtime + holder, runtime + locked),
        LockLocation::Interpreter(pointer, holder, locked) => {
            let interpreter = memory.u64(state + known.layout.interpreter)?;
            let lock = memory.u64(interpreter + pointer)?;
            (lock + holder, lock + locked)
        }
    };
    let (by, taken) = (memory.u64(holder), memory.u32(locked));
    let held = by.zip(taken).map(|(by, taken)| by == state && taken == 1);
    Some(LockState { place: holder..holder.saturating_add(LOCK_BYTES), held })
}
