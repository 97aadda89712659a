//! Begins, goes on, and ends: what `InitializeInjection` starts.
//!
//! One thread of ours flushes ten times a second, so that a job that is killed
//! has lost no more than that, and turns records into ours; the job's own
//! threads only lend and mark buffers. At each flush, and before each buffer is
//! read, CUPTI's clock is read between two readings of ours.

use super::buffers;
use super::clock::join_clocks;
use super::cupti::{Cupti, Unfit};
use super::journal::{self, What};
use super::loader::Loader;
use super::notes::{note, reason, refused, without};
use super::places::{self, Missing};
use super::raw::Raw;
use super::reader::{Interner, count_lost, keep, read};
use super::texts;
use crate::block::Thread;
use crate::state::WIPED;
use crate::{attach, calls_made, environment, gate, loaded, sys};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use tprof_cupti_sys::*;
use tprof_wire::env;
use tprof_wire::gpu::trouble;
use tprof_wire::handshake::hello_flags;

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
    journal::begin();
    journal::keep(What::Began, [0; 3]);
    set_up();
    journal::keep(What::SetUp, [0; 3]);
}

fn set_up() {
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
    journal::keep(What::Registered, [u64::from(result), 0, 0]);
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
        journal::keep(What::Enabled, [u64::from(kind), u64::from(result), 0]);
        if result == CUPTI_SUCCESS {
            on += 1;
            if kind == CUPTI_ACTIVITY_KIND_RUNTIME {
                // The hooks' records of calls that begin from here on are not needed.
                note(thread, trouble::RECORDS_CALLS, 0, b"");
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
        let began_ns = journal::now_ns();
        // SAFETY: from a thread of ours, outside any callback of CUPTI's; no other flushes.
        let result = unsafe { (cupti.flush)(how) };
        let took_ns = journal::now_ns().wrapping_sub(began_ns);
        journal::keep_at(What::Flushed, began_ns, [u64::from(how), u64::from(result), took_ns]);
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
        }
        if let Some(raw) = &raw {
            journal::write(raw);
        }
        if last {
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
