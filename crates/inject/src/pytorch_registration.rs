//! The state of the callbacks that [`crate::operators`] registers with PyTorch. It has two parts:
//! how far the registration has come, which a forked child must know, and which callbacks PyTorch
//! calls now. It calls that of the operators only while recording is on, only in steps whose
//! operators are recorded ([`set_paused`]), and only until `--budget` ends that. It calls that of
//! the ranges only while recording is on in the session, or if steps must be counted; usually it is
//! registered only while a range begins (`operators/range_requests.rs`).
//!
//! For each operator with a callback, PyTorch makes an object and copies inputs into it. That takes
//! a third of the time of small operators, even if the callback does nothing. And as long as there is
//! any callback, even of ranges alone or a disabled one, PyTorch copies its list of callbacks
//! whenever autograd changes a thread's state, which takes 2 % of a step that launches small kernels.
//! So callbacks are removed, and added again when they are wanted. In versions of PyTorch whose
//! `at::removeCallback` isn't safe while other threads run operators, that of the operators is
//! disabled instead, and that of the ranges stays.
//!
//! PyTorch's functions that add, remove, disable and enable callbacks take a lock, and PyTorch's list
//! of callbacks may grow under it. So [`sync_callbacks`] is called only where this thread can't hold
//! that lock. These places are callbacks, CUDA hooks, functions that the program itself calls, and
//! allocations with an alignment, which tensors have and lists don't. Once the process is exiting,
//! it does nothing, since PyTorch's list is destroyed then.

use crate::seccomp::{CallClass, is_forbidden};
use crate::{loaded, state};
use core::ffi::{c_int, c_void};
use tprof_wire::region::{off, thinned};
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

/// The callback of operators, as a bit.
pub const OPERATORS: u32 = 1;
/// The callback of ranges, as a bit.
pub const RANGES: u32 = 2;

/// A callback that can be taken from PyTorch and given back.
struct Callback {
    bit: u32,
    /// PyTorch's handle of it, which stays the last one while the callback is removed; 0 if the
    /// callback isn't registered or may no longer be used.
    handle: AtomicU64,
    /// Address of the function that adds it and returns its handle.
    add: AtomicUsize,
}

impl Callback {
    const fn new(bit: u32) -> Callback {
        Callback { bit, handle: AtomicU64::new(0), add: AtomicUsize::new(0) }
    }
}

static CALLBACKS: [Callback; 2] = [Callback::new(OPERATORS), Callback::new(RANGES)];
/// Address of PyTorch's function that removes or disables a callback.
static TAKE: AtomicUsize = AtomicUsize::new(0);
/// Address of PyTorch's function that enables a disabled callback; 0 if callbacks are removed.
static ENABLE: AtomicUsize = AtomicUsize::new(0);
/// The callbacks that PyTorch can be made not to call.
static SWITCHABLE: AtomicU32 = AtomicU32::new(0);
/// The callbacks that PyTorch doesn't call now.
static MISSING: AtomicU32 = AtomicU32::new(0);
/// 1 while operators are not recorded even if recording is on, see [`set_paused`].
static PAUSED: AtomicU32 = AtomicU32::new(0);

/// PyTorch's function that takes a callback's handle.
pub type ByHandle = unsafe extern "C" fn(u64);

/// How PyTorch is made to stop calling a callback and to call it again.
#[derive(Clone, Copy)]
pub enum Switching {
    /// By `at::removeCallback`, and by adding the callback again.
    Remove(ByHandle),
    /// By `at::disableCallback` and `at::reenableCallback`, for operators only.
    Disable(ByHandle, ByHandle),
}

/// A function that gives a callback to PyTorch and returns its handle.
pub type Add = extern "C" fn() -> u64;

/// Called when the callbacks of operators and of ranges were registered with these handles, by
/// these functions. Without `how`, PyTorch always calls them. `ranges` is `None` if the callback of
/// ranges is registered only while a range begins.
pub fn registered(operators: (u64, Add), ranges: Option<(u64, Add)>, how: Option<Switching>) {
    let (take, enable, switchable) = match how {
        Some(Switching::Remove(remove)) => {
            (remove as usize, 0, OPERATORS | if ranges.is_some() { RANGES } else { 0 })
        }
        Some(Switching::Disable(disable, enable)) => (disable as usize, enable as usize, OPERATORS),
        None => (0, 0, 0),
    };
    TAKE.store(take, Relaxed);
    ENABLE.store(enable, Relaxed);
    MISSING.store(0, Relaxed);
    SWITCHABLE.store(switchable, Relaxed);
    // Exit functions run in reverse order of their registration. PyTorch's list was made earlier,
    // so [`drop_callbacks`] runs before the list is destroyed. In a program that is linked with
    // PyTorch, this library's own destructor runs first.
    if forget_at_exit() {
        for (callback, (handle, add)) in CALLBACKS
            .iter()
            .zip([Some(operators), ranges])
            .filter_map(|(of, known)| Some((of, known?)))
        {
            callback.add.store(add as usize, Relaxed);
            callback.handle.store(handle, Release);
        }
    }
}

/// Called when PyTorch is unloaded or the process exits, since the callbacks may no longer be used
/// then.
pub fn drop_callbacks() {
    CALLBACKS.iter().for_each(|callback| callback.handle.store(0, Relaxed));
    MISSING.store(0, Relaxed);
}

/// Makes the C library call [`drop_callbacks`] when the process exits. Returns false if it can't.
fn forget_at_exit() -> bool {
    static IS_DONE: AtomicU32 = AtomicU32::new(0);
    type AtExit = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, usize) -> c_int;
    extern "C" fn at_exit(_: *mut c_void) {
        drop_callbacks();
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

/// Whether PyTorch must call a callback again that it doesn't call now.
#[inline(always)]
pub fn must_restore() -> bool {
    let missing = MISSING.load(Relaxed);
    missing != 0 && missing & wanted() != 0
}

/// Whether PyTorch calls other callbacks than it must.
#[inline(always)]
pub fn must_switch() -> bool {
    MISSING.load(Relaxed) != unwanted()
}

/// The callbacks that PyTorch must call now.
#[inline(always)]
fn wanted() -> u32 {
    let Some(header) = state::header().filter(|_| state::PHASE.load(Relaxed) != state::phase::OFF)
    else {
        return 0;
    };
    let off = header.off.load(Relaxed);
    let operators = off == 0 && PAUSED.load(Relaxed) == 0 && !header.is_thinned(thinned::OPERATORS);
    let ranges = off & off::SESSION == 0 || off & off::STEPS != 0;
    (u32::from(operators) * OPERATORS) | (u32::from(ranges) * RANGES)
}

/// Whether PyTorch must call the callback of ranges for a range that begins now.
pub fn wants_ranges() -> bool {
    are_registered() && wanted() & RANGES != 0
}

/// Whether callbacks were registered, and may still be used.
fn are_registered() -> bool {
    let [operators, _] = &CALLBACKS;
    operators.handle.load(Acquire) != 0
}

/// The callbacks that PyTorch must not call now.
#[inline(always)]
fn unwanted() -> u32 {
    SWITCHABLE.load(Relaxed) & !wanted()
}

/// Makes PyTorch call the wanted callbacks from now on, and no others. This thread must not hold
/// PyTorch's lock. The ends of operators and ranges that have begun are still reported.
#[cold]
#[inline(never)]
pub fn sync_callbacks() {
    // Recording may be switched again while this runs.
    while MISSING.load(Acquire) != unwanted() && !is_forbidden(CallClass::Threads) {
        let Some(switch) = Switch::take() else { return };
        for callback in &CALLBACKS {
            // Another thread may have switched the callback in the meantime.
            let must_miss = unwanted() & callback.bit != 0;
            if must_miss != (MISSING.load(Acquire) & callback.bit != 0) {
                switch.set(callback, !must_miss);
                match must_miss {
                    true => MISSING.fetch_or(callback.bit, AcqRel),
                    false => MISSING.fetch_and(!callback.bit, AcqRel),
                };
            }
        }
    }
}

/// Whether [`set_paused`] can have an effect.
pub fn can_pause() -> bool {
    SWITCHABLE.load(Relaxed) & OPERATORS != 0
}

/// Pauses the operators' callback although recording is on, or ends the pause. This thread must not
/// hold PyTorch's lock.
pub fn set_paused(paused: bool) {
    PAUSED.store(u32::from(paused), Relaxed);
    sync_callbacks();
}

/// Exists while one thread switches callbacks, which may take PyTorch's lock. If a child is forked
/// meanwhile, the phase tells it so.
struct Switch;

impl Switch {
    /// Returns `None` if there are no callbacks, or if another thread is switching them.
    fn take() -> Option<Switch> {
        PROCESS.store(state::PID.load(Relaxed), Relaxed);
        PHASE.compare_exchange(phase::DONE, phase::REGISTERS, AcqRel, Relaxed).ok()?;
        let switch = Switch;
        are_registered().then_some(switch)
    }

    /// Makes PyTorch call a callback, or stop calling it. The functions for this must be known.
    fn set(&self, callback: &Callback, wanted: bool) {
        let handle = callback.handle.load(Acquire);
        let (take, enable) = (TAKE.load(Relaxed), ENABLE.load(Relaxed));
        if wanted && enable == 0 {
            // SAFETY: `registered` stored a function of this type. PyTorch is still loaded: when it
            // is unloaded, `drop_callbacks` clears the handles.
            let add: Add = unsafe { core::mem::transmute(callback.add.load(Relaxed)) };
            // The process may have begun to exit, and then the new handle isn't used either.
            let _ = callback.handle.compare_exchange(handle, add(), AcqRel, Relaxed);
        } else {
            // SAFETY: `registered` stored functions of this type. The handle is that of a callback
            // which PyTorch has, enabled or disabled, and PyTorch is still loaded.
            unsafe {
                let change: ByHandle = core::mem::transmute(if wanted { enable } else { take });
                change(handle);
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

    /// The callbacks that PyTorch calls.
    static CALLED: AtomicU32 = AtomicU32::new(OPERATORS | RANGES);
    /// Number of calls that changed nothing.
    static REPEATED: AtomicU32 = AtomicU32::new(0);
    /// The handle of each callback.
    static HANDLES: [AtomicU64; 2] = [AtomicU64::new(1001), AtomicU64::new(2001)];

    fn bit_of(handle: u64) -> u32 {
        let at = HANDLES.iter().position(|of| of.load(SeqCst) == handle).unwrap();
        1 << at
    }

    fn begin_calling(bit: u32) {
        REPEATED.fetch_add(u32::from(CALLED.fetch_or(bit, SeqCst) & bit != 0), SeqCst);
    }

    unsafe extern "C" fn enable(handle: u64) {
        begin_calling(bit_of(handle));
    }

    unsafe extern "C" fn take(handle: u64) {
        let bit = bit_of(handle);
        REPEATED.fetch_add(u32::from(CALLED.fetch_and(!bit, SeqCst) & bit == 0), SeqCst);
    }

    extern "C" fn add_operators() -> u64 {
        begin_calling(OPERATORS);
        HANDLES[0].fetch_add(1, SeqCst) + 1
    }

    extern "C" fn add_ranges() -> u64 {
        begin_calling(RANGES);
        HANDLES[1].fetch_add(1, SeqCst) + 1
    }

    // This is a single test, since the process has only one list of callbacks.
    #[test]
    fn pytorch_calls_exactly_the_wanted_callbacks_after_concurrent_switches() {
        let _alone = crate::testing::alone();
        let words = vec![0u64; size_of::<RegionHeader>().div_ceil(8) + 8].leak();
        let region = words.as_mut_ptr().cast::<u8>();
        let region = region.wrapping_add(region.align_offset(64));
        state::REGION.store(region, SeqCst);
        let header = state::header().unwrap();
        let settle = |off: u32| {
            header.off.store(off, SeqCst);
            let start = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        start.wait();
                        sync_callbacks();
                    });
                }
            });
            sync_callbacks();
            assert!(!must_restore());
            CALLED.load(SeqCst)
        };
        for (how, ranges) in
            [(Switching::Disable(take, enable), RANGES), (Switching::Remove(take), 0)]
        {
            set_phase(phase::NONE);
            assert!(begin());
            let handles = HANDLES.each_ref().map(|of| of.load(SeqCst));
            let ranges_too = Some((handles[1], add_ranges as Add));
            registered((handles[0], add_operators), ranges_too, Some(how));
            set_phase(phase::DONE);
            for _ in 0..500 {
                assert_eq!(settle(off::SESSION | off::UNCOUNTED), ranges);
                assert_eq!(settle(off::SESSION | off::UNCOUNTED | off::STEPS), RANGES);
                assert_eq!(settle(off::SCHEDULE), RANGES);
                assert_eq!(settle(0), OPERATORS | RANGES);
            }
        }
        assert_eq!(HANDLES.each_ref().map(|of| of.load(SeqCst)), [1501, 2501]);
        assert_eq!(REPEATED.load(SeqCst), 0);
        // Without a callback of ranges that stays, only that of operators is switched.
        let handle = HANDLES[0].load(SeqCst);
        registered((handle, add_operators), None, Some(Switching::Remove(take)));
        set_phase(phase::DONE);
        assert_eq!(settle(off::SESSION | off::UNCOUNTED), RANGES);
        assert!(!wants_ranges());
        assert_eq!(settle(0), OPERATORS | RANGES);
        assert!(wants_ranges());
        // Once operators cost too much, they aren't recorded any more.
        header.thinned.store(thinned::OPERATORS, SeqCst);
        assert_eq!(settle(0), RANGES);
        header.thinned.store(0, SeqCst);
        assert_eq!(settle(0), OPERATORS | RANGES);
        drop_callbacks();
        assert!(!wants_ranges());
        set_phase(phase::NONE);
        SWITCHABLE.store(0, SeqCst);
        state::REGION.store(core::ptr::null_mut(), SeqCst);
    }
}
