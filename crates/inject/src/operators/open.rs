//! Operators of a thread that have begun and not ended.

use crate::block::Thread;
use crate::signal_cell::SignalCell;
use crate::state::WIPED;
use crate::{interned, ring, sys};
use core::sync::atomic::Ordering::Relaxed;
use tprof_wire::record::ExtKind;

/// Maximum that may be open at one time; beyond, the outermost are counted as lost.
const MOST: usize = 200;

/// An operator or range that has begun.
#[repr(C)]
pub struct OpenOperator {
    /// Address of its `RecordFunction`.
    pub function: SignalCell<usize>,
    /// Clock at its beginning.
    pub start: SignalCell<u64>,
    /// Id of its name.
    pub name: SignalCell<u32>,
    /// The inputs that it was called with, packed.
    pub inputs: SignalCell<u64>,
}

/// Ids that a thread met last, by their keys: these lie together, where the process's table has
/// a page for each.
const RECENT: usize = 512;

/// An id, with its key.
#[repr(C)]
struct RecentId {
    key: SignalCell<u64>,
    id: SignalCell<u32>,
}

/// The open operators of a thread, innermost last. A forked child finds its parent's here.
#[repr(C)]
pub struct OpenOperators {
    generation: SignalCell<u64>,
    len: SignalCell<usize>,
    /// Operators so far, for the [budget](super::budget).
    pub count: SignalCell<u64>,
    /// Ticks that some of those operators took.
    pub ticks: SignalCell<u64>,
    /// Clock when `count` began.
    pub since: SignalCell<u64>,
    /// Ticks that the recorded steps of the count before this one lasted.
    pub before: SignalCell<u64>,
    /// Clock of the last operator that was measured.
    pub last: SignalCell<u64>,
    /// The recorded step that they belong to, see [`super::step_sampling`].
    pub turn: SignalCell<u32>,
    entries: [OpenOperator; MOST],
    recent: [RecentId; RECENT],
}

const _: () = assert!(size_of::<OpenOperators>() <= 16_384);

/// The open operators of this thread; `None` where there is no memory for them.
#[inline]
pub fn of(thread: &Thread) -> Option<&OpenOperators> {
    let mut at = thread.operators.get();
    if at.is_null() {
        at = map(thread)?;
    }
    // SAFETY: mapped by `map`, zeroed, which is a value of every field; this thread's until it ends.
    let open = unsafe { &*at.cast::<OpenOperators>() };
    let generation = WIPED.generation.load(Relaxed);
    if open.generation.get() != generation {
        open.begin(generation);
    }
    Some(open)
}

#[cold]
fn map(thread: &Thread) -> Option<*mut u8> {
    if thread.is_quiet() || thread.ended.get() {
        return None;
    }
    let at = sys::map_anonymous(size_of::<OpenOperators>())?;
    thread.operators.set(at);
    Some(at)
}

/// Frees the memory of this thread, which is about to end.
pub fn ended(thread: &Thread) {
    let at = thread.operators.get();
    if !at.is_null() {
        thread.operators.set(core::ptr::null_mut());
        // SAFETY: mapped by `map`, and used by this thread only.
        unsafe { sys::unmap(at, size_of::<OpenOperators>()) };
    }
}

impl OpenOperators {
    /// Begins anew in a process with this generation.
    #[cold]
    fn begin(&self, generation: u64) {
        self.generation.set(generation);
        self.len.set(0);
        self.recent.iter().for_each(|recent| recent.key.set(0));
    }

    /// The same as [`interned::id`], through this thread's cache.
    #[inline]
    pub fn id(&self, thread: &Thread, kind: ExtKind, bytes: &[u8]) -> u32 {
        if bytes.is_empty() {
            return 0;
        }
        let key = interned::key(kind, bytes);
        let recent = self.recent.get(key as usize % RECENT);
        if let Some(recent) = recent.filter(|recent| recent.key.get() == key) {
            return recent.id.get();
        }
        let id = interned::id_of(thread, kind, bytes, key);
        if let Some(recent) = recent.filter(|_| id != 0) {
            // No other key may stand beside this id, not even for a signal handler.
            recent.key.set(0);
            recent.id.set(id);
            recent.key.set(key);
        }
        id
    }

    /// A place for an operator that begins; its fields are still those of another one.
    #[inline]
    pub fn push(&self, thread: &Thread) -> Option<&OpenOperator> {
        if self.len.get() >= MOST {
            self.drop_oldest(thread);
        }
        let at = self.len.get();
        let entry = self.entries.get(at)?;
        self.len.set(at + 1);
        Some(entry)
    }

    /// Takes out the operator of this `RecordFunction`, which is the innermost unless it is
    /// asynchronous.
    #[inline]
    pub fn take(&self, function: usize) -> Option<Taken> {
        let len = self.len.get();
        let at = (0..len).rev().find(|at| {
            self.entries.get(*at).is_some_and(|entry| entry.function.get() == function)
        })?;
        let taken = self.entries.get(at).map(OpenOperator::values);
        for behind in at + 1..len {
            if let (Some(to), Some(from)) = (self.entries.get(behind - 1), self.entries.get(behind))
            {
                to.set(&from.values());
            }
        }
        self.len.set(len - 1);
        taken
    }

    /// Drops the outer half: these ended in another thread, or never will.
    #[cold]
    fn drop_oldest(&self, thread: &Thread) {
        for at in 0..MOST / 2 {
            if let (Some(to), Some(from)) = (self.entries.get(at), self.entries.get(at + MOST / 2))
            {
                ring::lose(thread);
                to.set(&from.values());
            }
        }
        self.len.set(MOST / 2);
    }
}

/// The values of an operator that was taken out.
#[derive(Clone, Copy)]
pub struct Taken {
    /// The same as [`OpenOperator::function`].
    pub function: usize,
    /// The same as [`OpenOperator::start`].
    pub start: u64,
    /// The same as [`OpenOperator::name`].
    pub name: u32,
    /// The same as [`OpenOperator::inputs`].
    pub inputs: u64,
}

impl OpenOperator {
    fn values(&self) -> Taken {
        Taken {
            function: self.function.get(),
            start: self.start.get(),
            name: self.name.get(),
            inputs: self.inputs.get(),
        }
    }

    /// Fills this entry with the values.
    #[inline]
    pub fn set(&self, values: &Taken) {
        self.function.set(values.function);
        self.start.set(values.start);
        self.name.set(values.name);
        self.inputs.set(values.inputs);
    }
}
