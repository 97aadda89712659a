//! The link between the CUPTI agent and the preloaded library of the same process.
//!
//! NVTX reports ranges to the agent, but the preloaded library counts the process's steps and
//! captures. So the agent reads that library's region, and calls the library whenever a range's
//! name may matter to it. In the other direction, the library tells the agent that the process is
//! ending in cases that the agent would not notice.

use crate::block::Thread;
use crate::capture;
use crate::path::Path;
use crate::real::base_name;
use crate::schedule::{self, Source};
use crate::{environment, gate, loaded, state};
use tprof_wire::capture::{CaptureTrigger, opens};
use tprof_wire::env;
use tprof_wire::region::{RegionHeader, off};
use tprof_wire::schedule::{is_epoch, is_step};
use tprof_wire::sync::{AtomicPtr, AtomicUsize, Ordering::*};

/// Path of the agent, if the environment tells the driver to load the agent into this process.
pub fn agents_path() -> Option<Path> {
    let file = environment::variable(env::CUDA_INJECTION)?;
    let is_own = base_name(file) == env::AGENT_LIBRARY.as_bytes();
    Path::of(&[file]).filter(|_| is_own)
}

/// The table through which the agent reaches the preloaded library. It contains addresses of that
/// library's functions and variables.
#[repr(C)]
pub struct AgentLink {
    /// Address of the library's region; null before it has one.
    region: &'static AtomicPtr<u8>,
    /// The agent calls this when a range begins, with the range's name and number.
    begins: unsafe extern "C" fn(*const u8, usize, u64),
    /// The agent calls this when the range of this number ends.
    ends: extern "C" fn(u64),
    /// The agent stores its function here that `_exit` must call first; 0 without one.
    at_once: &'static AtomicUsize,
    /// The agent stores its function here that hooks must call before device work that must be
    /// recorded; 0 while CUPTI records.
    before_work: &'static AtomicUsize,
    /// The agent stores its function here that returns CUPTI's number of a stream; 0 while CUPTI
    /// itself records the calls that start work.
    numbers_streams: &'static AtomicUsize,
}

impl AgentLink {
    /// The header of the preloaded library's region. The agent reads it directly instead of calling
    /// the library, since for most ranges this is all that the agent needs.
    #[inline(always)]
    fn header(&self) -> Option<&'static RegionHeader> {
        let region = self.region.load(Relaxed);
        // SAFETY: a non-null region is mapped for the process's life, and begins with its header.
        unsafe { region.cast::<RegionHeader>().as_ref() }
    }

    /// The reasons why recording is off in the process, as bits of [`off`].
    #[inline(always)]
    fn off(&self) -> u32 {
        self.header().map_or(0, |header| header.off.load(Relaxed))
    }

    /// Whether the preloaded library needs the names of ranges, for its steps or captures.
    #[inline(always)]
    fn has_use_of_names(&self) -> bool {
        self.header().is_some_and(|header| {
            header.schedule[2].load(Relaxed) != 0
                || opens(header.capture[0].load(Relaxed)) == CaptureTrigger::Nvtx as u64
        })
    }
}

/// This library's table. Both libraries contain this code, but only the preloaded library's table
/// is used.
static TABLE: AgentLink = AgentLink {
    region: &state::REGION,
    begins,
    ends,
    at_once: &AT_ONCE,
    before_work: &BEFORE_WORK,
    numbers_streams: &NUMBERS_STREAMS,
};
static AT_ONCE: AtomicUsize = AtomicUsize::new(0);
static BEFORE_WORK: AtomicUsize = AtomicUsize::new(0);
static NUMBERS_STREAMS: AtomicUsize = AtomicUsize::new(0);

/// Makes the agent save what CUPTI has buffered. Only the preloaded library calls this, when the
/// process ends without running `exit` handlers. That may be in a signal handler, so this function
/// looks up no symbol.
pub fn ends_at_once() {
    let call = AT_ONCE.load(Acquire);
    if call != 0 {
        // SAFETY: `call_at_once` stored a function of this type; the driver never unloads the
        // agent.
        unsafe { core::mem::transmute::<usize, extern "C" fn()>(call)() };
    }
}

/// Makes CUPTI record, in case the agent has paused it. The preloaded library calls this before a
/// CUDA call of this thread that must be recorded.
#[inline(always)]
pub fn before_work() {
    let call = BEFORE_WORK.load(Acquire);
    if call != 0 {
        // SAFETY: `call_before_work` stored a function of this type; the driver never unloads the
        // agent.
        unsafe { core::mem::transmute::<usize, extern "C" fn()>(call)() };
    }
}

/// Whether [`before_work`] has something to do.
#[inline(always)]
pub fn is_due_before_work() -> bool {
    BEFORE_WORK.load(Relaxed) != 0
}

/// Makes hooks call this function before work that must be recorded; `None` makes them call
/// nothing. The agent calls this. Without the preloaded library it has no effect.
pub fn call_before_work(call: Option<extern "C" fn()>) {
    if let Some(table) = found() {
        table.before_work.store(call.map_or(0, |call| call as *const () as usize), Release);
    }
}

/// The function that returns CUPTI's number of a stream, if hooks record the calls that start work
/// in CUPTI's place; otherwise `None`. The preloaded library calls this.
#[inline(always)]
pub fn numbers_streams() -> Option<extern "C" fn(u64) -> u64> {
    let call = NUMBERS_STREAMS.load(Relaxed);
    // SAFETY: `rely_on_hooks` stored a function of this type; the driver never unloads the agent.
    (call != 0).then(|| unsafe { core::mem::transmute::<usize, extern "C" fn(u64) -> u64>(call) })
}

/// Sets what [`numbers_streams`] returns.
#[cfg(test)]
pub fn set_numbers_streams(call: Option<extern "C" fn(u64) -> u64>) {
    NUMBERS_STREAMS.store(call.map_or(0, |call| call as *const () as usize), Release);
}

/// Makes the hooks record the calls that start work in CUPTI's place. `numbers` returns CUPTI's
/// number of a stream. Returns false if the process has no hooks. The agent calls this.
pub fn rely_on_hooks(numbers: extern "C" fn(u64) -> u64) -> bool {
    let Some(table) = found() else { return false };
    table.numbers_streams.store(numbers as *const () as usize, Release);
    true
}

/// Makes `_exit` call this function first. The agent calls this. Without the preloaded library it
/// has no effect.
pub fn call_at_once(call: extern "C" fn()) {
    if let Some(table) = found() {
        table.at_once.store(call as *const () as usize, Release);
    }
}

/// This library's table, for the agent.
pub fn table() -> *const AgentLink {
    &raw const TABLE
}

unsafe extern "C" fn begins(text: *const u8, bytes: usize, number: u64) {
    let Some(thread) = gate::recording() else { return };
    // SAFETY: only `range_begins` calls this, with a slice's pointer and length; the slice outlives
    // the call.
    let name = unsafe { core::slice::from_raw_parts(text, bytes) };
    if schedule::is_followed() {
        if is_step(name) {
            schedule::step_begins(thread, Source::Nvtx, 0);
        } else if is_epoch(name) {
            schedule::step_begins(thread, Source::Epoch, 0);
        }
    }
    capture::begins(thread, CaptureTrigger::Nvtx, name, number);
}

extern "C" fn ends(number: u64) {
    if let Some(thread) = gate::recording() {
        capture::ends(thread, number);
    }
}

/// The preloaded library's table that [`find`] found; null without the preloaded library.
static FOUND: AtomicPtr<AgentLink> = AtomicPtr::new(core::ptr::null_mut());

/// Finds the preloaded library's table. Called by the agent.
pub fn find() {
    let Some(preloaded) = loaded::named(env::PRELOAD_LIBRARY.as_bytes()) else { return };
    let Some(function) = preloaded.function(c"tprof_noticing") else { return };
    // SAFETY: in the preloaded library `tprof_noticing` has this type. Both libraries are of one
    // version, since they are shipped together.
    let table =
        unsafe { core::mem::transmute::<usize, extern "C" fn() -> *const AgentLink>(function)() };
    FOUND.store(table.cast_mut(), Release);
}

#[inline(always)]
fn found() -> Option<&'static AgentLink> {
    // SAFETY: `FOUND` is null or the table of the preloaded library, which is never unloaded.
    unsafe { FOUND.load(Acquire).as_ref() }
}

/// Called when a range begins. `name` passes the range's name to its argument. Returns whether to
/// record the range.
#[inline(always)]
pub fn range_begins(
    thread: &Thread,
    number: u64,
    name: impl FnOnce(&mut dyn FnMut(&[u8])),
) -> bool {
    let Some(table) = found() else { return thread.is_on() };
    if table.has_use_of_names() {
        // SAFETY: `begins` reads the text only during the call, and the slice lives as long.
        name(&mut |text| unsafe { (table.begins)(text.as_ptr(), text.len(), number) });
    }
    is_on_in_both(thread, table)
}

/// Called when the range of this number has ended.
#[inline(always)]
pub fn range_ends(number: u64) {
    if let Some(table) = found()
        && table.has_use_of_names()
    {
        (table.ends)(number);
    }
}

/// Whether to record events now. The preloaded library's region says whether the process has
/// switched its own recording off; this library's region says whether the session has.
#[inline]
pub fn is_on(thread: &Thread) -> bool {
    match found() {
        Some(table) => is_on_in_both(thread, table),
        None => thread.is_on(),
    }
}

#[inline(always)]
fn is_on_in_both(thread: &Thread, table: &AgentLink) -> bool {
    thread.off() & off::SESSION | table.off() == 0
}
