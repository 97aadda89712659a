//! The state of the callbacks that [`crate::operators`] registers with PyTorch. It has two parts:
//! how far the registration has come, which a forked child must know, and whether PyTorch calls the
//! operators' callback now. PyTorch calls it only while recording is on, and only in steps whose
//! operators are recorded ([`set_paused`]).
//!
//! For each operator with a callback, PyTorch makes an object and copies inputs into it. That takes
//! a third of the time of small operators, even if the callback does nothing. So the operators'
//! callback is removed while recording is off. The ranges' callback stays: ranges are few, and a
//! schedule counts steps by them. A callback can also be disabled, but then it still costs: whenever
//! autograd changes a thread's state, PyTorch copies its list of callbacks, disabled ones too. It is
//! disabled only in versions of PyTorch whose `at::removeCallback` isn't safe while other threads run
//! operators.
//!
//! PyTorch's functions that add, remove, disable and enable callbacks take a lock, and PyTorch's list
//! of callbacks may grow under it. So [`sync_callback`] is called only where this thread can't hold
//! that lock. These places are callbacks, CUDA hooks, functions that the program itself calls, and
//! allocations with an alignment, which tensors have and lists don't. Once the process is exiting,
//! it does nothing, since PyTorch's list is destroyed then.

use crate::seccomp::{CallClass, is_forbidden};
use crate::{loaded, state};
use core::ffi::{c_int, c_void};
use tprof_wire::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// How far the registration has come in a process.
pub mod phase {
    /// PyTorch isn't loaded, or this library has not noticed it yet.
    pub const NONE: u32 = 0;
    /// A thread is finding out how to register the callbacks.
    pub const BUSY: u32 = 1;
    /// A thread is registering the callbacks, so it may hold PyTorch's lock.
    pub const REGISTERS: u32 = 2;
    /// The callbacks are registered, or can't be.
    pub const DONE: u32 = 3;
}

static PHASE: AtomicU32 = AtomicU32::new(phase::NONE);
/// Pid of the process whose thread is registering. A child that was forked during the registration
/// has another pid, and doesn't continue it.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The current [`phase`] of this process.
pub fn current_phase() -> u32 {
    PHASE.load(Acquire)
}

/// Changes to another [`phase`].
pub fn set_phase(phase: u32) {
    PHASE.store(phase, Release);
}

/// Begins the registration. Returns false if another thread has begun it.
pub fn begin() -> bool {
    PROCESS.store(state::PID.load(Relaxed), Relaxed);
    PHASE.compare_exchange(phase::NONE, phase::BUSY, AcqRel, Relaxed).is_ok()
}

/// How far a thread of the parent had come with the registration when this process was forked;
/// `None` if no thread was registering then.
pub fn interrupted_by_fork() -> Option<u32> {
    let phase = current_phase();
    let is_cut = matches!(phase, phase::BUSY | phase::REGISTERS)
        && PROCESS.load(Relaxed) != state::PID.load(Relaxed);
    is_cut.then_some(phase)
}

/// PyTorch's handle of the operators' callback, which stays the last one while the callback is
/// removed; 0 if the callback isn't registered or may no longer be used.
static HANDLE: AtomicU64 = AtomicU64::new(0);
/// Address of the function that takes the callback away from PyTorch; 0 if this PyTorch has none.
static TAKE: AtomicUsize = AtomicUsize::new(0);
/// Address of the function that gives it back, see [`Switching`].
static GIVE: AtomicUsize = AtomicUsize::new(0);
/// 1 if [`GIVE`] makes a new handle.
static GIVES_NEW: AtomicU32 = AtomicU32::new(0);
/// 1 while PyTorch doesn't call the operators' callback.
static DISABLED: AtomicU32 = AtomicU32::new(0);
/// 1 while operators are not recorded even if recording is on, see [`set_paused`].
static PAUSED: AtomicU32 = AtomicU32::new(0);

/// How PyTorch is made to stop calling the operators' callback and to call it again.
#[derive(Clone, Copy)]
pub enum Switching {
    /// By `at::removeCallback` and a function that adds the callback and returns its new handle.
    Remove(unsafe extern "C" fn(u64), extern "C" fn() -> u64),
    /// By `at::disableCallback` and `at::reenableCallback`.
    Disable(unsafe extern "C" fn(u64), unsafe extern "C" fn(u64)),
}

/// Called when the operators' callback was registered with this handle. Without `how`, PyTorch
/// always calls it.
pub fn registered(handle: u64, how: Option<Switching>) {
    let (take, give, gives_new) = match how {
        Some(Switching::Remove(take, give)) => (take as usize, give as usize, true),
        Some(Switching::Disable(take, give)) => (take as usize, give as usize, false),
        None => (0, 0, false),
    };
    GIVES_NEW.store(u32::from(gives_new), Relaxed);
    GIVE.store(give, Relaxed);
    TAKE.store(take, Relaxed);
    DISABLED.store(0, Relaxed);
    // Exit functions run in reverse order of their registration. PyTorch's list was made earlier,
    // so [`drop_callback`] runs before the list is destroyed. In a program that is linked with
    // PyTorch, this library's own destructor runs first.
    if forget_at_exit() {
        HANDLE.store(handle, Release);
    }
}

/// Called when PyTorch is unloaded or the process exits, since the callback may no longer be used
/// then.
pub fn drop_callback() {
    HANDLE.store(0, Relaxed);
    DISABLED.store(0, Relaxed);
}

/// Makes the C library call [`drop_callback`] when the process exits. Returns false if it can't.
fn forget_at_exit() -> bool {
    static IS_DONE: AtomicU32 = AtomicU32::new(0);
    type AtExit = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, usize) -> c_int;
    extern "C" fn at_exit(_: *mut c_void) {
        drop_callback();
    }
    if IS_DONE.load(Relaxed) == 0
        && let Some(register) = loaded::libc_function(c"__cxa_atexit")
    {
        // SAFETY: the C library's function of this name has this type; `at_exit` has the type that
        // it calls.
        let error = unsafe {
            core::mem::transmute::<usize, AtExit>(register)(at_exit, core::ptr::null_mut(), 0)
        };
        IS_DONE.store(u32::from(error == 0), Relaxed);
    }
    IS_DONE.load(Relaxed) != 0
}

/// Whether operators must be recorded now, but their callback is disabled.
#[inline(always)]
pub fn must_reenable() -> bool {
    DISABLED.load(Relaxed) != 0 && is_wanted()
}

#[inline(always)]
fn is_wanted() -> bool {
    PAUSED.load(Relaxed) == 0
        && state::PHASE.load(Relaxed) != state::phase::OFF
        && state::header().is_some_and(|header| header.off.load(Relaxed) == 0)
}

/// Makes PyTorch call the operators' callback from now on if operators must be recorded, and stop
/// calling it otherwise. This thread must not hold PyTorch's lock. The ends of operators that have
/// begun are still reported.
#[cold]
#[inline(never)]
pub fn sync_callback() {
    let differs = || is_wanted() != (DISABLED.load(Acquire) == 0);
    // Recording may be switched again while this runs.
    while can_pause() && !is_forbidden(CallClass::Threads) && differs() {
        let Some(switch) = Switch::take() else { return };
        // Another thread may have switched the callback in the meantime.
        let wanted = is_wanted();
        if wanted != (DISABLED.load(Acquire) == 0) {
            switch.set(wanted);
            DISABLED.store(u32::from(!wanted), Release);
        }
    }
}

/// Whether [`set_paused`] can have an effect.
pub fn can_pause() -> bool {
    TAKE.load(Relaxed) != 0
}

/// Pauses the operators' callback although recording is on, or ends the pause. This thread must not
/// hold PyTorch's lock.
pub fn set_paused(paused: bool) {
    PAUSED.store(u32::from(paused), Relaxed);
    sync_callback();
}

/// Exists while one thread switches the callback, which may take PyTorch's lock. If a child is
/// forked meanwhile, the phase tells it so.
struct Switch {
    handle: u64,
}

impl Switch {
    /// Returns `None` if there is no callback, or if another thread is switching it.
    fn take() -> Option<Switch> {
        PROCESS.store(state::PID.load(Relaxed), Relaxed);
        PHASE.compare_exchange(phase::DONE, phase::REGISTERS, AcqRel, Relaxed).ok()?;
        let switch = Switch { handle: HANDLE.load(Acquire) };
        (switch.handle != 0).then_some(switch)
    }

    /// Makes PyTorch call the callback, or stop calling it. The functions for this must be known.
    fn set(&self, wanted: bool) {
        let function = if wanted { &GIVE } else { &TAKE }.load(Relaxed);
        // SAFETY: `registered` stored functions of these types. The handle is that of a callback
        // which PyTorch has, or had disabled. PyTorch is still loaded: when it is unloaded,
        // `drop_callback` clears the handle.
        unsafe {
            if wanted && GIVES_NEW.load(Relaxed) != 0 {
                let give: extern "C" fn() -> u64 = core::mem::transmute(function);
                let handle = give();
                // The process may have begun to exit, and then the new handle isn't used either.
                let _ = HANDLE.compare_exchange(self.handle, handle, AcqRel, Relaxed);
            } else {
                let change: unsafe extern "C" fn(u64) = core::mem::transmute(function);
                change(self.handle);
            }
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        set_phase(phase::DONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_wire::region::RegionHeader;
    use tprof_wire::sync::AtomicBool;

    static IS_CALLED: AtomicBool = AtomicBool::new(true);
    static REPEATED: AtomicU32 = AtomicU32::new(0);
    /// The handle that the callback has in PyTorch's list.
    static CURRENT: AtomicU64 = AtomicU64::new(7);

    unsafe extern "C" fn enable(handle: u64) {
        assert_eq!(handle, CURRENT.load(SeqCst));
        REPEATED.fetch_add(IS_CALLED.swap(true, SeqCst).into(), SeqCst);
    }

    unsafe extern "C" fn disable(handle: u64) {
        assert_eq!(handle, CURRENT.load(SeqCst));
        REPEATED.fetch_add((!IS_CALLED.swap(false, SeqCst)).into(), SeqCst);
    }

    extern "C" fn add() -> u64 {
        REPEATED.fetch_add(IS_CALLED.swap(true, SeqCst).into(), SeqCst);
        CURRENT.fetch_add(1, SeqCst) + 1
    }

    // This is a single test, since the process has only one callback.
    #[test]
    fn the_callback_is_on_exactly_if_recording_is_after_concurrent_switches() {
        let _alone = crate::testing::alone();
        let words = vec![0u64; size_of::<RegionHeader>().div_ceil(8) + 8].leak();
        let region = words.as_mut_ptr().cast::<u8>();
        let region = region.wrapping_add(region.align_offset(64));
        state::REGION.store(region, SeqCst);
        let off = &state::header().unwrap().off;
        for how in [Switching::Disable(disable, enable), Switching::Remove(disable, add)] {
            set_phase(phase::NONE);
            assert!(begin());
            registered(CURRENT.load(SeqCst), Some(how));
            set_phase(phase::DONE);
            for round in (0..2_000).rev() {
                off.store(round % 2, SeqCst);
                let start = std::sync::Barrier::new(4);
                std::thread::scope(|scope| {
                    for _ in 0..4 {
                        scope.spawn(|| {
                            start.wait();
                            sync_callback();
                        });
                    }
                });
                sync_callback();
                assert_eq!(IS_CALLED.load(SeqCst), round % 2 == 0, "round {round}");
            }
        }
        assert_eq!(CURRENT.load(SeqCst), 1_007);
        assert_eq!(REPEATED.load(SeqCst), 0);
        drop_callback();
        set_phase(phase::NONE);
        state::REGION.store(core::ptr::null_mut(), SeqCst);
    }
}
