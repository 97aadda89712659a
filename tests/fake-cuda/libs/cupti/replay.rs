//! Replays what a real CUPTI did, in place of the simulation: `FAKE_CUPTI_REPLAY=FILE`, where FILE was
//! made by `TPROF_CUPTI_RECORD` (`crates/agent/src/gpu/raw.rs`, `journal.rs`). Only its first process
//! is replayed.
//!
//! Buffers are requested and returned at the recorded times, on as many threads, in the recorded
//! order. Buffers that were returned during a flush are returned during a flush here, too. Calls have
//! the recorded results, and the clock goes on from the recorded time. A program waits for the end
//! with `cuptiReplayed`, which real CUPTI doesn't have.

use crate::recording::{
    CLOCKS, COMPLETED, DROPPED, ENABLED, Entry, FLUSHED, REGISTERED, REQUESTED, Recording,
};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, mpsc};
use std::time::Duration;
use tprof_cupti_sys::bindings::*;
use tprof_fake_cuda::engine;

type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = unsafe extern "C" fn(CUcontext, u32, *mut u8, usize, usize);

/// A recording that is being replayed.
pub struct Replay {
    /// Version of the recorded CUPTI.
    pub version: u32,
    sizes: HashMap<u32, usize>,
    entries: Vec<Entry>,
    /// The bytes of each buffer, by the number of its loan.
    contents: Mutex<HashMap<u64, Vec<u8>>>,
    started_ns: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    client: Option<(Request, Complete)>,
    started: bool,
    done: bool,
    /// Memory that the client lent, by the number of the loan.
    lent: HashMap<u64, (usize, usize)>,
    /// Buffers to return during the client's next flush.
    due: VecDeque<(u64, u32)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Returns the recording, if there is one to replay.
pub fn replay() -> Option<&'static Replay> {
    static REPLAY: OnceLock<Option<Replay>> = OnceLock::new();
    REPLAY.get_or_init(|| Replay::of(&std::env::var("FAKE_CUPTI_REPLAY").ok()?)).as_ref()
}

impl Replay {
    fn of(path: &str) -> Option<Replay> {
        let recording = Recording::of(&std::fs::read(path).ok()?)?;
        Some(Replay {
            version: recording.version,
            sizes: recording.sizes,
            entries: recording.entries,
            contents: Mutex::new(recording.contents),
            started_ns: (engine().now)(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn began_ns(&self) -> u64 {
        self.entries.first().map_or(0, |entry| entry.at_ns)
    }

    /// Returns the time of the recorded clock, which goes on.
    pub fn timestamp(&self) -> u64 {
        let clocks = self.entries.iter().find(|e| e.what == CLOCKS && e.numbers[2] == 0);
        let (at_ns, time) = clocks.map_or((0, 0), |e| (e.at_ns, e.numbers[0]));
        let since = (engine().now)() - self.started_ns;
        (time + self.began_ns() + since).wrapping_sub(at_ns)
    }

    /// Returns the bytes of a record.
    pub fn size(&self, kind: CUpti_ActivityKind) -> usize {
        self.sizes.get(&kind).copied().unwrap_or(0)
    }

    /// Takes a client's functions, and returns the recorded result.
    pub fn register(&self, request: Request, complete: Complete) -> CUptiResult {
        lock(&self.state).client = Some((request, complete));
        self.result(|e| e.what == REGISTERED, 0)
    }

    /// Returns the recorded result for a kind. The replay begins with the first call.
    pub fn enable(&'static self, kind: CUpti_ActivityKind) -> CUptiResult {
        if !std::mem::replace(&mut lock(&self.state).started, true) {
            std::thread::spawn(|| self.run());
        }
        self.result(|e| e.what == ENABLED && e.numbers[0] == u64::from(kind), 1)
    }

    fn result(&self, which: impl Fn(&Entry) -> bool, number: usize) -> CUptiResult {
        self.entries
            .iter()
            .find(|e| which(e))
            .map_or(CUPTI_SUCCESS, |e| e.numbers[number] as CUptiResult)
    }

    /// Handles a flush of the client: returns the buffers that were returned in the recorded flush.
    pub fn flush(&self) -> CUptiResult {
        static TURN: AtomicU64 = AtomicU64::new(0);
        loop {
            let Some((loan, stream)) = lock(&self.state).due.pop_front() else { break };
            self.give_back(loan, stream);
        }
        let turn = TURN.fetch_add(1, Relaxed) as usize;
        let flushes = self.entries.iter().filter(|e| e.what == FLUSHED);
        flushes.map(|e| e.numbers[1] as CUptiResult).nth(turn).unwrap_or(CUPTI_SUCCESS)
    }

    /// Whether the entry was made while a flush ran.
    fn in_flush(&self, entry: &Entry) -> bool {
        let mut flushes = self.entries.iter().filter(|e| e.what == FLUSHED);
        flushes.any(|f| {
            f.thread == entry.thread
                && f.at_ns <= entry.at_ns
                && entry.at_ns <= f.at_ns + f.numbers[2]
        })
    }

    /// Replays the entries, at their times and on their threads, one after the other.
    fn run(&'static self) {
        let mut threads: HashMap<u32, mpsc::Sender<Entry>> = HashMap::new();
        let (done, is_done) = mpsc::channel();
        for entry in &self.entries {
            let due_ns = entry.at_ns - self.began_ns();
            let now_ns = (engine().now)() - self.started_ns;
            std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns)));
            match entry.what {
                COMPLETED if self.in_flush(entry) => {
                    lock(&self.state).due.push_back((entry.numbers[0], entry.numbers[2] as u32));
                }
                REQUESTED | COMPLETED => {
                    let thread =
                        threads.entry(entry.thread).or_insert_with(|| self.thread(done.clone()));
                    let _ = thread.send(*entry);
                    let _ = is_done.recv();
                }
                DROPPED => {
                    crate::faults::DROPPED.fetch_add(entry.numbers[0] as usize, SeqCst);
                }
                _ => {}
            }
        }
        lock(&self.state).done = true;
        self.changed.notify_all();
    }

    fn thread(&'static self, done: mpsc::Sender<()>) -> mpsc::Sender<Entry> {
        let (sender, work) = mpsc::channel::<Entry>();
        std::thread::spawn(move || {
            for entry in work {
                if entry.what == REQUESTED {
                    self.request(entry.numbers[0]);
                } else {
                    self.give_back(entry.numbers[0], entry.numbers[2] as u32);
                }
                let _ = done.send(());
            }
        });
        sender
    }

    fn request(&self, loan: u64) {
        let Some((request, _)) = lock(&self.state).client else { return };
        let (mut at, mut bytes, mut most) = (std::ptr::null_mut(), 0, 0);
        // SAFETY: the client registered this function of CUPTI's type, and the pointers are to locals.
        unsafe { request(&raw mut at, &raw mut bytes, &raw mut most) };
        if loan != 0 && !at.is_null() {
            lock(&self.state).lent.insert(loan, (at as usize, bytes));
        }
    }

    fn give_back(&self, loan: u64, stream: u32) {
        let mut state = lock(&self.state);
        let (Some((_, complete)), Some((at, bytes))) = (state.client, state.lent.remove(&loan))
        else {
            return;
        };
        drop(state);
        let data = lock(&self.contents).remove(&loan).unwrap_or_default();
        let valid = data.len().min(bytes);
        if valid < data.len() {
            crate::complain("a buffer is smaller than the recorded one");
        }
        // SAFETY: the client lent memory that is at least as long as the content.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), at as *mut u8, valid);
            complete(std::ptr::null_mut(), stream, at as *mut u8, bytes, valid);
        }
    }
}

/// Waits until every entry was replayed and a flush has returned the last buffers. Returns false
/// without a recording.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiReplayed() -> bool {
    let Some(replay) = replay() else { return false };
    let mut state = lock(&replay.state);
    while !state.done || !state.due.is_empty() {
        let wait = replay.changed.wait_timeout(state, Duration::from_millis(20));
        state = wait.unwrap_or_else(|e| e.into_inner()).0;
    }
    true
}
