//! Models of how threads, and the collector, share memory: `loom` runs a scenario once for each
//! order in which its threads can access the memory, and for each value that a load may return. Run
//! by `scripts/loom.sh`.
//!
//! A scenario calls the code that runs in profiled processes, with the process's statics and a
//! mapped region. The model performs the accesses of all atomics ([`tprof_wire::sync`]) and keeps
//! their values, so each run begins with the memory as it was before the first. Each thread of the
//! scenario has a block of its own. What the model replaces: system calls that wait (another thread
//! runs), and attaching ([`attach`]). What it can't show: signal handlers, which interrupt a thread
//! between any two instructions, and memory that is not atomic.

mod gate;
mod interning;
mod ring;

use crate::attach::Outcome;
use crate::block::Thread;
use crate::{arch, gate as gate_itself};
use loom::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tprof_wire::sync::{Access, ModelledMemory, Ordering, WordPlace};

/// Number of times that a thread is interrupted by another where it need not be. Two suffice for
/// nearly all faults, and each further one multiplies the number of runs.
const INTERRUPTIONS: usize = 2;
const MAX_BRANCHES: usize = 20_000;
/// Number of threads that a scenario may have.
const MOST_THREADS: usize = 4;

enum Word {
    Byte(AtomicU8),
    Half(AtomicU16),
    Single(AtomicU32),
    Double(AtomicU64),
    /// A word that a thread other than the first was the first to access. It becomes known, and the
    /// exploration begins anew.
    Unknown(Cell<u64>),
}

macro_rules! perform {
    ($word:expr, $access:expr, $order:expr, $type:ty) => {{
        let (word, order) = ($word, $order);
        match $access {
            Access::Load => word.load(order).into(),
            Access::Store(value) => {
                word.store(value as $type, order);
                0
            }
            Access::Swap(value) => word.swap(value as $type, order).into(),
            Access::Exchange(from, to, failed) => {
                match word.compare_exchange(from as $type, to as $type, order, failed) {
                    Ok(before) | Err(before) => before.into(),
                }
            }
            Access::Add(value) => word.fetch_add(value as $type, order).into(),
            Access::And(value) => word.fetch_and(value as $type, order).into(),
            Access::Or(value) => word.fetch_or(value as $type, order).into(),
        }
    }};
}

impl Word {
    fn new(place: WordPlace, value: u64) -> Word {
        match place.bytes {
            1 => Word::Byte(AtomicU8::new(value as u8)),
            2 => Word::Half(AtomicU16::new(value as u16)),
            4 => Word::Single(AtomicU32::new(value as u32)),
            _ => Word::Double(AtomicU64::new(value)),
        }
    }

    fn perform(&self, access: Access, order: Ordering, bytes: usize) -> u64 {
        match self {
            Word::Byte(word) => perform!(word, access, order, u8),
            Word::Half(word) => perform!(word, access, order, u16),
            Word::Single(word) => perform!(word, access, order, u32),
            Word::Double(word) => perform!(word, access, order, u64),
            Word::Unknown(word) => {
                let before = word.get();
                let after = match access {
                    Access::Load => before,
                    Access::Store(value) | Access::Swap(value) => value,
                    Access::Exchange(from, to, _) if before == from => to,
                    Access::Exchange(..) => before,
                    Access::Add(value) => before.wrapping_add(value),
                    Access::And(value) => before & value,
                    Access::Or(value) => before | value,
                };
                word.set(after & u64::MAX >> (64 - 8 * bytes));
                before
            }
        }
    }
}

/// Returns the value that a word had before the scenario.
fn initial(place: WordPlace) -> u64 {
    // SAFETY: the scenario's code has a reference to an atomic of this size there.
    unsafe {
        match place.bytes {
            1 => (place.at as *const u8).read().into(),
            2 => (place.at as *const u16).read().into(),
            4 => (place.at as *const u32).read().into(),
            _ => (place.at as *const u64).read(),
        }
    }
}

/// The memory near the thread pointer of a thread of the scenario, as glibc lays it out.
#[repr(C, align(64))]
struct Storage {
    pointer: usize,
    table: usize,
    rest: [usize; 6],
    block: [u8; arch::THREAD_BYTES],
}

/// Memory for the threads of a scenario, at the same addresses in each run, since threads are found
/// by their addresses' hashes.
type Storages = [Storage; MOST_THREADS];

fn new_storages() -> Storages {
    core::array::from_fn(|_| Storage {
        pointer: 0,
        table: 1,
        rest: [0; 6],
        block: [0; arch::THREAD_BYTES],
    })
}

/// One run of the scenario.
struct Run {
    words: RefCell<HashMap<usize, Rc<Word>>>,
    /// The pointers of the threads that have begun.
    threads: RefCell<HashMap<loom::thread::ThreadId, usize>>,
    storages: *mut Storages,
    spawned: Cell<usize>,
    attach: Cell<Option<fn(bool) -> Outcome>>,
    attached: Cell<u32>,
}

thread_local! {
    // `loom` runs all threads of a scenario on one thread.
    static RUN: RefCell<Option<Rc<Run>>> = const { RefCell::new(None) };
    static KNOWN: RefCell<BTreeMap<usize, usize>> = const { RefCell::new(BTreeMap::new()) };
    static HAS_GROWN: Cell<bool> = const { Cell::new(false) };
}

fn run() -> Option<Rc<Run>> {
    RUN.try_with(|run| run.try_borrow().ok()?.clone()).ok()?
}

struct Modelled;

impl ModelledMemory for Modelled {
    fn access(&self, place: WordPlace, access: Access, order: Ordering) -> Option<u64> {
        let run = run()?;
        let known = run.words.borrow().get(&place.at).cloned();
        let word = known.unwrap_or_else(|| {
            let word = if run.spawned.get() > 0 {
                KNOWN.with(|known| known.borrow_mut().insert(place.at, place.bytes));
                HAS_GROWN.set(true);
                Word::Unknown(Cell::new(initial(place)))
            } else {
                Word::new(place, initial(place))
            };
            let word = Rc::new(word);
            run.words.borrow_mut().insert(place.at, word.clone());
            word
        });
        Some(word.perform(access, order, place.bytes))
    }

    fn fence(&self, order: Ordering) -> bool {
        let is_running = is_running();
        if is_running {
            loom::sync::atomic::fence(order);
        }
        is_running
    }

    fn pause(&self) {
        match is_running() {
            true => loom::thread::yield_now(),
            false => std::thread::yield_now(),
        }
    }
}

/// Whether a scenario runs on this thread.
pub fn is_running() -> bool {
    run().is_some()
}

impl Run {
    /// The running thread is the scenario's thread with this number.
    fn begin_thread(&self, number: usize) {
        assert!(number < MOST_THREADS);
        let pointer = self.storages as usize + number * size_of::<Storage>();
        // SAFETY: there are so many storages, and only the scenario's threads use them.
        unsafe { (*(pointer as *mut Storage)).pointer = pointer };
        self.threads.borrow_mut().insert(loom::thread::current().id(), pointer);
    }
}

/// The thread pointer of the scenario's running thread.
pub fn thread_pointer() -> Option<usize> {
    let run = run()?;
    let threads = run.threads.borrow();
    threads.get(&loom::thread::current().id()).copied()
}

/// The block of the thread with this pointer.
pub fn block_of(pointer: usize) -> *mut u8 {
    (pointer + core::mem::offset_of!(Storage, block)) as *mut u8
}

/// A thread id for each of the scenario's threads.
pub fn tid() -> Option<u32> {
    let pointer = thread_pointer()?;
    Some((pointer >> 6) as u32)
}

/// What attaching does in the scenario.
pub fn attach(forked: bool) -> Option<Outcome> {
    let run = run()?;
    run.attached.set(run.attached.get() + 1);
    run.attach.get().map(|attach| attach(forked))
}

/// How often the scenario has attached.
fn times_attached() -> u32 {
    run().map_or(0, |run| run.attached.get())
}

/// Has this function attach in the scenario.
fn attach_by(attach: fn(bool) -> Outcome) {
    run().expect("a scenario runs").attach.set(Some(attach));
}

/// Starts another thread of the scenario.
fn spawn<T: 'static>(body: impl FnOnce() -> T + 'static) -> loom::thread::JoinHandle<T> {
    let run = run().expect("a scenario runs");
    run.spawned.set(run.spawned.get() + 1);
    let number = run.spawned.get();
    loom::thread::spawn(move || {
        run.begin_thread(number);
        body()
    })
}

/// Starts another thread of the scenario that records already when this returns, so that only its
/// `body` runs at the same time as this thread.
fn spawn_recording<T: 'static>(
    body: impl FnOnce(&'static Thread) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let (is_ready, ready) = loom::sync::mpsc::channel();
    let spawned = spawn(move || {
        let thread = here();
        is_ready.send(()).unwrap();
        body(thread)
    });
    ready.recv().unwrap();
    spawned
}

/// The running thread, which records from now on.
fn here() -> &'static Thread {
    own(gate_itself::recording().expect("the process is attached"))
}

/// A thread's block, which the thread's own code may use.
fn own(thread: &Thread) -> &'static Thread {
    // SAFETY: the block lives as long as the run.
    unsafe { &*core::ptr::from_ref(thread) }
}

/// A scenario that outlives its exploration.
#[derive(Clone, Copy)]
struct Scenario(*const (dyn Fn() + 'static));
// SAFETY: `loom` runs all threads of a scenario on the thread that explores it.
unsafe impl Send for Scenario {}
// SAFETY: as above.
unsafe impl Sync for Scenario {}

impl Scenario {
    fn run(self) {
        // SAFETY: `explore` has the scenario, and returns after the last run.
        unsafe { (*self.0)() }
    }
}

/// Explores a scenario.
fn explore(scenario: impl Fn()) {
    tprof_wire::sync::model(&Modelled);
    let scenario: &dyn Fn() = &scenario;
    // SAFETY: only the lifetime changes, and `Scenario` is not used after this function.
    let scenario = Scenario(unsafe { core::mem::transmute(scenario) });
    KNOWN.with(|known| known.borrow_mut().clear());
    let storages = Box::into_raw(Box::new(new_storages())) as usize;
    let mut is_first = true;
    loop {
        HAS_GROWN.set(false);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(INTERRUPTIONS);
        builder.max_branches = MAX_BRANCHES;
        // One run finds nearly all words that several threads access.
        builder.max_permutations = is_first.then_some(1);
        let runs = Arc::new(AtomicUsize::new(0));
        let count = runs.clone();
        // All runs of an exploration must be alike, so what they add is known in the next one only.
        let known = KNOWN.with(|known| known.borrow().clone());
        let result = catch_unwind(AssertUnwindSafe(|| {
            builder.check(move || {
                count.fetch_add(1, Ordering::Relaxed);
                let words = known.iter().map(|(&at, &bytes)| {
                    let place = WordPlace { at, bytes };
                    (at, Rc::new(Word::new(place, initial(place))))
                });
                let run = Rc::new(Run {
                    words: RefCell::new(words.collect()),
                    threads: RefCell::default(),
                    storages: storages as *mut Storages,
                    spawned: Cell::new(0),
                    attach: Cell::new(None),
                    attached: Cell::new(0),
                });
                // SAFETY: no thread of the run before is left.
                unsafe { *run.storages = new_storages() };
                run.begin_thread(0);
                RUN.with(|place| place.replace(Some(run)));
                scenario.run();
                RUN.with(|place| place.replace(None));
            });
        }));
        RUN.with(|place| place.replace(None));
        if let Err(panic) = result {
            resume_unwind(panic);
        }
        let has_grown = HAS_GROWN.get();
        if !has_grown && !is_first {
            println!("{} runs", runs.load(Ordering::Relaxed));
            return;
        }
        is_first = has_grown && is_first;
    }
}
