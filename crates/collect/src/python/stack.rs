//! Walks an interpreter's threads and frames.

use super::layout::{KnownLayout, LockLocation};
use super::memory::ProcessMemory;
use std::ops::Range;
use tprof_wire::python::{Frames, Layout, Memory as _, RawFrame, WalkEnd};

/// Most Python frames in a stack.
const MAX_FRAMES: usize = 256;
/// Most interpreters and threads that are read.
const MAX_INTERPRETERS: usize = 64;
const MAX_THREADS: usize = 16_384;
/// Offset of the tid in glibc's `struct pthread` (x86-64 and aarch64, since glibc 2.4).
#[cfg(target_arch = "x86_64")]
const PTHREAD_TID: u64 = 720;
/// The offset of the tid in glibc's `struct pthread`; see above.
#[cfg(not(target_arch = "x86_64"))]
const PTHREAD_TID: u64 = 208;

/// The state of a thread in one interpreter. A thread has a state in each interpreter in which it
/// runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    pub at: u64,
    /// Whether it belongs to the main interpreter, and not to one that the program created.
    pub is_of_main: bool,
    /// Address on the thread's own stack that belongs to its latest call of the loop; `None` in
    /// versions that have no such address.
    on_stack: Option<u64>,
}

/// Whether a process has only one interpreter, as nearly all processes do.
pub fn has_one_interpreter(mut memory: &ProcessMemory, layout: &Layout, runtime: u64) -> bool {
    let first = memory.u64(runtime + layout.interpreters).unwrap_or(0);
    first == 0 || memory.u64(first + layout.next_interpreter).is_none_or(|next| next == 0)
}

/// Returns the states of all threads, beginning with the youngest interpreter.
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

/// Returns the states of a thread that may have frames on its stack, innermost first. Up to 3.12
/// the state in an interpreter that the program created names the thread that created it, whichever
/// thread runs in it. There the address on the stack shows which thread runs, and which state
/// called which. Later versions name the running thread, and a thread that runs in several
/// interpreters most likely entered the youngest one last.
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

/// Returns the tid of a thread's state.
pub fn tid_of(mut memory: &ProcessMemory, layout: &Layout, state: u64) -> Option<u32> {
    if let Some(tid) = layout.tid {
        return u32::try_from(memory.u64(state + tid)?).ok();
    }
    let pthread = memory.u64(state + layout.pthread)?;
    memory.u32(pthread.checked_add(PTHREAD_TID)?)
}

/// Returns the frames of a thread, innermost first, and whether the reading ended early.
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

/// Bytes of a GIL, from its holder on: its locked flag, its switch count, two condition variables
/// and two mutexes of pthreads.
const LOCK_BYTES: u64 = 24 + 2 * (48 + 40);

/// The GIL of a thread's interpreter.
pub struct LockState {
    /// Addresses of the GIL.
    pub place: Range<u64>,
    /// Whether the thread holds it; `None` if unknown.
    pub held: Option<bool>,
}

/// Returns the address of the main interpreter's GIL.
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

/// Reads the GIL; `None` if there is none or it was not found.
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
