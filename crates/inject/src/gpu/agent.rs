//! Begins, goes on, and ends: what `InitializeInjection` starts.
//!
//! One thread of ours flushes ten times a second, so that a job that is killed
//! has lost no more than that, and turns records into ours; the job's own
//! threads only lend and mark buffers. At each flush, and before each buffer is
//! read, CUPTI's clock is read between two readings of ours.

use super::buffers::{self, Done};
use super::cupti::{Cupti, Unfit};
use super::decode::{self, Names, Skip};
use super::loader::Loader;
use super::places::{self, Missing};
use super::raw::Raw;
use super::texts;
use crate::block::Thread;
use crate::state::WIPED;
use crate::{attach, calls_made, environment, gate, loaded, ring, sys};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use tprof_cupti_sys::*;
use tprof_wire::env;
use tprof_wire::gpu::{ClockJoin, trouble};
use tprof_wire::handshake::hello_flags;
use tprof_wire::record::ExtKind;

/// What a kill can lose.
const FLUSH_NS: u64 = 100_000_000;
/// Buffers that wait before the flush thread is woken for them.
const WAKE_AT: u32 = 4;
/// How long the end of the process waits for the last records.
const LAST_NS: u64 = 2_000_000_000;

/// Newest version with known records: 13.5 with its updates.
const NEWEST: u32 = 130_599;

const KINDS: [(CUpti_ActivityKind, &[u8]); 13] = [
    (CUPTI_ACTIVITY_KIND_DEVICE, b"devices"),
    (CUPTI_ACTIVITY_KIND_CONTEXT, b"contexts"),
    (CUPTI_ACTIVITY_KIND_STREAM, b"streams"),
    (CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, b"kernels"),
    (CUPTI_ACTIVITY_KIND_MEMCPY, b"copies"),
    (CUPTI_ACTIVITY_KIND_MEMCPY2, b"peer copies"),
    (CUPTI_ACTIVITY_KIND_MEMSET, b"memsets"),
    (CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, b"synchronisations"),
    (CUPTI_ACTIVITY_KIND_RUNTIME, b"calls of the CUDA runtime"),
    (CUPTI_ACTIVITY_KIND_DRIVER, b"calls of the CUDA driver"),
    (CUPTI_ACTIVITY_KIND_MEMORY2, b"device memory"),
    (CUPTI_ACTIVITY_KIND_OVERHEAD, b"CUPTI's own overhead"),
    // Only of threads that push ids, those of the job's own profiler: else there are none.
    (CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, b"external ids"),
];

/// Where the agent stands.
static PHASE: AtomicU32 = AtomicU32::new(IDLE);
const IDLE: u32 = 0;
const STARTED: u32 = 1;
const STOPPING: u32 = 2;
const DONE: u32 = 3;
/// The process's generation when it started: a forked child has another.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Futex: raised to wake the flush thread.
static WAKE: AtomicU32 = AtomicU32::new(0);

/// CUPTI's functions, written once before [`PHASE`] becomes [`STARTED`].
struct CuptiCell(UnsafeCell<MaybeUninit<Cupti>>);
// SAFETY: written by one thread, read only after PHASE has changed.
unsafe impl Sync for CuptiCell {}
static CUPTI: CuptiCell = CuptiCell(UnsafeCell::new(MaybeUninit::uninit()));

fn cupti() -> Option<Cupti> {
    if PHASE.load(Acquire) == IDLE {
        return None;
    }
    // SAFETY: written before PHASE left IDLE, and never again.
    Some(unsafe { (*CUPTI.0.get()).assume_init() })
}

unsafe extern "C" {
    fn __cxa_atexit(call: extern "C" fn(*mut c_void), data: *mut c_void, of: *mut c_void) -> c_int;
}

/// What must be before the first record: this library identifies itself.
pub fn prepare() {
    attach::HELLO_FLAGS.store(hello_flags::AGENT, Relaxed);
    calls_made::follow_preloaded();
    texts::prepare();
}

/// Begins to record what the devices do. Called by the driver in `cuInit`.
pub fn start() {
    let loader = Loader::find();
    // First the library that was to be loaded before us: it expects to find CUPTI unused.
    let chained = loader.as_ref().is_none_or(chain);
    prepare();
    let Some(thread) = gate::recording() else { return };
    if !chained {
        let named = environment::variable(env::NEXT_INJECTION).unwrap_or_default();
        let why = reason(b"CUDA_INJECTION64_PATH names a library that does not load", named);
        note(thread, trouble::NOT_CHAINED, 1, why.as_c().to_bytes());
    }
    let Some(loader) = loader else {
        return note(thread, trouble::NO_CUPTI, 1, b"the C library has no dlopen");
    };
    begin(thread, &loader);
}

/// A sentence about a file; without its name if that is too long.
fn reason(why: &[u8], file: &[u8]) -> places::Path {
    let parts: &[&[u8]] = if file.is_empty() { &[why] } else { &[why, b": ", file] };
    places::Path::of(parts).or_else(|| places::Path::of(&[why])).unwrap_or_default()
}

/// Reports that CUPTI cannot be used.
fn without(thread: &Thread, why: &[u8], file: &[u8]) {
    note(thread, trouble::NO_CUPTI, 1, reason(why, file).as_c().to_bytes());
}

fn begin(thread: &Thread, loader: &Loader) {
    let found = match places::find(loader) {
        Ok(found) => found,
        Err(missing) => {
            let named = environment::variable(env::CUPTI).unwrap_or_default();
            let (why, file): (&[u8], &[u8]) = match missing {
                Missing::NoDriver => (b"the CUDA driver is not loaded", b""),
                Missing::NoFile => (b"TPROF_CUPTI names a file that is not there", named),
                Missing::Named => (b"TPROF_CUPTI names a file that does not load", named),
                Missing::NotCupti => (b"TPROF_CUPTI names a library that is not CUPTI", named),
                Missing::Nowhere => (
                    b"libcupti is not in the CUDA wheels or toolkit of this program; TPROF_CUPTI may name it",
                    b"",
                ),
            };
            return without(thread, why, file);
        }
    };
    let path = found.path.as_c().to_bytes();
    let cupti = match Cupti::of(loader, &found) {
        Ok(cupti) => cupti,
        Err(Unfit::Old) => return without(thread, b"this libcupti is older than CUDA 12.0", path),
        Err(Unfit::Lacks) => return without(thread, b"this libcupti lacks functions", path),
        Err(Unfit::Silent) => return without(thread, b"this libcupti does not start", path),
    };
    note(thread, trouble::USES, u64::from(cupti.version), found.path.as_c().to_bytes());
    if cupti.version > NEWEST {
        note(thread, trouble::NEWER, u64::from(cupti.version), b"");
    }
    if !buffers::prepare() {
        return without(thread, b"there is no address space for CUPTI's buffers", b"");
    }
    let Some(create) = loaded::libc_function(c"pthread_create") else {
        return without(thread, b"the C library has no pthread_create", b"");
    };
    cupti.set_up();
    // SAFETY: CUPTI's function with two functions of the types that it wants.
    let result = unsafe { (cupti.register)(Some(buffers::request), Some(complete)) };
    if result != CUPTI_SUCCESS {
        refused(thread, &cupti, b"all records of devices", result);
        return;
    }
    GENERATION.store(WIPED.generation.load(Acquire), Release);
    // SAFETY: no reader before PHASE changes.
    unsafe { (*CUPTI.0.get()).write(cupti) };
    PHASE.store(STARTED, Release);
    join_clocks(thread, &cupti);
    let mut on = 0;
    for (kind, what) in KINDS {
        // SAFETY: a number that CUPTI defines.
        let result = unsafe { (cupti.enable)(kind) };
        if result == CUPTI_SUCCESS {
            on += 1;
            if kind == CUPTI_ACTIVITY_KIND_RUNTIME {
                // The hooks' records of calls that begin from here on are not needed.
                note(thread, trouble::TELLS_CALLS, 0, b"");
            }
        } else {
            refused(thread, &cupti, what, result);
        }
    }
    // Last, so that no other thread calls CUPTI while it is being set up.
    if !spawn(create) {
        PHASE.store(DONE, Release);
        return without(thread, b"no thread could be started for CUPTI's records", b"");
    }
    if on > 0 {
        // SAFETY: a function of ours, for the process's life.
        unsafe { __cxa_atexit(leave, core::ptr::null_mut(), core::ptr::null_mut()) };
    }
}

/// Starts the library that the job had named; false if it does not load.
fn chain(loader: &Loader) -> bool {
    let Some(next) = environment::variable(env::NEXT_INJECTION).filter(|text| !text.is_empty())
    else {
        return true;
    };
    let Some(path) = places::Path::of(&[next]) else { return false };
    const NOW: c_int = 2;
    let Some(handle) = loader.open(path.as_c(), NOW) else { return false };
    if let Some(entry) = loader.symbol(handle, c"InitializeInjection") {
        // SAFETY: what the driver would have called, as it would have.
        unsafe {
            let entry: unsafe extern "C" fn() -> c_int = core::mem::transmute(entry);
            entry();
        }
    }
    true
}

fn note(thread: &Thread, what: u32, count: u64, why: &[u8]) {
    let text = texts::id(thread, why);
    let clock = thread.clock();
    ring::ext(thread, ExtKind::AgentNote, what, clock, &[count, u64::from(text)]);
}

fn refused(thread: &Thread, cupti: &Cupti, what: &[u8], result: CUptiResult) {
    if let Some(text) = places::Path::of(&[what, b": ", cupti.result_name(result)]) {
        note(thread, trouble::REFUSED, u64::from(result), text.as_c().to_bytes());
    }
}

/// A thread of ours, which no signal of the job reaches.
fn spawn(create: usize) -> bool {
    type Create = unsafe extern "C" fn(
        *mut usize,
        *const c_void,
        extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> c_int;
    let mut thread = 0;
    let mask = sys::block_signals();
    // SAFETY: found under this name in the C library.
    let error = unsafe {
        let create: Create = core::mem::transmute(create);
        create(&raw mut thread, core::ptr::null(), work, core::ptr::null_mut())
    };
    sys::restore_signals(mask);
    error == 0
}

/// CUPTI gives a buffer back.
unsafe extern "C" fn complete(
    context: CUcontext,
    stream: u32,
    buffer: *mut u8,
    bytes: usize,
    valid: usize,
) {
    // SAFETY: as CUPTI called this.
    unsafe { buffers::complete(context.cast(), stream, buffer, bytes, valid) };
    if buffers::WAITING.load(Acquire) >= WAKE_AT {
        wake();
    }
}

fn wake() {
    WAKE.fetch_add(1, Release);
    sys::futex_wake(WAKE.as_ptr(), 1);
}

/// Whether this is still the process that started the agent.
fn is_own_process() -> bool {
    let generation = GENERATION.load(Acquire);
    generation != 0 && WIPED.generation.load(Acquire) == generation
}

extern "C" fn work(_: *mut c_void) -> *mut c_void {
    let (Some(cupti), Some(thread)) = (cupti(), gate::recording()) else {
        PHASE.store(DONE, Release);
        return core::ptr::null_mut();
    };
    thread.masked.set(true);
    sys::name_thread(c"tprof-cupti");
    let mut names = Interner::new(cupti);
    let raw = Raw::wanted(cupti.version);
    let mut seen = WAKE.load(Acquire);
    loop {
        // First of all: the driver is not up yet when this thread begins.
        sys::futex_wait(WAKE.as_ptr(), seen, FLUSH_NS);
        seen = WAKE.load(Acquire);
        let last = PHASE.load(Acquire) == STOPPING;
        join_clocks(thread, &cupti);
        // At the end also what is not complete, since it never will be.
        let how = if last { CUPTI_ACTIVITY_FLAG_FLUSH_FORCED } else { 0 };
        // SAFETY: from a thread of ours, outside any callback of CUPTI's; no other flushes.
        unsafe { (cupti.flush)(how) };
        while let Some(done) = buffers::next() {
            join_clocks(thread, &cupti);
            if let Some(raw) = &raw {
                keep(raw, &cupti, &done);
            }
            read(thread, &cupti, &mut names, &done);
            buffers::recycle(done);
        }
        count_lost(thread, &cupti);
        if last {
            join_clocks(thread, &cupti);
            PHASE.store(DONE, Release);
            sys::futex_wake(PHASE.as_ptr(), u32::MAX >> 1);
            return core::ptr::null_mut();
        }
    }
}

/// `exit` runs this, before CUPTI's own destructors.
extern "C" fn leave(_: *mut c_void) {
    if !is_own_process() || PHASE.compare_exchange(STARTED, STOPPING, AcqRel, Acquire).is_err() {
        return;
    }
    wake();
    let mut left = LAST_NS;
    const ROUND_NS: u64 = 10_000_000;
    while PHASE.load(Acquire) != DONE && left > 0 {
        sys::futex_wait(PHASE.as_ptr(), STOPPING, ROUND_NS);
        left = left.saturating_sub(ROUND_NS);
    }
}

/// Reads CUPTI's clock between two readings of ours; the closest of some.
fn join_clocks(thread: &Thread, cupti: &Cupti) {
    // A thread that is put off between readings is a poor sample: some more are tried then.
    const TRIES: u32 = 12;
    static CLOSEST: AtomicU64 = AtomicU64::new(u64::MAX);
    let mut best = (0, u64::MAX, 0);
    for tried in 0..TRIES {
        let good = CLOSEST.load(Relaxed).saturating_mul(2);
        if tried >= 3 && best.1 <= good {
            break;
        }
        let mut foreign = 0;
        let before = thread.clock();
        // SAFETY: a place for the answer.
        let result = unsafe { (cupti.timestamp)(&raw mut foreign) };
        let width = thread.clock().wrapping_sub(before);
        if result == CUPTI_SUCCESS && width < best.1 {
            best = (before + width / 2, width, foreign);
        }
    }
    let (clock, width_ticks, foreign_ns) = best;
    CLOSEST.fetch_min(width_ticks, Relaxed);
    if width_ticks != u64::MAX {
        let join = ClockJoin { foreign_ns, width_ticks };
        ring::ext(thread, ExtKind::ClockJoin, 0, clock, &join.pack());
    }
}

/// Keeps a buffer as it is, behind the texts that it names.
#[cold]
fn keep(raw: &Raw, cupti: &Cupti, done: &Done) {
    let mut record = core::ptr::null_mut();
    // SAFETY: a buffer that CUPTI completed, and the record before in it.
    while unsafe { (cupti.next)(done.at, done.valid, &raw mut record) } == CUPTI_SUCCESS
        && !record.is_null()
    {
        // SAFETY: a record that CUPTI returned, in a buffer that is still ours.
        unsafe { raw.text_of(record) };
    }
    // SAFETY: CUPTI filled so much of a buffer of ours.
    raw.buffer(unsafe { core::slice::from_raw_parts(done.at, done.valid) });
}

/// Turns a buffer's records into ours.
fn read(thread: &Thread, cupti: &Cupti, names: &mut Interner, done: &Done) {
    let mut record = core::ptr::null_mut();
    let (mut no_times, mut unknown) = (0u64, 0u64);
    let clock = thread.clock();
    let result = loop {
        // SAFETY: a buffer that CUPTI completed, and the record before in it.
        let result = unsafe { (cupti.next)(done.at, done.valid, &raw mut record) };
        if result != CUPTI_SUCCESS || record.is_null() {
            break result;
        }
        // SAFETY: a record that CUPTI returned, in a buffer that is still ours.
        match unsafe { decode::decode(record, names) } {
            Ok(decoded) => {
                let lasting =
                    matches!(decoded.kind, ExtKind::Device | ExtKind::Context | ExtKind::Stream);
                if lasting || thread.is_on() {
                    ring::ext(thread, decoded.kind, 0, clock, decoded.payload());
                }
            }
            Err(Skip::NoTimes) => no_times += 1,
            Err(Skip::Unknown) => unknown += 1,
            Err(Skip::Idle) => {}
        }
    };
    if result != CUPTI_ERROR_MAX_LIMIT_REACHED {
        let at = if record.is_null() { done.at as usize } else { record as usize };
        let left = done.valid - (at - done.at as usize).min(done.valid);
        note(thread, trouble::UNREADABLE, left as u64, cupti.result_name(result));
    }
    if no_times > 0 {
        note(thread, trouble::NO_TIMES, no_times, b"");
    }
    if unknown > 0 {
        note(thread, trouble::UNKNOWN_KIND, unknown, b"");
    }
}

fn count_lost(thread: &Thread, cupti: &Cupti) {
    let mut dropped = 0usize;
    // SAFETY: a place for the answer; no lock of ours is held.
    let result = unsafe { (cupti.dropped)(core::ptr::null_mut(), 0, &raw mut dropped) };
    if result == CUPTI_SUCCESS && dropped > 0 {
        note(thread, trouble::DROPPED, dropped as u64, b"");
    }
    let refused = buffers::REFUSED.swap(0, Relaxed);
    if refused > 0 {
        note(thread, trouble::NO_BUFFER, refused, b"");
    }
}

/// Numbers of calls with remembered names, in each domain.
const CALLS: usize = 2048;
static CALL_NAMES: [[AtomicU32; CALLS]; 2] = [const { [const { AtomicU32::new(0) }; CALLS] }; 2];

/// Text ids for the flush thread.
struct Interner {
    cupti: Cupti,
}

impl Interner {
    fn new(cupti: Cupti) -> Interner {
        Interner { cupti }
    }
}

impl Names for Interner {
    #[inline]
    fn text(&mut self, text: &[u8]) -> u32 {
        gate::recording().map_or(0, |thread| texts::id(thread, text))
    }

    #[inline]
    fn call(&mut self, domain: CUpti_CallbackDomain, number: u32) -> u32 {
        let list = CALL_NAMES.get((domain == CUPTI_CB_DOMAIN_DRIVER_API) as usize);
        let known = list.and_then(|list| list.get(number as usize));
        if let Some(id) = known.map(|known| known.load(Relaxed)).filter(|id| *id != 0) {
            return id;
        }
        let name = self.cupti.call_name(domain, number).map_or(&b""[..], CStr::to_bytes);
        let id = self.text(name);
        if let Some(known) = known {
            known.store(id, Relaxed);
        }
        id
    }
}
