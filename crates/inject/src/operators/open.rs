//! Stores the operators of a thread that have begun and not ended.

use crate::block::Thread;
use crate::signal_cell::SignalCell;
use crate::state::WIPED;
use crate::{interned, ring, sys};
use tprof_wire::record::ExtKind;
use tprof_wire::sync::Ordering::Relaxed;

/// Maximum number of operators that are open at a time. If there are more, the outer ones count as
/// lost.
const MOST: usize = 200;

/// An operator or range that has begun.
#[repr(C)]
pub struct OpenOperator {
    /// Address of the operator's `RecordFunction`.
    pub function: SignalCell<usize>,
    /// Clock at the operator's beginning.
    pub start: SignalCell<u64>,
    /// Id of the operator's name.
    pub name: SignalCell<u32>,
    /// The inputs that the operator was called with, packed.
    pub inputs: SignalCell<u64>,
}

/// Number of ids in a thread's cache, which is indexed by their keys. The cached ids are close
/// together in memory, while in the process's table each may be in another page.
const RECENT: usize = 512;

/// A cached id, with its key.
#[repr(C)]
struct RecentId {
    key: SignalCell<u64>,
    id: SignalCell<u32>,
}

/// The open operators of a thread, innermost last. A forked child inherits its parent's, and clears
/// them.
#[repr(C)]
pub struct OpenOperators {
    generation: SignalCell<u64>,
    len: SignalCell<usize>,
    /// Number of operators in the current window of the [budget](super::budget).
    pub count: SignalCell<u64>,
    /// Ticks that tprof's callbacks took for the measured ones among these operators.
    pub ticks: SignalCell<u64>,
    /// Clock at the first measured operator of the current recorded step in this window.
    pub since: SignalCell<u64>,
    /// Ticks that the earlier recorded steps in this window lasted.
    pub before: SignalCell<u64>,
    /// Clock at the end of the last measured callback.
    pub last: SignalCell<u64>,
    /// Number of the recorded step that the window is in, see [`super::step_sampling`].
    pub turn: SignalCell<u32>,
    entries: [OpenOperator; MOST],
    recent: [RecentId; RECENT],
}

const _: () = assert!(size_of::<OpenOperators>() <= 16_384);

/// The open operators of this thread; `None` if there is no memory for them.
#[inline]
pub fn of(thread: &Thread) -> Option<&OpenOperators> {
    let mut at = thread.operators.get();
    if at.is_null() {
        at = map(thread)?;
    }
    // SAFETY: `map` mapped the memory zeroed, which is a valid value of every field. Only this
    // thread uses it, until the thread ends.
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

/// Frees this thread's memory. Called when the thread is about to end.
pub fn ended(thread: &Thread) {
    let at = thread.operators.get();
    if !at.is_null() {
        thread.operators.set(core::ptr::null_mut());
        // SAFETY: `map` mapped the memory, and only this thread uses it.
        unsafe { sys::unmap(at, size_of::<OpenOperators>()) };
    }
}

impl OpenOperators {
    /// Clears the state in a forked child, which has a new generation.
    #[cold]
    fn begin(&self, generation: u64) {
        self.generation.set(generation);
        self.len.set(0);
        self.recent.iter().for_each(|recent| recent.key.set(0));
    }

    /// Like [`interned::id`], but looks in this thread's cache first.
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
            // The key is cleared first, so that not even a signal handler can see one key with
            // another key's id.
            recent.key.set(0);
            recent.id.set(id);
            recent.key.set(key);
        }
        id
    }

    /// Adds an entry for an operator that begins. The caller must set the entry's fields, which
    /// still have old values.
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

    /// Removes the operator with this `RecordFunction` and returns its values. Usually it is the
    /// innermost one, unless it is asynchronous.
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

    /// Drops the outer half of the operators, which ended on another thread or never will end.
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

/// The values of an entry.
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

    /// Stores these values in the entry.
    #[inline]
    pub fn set(&self, values: &Taken) {
        self.function.set(values.function);
        self.start.set(values.start);
        self.name.set(values.name);
        self.inputs.set(values.inputs);
    }
}
