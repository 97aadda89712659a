//! Takes stacks and interns them in the profiled process: records refer to a stack by an id, and
//! the first record with a new stack is preceded by a definition of its id.
//!
//! Open-addressing tables map a stack's hash to its id. A stack that finds no room in one table
//! goes to the next, larger one. A thread claims an entry by one compare-and-swap, and entries are
//! never removed. The hash has 64 bits. Among a million stacks the probability of a collision is
//! 3e-8, so frames are not compared.

use crate::block::Thread;
use crate::python::{self, Scratch};
use crate::tables::{self, STACKS, STACKS_BYTES};
use crate::unwind::{self, Guess, ReadableSp, Walk};
use crate::{arch, fork_tables, recent_stacks, ring, state};
use core::mem::MaybeUninit;
use tprof_wire::record::{ExtKind, STACK_ID_LIMIT, StackEnd};
use tprof_wire::region::{stack_mode, thinned};
use tprof_wire::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};

/// Number of entries in each table. The tables take 8 KiB, 1 MiB and 32 MiB of address space, of
/// which only touched pages use memory. Short processes touch only the first table. Each other
/// table is mapped once a stack finds no room in the one before.
const SIZES: [usize; 3] = [1 << 9, 1 << 16, 1 << 21];
/// Number of entries that are tried for a hash before its table counts as full.
const PROBES: usize = 8;

/// A stack that takes longer than this (about 10 us) was delayed by something other than unwinding.
const SLOW_TICKS: u64 = 30_000;

/// An entry of a table; free while `hash` is 0. It has two words, because one word with a 24-bit id
/// and the upper 40 bits of a hash would have too many collisions.
#[repr(C)]
struct InternedStack {
    hash: AtomicU64,
    /// The id, with [`DROPPED`] or [`BEING_DEFINED`] if one of these applies; 0 until the thread
    /// that claimed the entry has an id for it; `u64::MAX` if no ids were left.
    id: AtomicU64,
}

/// Bit next to a stack's id, set if the ring had no room for the stack's definition. The next
/// thread that takes the same stack defines it.
const DROPPED: u64 = 1 << 32;

/// Bit next to a stack's id, set while a thread defines it, which may take long if its ring is
/// full. Meanwhile other threads use the id. They don't cache it, since the definition may still be
/// dropped.
const BEING_DEFINED: u64 = 1 << 33;

const _: () = assert!(SIZES[0] * size_of::<InternedStack>() == STACKS_BYTES);

/// The tables after the first; null while not mapped.
static LATER: [AtomicPtr<u8>; SIZES.len() - 1] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; SIZES.len() - 1];

/// All tables, each with its number of entries.
fn all_tables() -> impl Iterator<Item = (&'static AtomicPtr<u8>, usize)> {
    [&STACKS].into_iter().chain(&LATER).zip(SIZES)
}

/// Maps the first table, and the tables that recognize repeated stacks.
fn map_first() {
    unwind::map_memo();
    tables::map();
}

/// Maps the first two tables before a thread loses the right to make system calls, since it can't
/// map them later.
pub fn map_ahead() {
    map_first();
    map_table(1);
}

/// Whether a thread has tried to map the tables. There may not have been enough memory.
static WERE_MAPPED: AtomicBool = AtomicBool::new(false);

/// Maps the tables at the first stack. If memory was short, tries again at one stack in 1,024.
#[inline(always)]
fn map_tables_once(thread: &Thread) {
    let is_missing = || !unwind::has_memo() || tables::RECENT.load(Relaxed).is_null();
    let is_due = || thread.stacks.get() & 1023 == 0 && is_missing();
    if (!WERE_MAPPED.load(Relaxed) || is_due()) && !thread.is_quiet() {
        map_first();
        // Stored last: a handler that interrupts the mapping, or another thread, maps the tables
        // too and does not lose its stack.
        WERE_MAPPED.store(true, Relaxed);
    }
}

/// Maps a table, if it is not mapped yet.
fn map_table(index: usize) {
    if let Some((table, entries)) = all_tables().nth(index) {
        fork_tables::map(table, entries * size_of::<InternedStack>());
    }
}

/// Takes the stack of a hook's caller, and returns its id; 0 if stacks are off or this stack was
/// lost. `sp` and `fp` are the stack pointer and the frame pointer at the hook's entry.
#[inline(always)]
pub fn stack(thread: &Thread, sp: usize, fp: usize) -> u32 {
    let is_off = state::STACK_MODE.load(Relaxed) == stack_mode::OFF;
    if is_off || state::is_thinned(thinned::STACKS) {
        return 0;
    }
    take(thread, sp, fp)
}

/// Like [`stack`], with Python's functions if the collector has found the interpreter. It is
/// slower, so only hooks of calls that take long use it. Its cost isn't measured, so `--budget`
/// doesn't thin it.
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

/// Takes a stack, and measures the time for one in 64.
#[inline(never)]
fn take(thread: &Thread, sp: usize, fp: usize) -> u32 {
    thread.stacks.set(thread.stacks.get().wrapping_add(1));
    // One stack in 64 is timed, so that the run can report what taking stacks costs.
    if thread.stacks.get() & 63 == 1 && !thread.strict.get() {
        let slot = thread.slot();
        let (begin, waited) = (thread.clock(), slot.wait_ticks.load(Relaxed));
        let id = take_now(thread, sp, fp);
        // `wait_ticks` already counts the time waited for unwind tables or room in the ring, so
        // that time is subtracted here.
        let waited = slot.wait_ticks.load(Relaxed).wrapping_sub(waited);
        let ticks = thread.clock().wrapping_sub(begin).saturating_sub(waited);
        // The first stack of new code is not typical, even without its wait. A thread's first stack
        // is not typical either, and many threads take fewer than 64. So the ticks of such stacks
        // are not multiplied by 64.
        let is_first = thread.stacks.get() == 1;
        let shift = if is_first || waited > 0 || ticks > SLOW_TICKS { 0 } else { 6 };
        arch::add_local(&slot.stack_ticks, ticks << shift);
        return id;
    }
    take_now(thread, sp, fp)
}

/// Takes a stack. If it can be guessed from its first words and its id is cached, it isn't walked.
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

/// Takes a stack by walking it. `from` has the stack pointer and the frame pointer.
#[inline(never)]
fn take_by_walk(
    thread: &Thread,
    from: (usize, usize),
    guess: Option<Guess>,
    with_python: bool,
) -> u32 {
    map_tables_once(thread);
    // `walk` fills only the `len` frames that it finds of these 1.5 KiB. Clearing all of it first
    // would cost more than the walk.
    let mut walk = MaybeUninit::<Walk>::uninit();
    // SAFETY: `walk` writes all fields, which are integers and an enum, before anything reads them;
    // only the first `len` frames are read.
    let walk = unsafe { &mut *walk.as_mut_ptr() };
    let Some(sp) = unwind::walk(thread, from, guess.is_some(), walk) else {
        match (walk.end, state::header()) {
            (StackEnd::NotReady, Some(header)) => {
                header.stacks_unplaced.fetch_add(1, Relaxed);
            }
            _ if !unwind::has_memo() => count_lost(),
            _ => {}
        }
        return 0;
    };
    let from = (sp, from.1);
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
        None => guess.learn_from(thread, sp.address(), walk),
    });
    if let Some(guessed) = guessed {
        unwind::compare_ids(thread, guessed, id);
    }
    id
}

/// Returns the id of the stack that a walk found. From now on the cache of recent stacks finds the
/// id by the hash of the stack's frames, or by the hash that `cache_key` returns instead.
#[inline(always)]
fn intern(
    thread: &Thread,
    from: (ReadableSp, usize),
    walk: &mut Walk,
    python: Option<&mut Scratch>,
    cache_key: impl FnOnce(&Walk) -> Option<u64>,
) -> u32 {
    let python_hash = python.as_ref().map_or(0, |python| python.hash());
    // How the walk ended makes a different stack. It goes into bits that both the cache and the
    // tables compare. 0 would mark a free entry.
    let hash = (walk.hash ^ python_hash ^ (walk.end as u64) << 36).max(1);
    let known = recent_stacks::id_of(hash);
    let id_and_flags = match known {
        Some(id) => u64::from(id),
        None => intern_slowly(thread, from, walk, python, hash),
    };
    let id = id_and_flags as u32;
    if id == 0 || id_and_flags & BEING_DEFINED != 0 {
        return id;
    }
    match cache_key(walk) {
        Some(hash) => recent_stacks::keep(hash, id),
        None if known.is_none() => recent_stacks::keep(hash, id),
        None => {}
    }
    id
}

/// Finds or assigns the id of a stack in the tables. The result has the bit [`BEING_DEFINED`] if
/// another thread is defining the stack, and is 0 if the stack has no id.
#[inline(never)]
fn intern_slowly(
    thread: &Thread,
    from: (ReadableSp, usize),
    walk: &mut Walk,
    mut python: Option<&mut Scratch>,
    hash: u64,
) -> u64 {
    let mut is_mapped = true;
    for (index, (table, size)) in all_tables().enumerate() {
        // If there was no memory for one table, there is none for the next one, which is larger.
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
            // SAFETY: the index is masked to the table's size, and the table stays mapped once it
            // is published.
            let entry = unsafe { &*table.add(((hash >> 20) as usize + probe) & (size - 1)) };
            let mut found = entry.hash.load(Acquire);
            if found == 0 {
                match entry.hash.compare_exchange(0, hash, AcqRel, Acquire) {
                    Ok(_) => {
                        let Some(id) = new_id(entry) else { return 0 };
                        unwind::complete(thread, from, walk);
                        return define(thread, walk, python.take(), entry, id, true);
                    }
                    // Another thread has claimed the entry in the meantime.
                    Err(other) => found = other,
                }
            }
            if found == hash {
                let id = entry.id.load(Acquire);
                let redefined = BEING_DEFINED | id & u64::from(u32::MAX);
                if id != u64::MAX
                    && id & DROPPED != 0
                    && entry.id.compare_exchange(id, redefined, AcqRel, Relaxed).is_ok()
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

/// Waits for the id of an entry that another thread has just claimed, which usually follows at
/// once. The id never follows if that thread was killed, or if this code runs in that thread's own
/// signal handler. So the wait is limited.
fn wait_for_id(entry: &InternedStack) -> u64 {
    for _ in 0..1000 {
        match entry.id.load(Acquire) {
            0 => tprof_wire::sync::spin_loop(),
            u64::MAX => return 0,
            // The definition was dropped again in the meantime.
            id if id & DROPPED != 0 => return 0,
            id => return id,
        }
    }
    count_lost();
    0
}

/// Counts a stack that has no id.
fn count_lost() {
    if let Some(header) = state::header() {
        header.stacks_lost.fetch_add(1, Relaxed);
    }
}

/// Assigns the next id to a claimed entry and publishes it to other threads; `None` if no ids are
/// left.
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

/// Writes the definition of a stack with this id: the number of its frames, and the frames. Returns
/// the id, or 0 if the ring has no room. `is_first` is true if no earlier definition of the stack
/// was dropped.
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
    let mut definition = payload.get(..=len).unwrap_or(&payload);
    if let Some(python) = python {
        python::define(thread, python);
        definition = python.payload(walk);
    }
    if ring::ext(thread, ExtKind::Stack, id | (walk.end as u32) << 24, clock, definition) {
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

/// Interns stacks that tests make up, without walking any.
#[cfg(test)]
pub mod made {
    use super::*;

    /// Returns a walk that found these frames.
    pub fn walk_of(frames: &[u64], hash: u64) -> Walk {
        let mut walk = Walk {
            frames: [0; tprof_wire::record::MAX_FRAMES],
            len: frames.len(),
            rest: 0,
            number: 0,
            hash,
            end: StackEnd::Whole,
            interrupted: false,
        };
        walk.frames[..frames.len()].copy_from_slice(frames);
        walk
    }

    /// Returns the id of the stack that this walk found.
    pub fn id_of_walk(thread: &Thread, mut walk: Walk) -> u32 {
        let here = 0u64;
        let (low, high) = (thread.stack_low.get(), thread.stack_high.get());
        assert!(low < high);
        let sp = unwind::readable(thread, (&raw const here).addr()).unwrap();
        intern(thread, (sp, 0), &mut walk, None, |_| None)
    }

    /// Maps the first table, and empties all that are mapped.
    pub fn begin() {
        map_first();
        // Ids begin anew in each region, as in a forked child.
        recent_stacks::prepare();
        for (table, entries) in all_tables() {
            let table = table.load(Relaxed).cast::<InternedStack>();
            for at in 0..if table.is_null() { 0 } else { entries } {
                // SAFETY: the table has `entries` entries, and `at` is less.
                let entry = unsafe { &*table.add(at) };
                entry.hash.store(0, Relaxed);
                entry.id.store(0, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::made::{id_of_walk, walk_of};
    use super::*;

    use crate::testing::{Attached, Written};

    fn id(process: &Attached, frames: &[u64], hash: u64) -> u32 {
        id_of_walk(process.thread(), walk_of(frames, hash))
    }

    fn begin() -> Attached {
        let process = Attached::new();
        made::begin();
        process
    }

    fn defined(process: &Attached) -> Vec<Written> {
        process.of_kind(process.thread(), ExtKind::Stack)
    }

    const FULL: [u64; 64] = [0; 64];

    #[test]
    fn a_stack_is_defined_once_with_its_frames_and_has_its_id_from_then_on() {
        let process = begin();
        let first = id(&process, &[10, 20, 30], 0x1111_2222_3333);
        assert_eq!((first, id(&process, &[10, 20, 30], 0x1111_2222_3333)), (1, 1));
        recent_stacks::prepare();
        assert_eq!(id(&process, &[10, 20, 30], 0x1111_2222_3333), 1, "without the cache too");
        let all = defined(&process);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].argument(), 1);
        assert_eq!(all[0].payload()[..4], [3, 10, 20, 30]);
    }

    #[test]
    fn stacks_with_other_hashes_have_ids_of_their_own() {
        let process = begin();
        let ids = [1u64, 2, 3].map(|hash| id(&process, &[1], hash << 30 | 5));
        assert_eq!(ids, [1, 2, 3]);
        assert_eq!(process.header().stacks.load(Relaxed), 3);
    }

    #[test]
    fn a_stack_that_was_cut_is_another_than_the_whole_one() {
        let process = begin();
        let whole = id(&process, &[1, 2], 0x5555_0000);
        let cut = Walk { end: StackEnd::TooDeep, ..walk_of(&[1, 2], 0x5555_0000) };
        assert_ne!(id_of_walk(process.thread(), cut), whole);
        assert_eq!(defined(&process)[1].argument() >> 24, StackEnd::TooDeep as u32);
    }

    #[test]
    fn a_stack_without_room_for_its_definition_is_defined_when_it_is_met_again() {
        let process = begin();
        let thread = process.thread();
        process.set_free(0, 0);
        while ring::ext(thread, ExtKind::Map, 0, 0, &FULL) {}
        let frames = [7; 100];
        assert_eq!(id(&process, &frames, 0x6666_0000), 0);
        assert_eq!(id(&process, &frames, 0x6666_0000), 0);
        assert_eq!(process.header().stacks_dropped.load(Relaxed), 1, "it counts once");
        process.set_free(0, 1);
        assert_eq!(id(&process, &frames, 0x6666_0000), 1);
        assert_eq!(defined(&process).len(), 1);
    }

    #[test]
    fn stacks_that_find_no_room_in_a_table_go_to_the_next() {
        let process = begin();
        // These differ only in bits that select no place.
        let ids: Vec<_> = (1..=20).map(|hash| id(&process, &[hash], hash)).collect();
        assert_eq!(ids, (1..=20).collect::<Vec<_>>());
        recent_stacks::prepare();
        assert_eq!(id(&process, &[20], 20), 20);
        assert_eq!(process.header().stacks_lost.load(Relaxed), 0);
    }

    #[test]
    fn a_stack_without_room_in_any_table_is_counted_as_lost() {
        let process = begin();
        let ids: Vec<_> = (1..=25).map(|hash| id(&process, &[hash], hash)).collect();
        assert_eq!(ids[..24], (1..=24).collect::<Vec<_>>());
        assert_eq!((ids[24], process.header().stacks_lost.load(Relaxed)), (0, 1));
    }

    #[test]
    fn a_stack_beyond_the_last_id_is_lost_for_good() {
        let process = begin();
        process.header().stacks.store(STACK_ID_LIMIT - 2, Relaxed);
        assert_eq!(id(&process, &[1], 0x7777_0000), STACK_ID_LIMIT - 1);
        assert_eq!(id(&process, &[2], 0x8888_0000), 0);
        assert_eq!(id(&process, &[2], 0x8888_0000), 0);
        assert_eq!(process.header().stacks_lost.load(Relaxed), 1);
        assert_eq!(defined(&process).len(), 1);
    }

    #[test]
    fn threads_that_meet_a_stack_at_once_agree_on_its_id() {
        let process = begin();
        let mut lost = 0;
        for round in 1..50u64 {
            let ids: Vec<u32> = std::thread::scope(|scope| {
                let meet = || scope.spawn(|| id(&process, &[round], round << 32));
                [meet(), meet(), meet()].map(|thread| thread.join().unwrap()).into()
            });
            // A thread that waited in vain for the id, since the thread that claimed the entry had
            // no processor, has none and counts the stack as lost.
            let known: Vec<_> = ids.iter().filter(|id| **id != 0).collect();
            assert!(!known.is_empty() && known.iter().all(|id| *id == known[0]), "{round} {ids:?}");
            lost += (ids.len() - known.len()) as u64;
        }
        assert_eq!(process.header().stacks.load(Relaxed), 49);
        assert_eq!(process.header().stacks_lost.load(Relaxed), lost);
    }

    #[test]
    fn no_stack_is_taken_once_they_cost_too_much() {
        let process = begin();
        state::STACK_MODE.store(stack_mode::AUTO, Relaxed);
        process.header().thinned.store(thinned::STACKS, Relaxed);
        assert_eq!(stack(process.thread(), 8, 8), 0);
        assert_eq!(process.thread().stacks.get(), 0);
    }

    #[test]
    fn no_stack_is_taken_while_stacks_are_off() {
        let process = begin();
        assert_eq!(stack(process.thread(), 8, 8), 0);
        assert_eq!(process.header().stacks.load(Relaxed), 0);
        assert_eq!(process.thread().stacks.get(), 0);
    }
}
