//! Ranges of NVTX, which the agent notices, as steps and captures of the process, which the
//! preloaded library counts: the agent calls its table of two functions.

use crate::block::Thread;
use crate::capture;
use crate::schedule::{self, Source};
use crate::{gate, loaded};
use core::sync::atomic::{AtomicPtr, Ordering::*};
use tprof_wire::capture::Opens;
use tprof_wire::env;
use tprof_wire::region::off;
use tprof_wire::schedule::{is_epoch, is_step};

/// What the preloaded library offers the agent.
#[repr(C)]
pub struct Noticing {
    /// [`state`] bits.
    state: extern "C" fn() -> u32,
    /// A range begins: its name and number.
    begins: unsafe extern "C" fn(*const u8, usize, u64),
    /// The range of this number ends.
    ends: extern "C" fn(u64),
}

/// Bits of [`Noticing::state`].
mod state {
    /// Recording is off.
    pub const OFF: u32 = 1;
    /// Names of ranges matter.
    pub const NAMES: u32 = 2;
}

/// The preloaded library's.
static TABLE: Noticing = Noticing { state: now, begins, ends };

/// The table of this library, for the agent.
pub fn table() -> *const Noticing {
    &raw const TABLE
}

extern "C" fn now() -> u32 {
    let Some(thread) = gate::recording() else { return 0 };
    let off = if thread.is_on() { 0 } else { state::OFF };
    let names = schedule::is_followed() || capture::is_opened_by(Opens::Nvtx);
    off | if names { state::NAMES } else { 0 }
}

unsafe extern "C" fn begins(text: *const u8, bytes: usize, number: u64) {
    let Some(thread) = gate::recording() else { return };
    // SAFETY: the agent's own call, with a text that lasts as long as it.
    let name = unsafe { core::slice::from_raw_parts(text, bytes) };
    if schedule::is_followed() {
        if is_step(name) {
            schedule::step_begins(thread, Source::Nvtx, 0);
        } else if is_epoch(name) {
            schedule::step_begins(thread, Source::Epoch, 0);
        }
    }
    capture::begins(thread, Opens::Nvtx, name, number);
}

extern "C" fn ends(number: u64) {
    if let Some(thread) = gate::recording() {
        capture::ends(thread, number);
    }
}

/// The preloaded library's table, in the agent; null without one.
static FOUND: AtomicPtr<Noticing> = AtomicPtr::new(core::ptr::null_mut());

/// Finds the preloaded library's table. In the agent.
pub fn find() {
    let Some(preloaded) = loaded::named(env::PRELOAD_LIBRARY.as_bytes()) else { return };
    let Some(function) = preloaded.function(c"tprof_noticing") else { return };
    // SAFETY: the function of this name and type, of a library of this version's.
    let table =
        unsafe { core::mem::transmute::<usize, extern "C" fn() -> *const Noticing>(function)() };
    FOUND.store(table.cast_mut(), Release);
}

fn found() -> Option<&'static Noticing> {
    // SAFETY: null or the table of a library that stays.
    unsafe { FOUND.load(Acquire).as_ref() }
}

/// A range begins; `name` hands its name to what it is given. Whether it is recorded.
#[inline]
pub fn range_begins(
    thread: &Thread,
    number: u64,
    name: impl FnOnce(&mut dyn FnMut(&[u8])),
) -> bool {
    let Some(table) = found() else { return thread.is_on() };
    let mut now = (table.state)();
    if now & state::NAMES != 0 {
        // SAFETY: a text that lasts as long as the call.
        name(&mut |text| unsafe { (table.begins)(text.as_ptr(), text.len(), number) });
        now = (table.state)();
    }
    is_on_here(thread) && now & state::OFF == 0
}

/// The range of this number has ended.
#[inline]
pub fn range_ends(number: u64) {
    if let Some(table) = found()
        && (table.state)() & state::NAMES != 0
    {
        (table.ends)(number);
    }
}

/// Whether a record of this moment is wanted. The preloaded library has how the process has switched
/// its own recording; this library's region, how the session is switched.
#[inline]
pub fn is_on(thread: &Thread) -> bool {
    match found() {
        Some(table) => is_on_here(thread) && (table.state)() & state::OFF == 0,
        None => thread.is_on(),
    }
}

fn is_on_here(thread: &Thread) -> bool {
    thread.off() & off::SESSION == 0
}
