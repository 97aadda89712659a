//! Python's frames of a recorded allocation, taken by the thread that allocates.
//!
//! The collector finds the interpreter and says where things lie (`tprof_wire::python`).
//! Only a thread that will return to the interpreter's code is looked at. Its state is
//! what two functions of the interpreter return that each read one variable; no other
//! code of Python's is called, and nothing of it is written.
//!
//! How its memory is read:
//!
//! - *As it is*, where the thread holds Python's lock (or, without one, is attached) and
//!   called the allocator in the ordinary way. The interpreter keeps a thread's state, its
//!   chain of frames and their code objects whole whenever it calls out, and whoever would
//!   take them away (finalisation, another thread) needs the lock first.
//! - *Through the kernel*, which refuses what is not there, in all other cases: the lock
//!   was given up (a finalising interpreter frees the states of threads that wait for it),
//!   a signal handler interrupted Python in the middle of something, or the native stack
//!   could not be followed to its end, so that nobody knows. A thread that may make no
//!   system call takes no Python frames then, which is counted.
//!
//! A frame is known by a hash of what it says (name, file, lines, instruction), not by
//! where its code object lies: objects are freed, and others come to lie there. Name, file
//! and line are written once for each hash, by the thread that met it, so that they are
//! there when the process is gone.

mod memory;
mod tell;

use crate::calls_made::{Class, closed};
use crate::state;
use crate::sys;
use crate::thread::Thread;
use crate::unwind::Walk;
use crate::{arch, loaded};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use memory::{Here, Kernel};
use tprof_wire::python::{
    self, Ends, FILE_BYTES, INTERPRETER_WORDS, Interpreter, Layout, MAX_PYTHON_FRAMES, Memory,
    NAME_BYTES, RawFrame,
};
use tprof_wire::record::{MAX_FRAMES, StackEnd};
use tprof_wire::region::RegionHeader;

pub use tell::{prepare, tell};

/// Words of the longest record: a stack, or a name and a file.
const PAYLOAD: usize = {
    let (stack, name) = (1 + MAX_FRAMES + MAX_PYTHON_FRAMES, 4 + (NAME_BYTES + FILE_BYTES) / 8);
    if stack > name { stack } else { name }
};
/// Offset of the type in every object.
const TYPE: u64 = 8;
/// Bytes of a string or table that are hashed whole; of longer ones, half of this at
/// either end.
const HASHED: u64 = 256;

/// The interpreter, as the collector told: copied out of the region, so that a forked
/// child, which gets a region of its own, still knows.
static WORDS: [AtomicU64; INTERPRETER_WORDS] = [const { AtomicU64::new(0) }; INTERPRETER_WORDS];
/// The copy is of this epoch: see [`UNLOADS`]. 0: there is none.
static COPIED: AtomicU32 = AtomicU32::new(0);
/// Somebody copies.
static COPYING: AtomicU32 = AtomicU32::new(0);
/// Interpreters that were unloaded. What the collector found before the last of them went
/// is of an earlier epoch (one more than this), and not believed.
static UNLOADS: AtomicU32 = AtomicU32::new(0);
/// Libraries that are being unloaded at this moment: one may be the interpreter.
static UNLOADING: AtomicU32 = AtomicU32::new(0);

/// Hashes of objects met in one walk, by address: most frames share their file with
/// others, some their code.
#[repr(C)]
struct Hashes([(u64, u64); HASHES]);

const HASHES: usize = 16;

impl Hashes {
    /// The hash of an object, by `make` where it was not met yet.
    #[inline(always)]
    fn of(&mut self, object: u64, make: impl FnOnce(&mut Hashes) -> Option<u64>) -> Option<u64> {
        let place = (object >> 4 ^ object >> 12) as usize % HASHES;
        if let Some((at, hash)) = self.0.get(place)
            && *at == object
        {
            return Some(*hash);
        }
        let hash = make(self)?;
        if let Some(entry) = self.0.get_mut(place) {
            *entry = (object, hash);
        }
        Some(hash)
    }
}

/// A thread's Python frames.
#[repr(C)]
pub struct Taken {
    /// Innermost first.
    frames: [RawFrame; MAX_PYTHON_FRAMES],
    /// Hashes; bit 0: the frame is the outermost of its call of the loop.
    keys: [u64; MAX_PYTHON_FRAMES],
    len: usize,
    hash: u64,
    ends: Ends,
    direct: bool,
    payload: [u64; PAYLOAD],
    hashes: Hashes,
}

/// What a thread needs to take Python frames: kept outside its stack, which may be a
/// handler's few kilobytes.
#[repr(C)]
pub struct Scratch {
    taken: Taken,
    kernel: Kernel,
}

impl Scratch {
    /// Hash over the frames and how they end.
    pub fn hash(&self) -> u64 {
        self.taken.hash ^ (self.taken.ends as u64) << 48
    }

    /// The payload of a stack's record.
    pub fn payload(&mut self, walk: &Walk) -> &[u64] {
        let Taken { keys, len, ends, payload, .. } = &mut self.taken;
        let native = walk.len.min(walk.frames.len());
        let python = (*len).min(keys.len());
        let [head, rest @ ..] = &mut *payload;
        *head = native as u64 | (python as u64) << 16 | (*ends as u64) << 32;
        let whole = walk.frames.iter().take(native).chain(keys.iter().take(python));
        for (to, from) in rest.iter_mut().zip(whole) {
            *to = *from;
        }
        payload.get(..1 + native + python).unwrap_or(payload)
    }
}

/// A new region.
pub fn attached(header: &RegionHeader) {
    header.python_unloads.store(UNLOADS.load(SeqCst), Release);
    // In a forked child, whoever copied is gone.
    COPYING.store(0, Release);
    prepare();
}

/// A library is about to be unloaded.
pub fn unloading() {
    UNLOADING.fetch_add(1, SeqCst);
}

/// It was, or not: an interpreter that is gone is forgotten. The collector tells of the
/// next one, wherever that lies.
pub fn unloaded() {
    let unloads = UNLOADS.load(SeqCst);
    if COPIED.load(SeqCst) == unloads.wrapping_add(1) && !loaded::is_loaded(word(0) as usize) {
        UNLOADS.store(unloads.wrapping_add(1), SeqCst);
        if let Some(header) = state::header() {
            header.python_unloads.store(unloads.wrapping_add(1), Release);
        }
    }
    UNLOADING.fetch_sub(1, SeqCst);
}

fn word(at: usize) -> u64 {
    WORDS.get(at).map_or(0, |word| word.load(Relaxed))
}

/// The interpreter, if there is one.
#[inline(always)]
fn interpreter() -> Option<Interpreter> {
    if UNLOADING.load(SeqCst) != 0 {
        return None;
    }
    let epoch = UNLOADS.load(SeqCst).wrapping_add(1);
    if COPIED.load(Acquire) != epoch && !copy(epoch) {
        return None;
    }
    let mut words = [0; INTERPRETER_WORDS];
    for (to, from) in words.iter_mut().zip(&WORDS) {
        *to = from.load(Relaxed);
    }
    Some(Interpreter::of_words(&words))
}

/// Copies what the collector told, if that is of this epoch.
#[cold]
#[inline(never)]
fn copy(epoch: u32) -> bool {
    let Some(header) = state::header() else { return false };
    if header.python_epoch.load(Acquire) != epoch || COPYING.swap(1, Acquire) != 0 {
        return false;
    }
    for (to, from) in WORDS.iter().zip(&header.python) {
        to.store(from.load(Relaxed), Relaxed);
    }
    COPIED.store(epoch, Release);
    COPYING.store(0, Release);
    true
}

/// Takes the Python frames of this thread, which has walked its native stack. `None` if
/// it runs no Python, or they cannot be had, which is counted. What is given is this
/// thread's until [`release`].
#[inline(never)]
pub fn take<'a>(thread: &mut Thread, walk: &Walk) -> Option<&'a mut Scratch> {
    let interpreter = interpreter()?;
    if thread.python_busy || thread.ended || !may_run(walk, &interpreter) {
        return None;
    }
    // The functions may be interrupted by a handler that allocates: it takes none.
    thread.python_busy = true;
    let found = state_of(thread, &interpreter);
    let scratch = found.and_then(|found| frames(thread, walk, &interpreter, found));
    if scratch.is_none() {
        thread.python_busy = false;
    }
    scratch
}

/// Gives back what [`take`] gave.
pub fn release(thread: &mut Thread) {
    thread.python_busy = false;
}

/// This thread is gone: so is what it kept.
pub fn ended(thread: &mut Thread) {
    if !thread.python.is_null() && !thread.python_busy {
        let scratch = core::mem::replace(&mut thread.python, core::ptr::null_mut());
        // SAFETY: mapped by `frames`, and used by this thread alone.
        unsafe { sys::unmap(scratch.cast(), size_of::<Scratch>()) };
    }
}

/// Whether the thread may be running Python: it will return to the interpreter's code,
/// which therefore stays where it is. Of a thread that will not, nothing is asked: it may
/// run while that code is unloaded.
fn may_run(walk: &Walk, interpreter: &Interpreter) -> bool {
    let (start, end) = interpreter.text;
    let mut frames = walk.frames.iter().take(walk.len);
    walk.end != StackEnd::Whole || frames.any(|frame| (start..end).contains(frame))
}

/// The state of this thread, and whether it may run Python now.
fn state_of(thread: &Thread, interpreter: &Interpreter) -> Option<(u64, bool)> {
    let runtime = interpreter.runtime as usize;
    let interpreters = runtime.wrapping_add(interpreter.layout.interpreters as usize);
    // SAFETY: a variable of a loaded library: it is not being unloaded, see `interpreter`.
    let (first, main) = unsafe {
        let list = interpreters as *const AtomicU64;
        ((*list).load(Relaxed), (*list.add(1)).load(Relaxed))
    };
    if first == 0 {
        // Not begun yet, or finished.
        return None;
    }
    // SAFETY: found by the collector under these names; they take nothing, read one
    // variable of the thread or the runtime each, and return a pointer.
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
    // In this order: what a thread that is unknown to Python would be the first to ask
    // for, the loader may have to allocate.
    // SAFETY: as above.
    let own = unsafe { thread_of() };
    if own == 0 {
        return None;
    }
    // SAFETY: as above.
    let current = unsafe { current() };
    if !interpreter.one_lock {
        return Some(if current != 0 { (current, true) } else { (own, false) });
    }
    if current == own {
        return Some((own, true));
    }
    // Another thread's, or this one's in another interpreter.
    if current != 0 && first != main && !thread.is_quiet() && !closed(Class::Reading) {
        let mut pthread = [0];
        let at = current.wrapping_add(interpreter.layout.pthread);
        if memory::read(at, &mut pthread) && pthread == [arch::thread_pointer() as u64] {
            return Some((current, true));
        }
    }
    Some((own, false))
}

/// Reads the frames of a state.
fn frames<'a>(
    thread: &mut Thread,
    walk: &Walk,
    interpreter: &Interpreter,
    (state, attached): (u64, bool),
) -> Option<&'a mut Scratch> {
    let direct = attached && walk.end == StackEnd::Whole && !walk.interrupted;
    if !direct && (thread.is_quiet() || closed(Class::Reading)) {
        unread();
        return None;
    }
    if thread.python.is_null() {
        if thread.is_quiet() {
            unread();
            return None;
        }
        thread.python = match sys::map_anonymous(size_of::<Scratch>()) {
            Some(at) => at.cast(),
            None => {
                unread();
                return None;
            }
        };
    }
    // SAFETY: mapped above, zeroed (which every field's type allows), long enough, and
    // used by this thread alone, one user at a time (`python_busy`).
    let scratch = unsafe { &mut *thread.python };
    let Scratch { taken, kernel } = &mut *scratch;
    taken.direct = direct;
    taken.len = 0;
    taken.hash = 0;
    if direct {
        collect(&mut Here, interpreter, state, taken);
    } else {
        kernel.begin();
        match kernel.u64(state.wrapping_add(interpreter.layout.pthread)) {
            Some(pthread) if pthread == arch::thread_pointer() as u64 => {
                collect(kernel, interpreter, state, taken);
            }
            // What the thread's variable holds is no state of its own.
            Some(_) => return None,
            None => taken.ends = Ends::Unreadable,
        }
    }
    if taken.ends == Ends::Unreadable {
        unread();
    }
    (taken.len > 0).then_some(scratch)
}

/// Walks the frames of a state and hashes each.
fn collect(memory: &mut impl Memory, interpreter: &Interpreter, state: u64, taken: &mut Taken) {
    let Taken { frames, keys, len, hash, ends, hashes, .. } = taken;
    hashes.0 = [(0, 0); HASHES];
    let mut met = 0;
    let walked = python::frames(memory, &interpreter.layout, state, MAX_PYTHON_FRAMES, |raw| {
        let place = frames.get_mut(met);
        met += 1;
        place.map(|place| *place = raw).is_some()
    });
    *ends = walked.unwrap_or(Ends::Unreadable);
    // What is not told is left out: what is kept moves up.
    for at in 0..met.min(MAX_PYTHON_FRAMES) {
        let Some(raw) = frames.get(at).copied() else { break };
        match key(memory, interpreter, hashes, raw) {
            Some(0) => {
                // The interpreter's own code: nobody's function, though its call of the
                // loop may begin there.
                let last = len.checked_sub(1).and_then(|last| keys.get_mut(last));
                if let Some(last) = last {
                    *last |= u64::from(raw.entry);
                }
            }
            Some(key) => {
                if let (Some(frame), Some(place)) = (frames.get_mut(*len), keys.get_mut(*len)) {
                    (*frame, *place) = (raw, key | u64::from(raw.entry));
                    *len += 1;
                }
            }
            None => {
                *ends = Ends::Unreadable;
                break;
            }
        }
    }
    for key in keys.iter().take(*len) {
        *hash = mix(*hash, *key);
    }
}

fn unread() {
    if let Some(header) = state::header() {
        header.python_unread.fetch_add(1, Relaxed);
    }
}

/// Hash of what a frame says, bit 0 clear; 0 for the interpreter's own code, `None` for
/// what is no code.
fn key(
    memory: &mut impl Memory,
    interpreter: &Interpreter,
    hashes: &mut Hashes,
    raw: RawFrame,
) -> Option<u64> {
    let layout = &interpreter.layout;
    let code = hashes.of(raw.code, |hashes| {
        if memory.u64(raw.code.wrapping_add(TYPE))? != interpreter.code_type {
            return None;
        }
        let head = python::code(memory, layout, raw.code)?;
        if head.name == 0 {
            return Some(0);
        }
        let file = hashes.of(head.file, |_| text_hash(memory, layout, head.file))?;
        let name = text_hash(memory, layout, head.name)?;
        let hash = mix(mix(u64::from(head.first_line), file), name);
        Some(bytes_hash(memory, head.lines, head.lines_bytes, hash)?.max(1))
    })?;
    let at = python::offset(layout, raw.code, raw.instruction);
    Some(if code == 0 { 0 } else { mix(code, at) & !1 | 2 })
}

fn text_hash(memory: &mut impl Memory, layout: &Layout, object: u64) -> Option<u64> {
    let text = python::text(memory, layout, object)?;
    bytes_hash(memory, text.at, text.bytes, text.chars as u64)
}

/// Hashes bytes that begin at an aligned address: whole words, the last one without what
/// lies behind.
fn bytes_hash(memory: &mut impl Memory, at: u64, bytes: u64, hash: u64) -> Option<u64> {
    let mut hash = mix(hash, bytes);
    let words = bytes / 8;
    let mut word = 0;
    while word < words {
        if word == HASHED / 16 && words > HASHED / 8 {
            word = words - HASHED / 16;
        }
        hash = mix(hash, memory.u64(at.wrapping_add(word * 8))?);
        word += 1;
    }
    let rest = bytes % 8;
    if rest != 0 {
        let last = memory.u64(at.wrapping_add(words * 8))?;
        hash = mix(hash, last & ((1 << (rest * 8)) - 1));
    }
    Some(hash)
}

#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let x = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ x >> 32
}
