//! The callbacks that PyTorch calls when an operator or a range begins and ends.

use super::layout::{self, LAYOUT};
use super::open::{self, Taken};
use super::{budget, sizes, step_sampling};
use crate::block::Thread;
use crate::real::text;
use crate::schedule::{self, Source};
use crate::state::is_thinned;
use crate::{capture, gate, interned, pytorch_registration, ring};
use core::ffi::c_void;
use tprof_wire::capture::CaptureTrigger;
use tprof_wire::operators::{Inputs, RangeEdge};
use tprof_wire::pytorch::{LOADER_FETCH, OPTIMIZER_STEP, PROFILER_STEP};
use tprof_wire::record::ExtKind;
use tprof_wire::region::thinned;
use tprof_wire::schedule::is_epoch;
use tprof_wire::sync::Ordering::Relaxed;

/// `std::unique_ptr<ObserverContext> (*)(const RecordFunction&)`. By the C++ ABI, the first
/// argument is the address where the returned pointer is stored.
pub type StartCallback = unsafe extern "C" fn(*mut usize, usize) -> *mut usize;
/// `void (*)(const RecordFunction&, ObserverContext*)`.
pub type EndCallback = unsafe extern "C" fn(usize, *mut c_void);

/// Called when an operator begins.
pub unsafe extern "C" fn operator(context: *mut usize, function: usize) -> *mut usize {
    // SAFETY: PyTorch passes an address for the context and its `RecordFunction`, as `begin`
    // demands.
    unsafe { begin(context, function, false) }
}

/// Called when an operator begins and its inputs are available.
pub unsafe extern "C" fn with_sizes(context: *mut usize, function: usize) -> *mut usize {
    // SAFETY: PyTorch passes an address for the context and its `RecordFunction`, as `begin`
    // demands.
    unsafe { begin(context, function, true) }
}

/// Called when an operator ends.
pub unsafe extern "C" fn end(function: usize, _: *mut c_void) {
    let Some(thread) = gate::recording() else { return };
    let clock = thread.clock();
    let Some(open) = open::of(thread) else { return };
    let Some(taken) = open.take(function) else { return };
    let payload = [clock.saturating_sub(taken.start), taken.inputs];
    ring::quick(thread, ExtKind::Operator, taken.name, clock, &payload);
    budget::ends(thread, open, clock);
}

/// Called when a range begins.
pub unsafe extern "C" fn range(context: *mut usize, function: usize) -> *mut usize {
    // SAFETY: PyTorch passes an address for a pointer. It never deletes a null context.
    unsafe { *context = 0 };
    if schedule::is_followed()
        || step_sampling::is_active()
        || capture::is_opened_by(CaptureTrigger::Range)
    {
        // SAFETY: PyTorch passes its `RecordFunction`.
        unsafe { followed_range(function) };
    }
    if pytorch_registration::must_switch() {
        pytorch_registration::sync_callbacks();
    }
    if let Some(thread) = recorded() {
        // SAFETY: PyTorch passes its `RecordFunction` to this start callback. The ranges' callback
        // was registered with `needs_inputs` if the inputs' offset is known.
        let (name, inputs) = unsafe {
            let sizes = |bytes: &[u8]| interned::id(thread, ExtKind::Sizes, bytes);
            let name = interned::id(thread, ExtKind::Name, name_of(function));
            (name, inputs(function, true, sizes))
        };
        let edge = RangeEdge { object: function as u64, inputs };
        ring::quick(thread, ExtKind::RangeOpen, name, thread.clock(), &edge.pack());
    }
    context
}

/// Called when a range ends, perhaps on another thread than the one where it began. The end is
/// recorded in any case, since it isn't known here whether the beginning was.
pub unsafe extern "C" fn range_end(function: usize, _: *mut c_void) {
    let Some(thread) = gate::recording() else { return };
    let edge = RangeEdge { object: function as u64, inputs: Inputs::default() };
    ring::quick(thread, ExtKind::RangeClosed, 0, thread.clock(), &edge.pack());
    if schedule::is_followed() || step_sampling::is_active() {
        // SAFETY: PyTorch passes its `RecordFunction`.
        unsafe { optimizer_step(thread, function) };
    }
    if capture::is_opened_by(CaptureTrigger::Range) {
        capture::ends(thread, function as u64);
    }
}

/// Handles a range that is a step of torch.profiler, a batch, or an epoch: counts it, and opens the
/// capture if the range is the captured one. If [steps are sampled](super::step_sampling), the next
/// step may begin here.
///
/// # Safety
/// `function` is the address of a `RecordFunction`.
#[cold]
unsafe fn followed_range(function: usize) {
    let Some(thread) = gate::recording() else { return };
    // SAFETY: the caller guarantees a `RecordFunction`.
    let name = unsafe { name_of(function) };
    if name.starts_with(PROFILER_STEP.as_bytes()) {
        schedule::step_begins(thread, Source::Profiler, 0);
        step_sampling::boundary(Source::Profiler, 0);
    } else if name.starts_with(LOADER_FETCH.as_bytes()) {
        let of = interned::hash(name) as u32;
        schedule::step_begins(thread, Source::Loader, of);
        step_sampling::boundary(Source::Loader, of);
    } else if is_epoch(name) {
        schedule::step_begins(thread, Source::Epoch, 0);
    }
    capture::begins(thread, CaptureTrigger::Range, name, function as u64);
}

/// Counts an optimizer's step, if the range is one.
///
/// # Safety
/// `function` is the address of a `RecordFunction`.
#[cold]
unsafe fn optimizer_step(thread: &Thread, function: usize) {
    // SAFETY: the caller guarantees a `RecordFunction`.
    let name = unsafe { name_of(function) };
    if name.starts_with(OPTIMIZER_STEP.as_bytes()) {
        let of = interned::hash(name) as u32;
        schedule::step_ends(thread, Source::Optimizer, of);
        step_sampling::boundary(Source::Optimizer, of);
    }
}

/// Returns the name of a `RecordFunction`. The name is only valid during the callback.
///
/// # Safety
/// `function` is the address of a `RecordFunction`.
#[inline(always)]
unsafe fn name_of<'a>(function: usize) -> &'a [u8] {
    // SAFETY: `LAYOUT.name` is the address of `RecordFunction::name() const`, whose text is valid
    // during the callback.
    unsafe {
        let name: unsafe extern "C" fn(usize) -> *const u8 =
            core::mem::transmute(LAYOUT.name.load(Relaxed));
        text(name(function))
    }
}

#[inline(always)]
fn recorded() -> Option<&'static Thread> {
    gate::recording().filter(|thread| thread.is_on())
}

/// # Safety
/// `context` is valid for writing a pointer. `function` is the address of a `RecordFunction`, in
/// its start callback.
#[inline(always)]
unsafe fn begin(context: *mut usize, function: usize, with_sizes: bool) -> *mut usize {
    // SAFETY: the caller guarantees an address for a pointer. PyTorch never deletes a null context.
    unsafe { *context = 0 };
    let Some(thread) = recorded().filter(|_| !is_thinned(thinned::OPERATORS)) else {
        pytorch_registration::sync_callbacks();
        return context;
    };
    let Some(open) = open::of(thread) else {
        ring::lose(thread);
        return context;
    };
    let measured = budget::begins(thread, open);
    // SAFETY: the caller guarantees a `RecordFunction` in its start callback.
    let (name, inputs) = unsafe {
        let sizes = |bytes: &[u8]| open.id(thread, ExtKind::Sizes, bytes);
        let name = open.id(thread, ExtKind::Name, name_of(function));
        (name, inputs(function, with_sizes, sizes))
    };
    if let Some(entry) = open.push(thread) {
        entry.set(&Taken { function, start: thread.clock(), name, inputs: inputs.pack() });
    }
    budget::measured(thread, open, measured);
    context
}

/// Reads the inputs of an operator or range. `id` returns the id of a list of sizes.
///
/// # Safety
/// `function` is the address of a `RecordFunction`, in its start callback if `with_sizes` is true.
#[inline(always)]
unsafe fn inputs(function: usize, with_sizes: bool, id: impl FnOnce(&[u8]) -> u32) -> Inputs {
    let at = LAYOUT.inputs.load(Relaxed);
    if at == 0 {
        return Inputs::default();
    }
    // SAFETY: in a `RecordFunction`, autograd's sequence number is in the word before the inputs.
    let number = unsafe { layout::word(function + at - 8) };
    let sequence = u32::try_from(number.wrapping_add(1)).unwrap_or(0);
    // SAFETY: the caller guarantees a `RecordFunction` in its start callback.
    let sizes = if with_sizes { unsafe { sizes::of(function, id) } } else { 0 };
    Inputs { sequence, sizes }
}
