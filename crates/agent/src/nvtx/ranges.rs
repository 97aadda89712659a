//! Writes the records of ranges and marks that a program reports through NVTX or ITT.
//!
//! The beginning of a range is recorded only while recording is on. Its end is always recorded, so
//! that a recorded range gets its true end. The records of a push and its pop contain their depth,
//! so that a push or pop that is lost or not recorded doesn't shift the others.

use super::event::{self, Attributes, Text};
use core::ffi::c_int;
use tprof_inject::block::Thread;
use tprof_inject::registered_names::Name;
use tprof_inject::signal_cell::SignalCell;
use tprof_inject::{agent_link, gate, ring};
use tprof_wire::gpu::{NO_LEVEL, Range};
use tprof_wire::record::ExtKind;
use tprof_wire::sync::{AtomicU64, Ordering::Relaxed};

/// What NVTX's push and pop return without a tool, which is that the depth isn't counted.
const NO_TRACKING: c_int = -2;

/// Number of the next range that isn't on a thread's stack. A forked child continues these numbers.
static RANGES: AtomicU64 = AtomicU64::new(1);

/// The description of a range or mark by the program.
#[derive(Clone, Copy)]
pub enum RangeText {
    /// The range has only a text.
    Named(Text),
    /// The range is in a domain and is described by a structure.
    Described(Option<&'static Name>, *const Attributes),
    /// The domain's name and the range's own name, which both live as long as the process.
    Kept(Option<&'static Name>, Option<&'static Name>),
}

impl RangeText {
    /// # Safety
    /// The text or the attributes meet the premises of [`event::with`] or [`event::described`].
    #[inline(always)]
    unsafe fn range(self, thread: &Thread) -> Range {
        // SAFETY: the caller guarantees the premises of the variant's function.
        unsafe {
            match self {
                RangeText::Named(text) => event::named(thread, text),
                RangeText::Described(domain, at) => event::described(thread, domain, at),
                RangeText::Kept(domain, name) => {
                    let id = |name: Option<&'static Name>| name.map_or(0, |name| name.id(thread));
                    Range { name: id(name), domain: id(domain), ..Range::default() }
                }
            }
        }
    }

    /// Passes the range's name to `then`.
    ///
    /// # Safety
    /// The same premises as [`RangeText::range`].
    unsafe fn with_name(self, then: &mut dyn FnMut(&[u8])) {
        // SAFETY: the caller guarantees the premises of the variant's function.
        unsafe {
            match self {
                RangeText::Named(text) => event::with(text, then),
                RangeText::Described(_, at) => event::with_message(at, then),
                RangeText::Kept(_, name) => {
                    if let Some(name) = name {
                        then(name.text());
                    }
                }
            }
        }
    }
}

/// Bit in the numbers by which `--capture-range` identifies ranges on a thread's stack.
pub const ON_STACK: u64 = 1 << 63;

/// The number by which `--capture-range` identifies a range on a thread's stack.
fn on_stack(thread: &Thread, domain: Option<&Name>, level: u64) -> u64 {
    let domain = u64::from(domain.map_or(0, Name::domain)) & 0xffff;
    ON_STACK | u64::from(thread.tid.get()) << 32 | domain << 16 | level & 0xffff
}

/// Whether to record a range that begins.
///
/// # Safety
/// The same premises as [`RangeText::range`].
#[inline(always)]
unsafe fn is_recorded(thread: &Thread, number: u64, what: RangeText) -> bool {
    // SAFETY: the caller guarantees the premises of `with_name`.
    agent_link::range_begins(thread, number, |then| unsafe { what.with_name(then) })
}

fn write(thread: &Thread, kind: ExtKind, clock: u64, range: &Range) {
    ring::quick(thread, kind, 0, clock, &range.pack());
}

/// This thread's depth in a domain; `None` if the depth isn't counted there.
fn level<'t>(thread: &'t Thread, domain: Option<&Name>) -> Option<&'t SignalCell<u16>> {
    thread.levels.get(domain.map_or(0, Name::domain) as usize)
}

/// Begins a range on this thread's stack in a domain.
///
/// # Safety
/// The same premises as [`RangeText::range`].
#[inline(always)]
pub unsafe fn push(domain: Option<&'static Name>, what: RangeText) -> c_int {
    let Some(thread) = gate::recording() else { return NO_TRACKING };
    let level = level(thread, domain).map(|level| {
        let before = level.get();
        level.set(before.saturating_add(1));
        u64::from(before)
    });
    let id = level.unwrap_or(NO_LEVEL);
    // SAFETY: the caller guarantees the premises of `is_recorded`.
    if unsafe { is_recorded(thread, on_stack(thread, domain, id), what) } {
        // SAFETY: the caller guarantees the premises of `range`.
        let range = Range { id, ..unsafe { what.range(thread) } };
        // The clock is read after the text, so that the range doesn't include the time of reading
        // the text.
        let clock = thread.clock();
        write(thread, ExtKind::RangePush, clock, &range);
    }
    NO_TRACKING
}

/// Ends the innermost range of this thread in a domain.
pub fn pop_from(domain: Option<&'static Name>) -> c_int {
    let Some(thread) = gate::recording() else { return NO_TRACKING };
    let clock = thread.clock();
    let id = match level(thread, domain).map(|level| (level, level.get())) {
        // The program called pop more often than push.
        Some((_, 0)) => return NO_TRACKING,
        Some((level, open)) => {
            level.set(open - 1);
            u64::from(open - 1)
        }
        None => NO_LEVEL,
    };
    let of = domain.map_or(0, |domain| domain.id(thread));
    write(thread, ExtKind::RangePop, clock, &Range { id, domain: of, ..Range::default() });
    agent_link::range_ends(on_stack(thread, domain, id));
    NO_TRACKING
}

/// Begins a range that is not on a thread's stack. Returns its number.
///
/// # Safety
/// The same premises as [`RangeText::range`].
pub unsafe fn start(what: RangeText) -> u64 {
    let id = RANGES.fetch_add(1, Relaxed);
    // SAFETY: the caller guarantees the premises of `start_as`.
    unsafe { start_as(id, what) };
    id
}

/// Begins a range with this number, which isn't on a thread's stack.
///
/// # Safety
/// The same premises as [`RangeText::range`].
pub unsafe fn start_as(id: u64, what: RangeText) {
    let Some(thread) = gate::recording() else { return };
    // SAFETY: the caller guarantees the premises of `is_recorded`.
    if unsafe { is_recorded(thread, id, what) } {
        // SAFETY: the caller guarantees the premises of `range`.
        let range = Range { id, ..unsafe { what.range(thread) } };
        let clock = thread.clock();
        write(thread, ExtKind::RangeStart, clock, &range);
    }
}

/// Ends a range that [`start`] or [`start_as`] began.
pub extern "C" fn end(id: u64) {
    let Some(thread) = gate::recording() else { return };
    let clock = thread.clock();
    if id != 0 {
        write(thread, ExtKind::RangeEnd, clock, &Range { id, ..Range::default() });
        agent_link::range_ends(id);
    }
}

/// Records a mark.
///
/// # Safety
/// The same premises as [`RangeText::range`].
pub unsafe fn mark(what: RangeText) {
    let Some(thread) = gate::recording() else { return };
    let clock = thread.clock();
    if agent_link::is_on(thread) {
        // SAFETY: the caller guarantees the premises of `range`.
        let range = unsafe { what.range(thread) };
        write(thread, ExtKind::RangeMark, clock, &range);
    }
}

/// Records a thread's name, even while recording is off, since later records refer to it.
///
/// # Safety
/// The same premises as [`event::with`].
pub unsafe fn name_thread(tid: u32, text: Text) {
    let Some(thread) = gate::recording() else { return };
    // SAFETY: the caller guarantees the premises of `event::named`.
    let range = unsafe { event::named(thread, text) };
    let clock = thread.clock();
    let range = Range { id: u64::from(tid), ..range };
    write(thread, ExtKind::RangeThread, clock, &range);
}
