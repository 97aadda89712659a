//! Takes the Python frames of the running thread.

use super::bytes::mix;
use super::interpreter::interpreter;
use super::key::Keys;
use super::memory::{self, OwnMemory};
use super::scratch::{PythonFrames, Scratch};
use crate::block::Thread;
use crate::seccomp::{CallClass, is_forbidden};
use crate::unwind::Walk;
use crate::{arch, state, sys};
use tprof_wire::python::{Frames, Interpreter, Memory, WalkEnd};
use tprof_wire::record::StackEnd;
use tprof_wire::sync::{AtomicU64, Ordering::*};

/// Marks a thread's memory for frames as in use while this value lives. A signal handler that
/// interrupts the thread meanwhile and allocates then takes no Python frames.
struct Busy<'t>(&'t Thread);

impl Busy<'_> {
    fn begin(thread: &Thread) -> Option<Busy<'_>> {
        if thread.python_busy.get() {
            return None;
        }
        thread.python_busy.set(true);
        Some(Busy(thread))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.python_busy.set(false);
    }
}

/// The frames that a thread took. While this value lives, the thread's signal handlers do not use
/// the same memory.
pub struct ScratchGuard<'t> {
    /// The frames that were taken.
    pub scratch: &'t mut Scratch,
    _busy: Busy<'t>,
}

/// Takes the Python frames of this thread, whose native stack is in `walk`. Returns `None` if the
/// thread doesn't run Python. If frames can't be read, this is counted.
#[inline(never)]
pub fn take<'t>(thread: &'t Thread, walk: &Walk) -> Option<ScratchGuard<'t>> {
    let interpreter = interpreter()?;
    if thread.ended.get() || !may_run(walk, &interpreter) {
        return None;
    }
    let busy = Busy::begin(thread)?;
    let found = state_of(thread, &interpreter)?;
    let scratch = frames(&busy, walk, &interpreter, found)?;
    Some(ScratchGuard { scratch, _busy: busy })
}

/// Frees this thread's memory. Called when the thread is about to end.
pub fn ended(thread: &Thread) {
    let scratch = thread.python.get();
    if !scratch.is_null() && !thread.python_busy.get() {
        thread.python.set(core::ptr::null_mut());
        // SAFETY: `scratch` mapped the memory. Only this thread uses it, and `python_busy` says
        // that it doesn't at the moment.
        unsafe { sys::unmap(scratch, size_of::<Scratch>()) };
    }
}

/// Whether the thread may be running Python: it will return to the interpreter's code, which
/// therefore can't be unloaded. If it won't return there, the interpreter may be unloaded at any
/// moment, so the thread isn't examined further.
fn may_run(walk: &Walk, interpreter: &Interpreter) -> bool {
    let (start, end) = interpreter.text;
    let mut frames = walk.frames.iter().take(walk.len);
    walk.end != StackEnd::Whole || frames.any(|frame| (start..end).contains(frame))
}

/// Finds this thread's `PyThreadState`. Also returns whether the thread is attached to it, so that
/// it may run Python now.
fn state_of(thread: &Thread, interpreter: &Interpreter) -> Option<(u64, bool)> {
    let runtime = interpreter.runtime as usize;
    let interpreters = runtime.wrapping_add(interpreter.layout.interpreters as usize);
    // SAFETY: the address is that of a variable of a loaded library. `interpreter` has checked that
    // the library isn't being unloaded.
    let (first, main) = unsafe {
        let list = interpreters as *const AtomicU64;
        ((*list).load(Relaxed), (*list.add(1)).load(Relaxed))
    };
    if first == 0 {
        // Python has not started yet, or has been finalised.
        return None;
    }
    // SAFETY: the collector found these two functions by name. They have no arguments, read one
    // variable of the thread or the runtime, and return a pointer.
    let (thread_of, current) = unsafe {
        (
            core::mem::transmute::<usize, unsafe extern "C" fn() -> u64>(
                interpreter.thread_of as usize,
            ),
            core::mem::transmute::<usize, unsafe extern "C" fn() -> u64>(
                interpreter.current as usize,
            ),
        )
    };
    // The order matters. In a thread that Python doesn't know, `current` could be the first
    // access to a thread-local variable, for which the loader may have to allocate.
    // SAFETY: `thread_of` is the first of the two functions above.
    let own = unsafe { thread_of() };
    if own == 0 {
        return None;
    }
    // SAFETY: `current` is the second of the two functions above.
    let current = unsafe { current() };
    if !interpreter.one_lock {
        return Some(if current != 0 { (current, true) } else { (own, false) });
    }
    if current == own {
        return Some((own, true));
    }
    // The current state belongs to another thread, or to this thread in another interpreter.
    if current != 0 && first != main && !thread.is_quiet() && !is_forbidden(CallClass::Reading) {
        let mut pthread = [0];
        let at = current.wrapping_add(interpreter.layout.pthread);
        if memory::read(at, &mut pthread) && pthread == [arch::thread_pointer() as u64] {
            return Some((current, true));
        }
    }
    Some((own, false))
}

/// The memory in which a thread collects frames. It is mapped at the first use.
fn scratch<'t>(busy: &Busy<'t>) -> Option<&'t mut Scratch> {
    let thread = busy.0;
    if thread.python.get().is_null() {
        if thread.is_quiet() {
            return None;
        }
        thread.python.set(sys::map_anonymous(size_of::<Scratch>())?);
    }
    // SAFETY: the memory was mapped above and is large enough. It is zeroed, which is a valid value
    // of every field. Only this thread uses it, `take` calls this once per `busy`, and `busy` keeps
    // signal handlers from using it.
    Some(unsafe { &mut *thread.python.get().cast() })
}

/// Reads the frames of a thread state.
fn frames<'t>(
    busy: &Busy<'t>,
    walk: &Walk,
    interpreter: &Interpreter,
    (state, attached): (u64, bool),
) -> Option<&'t mut Scratch> {
    let thread = busy.0;
    let direct = attached && walk.end == StackEnd::Whole && !walk.interrupted;
    if !direct && (thread.is_quiet() || is_forbidden(CallClass::Reading)) {
        unread();
        return None;
    }
    let Some(scratch) = scratch(busy) else {
        unread();
        return None;
    };
    let Scratch { taken, kernel } = &mut *scratch;
    taken.direct = direct;
    taken.len = 0;
    taken.hash = 0;
    if direct {
        // SAFETY: this thread is attached to the interpreter and is in a call, so the interpreter
        // keeps these objects valid. The module docs of `python` have the details.
        collect(&mut unsafe { OwnMemory::vouched() }, interpreter, state, taken);
    } else {
        kernel.begin();
        match kernel.u64(state.wrapping_add(interpreter.layout.pthread)) {
            Some(pthread) if pthread == arch::thread_pointer() as u64 => {
                collect(kernel, interpreter, state, taken);
            }
            // The thread's variable contains a state that isn't this thread's.
            Some(_) => return None,
            None => taken.ends = WalkEnd::Unreadable,
        }
    }
    if taken.ends == WalkEnd::Unreadable {
        unread();
    }
    (taken.len > 0).then_some(scratch)
}

/// Walks the frames of a thread state and hashes each frame.
fn collect(
    memory: &mut impl Memory,
    interpreter: &Interpreter,
    state: u64,
    taken: &mut PythonFrames,
) {
    let PythonFrames { frames, keys, len, hash, ends, .. } = taken;
    *ends = WalkEnd::Unreadable;
    let most = frames.len();
    let Some(mut walk) = Frames::of(memory, &interpreter.layout, state, most) else { return };
    let Some(mut of_frames) = Keys::begin(interpreter) else { return };
    let mut are_codes = true;
    while let Some(raw) = walk.next(memory) {
        let Some(key) = of_frames.of(memory, raw) else {
            are_codes = false;
            break;
        };
        let before = len.checked_sub(1).and_then(|before| keys.get_mut(before));
        if key == 0 {
            // This is the interpreter's own code, which has no name, and not a Python function. The
            // call of the evaluation loop that runs the frame before may begin here.
            if let Some(before) = before {
                *before |= raw.entry;
            }
            continue;
        }
        // The key of a frame is mixed in while the next frame is read. In a separate loop, each key
        // would have to wait for the one before.
        if let Some(before) = before {
            *hash = mix(*hash, *before);
        }
        if let (Some(frame), Some(to)) = (frames.get_mut(*len), keys.get_mut(*len)) {
            (*frame, *to) = (raw, key | raw.entry);
            *len += 1;
        }
    }
    if let Some(last) = len.checked_sub(1).and_then(|last| keys.get(last)) {
        *hash = mix(*hash, *last);
    }
    if are_codes {
        *ends = walk.ends();
    }
}

fn unread() {
    if let Some(header) = state::header() {
        header.python_unread.fetch_add(1, Relaxed);
    }
}
