//! The functions that PyTorch calls when an operator or a range begins and ends.

use super::layout::{self, LAYOUT};
use super::open::{self, Taken};
use super::{budget, sizes, step_sampling};
use crate::block::Thread;
use crate::real::text;
use crate::schedule::{self, Source};
use crate::{capture, gate, interned, pytorch_registration, ring};
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use tprof_wire::capture::CaptureTrigger;
use tprof_wire::operators::{Inputs, RangeEdge};
use tprof_wire::record::ExtKind;
use tprof_wire::schedule::is_epoch;

/// `std::unique_ptr<ObserverContext> (*)(const RecordFunction&)`: the first argument is where the
/// pointer goes.
pub type StartCallback = unsafe extern "C" fn(*mut usize, usize) -> *mut usize;
/// `void (*)(const RecordFunction&, ObserverContext*)`.
pub type EndCallback = unsafe extern "C" fn(usize, *mut c_void);

/// An operator begins.
pub unsafe extern "C" fn operator(context: *mut usize, function: usize) -> *mut usize {
    // SAFETY: PyTorch's own arguments.
    unsafe { begin(context, function, false) }
}

/// An operator begins, and its inputs are at hand.
pub unsafe extern "C" fn with_sizes(context: *mut usize, function: usize) -> *mut usize {
    // SAFETY: PyTorch's own arguments.
    unsafe { begin(context, function, true) }
}

/// An operator ends.
pub unsafe extern "C" fn end(function: usize, _: *mut c_void) {
    let Some(thread) = gate::recording() else { return };
    let clock = thread.clock();
    let Some(open) = open::of(thread) else { return };
    let Some(taken) = open.take(function) else { return };
    let payload = [clock.saturating_sub(taken.start), taken.inputs];
    ring::quick(thread, ExtKind::Operator, taken.name, clock, &payload);
    budget::ends(thread, open, clock);
}

/// A range begins.
pub unsafe extern "C" fn range(context: *mut usize, function: usize) -> *mut usize {
    // SAFETY: PyTorch's own argument. There is no context to be deleted later.
    unsafe { *context = 0 };
    if schedule::is_followed()
        || step_sampling::is_active()
        || capture::is_opened_by(CaptureTrigger::Range)
    {
        // SAFETY: PyTorch's own argument.
        unsafe { followed_range(function) };
    }
    if pytorch_registration::must_reenable() {
        pytorch_registration::sync_callback();
    }
    if let Some(thread) = recorded() {
        // SAFETY: PyTorch's own argument, in its start callback; ranges come with their inputs.
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

/// A range ends, perhaps in another thread than it began in: whether recording was on then is not
/// known here.
pub unsafe extern "C" fn range_end(function: usize, _: *mut c_void) {
    let Some(thread) = gate::recording() else { return };
    let edge = RangeEdge { object: function as u64, inputs: Inputs::default() };
    ring::quick(thread, ExtKind::RangeClosed, 0, thread.clock(), &edge.pack());
    if schedule::is_followed() || step_sampling::is_active() {
        // SAFETY: PyTorch's own argument.
        unsafe { optimizer_step(thread, function) };
    }
    if capture::is_opened_by(CaptureTrigger::Range) {
        capture::ends(thread, function as u64);
    }
}

/// Counts a step of torch.profiler's, a batch or an epoch, and opens the capture, if a range is
/// one of these. Where [turns](super::step_sampling) are taken the next may begin.
///
/// # Safety
/// `function` is a `RecordFunction`.
#[cold]
unsafe fn followed_range(function: usize) {
    let Some(thread) = gate::recording() else { return };
    // SAFETY: the caller's premise.
    let name = unsafe { name_of(function) };
    if name.starts_with(b"ProfilerStep#") {
        schedule::step_begins(thread, Source::Profiler, 0);
        step_sampling::boundary(Source::Profiler, 0);
    } else if name.starts_with(b"enumerate(DataLoader)#") {
        let of = interned::hash(name) as u32;
        schedule::step_begins(thread, Source::Loader, of);
        step_sampling::boundary(Source::Loader, of);
    } else if is_epoch(name) {
        schedule::step_begins(thread, Source::Epoch, 0);
    }
    capture::begins(thread, CaptureTrigger::Range, name, function as u64);
}

/// Counts a step of an optimizer's, if a range is one.
///
/// # Safety
/// `function` is a `RecordFunction`.
#[cold]
unsafe fn optimizer_step(thread: &Thread, function: usize) {
    // SAFETY: the caller's premise.
    let name = unsafe { name_of(function) };
    if name.starts_with(b"Optimizer.step#") {
        let of = interned::hash(name) as u32;
        schedule::step_ends(thread, Source::Optimizer, of);
        step_sampling::boundary(Source::Optimizer, of);
    }
}

/// Name of the `RecordFunction`, valid for as long as the call lasts.
///
/// # Safety
/// `function` is a `RecordFunction`.
#[inline(always)]
unsafe fn name_of<'a>(function: usize) -> &'a [u8] {
    // SAFETY: the address of `RecordFunction::name() const`; its text lives as long as the call.
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
/// `context` is a place for a pointer, `function` a `RecordFunction` in its start callback.
#[inline(always)]
unsafe fn begin(context: *mut usize, function: usize, with_sizes: bool) -> *mut usize {
    // SAFETY: the caller's premise. There is no context to be deleted later.
    unsafe { *context = 0 };
    let Some(thread) = recorded() else {
        pytorch_registration::sync_callback();
        return context;
    };
    let Some(open) = open::of(thread) else {
        ring::lose(thread);
        return context;
    };
    let measured = budget::begins(thread, open);
    // SAFETY: the caller's premise.
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

/// The operator's inputs; `id` gives ids of lists of sizes.
///
/// # Safety
/// `function` is a `RecordFunction`, in its start callback where sizes are wanted.
#[inline(always)]
unsafe fn inputs(function: usize, with_sizes: bool, id: impl FnOnce(&[u8]) -> u32) -> Inputs {
    let at = LAYOUT.inputs.load(Relaxed);
    if at == 0 {
        return Inputs::default();
    }
    // SAFETY: autograd's number lies before the inputs.
    let number = unsafe { layout::word(function + at - 8) };
    let sequence = u32::try_from(number.wrapping_add(1)).unwrap_or(0);
    // SAFETY: the caller's premise.
    let sizes = if with_sizes { unsafe { sizes::of(function, id) } } else { 0 };
    Inputs { sequence, sizes }
}
