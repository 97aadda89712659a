//! Walks an interpreter's threads and frames.

use super::layout::{KnownLayout, Lock};
use super::memory::ProcessMemory;
use std::ops::Range;
use tprof_wire::python::{Ends, Frames, Layout, Memory as _, RawFrame};

/// Most Python frames of a stack.
const MAX_FRAMES: usize = 256;
/// Interpreters and threads that are accepted.
const MAX_INTERPRETERS: usize = 64;
const MAX_THREADS: usize = 16_384;
/// Offset of the tid in the C library's description of a thread (glibc, x86-64
/// and aarch64, since 2.4).
#[cfg(target_arch = "x86_64")]
const PTHREAD_TID: u64 = 720;
/// See above.
#[cfg(not(target_arch = "x86_64"))]
const PTHREAD_TID: u64 = 208;

/// The states of all threads of all interpreters.
pub fn thread_states(mut memory: &ProcessMemory, layout: &Layout, runtime: u64) -> Vec<u64> {
    let mut states = Vec::new();
    let mut interpreter = memory.u64(runtime + layout.interpreters).unwrap_or(0);
    for _ in 0..MAX_INTERPRETERS {
        if interpreter == 0 {
            break;
        }
        let mut state = memory.u64(interpreter + layout.threads).unwrap_or(0);
        while state != 0 && states.len() < MAX_THREADS {
            states.push(state);
            state = memory.u64(state + layout.next_thread).unwrap_or(0);
        }
        interpreter = memory.u64(interpreter + layout.next_interpreter).unwrap_or(0);
    }
    states
}

/// The tid of a thread's state.
pub fn tid_of(mut memory: &ProcessMemory, layout: &Layout, state: u64) -> Option<u32> {
    if let Some(tid) = layout.tid {
        return u32::try_from(memory.u64(state + tid)?).ok();
    }
    let pthread = memory.u64(state + layout.pthread)?;
    memory.u32(pthread.checked_add(PTHREAD_TID)?)
}

/// The frames of a thread, innermost first, and whether the reading ended early.
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
    Some((frames, walk.ends() != Ends::Whole))
}

/// What the lock consists of, from its holder on: whether it is taken, how often it was,
/// two conditions and two mutexes of pthreads.
const LOCK_BYTES: u64 = 24 + 2 * (48 + 40);

/// The lock of a thread's interpreter.
pub struct LockSeen {
    /// Where it lies.
    pub place: Range<u64>,
    /// Whether the thread holds it; `None` if unknown.
    pub held: Option<bool>,
}

/// Reads the lock; `None` if there is none, or it could not be found.
pub fn look_at_lock(
    mut memory: &ProcessMemory,
    known: &KnownLayout,
    runtime: u64,
    state: u64,
) -> Option<LockSeen> {
    let (holder, locked) = match known.lock {
        Lock::Free => return None,
        Lock::Runtime(holder, locked) => (runtime + holder, runtime + locked),
        Lock::Interpreter(pointer, holder, locked) => {
            let interpreter = memory.u64(state + known.layout.interpreter)?;
            let lock = memory.u64(interpreter + pointer)?;
            (lock + holder, lock + locked)
        }
    };
    let (by, taken) = (memory.u64(holder), memory.u32(locked));
    let held = by.zip(taken).map(|(by, taken)| by == state && taken == 1);
    Some(LockSeen { place: holder..holder.saturating_add(LOCK_BYTES), held })
}
