//! Implements the functions of ITT that tprof records; [`super::install`] makes ITT's static parts
//! call them. Tasks are pushed and popped on a stack per thread and domain, like NVTX's ranges.
//! Ranges that may overlap have a number that is computed from their id.

use super::handles::{self, DomainHandle, TextHandle};
use crate::nvtx::event::Text;
use crate::nvtx::ranges::{self, ON_STACK, RangeText};
use core::ffi::{CStr, c_char, c_int};
use core::ptr::{from_ref, null_mut};
use tprof_inject::registered_names::{self, Name, NameKind};
use tprof_inject::sys;
use tprof_wire::hash::spread;
use tprof_wire::sync::{AtomicPtr, Ordering::*};

/// ITT's `___itt_id`. Its words are only hashed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Id([u64; 3]);

/// Address of this library's version of an ITT function; `None` if tprof doesn't record the
/// function.
pub fn function(name: &CStr) -> Option<usize> {
    Some(match name.to_bytes() {
        b"__itt_domain_create" => domain_create as *const () as usize,
        b"__itt_string_handle_create" => string_handle_create as *const () as usize,
        b"__itt_task_begin" => task_begin as *const () as usize,
        b"__itt_task_begin_fn" => task_begin_fn as *const () as usize,
        b"__itt_task_end" => task_end as *const () as usize,
        b"__itt_task_begin_overlapped" | b"__itt_region_begin" => {
            overlapped_begin as *const () as usize
        }
        b"__itt_task_end_overlapped" | b"__itt_region_end" => overlapped_end as *const () as usize,
        b"__itt_frame_begin_v3" => frame_begin as *const () as usize,
        b"__itt_frame_end_v3" => frame_end as *const () as usize,
        b"__itt_marker" => marker as *const () as usize,
        b"__itt_event_create" => event_create as *const () as usize,
        b"__itt_event_start" => event_start as *const () as usize,
        b"__itt_event_end" => event_end as *const () as usize,
        b"__itt_thread_set_name" => thread_set_name as *const () as usize,
        _ => return None,
    })
}

/// Bit in the numbers of ranges that may overlap. The number of an NVTX range doesn't have this
/// bit.
const OF_ITT: u64 = 1 << 62;

/// The kinds of ranges that may overlap. The kind is part of the number, since equal ids of two
/// kinds mean different ranges.
#[derive(Clone, Copy)]
enum Kind {
    Task = 1,
    Frame,
    FrameOfDomain,
    Event,
}

fn number(kind: Kind, domain: Option<&Name>, words: &[u64]) -> u64 {
    let first = domain.map_or(0, |name| from_ref(name) as u64) ^ kind as u64;
    let all = words.iter().fold(spread(first), |all, word| spread(all ^ word).rotate_left(23));
    all & !ON_STACK | OF_ITT
}

// The static part calls the following functions. By ITT's header (`ittnotify.h`), a handle is null
// or was returned by a `create` function, and a text ends with a zero.

unsafe extern "C" fn domain_create(text: *const c_char) -> *const DomainHandle {
    // SAFETY: ITT passes null or a text that ends with a zero.
    unsafe { handles::domain(text) }
}

unsafe extern "C" fn string_handle_create(text: *const c_char) -> *const TextHandle {
    // SAFETY: ITT passes null or a text that ends with a zero.
    unsafe { handles::text(text) }
}

unsafe extern "C" fn task_begin(
    domain: *const DomainHandle,
    _: Id,
    _: Id,
    text: *const TextHandle,
) {
    // SAFETY: ITT passes null or a handle that a `create` function returned.
    let (domain, name) = unsafe { (handles::of_domain(domain), handles::of_text(text)) };
    // SAFETY: the names in `Kept` live as long as the process.
    unsafe { ranges::push(domain, RangeText::Kept(domain, name)) };
}

/// Begins a task whose name is the address of its function.
unsafe extern "C" fn task_begin_fn(domain: *const DomainHandle, _: Id, _: Id, function: usize) {
    let mut text = *b"0x0000000000000000";
    let mut rest = function;
    for digit in text.iter_mut().skip(2).rev() {
        let value = (rest & 15) as u8;
        *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
        rest >>= 4;
    }
    // SAFETY: ITT passes null or a handle that a `create` function returned.
    let domain = unsafe { handles::of_domain(domain) };
    // SAFETY: names in `Kept` live for the process's life.
    unsafe {
        ranges::push(domain, RangeText::Kept(domain, registered_names::name(NameKind::Text, &text)))
    };
}

unsafe extern "C" fn task_end(domain: *const DomainHandle) {
    // SAFETY: ITT passes null or a handle that a `create` function returned.
    ranges::pop_from(unsafe { handles::of_domain(domain) });
}

unsafe extern "C" fn overlapped_begin(
    domain: *const DomainHandle,
    id: Id,
    _: Id,
    text: *const TextHandle,
) {
    // SAFETY: ITT passes null or a handle that a `create` function returned.
    let (domain, name) = unsafe { (handles::of_domain(domain), handles::of_text(text)) };
    // SAFETY: names in `Kept` live for the process's life.
    unsafe { ranges::start_as(number(Kind::Task, domain, &id.0), RangeText::Kept(domain, name)) };
}

unsafe extern "C" fn overlapped_end(domain: *const DomainHandle, id: Id) {
    // SAFETY: ITT passes null or a handle that a `create` function returned.
    ranges::end(number(Kind::Task, unsafe { handles::of_domain(domain) }, &id.0));
}

/// The number of a frame, computed from its id, or from its domain if it has no id.
///
/// # Safety
/// `id` is null or points at an id.
unsafe fn frame(domain: Option<&Name>, id: *const Id) -> u64 {
    // SAFETY: the caller guarantees that `id` is null or points at an id.
    match unsafe { id.as_ref() } {
        Some(id) => number(Kind::Frame, domain, &id.0),
        None => number(Kind::FrameOfDomain, domain, &[]),
    }
}

unsafe extern "C" fn frame_begin(domain: *const DomainHandle, id: *const Id) {
    // SAFETY: ITT passes null or a handle that a `create` function returned.
    let domain = unsafe { handles::of_domain(domain) };
    let name = registered_names::name(NameKind::Text, b"frame");
    // SAFETY: ITT passes null or an id, and names in `Kept` live for the process's life.
    unsafe { ranges::start_as(frame(domain, id), RangeText::Kept(domain, name)) };
}

unsafe extern "C" fn frame_end(domain: *const DomainHandle, id: *const Id) {
    // SAFETY: ITT passes null or a handle that `create` returned, and null or an id.
    ranges::end(unsafe { frame(handles::of_domain(domain), id) });
}

unsafe extern "C" fn marker(
    domain: *const DomainHandle,
    _: Id,
    text: *const TextHandle,
    _scope: c_int,
) {
    // SAFETY: ITT passes null or a handle that a `create` function returned.
    let (domain, name) = unsafe { (handles::of_domain(domain), handles::of_text(text)) };
    // SAFETY: names in `Kept` live for the process's life.
    unsafe { ranges::mark(RangeText::Kept(domain, name)) };
}

/// Names of events, by the event's number less 1.
static EVENTS: [AtomicPtr<Name>; 1024] = [const { AtomicPtr::new(null_mut()) }; 1024];

/// Returns the number of an event, the same each time for one name. Returns 0 if all numbers are
/// used, as the static part does without a tool.
unsafe extern "C" fn event_create(text: *const c_char, bytes: c_int) -> c_int {
    if text.is_null() {
        return 0;
    }
    let bytes = usize::try_from(bytes).unwrap_or(0);
    // SAFETY: ITT passes `bytes` bytes, or fewer that end with a zero. The reading stops at the
    // zero.
    let count = (0..bytes).take_while(|at| unsafe { *text.add(*at) } != 0).count();
    // SAFETY: the `count` bytes were just read.
    let text = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), count) };
    let Some(name) = registered_names::name(NameKind::Text, text) else { return 0 };
    let name = from_ref(name).cast_mut();
    for (number, place) in (1..).zip(&EVENTS) {
        let seen = place.compare_exchange(null_mut(), name, AcqRel, Acquire);
        if seen.is_ok() || seen == Err(name) {
            return number;
        }
    }
    0
}

/// An event's name, and the number of its range on this thread.
fn event(event: c_int) -> Option<(&'static Name, u64)> {
    let at = usize::try_from(event).ok()?.checked_sub(1)?;
    let name = registered_names::of_handle(EVENTS.get(at)?.load(Acquire))?;
    Some((name, number(Kind::Event, Some(name), &[u64::from(sys::tid())])))
}

extern "C" fn event_start(number: c_int) -> c_int {
    if let Some((name, range)) = event(number) {
        // SAFETY: names in `Kept` live for the process's life.
        unsafe { ranges::start_as(range, RangeText::Kept(None, Some(name))) };
    }
    0
}

extern "C" fn event_end(number: c_int) -> c_int {
    if let Some((_, range)) = event(number) {
        ranges::end(range);
    }
    0
}

unsafe extern "C" fn thread_set_name(text: *const c_char) {
    // SAFETY: ITT passes null or a text that ends with a zero.
    unsafe { ranges::name_thread(sys::tid(), Text::Bytes(text)) };
}
