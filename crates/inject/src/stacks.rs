//! Interns stacks in the target: a known stack costs one table lookup,
//! a new one is defined by a record.
//!
//! Open-addressing tables hold `hash → id`, each for what has no place in the one before; an entry is
//! claimed by one compare-and-swap and never removed. The hash has 64 bits: a
//! million stacks collide with probability 3e-8, so frames are not compared.

use crate::block::Thread;
use crate::python::{self, Scratch};
use crate::tables::{self, STACKS, STACKS_BYTES};
use crate::unwind::{self, Guess, Walk};
use crate::{arch, fork_tables, recent_stacks, ring, state};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use tprof_wire::record::{ExtKind, STACK_ID_LIMIT, StackEnd};
use tprof_wire::region::stack_mode;

/// Entries of each table: 8 KiB, 1 MiB and 32 MiB of address space, touched as needed. The first is
/// all that short processes touch; each of the others is mapped once the one before has no place for
/// a stack.
const SIZES: [usize; 3] = [1 << 9, 1 << 16, 1 << 21];
/// Entries tried before a table counts as full for a hash.
const PROBES: usize = 8;

/// A stack that took longer than this (about 10 us) was held up by something.
const SLOW_TICKS: u64 = 30_000;

/// Two words: the upper 40 bits of a hash beside a 24-bit id would collide too often.
#[repr(C)]
struct InternedStack {
    hash: AtomicU64,
    id: AtomicU64,
}

/// Beside the id of a stack without room for its definition in the ring: the thread that meets the
/// stack next defines it.
const DROPPED: u64 = 1 << 32;

/// Beside the id of a stack that a thread defines now, which may wait for room in its ring: others
/// use the id meanwhile. They do not remember it, since the definition may be dropped.
const BEING_DEFINED: u64 = 1 << 33;

const _: () = assert!(SIZES[0] * size_of::<InternedStack>() == STACKS_BYTES);

/// The tables behind the first.
static LATER: [AtomicPtr<u8>; SIZES.len() - 1] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; SIZES.len() - 1];

/// All tables, with their sizes.
fn all_tables() -> impl Iterator<Item = (&'static AtomicPtr<u8>, usize)> {
    [&STACKS].into_iter().chain(&LATER).zip(SIZES)
}

fn map_first() {
    unwind::map_memo();
    tables::map();
}

/// Maps what a thread that may make no system call can use later.
pub fn map_ahead() {
    map_first();
    map_table(1);
}

/// Whether mapping the tables was tried. There may have been no memory for them.
static WERE_MAPPED: AtomicBool = AtomicBool::new(false);

/// Maps them for the first stack, and again at one stack in 1,024 where there was no memory.
#[inline(always)]
fn map_tables_once(thread: &Thread) {
    let is_missing = || !unwind::has_memo() || tables::RECENT.load(Relaxed).is_null();
    let is_due = || thread.stacks.get() & 1023 == 0 && is_missing();
    if (!WERE_MAPPED.load(Relaxed) || is_due()) && !thread.is_quiet() {
        WERE_MAPPED.store(true, Relaxed);
        map_first();
    }
}

/// Maps a table, if it is not yet.
fn map_table(index: usize) {
    if let Some((table, entries)) = all_tables().nth(index) {
        fork_tables::map(table, entries * size_of::<InternedStack>());
    }
}

/// Id of the stack at a hook's entry; 0 if stacks are off or this one is lost.
#[inline(always)]
pub fn stack(thread: &Thread, sp: usize, fp: usize) -> u32 {
    if state::STACK_MODE.load(Relaxed) == stack_mode::OFF {
        return 0;
    }
    take(thread, sp, fp)
}

/// As [`stack`], with Python's functions, where the collector has found the interpreter: for calls
/// that take so long that their time is no matter.
#[cold]
#[inline(never)]
pub fn with_python(thread: &Thread, sp: usize, fp: usize) -> u32 {
    if state::STACK_MODE.load(Relaxed) == stack_mode::OFF {
        return 0;
    }
    if !thread.is_quiet() {
        python::prepare();
    }
    take_by_walk(thread, (sp, fp), None, true)
}

#[inline(never)]
fn take(thread: &Thread, sp: usize, fp: usize) -> u32 {
    thread.stacks.set(thread.stacks.get().wrapping_add(1));
    // One in 64 is timed, so that the run can report what stacks cost.
    if thread.stacks.get() & 63 == 1 && !thread.strict.get() {
        let slot = thread.slot();
        let (begin, waited) = (thread.clock(), slot.wait_ticks.load(Relaxed));
        let id = take_now(thread, sp, fp);
        // Waits for tables or room are in `wait_ticks` already: each is counted once.
        let waited = slot.wait_ticks.load(Relaxed).wrapping_sub(waited);
        let ticks = thread.clock().wrapping_sub(begin).saturating_sub(waited);
        // A first stack of new code is not typical, even without its wait.
        // A thread's first stack is not timed either: many threads take no 63 more.
        let is_first = thread.stacks.get() == 1;
        let shift = if is_first || waited > 0 || ticks > SLOW_TICKS { 0 } else { 6 };
        arch::add_local(&slot.stack_ticks, ticks << shift);
        arch::add_local(&slot.stacks_taken, 64);
        return id;
    }
    take_now(thread, sp, fp)
}

#[inline(always)]
fn take_now(thread: &Thread, sp: usize, fp: usize) -> u32 {
    let mode = state::STACK_MODE.load(Relaxed);
    let is_guessed = mode == stack_mode::AUTO || mode == stack_mode::DWARF;
    let guess = if is_guessed { unwind::guess(thread, sp, fp) } else { None };
    if let Some(guess) = guess
        && let Some(id) = guess.hash.and_then(recent_stacks::id_of)
    {
        guess.is_right(thread);
        if state::CHECK_STACKS.load(Relaxed).is_null() {
            return id;
        }
    }
    take_by_walk(thread, (sp, fp), guess, mode == stack_mode::PYTHON)
}

/// Takes a stack that was not guessed.
#[inline(never)]
fn take_by_walk(
    thread: &Thread,
    from: (usize, usize),
    guess: Option<Guess>,
    with_python: bool,
) -> u32 {
    map_tables_once(thread);
    // 1.5 KiB that `walk` fills as far as `len`: clearing it first would cost more than the walk.
    let mut walk = MaybeUninit::<Walk>::uninit();
    // SAFETY: integers and an enum written by `walk` before they are read; frames beyond `len` are never read.
    let walk = unsafe { &mut *walk.as_mut_ptr() };
    unwind::walk(thread, from, guess.is_some(), walk);
    if walk.len == 0 {
        match (walk.end, state::header()) {
            (StackEnd::NotReady, Some(header)) => {
                header.stacks_unplaced.fetch_add(1, Relaxed);
            }
            _ if !unwind::has_memo() => count_lost(),
            _ => {}
        }
        return 0;
    }
    if with_python {
        unwind::complete(thread, from, walk);
        if let Some(python) = python::take(thread, walk) {
            return intern(thread, from, walk, Some(&mut *python.scratch), |_| None);
        }
    }
    let Some(guess) = guess else { return intern(thread, from, walk, None, |_| None) };
    let guessed = guess.hash.and_then(recent_stacks::id_of);
    let id = intern(thread, from, walk, None, |walk| match guessed {
        Some(_) => None,
        None => guess.learn_from(thread, from.0, walk),
    });
    if let Some(guessed) = guessed {
        unwind::compare_ids(thread, guessed, id);
    }
    id
}

/// The id of a walk. From now on it is found by the hash of its frames, or by one that `guessed`
/// returns.
#[inline(always)]
fn intern(
    thread: &Thread,
    from: (usize, usize),
    walk: &mut Walk,
    python: Option<&mut Scratch>,
    guessed: impl FnOnce(&Walk) -> Option<u64>,
) -> u32 {
    let with_python = python.as_ref().map_or(0, |python| python.hash());
    let hash = (walk.hash ^ with_python ^ (walk.end as u64) << 56).max(1);
    let known = recent_stacks::id_of(hash);
    let met = match known {
        Some(id) => u64::from(id),
        None => intern_slowly(thread, from, walk, python, hash),
    };
    let id = met as u32;
    if id == 0 || met & BEING_DEFINED != 0 {
        return id;
    }
    match guessed(walk) {
        Some(hash) => recent_stacks::keep(hash, id),
        None if known.is_none() => recent_stacks::keep(hash, id),
        None => {}
    }
    id
}

/// The id of a stack, with [`BEING_DEFINED`] if another thread defines it; 0 if it has none.
#[inline(never)]
fn intern_slowly(
    thread: &Thread,
    from: (usize, usize),
    walk: &mut Walk,
    mut python: Option<&mut Scratch>,
    hash: u64,
) -> u64 {
    let mut is_mapped = true;
    for (index, (table, size)) in all_tables().enumerate() {
        // Where there was no memory for one, there is none for the next, which is larger.
        if table.load(Relaxed).is_null()
            && is_mapped
            && !thread.is_quiet()
            && !(index > 1 && state::SPARING.load(Relaxed))
        {
            map_table(index);
        }
        is_mapped = !table.load(Relaxed).is_null();
        let table = table.load(Relaxed).cast::<InternedStack>();
        if table.is_null() {
            continue;
        }
        for probe in 0..PROBES {
            // SAFETY: the index is masked to the table's size.
            let entry = unsafe { &*table.add(((hash >> 20) as usize + probe) & (size - 1)) };
            let mut now = entry.hash.load(Acquire);
            if now == 0 {
                match entry.hash.compare_exchange(0, hash, AcqRel, Acquire) {
                    Ok(_) => {
                        let Some(id) = new_id(entry) else { return 0 };
                        unwind::complete(thread, from, walk);
                        return define(thread, walk, python.take(), entry, id, true);
                    }
                    Err(other) => now = other,
                }
            }
            if now == hash {
                let id = entry.id.load(Acquire);
                let again = BEING_DEFINED | id & u64::from(u32::MAX);
                if id != u64::MAX
                    && id & DROPPED != 0
                    && entry.id.compare_exchange(id, again, AcqRel, Relaxed).is_ok()
                {
                    unwind::complete(thread, from, walk);
                    return define(thread, walk, python.take(), entry, id as u32, false);
                }
                return wait_for_id(entry);
            }
        }
    }
    count_lost();
    0
}

/// Another thread claimed this entry a moment ago; its id follows at once.
/// Interrupted by our own handler, or killed, it never does: give up then.
fn wait_for_id(entry: &InternedStack) -> u64 {
    for _ in 0..1000 {
        match entry.id.load(Acquire) {
            0 => core::hint::spin_loop(),
            u64::MAX => return 0,
            // Dropped once more since.
            id if id & DROPPED != 0 => return 0,
            id => return id,
        }
    }
    count_lost();
    0
}

fn count_lost() {
    if let Some(header) = state::header() {
        header.stacks_lost.fetch_add(1, Relaxed);
    }
}

/// Gives a stack an id, which others use from now on; none if there are no more.
fn new_id(entry: &InternedStack) -> Option<u32> {
    let header = state::header()?;
    let id = header.stacks.fetch_add(1, Relaxed) + 1;
    if id >= STACK_ID_LIMIT {
        count_lost();
        entry.id.store(u64::MAX, Release);
        return None;
    }
    entry.id.store(BEING_DEFINED | u64::from(id), Release);
    Some(id)
}

/// Defines a stack of this id. `is_first`: it was not dropped before.
#[cold]
#[inline(never)]
fn define(
    thread: &Thread,
    walk: &Walk,
    python: Option<&mut Scratch>,
    entry: &InternedStack,
    id: u32,
    is_first: bool,
) -> u64 {
    unwind::know_code(thread, walk);
    let mut payload = [0u64; tprof_wire::record::MAX_FRAMES + 1];
    payload[0] = walk.len as u64;
    let len = walk.len.min(walk.frames.len());
    if let (Some(to), Some(from)) = (payload.get_mut(1..=len), walk.frames.get(..len)) {
        to.copy_from_slice(from);
    }
    let clock = thread.clock();
    let mut whole = payload.get(..=len).unwrap_or(&payload);
    if let Some(python) = python {
        python::define(thread, python);
        whole = python.payload(walk);
    }
    if ring::ext(thread, ExtKind::Stack, id | (walk.end as u32) << 24, clock, whole) {
        entry.id.store(u64::from(id), Release);
        u64::from(id)
    } else {
        if let Some(header) = state::header().filter(|_| is_first) {
            header.stacks_dropped.fetch_add(1, Relaxed);
        }
        entry.id.store(DROPPED | u64::from(id), Release);
        0
    }
}
