//! Walks an interpreter's threads and frames.

use super::MAX_FRAMES;
use super::layout::{Instruction, Layout, Lock};
use super::memory::Memory;

/// Interpreters and threads that are believed.
const MAX_INTERPRETERS: usize = 64;
const MAX_THREADS: usize = 16_384;
/// From 3.12 on: frames that are the interpreter's own have an owner from here on.
const FIRST_OWN: u8 = 3;
/// Offset of the tid in the C library's description of a thread (glibc, x86-64
/// and aarch64, since 2.4).
#[cfg(target_arch = "x86_64")]
const PTHREAD_TID: u64 = 720;
/// See above.
#[cfg(not(target_arch = "x86_64"))]
const PTHREAD_TID: u64 = 208;

/// A frame before its code was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// Address of its code object.
    pub code: u64,
    /// Where it is: an address or an offset, as the layout says.
    pub instruction: u64,
    /// See [`super::PyFrame::entry`].
    pub entry: bool,
}

/// The states of all threads of all interpreters.
pub fn thread_states(memory: &Memory, layout: &Layout, runtime: u64) -> Vec<u64> {
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
pub fn tid_of(memory: &Memory, layout: &Layout, state: u64) -> Option<u32> {
    if let Some(tid) = layout.tid {
        return u32::try_from(memory.u64(state + tid)?).ok();
    }
    let pthread = memory.u64(state + layout.pthread)?;
    memory.u32(pthread.checked_add(PTHREAD_TID)?)
}

/// The frames of a thread, innermost first, and whether the reading ended early.
pub fn read(memory: &Memory, layout: &Layout, state: u64) -> Option<(Vec<RawFrame>, bool)> {
    let (first, second) = layout.frame;
    let mut frame = memory.u64(state + first)?;
    if let Some(second) = second {
        frame = memory.u64(frame + second)?;
    }
    let mut frames: Vec<RawFrame> = Vec::new();
    while frame != 0 {
        if frames.len() == MAX_FRAMES {
            return Some((frames, true));
        }
        let own = match layout.owner {
            Some(owner) => memory.u8(frame + owner).map(|owner| owner >= FIRST_OWN),
            None => Some(false),
        };
        let place = (
            own,
            memory.u64(frame + layout.code),
            memory.u64(frame + layout.previous),
            instruction(memory, layout, frame),
        );
        let (Some(own), Some(code), Some(previous), Some(instruction)) = place else {
            return Some((frames, true));
        };
        if own {
            // The interpreter's own frame stands for the call of its loop.
            if let Some(last) = frames.last_mut() {
                last.entry = true;
            }
        } else {
            let entry = match (layout.is_entry, layout.owner) {
                (Some(is_entry), _) => memory.u8(frame + is_entry).is_some_and(|flag| flag != 0),
                (None, Some(_)) => false,
                // To 3.10 each frame is a call of the loop.
                (None, None) => true,
            };
            // The low bits tag references from 3.14 on.
            frames.push(RawFrame { code: code & !7, instruction, entry });
        }
        frame = previous;
    }
    if let Some(last) = frames.last_mut() {
        last.entry = true;
    }
    Some((frames, false))
}

fn instruction(memory: &Memory, layout: &Layout, frame: u64) -> Option<u64> {
    match layout.instruction_is {
        Instruction::Offset(_) => memory.u32(frame + layout.instruction).map(u64::from),
        Instruction::Address => memory.u64(frame + layout.instruction),
    }
}

/// Whether a thread holds the lock; `None` if there is none, or nobody can tell.
pub fn holds_lock(memory: &Memory, layout: &Layout, runtime: u64, state: u64) -> Option<bool> {
    let (holder, locked) = match layout.lock {
        Lock::Free => return None,
        Lock::Runtime(holder, locked) => (runtime + holder, runtime + locked),
        Lock::Interpreter(pointer, holder, locked) => {
            let interpreter = memory.u64(state + layout.interpreter)?;
            let lock = memory.u64(interpreter + pointer)?;
            (lock + holder, lock + locked)
        }
    };
    Some(memory.u64(holder)? == state && memory.u32(locked)? == 1)
}
