//! Registers tprof's callbacks with PyTorch once PyTorch is loaded.
//!
//! The check whether PyTorch is loaded runs only at times when the current thread holds no lock of
//! PyTorch's, and everything that PyTorch needs is completely loaded. This holds when this library
//! starts, since its constructor runs after those of the libraries that a program is linked with.
//! It also holds when Python looks up the entry point of a module that it has loaded. It doesn't
//! hold when a thread begins, since another thread may be in `dlopen`.

use super::callbacks::{self, EndCallback, StartCallback};
use super::{layout, range_requests};
use crate::block::Thread;
use crate::loaded::{self, Loaded};
use crate::pytorch_registration::{self, Add, ByHandle, Switching, phase};
use crate::{gate, interned, ring, state};
use tprof_wire::operators::{SCOPES, USER_SCOPE, mode, note};
use tprof_wire::record::ExtKind;
use tprof_wire::sync::{AtomicU32, AtomicUsize, Ordering::*};

const LIBRARY: &[u8] = b"libtorch_cpu.so";

/// PyTorch's `at::RecordFunctionCallback`, which C++ code passes by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct RecordFunctionCallback {
    start: StartCallback,
    end: EndCallback,
    probability: f64,
    scopes: [bool; SCOPES],
    needs_inputs: bool,
    needs_outputs: bool,
    needs_ids: bool,
}

/// Address of `at::addGlobalCallback` in the library with which the callbacks are registered.
static ADD: AtomicUsize = AtomicUsize::new(0);
/// Address of `at::addThreadLocalCallback`; 0 if that library lacks it.
static ADD_OF_THREAD: AtomicUsize = AtomicUsize::new(0);
/// 1 if the operators' callback reads the sizes of inputs.
static WITH_SIZES: AtomicU32 = AtomicU32::new(0);
/// 1 if the ranges' callback reads autograd's sequence numbers.
static WITH_NUMBERS: AtomicU32 = AtomicU32::new(0);
/// Number of objects that the loader had loaded at the last search.
static LOADED: AtomicUsize = AtomicUsize::new(0);

/// Registers the callbacks if the run wants them, PyTorch is loaded, and they are not registered
/// yet.
pub fn register_callbacks() {
    if pytorch_registration::current_phase() == phase::DONE {
        return;
    }
    let Some(thread) = gate::recording() else { return };
    // If a fork interrupted the search in the parent, it begins again here. If the fork came after
    // the call of PyTorch, that isn't possible, since PyTorch's lock may be locked forever in the
    // child.
    if pytorch_registration::interrupted_by_fork() == Some(phase::BUSY) {
        LOADED.store(0, Relaxed);
        pytorch_registration::set_phase(phase::NONE);
    }
    if pytorch_registration::current_phase() != phase::NONE {
        return;
    }
    let wanted = state::OPERATORS.load(Relaxed);
    if wanted == mode::OFF || thread.is_quiet() {
        return;
    }
    let count = loaded::count();
    if LOADED.swap(count, Relaxed) == count {
        return;
    }
    let Some(torch) = loaded::named(LIBRARY) else { return };
    if pytorch_registration::begin() {
        register(thread, &torch, wanted);
        pytorch_registration::set_phase(phase::DONE);
        pytorch_registration::sync_callbacks();
    }
}

fn register(thread: &Thread, torch: &Loaded, wanted: u32) {
    let path = interned::id(thread, ExtKind::Name, torch.path.to_bytes());
    let say = |what, number| {
        let words = [number, u64::from(path)];
        ring::ext(thread, ExtKind::OperatorNote, what, thread.clock(), &words);
    };
    let add = torch.function(c"_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
    let layout = layout::find(torch);
    let (Some(add), Some(layout)) = (add, layout) else {
        return say(note::NO_SYMBOLS, 0);
    };
    ADD.store(add, Relaxed);
    let with_sizes = wanted == mode::SHAPES && layout.is_ok();
    if let Err(why) = layout {
        say(note::NO_SIZES, why);
    }
    WITH_SIZES.store(u32::from(with_sizes), Relaxed);
    WITH_NUMBERS.store(u32::from(layout.is_ok()), Relaxed);
    pytorch_registration::set_phase(phase::REGISTERS);
    let switching = switching(torch);
    let operators = (add_operators(), add_operators as Add);
    let of_thread = torch.function(c"_ZN2at22addThreadLocalCallbackENS_22RecordFunctionCallbackE");
    ADD_OF_THREAD.store(of_thread.unwrap_or(0), Relaxed);
    let ranges = match switching {
        Some(Switching::Remove(remove))
            if of_thread.is_some() && range_requests::begin(torch, remove) =>
        {
            None
        }
        _ => Some((add_ranges(), add_ranges as Add)),
    };
    pytorch_registration::registered(operators, ranges, switching);
    let recorded = if wanted == mode::SHAPES && !with_sizes { mode::NAMES } else { wanted };
    say(note::ARMED, u64::from(recorded));
}

/// Gives PyTorch the operators' callback, and returns PyTorch's handle of it. [`register`] must have
/// found out how.
extern "C" fn add_operators() -> u64 {
    let with_sizes = WITH_SIZES.load(Relaxed) != 0;
    let start = if with_sizes { callbacks::with_sizes } else { callbacks::operator };
    let operators = callback(start as StartCallback, callbacks::end, |scope| scope != USER_SCOPE);
    add_callback(&ADD, RecordFunctionCallback { needs_inputs: with_sizes, ..operators })
}

/// Does the same for the ranges' callback.
extern "C" fn add_ranges() -> u64 {
    add_callback(&ADD, ranges())
}

/// Gives PyTorch the ranges' callback for the current thread only, and returns PyTorch's handle of
/// it.
pub(super) fn add_ranges_of_thread() -> u64 {
    add_callback(&ADD_OF_THREAD, ranges())
}

fn ranges() -> RecordFunctionCallback {
    let needs_inputs = WITH_NUMBERS.load(Relaxed) != 0;
    let ranges = callback(callbacks::range, callbacks::range_end, |scope| scope == USER_SCOPE);
    RecordFunctionCallback { needs_inputs, ..ranges }
}

/// `add` holds the address of `at::addGlobalCallback` or `at::addThreadLocalCallback`.
fn add_callback(add: &AtomicUsize, callback: RecordFunctionCallback) -> u64 {
    // SAFETY: both functions have this type, and take the structure by value.
    unsafe {
        let add: unsafe extern "C" fn(RecordFunctionCallback) -> u64 =
            core::mem::transmute(add.load(Relaxed));
        add(callback)
    }
}

/// Finds out how PyTorch can be made not to call callbacks for a while.
fn switching(torch: &Loaded) -> Option<Switching> {
    let function = |name| {
        let at = torch.function(name)?;
        // SAFETY: PyTorch's functions of these names take a handle.
        Some(unsafe { core::mem::transmute::<usize, ByHandle>(at) })
    };
    // Since PyTorch has this function, its list of callbacks is behind a lock, and an operator keeps
    // its own copy of the callbacks whose ends it must call.
    let is_locked = torch.function(c"_ZN2at16getStepCallbacksENS_11RecordScopeE").is_some();
    if is_locked && let Some(remove) = function(c"_ZN2at14removeCallbackEm") {
        return Some(Switching::Remove(remove));
    }
    let disable = function(c"_ZN2at15disableCallbackEm")?;
    Some(Switching::Disable(disable, function(c"_ZN2at16reenableCallbackEm")?))
}

fn callback(
    start: StartCallback,
    end: EndCallback,
    wanted: impl Fn(u8) -> bool,
) -> RecordFunctionCallback {
    let mut scopes = [false; SCOPES];
    for (scope, is_wanted) in (0..).zip(&mut scopes) {
        *is_wanted = wanted(scope);
    }
    RecordFunctionCallback {
        start,
        end,
        probability: 1.0,
        scopes,
        needs_inputs: false,
        needs_outputs: false,
        needs_ids: false,
    }
}

/// Called when code was unloaded. If PyTorch was unloaded, it may be loaded and registered again.
pub fn unloaded() {
    LOADED.store(0, Relaxed);
    range_requests::unloaded();
    if pytorch_registration::current_phase() == phase::DONE && !loaded::is_loaded(ADD.load(Relaxed))
    {
        pytorch_registration::drop_callbacks();
        pytorch_registration::set_phase(phase::NONE);
    }
}
