//! Replays what a real CUPTI did, in place of the simulation: `FAKE_CUPTI_REPLAY=FILE`, a file that
//! `TPROF_CUPTI_RECORD` made (`crates/inject/src/gpu/raw.rs`, `journal.rs`), of its first process.
//!
//! Buffers are asked for and given back at the recorded times, on as many threads, in the
//! recorded order; what was given back during a flush is given back during one here. Calls have
//! the recorded results, the clock goes on from the recorded time. A program waits for the end
//! by `cuptiReplayed`, which no CUPTI has.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, mpsc};
use std::time::Duration;
use tprof_cupti_sys::bindings::*;
use tprof_fake_cuda::engine;

type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = unsafe extern "C" fn(CUcontext, u32, *mut u8, usize, usize);

/// Bytes of records by CUPTI's version, by NVIDIA's headers.
const SIZES: &str = include_str!("../../../../scripts/gpu-check/sizes.txt");
const HEAD: usize = 24;
const ENTRY: usize = 40;
/// Kinds of blocks.
const BUFFER: u32 = 1;
const TEXT: u32 = 2;
const JOURNAL: u32 = 3;
/// Entries of the journal.
const REGISTERED: u32 = 3;
const ENABLED: u32 = 4;
const REQUESTED: u32 = 7;
const COMPLETED: u32 = 8;
const FLUSHED: u32 = 9;
const CLOCKS: u32 = 10;
const DROPPED: u32 = 11;
const READ: u32 = 12;

#[derive(Clone, Copy)]
struct Entry {
    what: u32,
    thread: u32,
    at_ns: u64,
    numbers: [u64; 3],
}

/// A recording.
pub struct Replay {
    /// CUPTI's version.
    pub version: u32,
    sizes: HashMap<u32, usize>,
    entries: Vec<Entry>,
    /// What was in a buffer, by the number of its loan.
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
    /// Given back during the client's next flush.
    due: VecDeque<(u64, u32)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// The recording, if there is one to replay.
pub fn replay() -> Option<&'static Replay> {
    static REPLAY: OnceLock<Option<Replay>> = OnceLock::new();
    REPLAY
        .get_or_init(|| Replay::of(&std::fs::read(std::env::var("FAKE_CUPTI_REPLAY").ok()?).ok()?))
        .as_ref()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

fn wide(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}

fn sizes_of(version: u32) -> HashMap<u32, usize> {
    let rows = SIZES.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (of, rest) = line.split_once(' ')?;
        Some((of.parse::<u32>().ok()?, rest))
    });
    let newest = rows.filter(|(of, _)| *of <= version).max_by_key(|(of, _)| *of);
    let pairs = newest.map_or("", |(_, rest)| rest).split(' ');
    pairs
        .filter_map(|pair| pair.split_once(':')?.into())
        .filter_map(|(k, b): (&str, &str)| Some((k.parse().ok()?, b.parse().ok()?)))
        .collect()
}

impl Replay {
    /// Of a file's bytes; `None` if it holds none.
    fn of(file: &[u8]) -> Option<Replay> {
        let first = file.get(..HEAD)?;
        let (pid, version) = (word(first, 12), word(first, 16));
        let (mut texts, mut buffers, mut entries, mut at) =
            (BTreeMap::new(), VecDeque::new(), Vec::new(), 0);
        while let Some(head) = file.get(at..at + HEAD) {
            let body = file.get(at + HEAD..at + HEAD + word(head, 20) as usize)?;
            at += HEAD + body.len();
            match word(head, 8) {
                _ if word(head, 12) != pid => {}
                BUFFER => {
                    let mut buffer = body.to_vec();
                    name_texts(&mut buffer, &sizes_of(version), &texts);
                    buffers.push_back(buffer);
                }
                TEXT => {
                    let text = CString::new(&body[8..]).ok()?;
                    // Names outlive the process.
                    texts.insert(wide(body, 0), text.into_raw() as u64);
                }
                JOURNAL => entries.extend(body.chunks_exact(ENTRY).map(|e| Entry {
                    what: word(e, 0),
                    thread: word(e, 4),
                    at_ns: wide(e, 8),
                    numbers: [wide(e, 16), wide(e, 24), wide(e, 32)],
                })),
                _ => {}
            }
        }
        // Entries of several threads were kept in the order in which they took their places.
        entries.sort_by_key(|entry| entry.at_ns);
        let contents = number_loans(&mut entries, buffers);
        Some(Replay {
            version,
            sizes: sizes_of(version),
            entries,
            contents: Mutex::new(contents),
            started_ns: (engine().now)(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn began_ns(&self) -> u64 {
        self.entries.first().map_or(0, |entry| entry.at_ns)
    }

    /// The recorded clock, which goes on.
    pub fn timestamp(&self) -> u64 {
        let clocks = self.entries.iter().find(|e| e.what == CLOCKS && e.numbers[2] == 0);
        let (at_ns, time) = clocks.map_or((0, 0), |e| (e.at_ns, e.numbers[0]));
        let since = (engine().now)() - self.started_ns;
        (time + self.began_ns() + since).wrapping_sub(at_ns)
    }

    /// Bytes of a record.
    pub fn size(&self, kind: CUpti_ActivityKind) -> usize {
        self.sizes.get(&kind).copied().unwrap_or(0)
    }

    /// Takes a client's functions: the recorded result.
    pub fn register(&self, request: Request, complete: Complete) -> CUptiResult {
        lock(&self.state).client = Some((request, complete));
        self.result(|e| e.what == REGISTERED, 0)
    }

    /// What it returned for a kind; the replay begins with the first one.
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

    /// The client flushes: what was given back in a flush comes now.
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

    /// Whether it happened while a flush ran.
    fn in_flush(&self, entry: &Entry) -> bool {
        let mut flushes = self.entries.iter().filter(|e| e.what == FLUSHED);
        flushes.any(|f| {
            f.thread == entry.thread
                && f.at_ns <= entry.at_ns
                && entry.at_ns <= f.at_ns + f.numbers[2]
        })
    }

    /// Does what happened, at its time and on its thread, one after the other.
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
        // SAFETY: the client's function, with places for its answers.
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
        // SAFETY: memory that the client lent, at least as long.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), at as *mut u8, valid);
            complete(std::ptr::null_mut(), stream, at as *mut u8, bytes, valid);
        }
    }
}

/// Puts a loan's number in the place of its buffer's address, which is lent again and again; and
/// finds what was in it when it was read.
fn number_loans(entries: &mut [Entry], mut buffers: VecDeque<Vec<u8>>) -> HashMap<u64, Vec<u8>> {
    let mut loans = 0;
    let (mut lent, mut full) = (HashMap::new(), HashMap::<u64, VecDeque<u64>>::new());
    let mut contents = HashMap::new();
    for entry in entries {
        let address = entry.numbers[0];
        match entry.what {
            REQUESTED if address != 0 => {
                loans += 1;
                lent.insert(address, loans);
                entry.numbers[0] = loans;
            }
            COMPLETED => {
                entry.numbers[0] = lent.remove(&address).unwrap_or(0);
                full.entry(address).or_default().push_back(entry.numbers[0]);
            }
            READ => {
                let loan = full.get_mut(&address).and_then(VecDeque::pop_front);
                if let (Some(loan), Some(buffer)) = (loan, buffers.pop_front()) {
                    contents.insert(loan, buffer);
                }
            }
            _ => {}
        }
    }
    contents
}

/// Records name texts by address, which were another process's.
fn name_texts(buffer: &mut [u8], sizes: &HashMap<u32, usize>, texts: &BTreeMap<u64, u64>) {
    let mut at = 0;
    while at + 4 <= buffer.len() {
        let kind = word(buffer, at);
        let Some(size) = sizes.get(&kind).copied().filter(|size| at + size <= buffer.len()) else {
            return;
        };
        let name = match kind {
            CUPTI_ACTIVITY_KIND_KERNEL | CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL => {
                std::mem::offset_of!(CUpti_ActivityKernel9, name)
            }
            CUPTI_ACTIVITY_KIND_DEVICE => std::mem::offset_of!(CUpti_ActivityDevice4, name),
            CUPTI_ACTIVITY_KIND_MEMORY2 => std::mem::offset_of!(CUpti_ActivityMemory3, name),
            _ => 0,
        };
        if name > 0 {
            let text = texts.get(&wide(buffer, at + name)).copied().unwrap_or(0);
            buffer[at + name..at + name + 8].copy_from_slice(&text.to_ne_bytes());
        }
        at += size;
    }
}

/// Waits until all was replayed, and given back by a flush. False without a recording.
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
