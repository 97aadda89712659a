//! Keeps the threads that the driving thread waits for. Reports replace the driving thread's waits
//! by the time of these threads.

use rustc_hash::FxHashMap;
use tprof_rank::SpanPurpose;
use tprof_rank::samples::{CpuTrace, Layer, Part, Stack};
use tprof_trace::model::{ProcessIndex, Sample, StackId, ThreadIndex, ThreadState};

use super::line::Place;

/// A thread, or a team of threads, that the driving thread waits for at one place.
#[derive(Clone, Debug)]
pub struct AwaitedThread {
    /// The thread's own name, or its number. For a team, the common name of its members with `*` in
    /// place of numbers, or `several threads` if the members have no names.
    pub name: String,
    /// The place at which the driving thread waits.
    pub at: Place,
    /// The process and the stack of a wait at that place.
    waits: (ProcessIndex, StackId),
}

/// The name of several awaited threads without names of their own.
const SEVERAL: &str = "several threads";

/// Rows in spans with a stated purpose have thread numbers from this one on, one number for each
/// purpose.
const STATED: ThreadIndex = ThreadIndex::MAX - 64;

/// The threads that a driving thread waits for. Their rows replace its waits, with thread numbers
/// above those of the file's threads.
#[derive(Clone, Debug, Default)]
pub struct AwaitedThreads {
    all: Vec<AwaitedThread>,
    /// For each thread number from `first` on, the index in `all`, and the file's own thread.
    members: Vec<(usize, ThreadIndex)>,
    first: ThreadIndex,
    places: FxHashMap<(ThreadIndex, StackId, ThreadState), Place>,
}

impl AwaitedThreads {
    /// Creates an empty list for a file whose thread numbers are all below `first`.
    pub(super) fn from(first: ThreadIndex) -> AwaitedThreads {
        AwaitedThreads { first, ..AwaitedThreads::default() }
    }

    /// Sets the place of rows with this stack and state in spans with this purpose. Returns the
    /// thread number for such rows.
    pub(super) fn state(
        &mut self,
        stated: SpanPurpose,
        (stack, state): (StackId, ThreadState),
        place: Place,
    ) -> ThreadIndex {
        let number = STATED + stated as ThreadIndex;
        self.places.insert((number, stack, state), place);
        number
    }

    /// Returns the part of a row in a span with a stated purpose; `None` for other rows.
    pub(super) fn stated(
        &self,
        thread: ThreadIndex,
        stack: StackId,
        state: ThreadState,
    ) -> Option<Part> {
        (thread >= STATED).then(|| self.place(thread, stack, state)).flatten().map(|at| at.part)
    }

    /// Returns the awaited thread with this number; `None` for the driving thread.
    pub fn get(&self, thread: ThreadIndex) -> Option<&AwaitedThread> {
        self.all.get(self.member(thread)?.0)
    }

    /// Returns the file's own thread behind a row's thread number; `None` for the driving thread.
    pub(super) fn own(&self, thread: ThreadIndex) -> Option<ThreadIndex> {
        Some(self.member(thread)?.1)
    }

    fn member(&self, thread: ThreadIndex) -> Option<(usize, ThreadIndex)> {
        self.members.get(thread.checked_sub(self.first)? as usize).copied()
    }

    /// Adds an awaited thread and returns its number. `own` is the file's thread.
    pub(super) fn add(
        &mut self,
        (own, name): (ThreadIndex, &str),
        at: &Place,
        waits: (ProcessIndex, StackId),
    ) -> ThreadIndex {
        self.all.push(AwaitedThread { name: name.to_owned(), at: at.clone(), waits });
        self.number(self.all.len() - 1, own)
    }

    fn number(&mut self, of: usize, own: ThreadIndex) -> ThreadIndex {
        self.members.push((of, own));
        self.first + (self.members.len() - 1) as ThreadIndex
    }

    /// Adds another thread to the team of an awaited thread, which changes the name to that of the
    /// team. Returns the other thread's number.
    pub(super) fn share(
        &mut self,
        first: ThreadIndex,
        (own, name): (ThreadIndex, &str),
    ) -> ThreadIndex {
        let Some((of, _)) = self.member(first) else { return first };
        self.rename(of, name);
        self.number(of, own)
    }

    fn rename(&mut self, of: usize, name: &str) {
        let awaited_thread = &mut self.all[of];
        if awaited_thread.name == name
            || awaited_thread.name.contains('*')
            || awaited_thread.name == SEVERAL
        {
            return;
        }
        let is_number = |c: char| c.is_ascii_digit();
        let parts = name.split(is_number).filter(|part| !part.is_empty());
        let parts: Vec<&str> = parts.collect();
        awaited_thread.name = match parts.is_empty() {
            true => SEVERAL.to_owned(),
            false => {
                let end = if name.ends_with(is_number) { "*" } else { "" };
                parts.join("*") + end
            }
        };
    }

    /// Sets the place of an awaited thread's row, if it isn't known yet.
    pub(super) fn note(&mut self, row: &Sample, cpu: &CpuTrace) {
        let state = cpu.state(row.process, row.stack, row.state);
        let key = (row.thread, row.stack, state);
        if self.places.contains_key(&key) {
            return;
        }
        let Some(awaited_thread) = self.get(row.thread) else { return };
        let part = cpu.part(row.process, row.stack, row.state).unwrap_or(Part::Unknown);
        let (process, id) = awaited_thread.waits;
        let place = place_of(cpu, (part, state), cpu.stack(row.process, row.stack), || {
            cpu.stack(process, id)
        });
        let place = Place { thread: awaited_thread.name.clone(), ..place };
        self.places.insert(key, place);
    }

    /// Returns the place of a row of an awaited thread or in a span with a stated purpose; `None`
    /// for other rows.
    pub(super) fn place(
        &self,
        thread: ThreadIndex,
        stack: StackId,
        state: ThreadState,
    ) -> Option<&Place> {
        self.places.get(&(thread, stack, state))
    }
}

/// Returns the place in the thread's own code. If the thread runs no code of the user's own,
/// returns the place at the line of the waiting thread.
fn place_of<'c>(
    cpu: &'c CpuTrace,
    (part, state): (Part, ThreadState),
    stack: &Stack,
    waits: impl FnOnce() -> &'c Stack,
) -> Place {
    let own = Place::of(part, state, stack, &cpu.names);
    if own.is_own {
        return own;
    }
    let waits = waits();
    let is_of_waiter = true;
    if stack.functions.is_empty() {
        let (below, library) = Default::default();
        let at = Place::of(part, state, waits, &cpu.names);
        return Place { below, library, cause: own.cause, is_of_waiter, ..at };
    }
    let kernel = |id: &&u32| cpu.names.get(**id).layer == Layer::Kernel;
    let skipped = waits.functions.iter().take_while(kernel).count();
    let mut joined = stack.clone();
    joined.functions.extend_from_slice(&waits.functions[skipped..]);
    joined.lines.extend_from_slice(&waits.lines[skipped..]);
    Place { cause: own.cause, is_of_waiter, ..Place::of(part, state, &joined, &cpu.names) }
}
