//! The lifetime of the CUPTI agent. The driver calls `InitializeInjection`, which starts the agent
//! here, and the agent flushes CUPTI until the process ends.
//!
//! While CUPTI has buffers of the agent, the agent's thread flushes once a second, so that a killed
//! job loses at most one second. The thread also decodes each buffer as soon as it is full; the
//! job's own threads only lend and mark buffers. At each flush, and before it reads a buffer, the
//! thread reads CUPTI's clock between two readings of tprof's clock.

use super::client::{early, intercepted};
use super::clock::join_clocks;
use super::cupti::{Cupti, Unfit};
use super::deliver::{self, Delivering};
use super::devices;
use super::journal::{self, JournalEvent};
use super::loader::Loader;
use super::notes::{note, reason, refused, without};
use super::places::{self, Missing};
use super::raw::Raw;
use super::reader::{Interner, count_lost, keep, read};
use super::stalls::{self, Stalls};
use super::{buffers, detach, kinds, started, streams, subscriber};
use core::ffi::{c_int, c_void};
use tprof_cupti_sys::*;
use tprof_inject::block::Thread;
use tprof_inject::path::Path;
use tprof_inject::{
    agent_link, attach, environment, gate, interned, loaded, required_syscalls, state, sys,
};
use tprof_wire::env;
use tprof_wire::gpu::trouble;
use tprof_wire::handshake::hello_flags;
use tprof_wire::sync::{AtomicU32, Ordering::*};

/// Interval of flushes while buffers come back. A killed job can lose the records of this time.
const FLUSH_NS: u64 = 1_000_000_000;
/// Number of flushes without a returned buffer after which the agent flushes less often. A kernel
/// may be running for long, or another client has taken over the callbacks and gets the buffers.
const IN_VAIN: u32 = 3;
/// Longest time between two flushes, as a multiple of [`FLUSH_NS`]. It is well below the 30 s for
/// which the collector waits for the kernel of a launch.
const LONGEST: u64 = 8;
/// Interval while there is nothing to flush. The thread then waits for CUPTI's next request for a
/// buffer.
const IDLE_NS: u64 = 3600 * FLUSH_NS;
/// Interval at which the agent checks whether recording is on again. For most work this check isn't
/// needed: the work begins with a hooked call, and the hook makes CUPTI record.
const LOOK_NS: u64 = 20_000_000;
/// Interval at which the agent makes a call that CUPTI records, while the hooks record the calls
/// that start work. From the number and time of this call, the collector knows which hooked calls
/// were before it and which after it.
const MARK_NS: u64 = 10_000_000;
/// Maximum time that the end of a process or of a context waits for the last records.
const LAST_NS: u64 = 2_000_000_000;

/// Newest version of CUPTI whose records the agent knows: 13.5 with its updates.
const NEWEST: u32 = 130_599;

/// State of the agent.
static PHASE: AtomicU32 = AtomicU32::new(IDLE);
const IDLE: u32 = 0;
const STARTED: u32 = 1;
const STOPPING: u32 = 2;
const DONE: u32 = 3;
/// Number of flushes that threads have requested.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// Number of requested flushes that are done. Threads wait on it as a futex.
static ANSWERED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn __cxa_atexit(call: extern "C" fn(*mut c_void), data: *mut c_void, of: *mut c_void) -> c_int;
}

/// Sets up what must exist before the first record, such as the flag from which the collector knows
/// that this library is the agent.
pub fn prepare() {
    attach::HELLO_FLAGS.store(hello_flags::AGENT, Relaxed);
    required_syscalls::follow_preloaded();
    agent_link::find();
    interned::prepare();
}

/// Starts recording the work of devices. The driver's `cuInit` calls this.
pub fn start() {
    journal::begin();
    journal::keep(JournalEvent::Began, [0; 3]);
    if !set_up() {
        started::give_up();
        early::hand_back();
    }
    journal::keep(JournalEvent::SetUp, [0; 3]);
}

/// Sets up CUPTI. Returns whether CUPTI now calls the agent's callbacks.
fn set_up() -> bool {
    let loader = Loader::find();
    // The injection library that the job named itself starts first, since it expects to find CUPTI
    // unused.
    let chained = loader.as_ref().is_none_or(chain);
    prepare();
    let Some(thread) = gate::recording() else { return false };
    if !chained {
        let named = environment::variable(env::NEXT_INJECTION).unwrap_or_default();
        let why = reason(b"CUDA_INJECTION64_PATH names a library that does not load", named);
        note(thread, trouble::NOT_CHAINED, 1, why.as_c().to_bytes());
    }
    let Some(loader) = loader else {
        note(thread, trouble::NO_CUPTI, 1, b"the C library has no dlopen");
        return false;
    };
    begin(thread, &loader)
}

fn begin(thread: &Thread, loader: &Loader) -> bool {
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
    if !buffers::prepare(&cupti) {
        return without(thread, b"there is no address space for CUPTI's buffers", b"");
    }
    let Some(create) = loaded::libc_function(c"pthread_create") else {
        return without(thread, b"the C library has no pthread_create", b"");
    };
    let apart = subscriber::of(&cupti, loader, &found);
    if apart.is_none() {
        cupti.set_up();
    }
    if intercepted::is_other(loader, found.handle) {
        early::hand_back();
    }
    intercepted::prepare(loader, found.handle);
    early::flush();
    let Some(cupti) = register(thread, cupti, &apart) else { return false };
    started::start(cupti);
    early::go_on(thread, &cupti);
    PHASE.store(STARTED, Release);
    join_clocks(thread, &cupti);
    let on = kinds::enable(thread, &cupti);
    stalls::prepare(thread, &cupti, loader, &found);
    kinds::follow(thread, &cupti, resume);
    // The agent's thread starts last, so that no two threads call CUPTI during the setup.
    if !spawn(create) {
        PHASE.store(DONE, Release);
        without(thread, b"no thread could be started for CUPTI's records", b"");
        return true;
    }
    if on > 0 {
        // SAFETY: `leave` has the type that `__cxa_atexit` calls, and the driver never unloads the
        // agent.
        unsafe { __cxa_atexit(leave, core::ptr::null_mut(), core::ptr::null_mut()) };
        at_quick_exit();
        agent_link::call_at_once(leave_at_once);
    }
    true
}

/// Registers the agent's callbacks. If `apart` has the interface for several clients, the agent
/// registers as one of them, otherwise through the older interface. Returns the CUPTI that accepted
/// the callbacks.
fn register(thread: &Thread, cupti: Cupti, apart: &Option<Cupti>) -> Option<Cupti> {
    let result = apart.as_ref().map_or(CUPTI_ERROR_NOT_SUPPORTED, deliver::register);
    if let Some(apart) = apart.filter(|_| result == CUPTI_SUCCESS) {
        return Some(apart);
    }
    if apart.is_some() || subscriber::is_asked() {
        refused(thread, &cupti, b"a subscription beside other clients (cuptiSubscribe_v2)", result);
    }
    if apart.is_some() {
        cupti.set_up();
    }
    let result = deliver::register(&cupti);
    if result != CUPTI_SUCCESS {
        refused(thread, &cupti, b"all records of devices", result);
        return None;
    }
    Some(cupti)
}

/// Makes `quick_exit` call [`leave`], if the C library supports that.
fn at_quick_exit() {
    type AtQuickExit = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void) -> c_int;
    if let Some(register) = loaded::libc_function(c"__cxa_at_quick_exit") {
        // SAFETY: the C library's function of this name has this type; `leave` has the type that it
        // calls, and the agent is never unloaded.
        unsafe {
            let register: AtQuickExit = core::mem::transmute(register);
            register(leave, core::ptr::null_mut());
        }
    }
}

/// Starts the injection library that the job named itself. Returns false if it doesn't load.
fn chain(loader: &Loader) -> bool {
    let Some(next) = environment::variable(env::NEXT_INJECTION).filter(|text| !text.is_empty())
    else {
        return true;
    };
    let Some(path) = Path::of(&[next]) else { return false };
    const NOW: c_int = 2;
    let Some(handle) = loader.open(path.as_c(), NOW) else { return false };
    if let Some(entry) = loader.symbol(handle, c"InitializeInjection") {
        // SAFETY: CUDA defines `InitializeInjection` with this type, and without tprof the driver
        // would call it at this point too.
        unsafe {
            let entry: unsafe extern "C" fn() -> c_int = core::mem::transmute(entry);
            entry();
        }
    }
    true
}

/// Starts the agent's thread with all signals blocked, so that the job's handlers never run on it.
fn spawn(create: usize) -> bool {
    type Create = unsafe extern "C" fn(
        *mut usize,
        *const c_void,
        extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> c_int;
    let mut thread = 0;
    let mask = sys::block_signals();
    // SAFETY: `create` is the C library's `pthread_create`; `work` runs without arguments for the
    // process's life.
    let error = unsafe {
        let create: Create = core::mem::transmute(create);
        create(&raw mut thread, core::ptr::null(), work, core::ptr::null_mut())
    };
    sys::restore_signals(mask);
    error == 0
}

extern "C" fn work(_: *mut c_void) -> *mut c_void {
    let (Some(cupti), Some(thread)) = (started::cupti(), gate::recording()) else {
        PHASE.store(DONE, Release);
        return core::ptr::null_mut();
    };
    thread.masked.set(true);
    sys::name_thread(c"tprof-cupti");
    started::begin_thread();
    let mut flushing = Flushing {
        cupti,
        thread,
        names: Interner::new(cupti),
        raw: Raw::wanted(cupti.version),
        stalls: Stalls::wanted(thread, cupti),
        due_ns: 0,
        in_vain: 0,
        requests: 0,
        looked_ns: sys::monotonic_ns(),
        off_ns: None,
    };
    let mut is_up = false;
    loop {
        let seen = buffers::wakes();
        let last = PHASE.load(Acquire) == STOPPING;
        let resumes = kinds::is_paused() && agent_link::is_on(thread);
        if !is_up && !last && (resumes || buffers::REQUESTS.load(Acquire) > 0) {
            started::wait_for_driver();
            is_up = true;
        }
        let asked = ASKED.load(Acquire);
        let is_asked = asked != ANSWERED.load(Relaxed);
        let is_attached = detach::inside(|| {
            if is_up {
                if kinds::relies_on_hooks() && !kinds::is_paused() {
                    streams::mark();
                }
                if !last {
                    flushing.follow();
                }
            }
            flushing.round(last, is_asked);
            if is_up {
                flushing.sample(last || is_asked);
            }
        });
        if is_asked {
            ANSWERED.store(asked, Release);
            sys::futex_wake(ANSWERED.as_ptr(), u32::MAX >> 1);
        }
        if last {
            PHASE.store(DONE, Release);
            sys::futex_wake(PHASE.as_ptr(), u32::MAX >> 1);
            return core::ptr::null_mut();
        }
        if is_attached {
            let rest_ns = flushing.rest_ns();
            buffers::wait(seen, rest_ns.min(flushing.most_ns()));
        } else {
            // The client that detached CUPTI may still be in one of CUPTI's callbacks, so CUPTI is
            // not set up again at once.
            buffers::wait(buffers::wakes(), FLUSH_NS);
            detach::attach_again();
        }
    }
}

/// Whether recording pauses only for short times, because steps without recording are compared with
/// recorded steps.
fn has_short_pauses() -> bool {
    state::header().is_some_and(|header| header.short_pauses.load(Relaxed) != 0)
}

/// State of the agent's thread, which this crate also calls the flush thread.
struct Flushing {
    cupti: Cupti,
    thread: &'static Thread,
    names: Interner,
    raw: Option<Raw>,
    /// Sampling of kernels' instructions, if the user asks for it.
    stalls: Option<Stalls>,
    /// Time of the next flush (CLOCK_MONOTONIC); 0 while CUPTI has no buffer of the agent's.
    due_ns: u64,
    /// Number of flushes since a buffer last came back or CUPTI last requested one.
    in_vain: u32,
    requests: u64,
    /// Time of the last check whether recording is on (CLOCK_MONOTONIC).
    looked_ns: u64,
    /// Time at which this thread first saw recording off (CLOCK_MONOTONIC), while CUPTI still
    /// records.
    off_ns: Option<u64>,
}

impl Flushing {
    /// Makes CUPTI record while recording is on, and only then. After recording is switched off,
    /// CUPTI continues for one flush interval, since work that was launched before has yet to end.
    /// It stops sooner if steps without recording are compared with recorded ones, which must not
    /// include CUPTI's cost. If this function resumes CUPTI, and not a hook, the work that had
    /// begun before is not recorded.
    fn follow(&mut self) {
        let lasts_ns = if has_short_pauses() { 2 * LOOK_NS } else { FLUSH_NS };
        let now_ns = sys::monotonic_ns();
        let before_ns = core::mem::replace(&mut self.looked_ns, now_ns);
        if kinds::is_paused() {
            if kinds::follow(self.thread, &self.cupti, resume) {
                note(self.thread, trouble::RESUMED, now_ns.saturating_sub(before_ns), b"");
            }
        } else if agent_link::is_on(self.thread) {
            self.off_ns = None;
        } else if now_ns.saturating_sub(*self.off_ns.get_or_insert(now_ns)) >= lasts_ns {
            self.off_ns = None;
            kinds::follow(self.thread, &self.cupti, resume);
        }
    }

    /// Flushes if it is time to, and reads the buffers that came back. It doesn't call CUPTI before
    /// CUPTI has requested a buffer: nothing could come back, and the driver may still be starting.
    fn round(&mut self, last: bool, is_asked: bool) {
        let requests = buffers::REQUESTS.load(Acquire);
        if requests == 0 {
            return;
        }
        if requests != self.requests {
            (self.requests, self.in_vain) = (requests, 0);
        }
        let is_out = buffers::OUT.load(Acquire) > 0;
        let now_ns = sys::monotonic_ns();
        let due = is_out && (is_asked || self.due_ns != 0 && now_ns >= self.due_ns);
        if last || due {
            self.flush(last);
        }
        if self.read() || !is_out {
            self.in_vain = 0;
        }
        buffers::keep_ready();
        if last || due {
            devices::describe(self.thread);
            count_lost(self.thread, &self.cupti);
        }
        if last {
            join_clocks(self.thread, &self.cupti);
        }
        if let Some(raw) = &self.raw {
            journal::write(raw);
        }
        if buffers::OUT.load(Acquire) == 0 {
            self.due_ns = 0;
        } else if self.due_ns == 0 || due {
            if self.due_ns == 0 && requests > 1 {
                // CUPTI was idle until now. Readings of both clocks at this time are close to the
                // records that follow.
                join_clocks(self.thread, &self.cupti);
            }
            let times = 1 << self.in_vain.saturating_sub(IN_VAIN).min(LONGEST.ilog2());
            self.due_ns = now_ns + times * FLUSH_NS;
        }
    }

    /// Reads samples of instructions. If a context or the process is about to end, ends sampling.
    fn sample(&mut self, is_ending: bool) {
        if let Some(stalls) = &mut self.stalls {
            let is_on = !kinds::is_paused() && agent_link::is_on(self.thread);
            stalls.round(self.thread, is_on, is_ending);
        }
    }

    fn flush(&mut self, last: bool) {
        join_clocks(self.thread, &self.cupti);
        // At the end, incomplete buffers are read as well, since they won't ever become complete.
        let how = if last { CUPTI_ACTIVITY_FLAG_FLUSH_FORCED } else { 0 };
        let _busy = Delivering::begin();
        let began_ns = journal::now_ns();
        // SAFETY: `flush` is `cuptiActivityFlushAll`. It is called from the agent's thread and
        // outside of CUPTI's callbacks, as CUPTI's header demands.
        let result = buffers::during_flush(how, || unsafe { (self.cupti.flush)(how) });
        let took_ns = journal::now_ns().wrapping_sub(began_ns);
        journal::keep_at(
            JournalEvent::Flushed,
            began_ns,
            [u64::from(how), u64::from(result), took_ns],
        );
        self.in_vain = self.in_vain.saturating_add(1);
    }

    /// Reads the buffers that came back. Returns whether there was one.
    fn read(&mut self) -> bool {
        let mut any = false;
        while let Some(done) = buffers::next() {
            any = true;
            join_clocks(self.thread, &self.cupti);
            if let Some(raw) = &self.raw {
                keep(raw, &self.cupti, &done);
            }
            read(self.thread, &self.cupti, &mut self.names, &done);
            buffers::recycle(done);
        }
        any
    }

    /// Maximum time to sleep until the next check of recording or the next marking call is due.
    fn most_ns(&self) -> u64 {
        let until_samples_ns = match buffers::REQUESTS.load(Acquire) {
            0 => u64::MAX,
            _ => self.stalls.as_ref().map_or(u64::MAX, Stalls::most_ns),
        };
        self.most_between_checks_ns().min(until_samples_ns)
    }

    fn most_between_checks_ns(&self) -> u64 {
        if kinds::is_paused() || has_short_pauses() {
            LOOK_NS
        } else if kinds::relies_on_hooks() && buffers::OUT.load(Acquire) > 0 {
            MARK_NS
        } else {
            u64::MAX
        }
    }

    /// Time until the next flush is due. The thread may be woken earlier.
    fn rest_ns(&self) -> u64 {
        match self.due_ns {
            0 => IDLE_NS,
            due_ns => due_ns.saturating_sub(sys::monotonic_ns()).max(1),
        }
    }
}

/// Called by a hook when a thread of the job makes a call that must be recorded while CUPTI is
/// paused.
extern "C" fn resume() {
    if let (Some(cupti), Some(thread)) = (started::cupti(), gate::recording()) {
        if buffers::REQUESTS.load(Acquire) == 0 {
            // The flush thread has not waited for the driver yet, and another thread may still be
            // in `cuInit`.
            started::wait_for_driver();
        }
        kinds::follow(thread, &cupti, resume);
    }
}

/// Makes the agent flush. Called before this thread destroys a context, with which CUPTI would drop
/// the records that it has buffered. NVIDIA's samples flush there, too. Returns once the flush is
/// done, or after two seconds.
pub fn flush_before_end() {
    if started::cupti().is_none() || PHASE.load(Acquire) != STARTED {
        return;
    }
    let wanted = ASKED.fetch_add(1, AcqRel).wrapping_add(1);
    buffers::wake();
    let is_done = || (ANSWERED.load(Acquire).wrapping_sub(wanted) as i32) >= 0;
    wait_for(&ANSWERED, || is_done() || PHASE.load(Acquire) != STARTED);
}

/// Called when another client begins to sample instructions or to count on devices. Makes the agent
/// end its sampling, and returns once it has, or after two seconds.
pub fn leave_sampling() {
    if stalls::has_other() {
        flush_before_end();
    }
}

/// Waits on a futex until `is_done` returns true, or for [`LAST_NS`].
fn wait_for(futex: &AtomicU32, is_done: impl Fn() -> bool) {
    const ROUND_NS: u64 = 10_000_000;
    let mut left = LAST_NS;
    loop {
        let seen = futex.load(Acquire);
        if is_done() || left == 0 {
            return;
        }
        sys::futex_wait(futex.as_ptr(), seen, ROUND_NS);
        left = left.saturating_sub(ROUND_NS);
    }
}

/// Saves the last records. `exit` calls this before CUPTI's own destructors, and `quick_exit` calls
/// it too.
extern "C" fn leave(_: *mut c_void) {
    leave_at_once();
}

/// Saves the last records. The hooks of `_exit` call this, possibly in a signal handler. If another
/// thread is already here, this waits for the same flush, since the process would otherwise end
/// before that flush is complete.
extern "C" fn leave_at_once() {
    // Before Linux 4.14, a forked child still has its parent's state here and must not act on it.
    if started::cupti().is_none() || sys::pid() != state::PID.load(Relaxed) {
        return;
    }
    match PHASE.compare_exchange(STARTED, STOPPING, AcqRel, Acquire) {
        Ok(_) => buffers::wake(),
        Err(STOPPING) => {}
        Err(_) => return,
    }
    wait_for(&PHASE, || PHASE.load(Acquire) == DONE);
}
