//! NVTX's functions, as they are put in the place of those that do nothing.
//!
//! Beginnings are recorded while recording is on; ends always, so that a range that
//! began gets its true end. A push and its pop carry how deep they lie, so
//! that a lost or unrecorded one takes no other's place.

use super::event::{self, Attributes, Text};
use super::names::{self, Name, Of};
use crate::block::Thread;
use crate::own::Own;
use crate::{gate, noticed, ring};
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tprof_wire::gpu::{NO_LEVEL, Range};
use tprof_wire::record::ExtKind;

/// What push and pop return where no tool counts their depth, as without one.
const NO_TRACKING: c_int = -2;

/// Numbers of ranges that are not on a thread's stack. They go on in a forked child.
static RANGES: AtomicU64 = AtomicU64::new(1);

type Domain = *const Name;

/// A function of one of NVTX's types.
///
/// # Safety
/// Of those that are `unsafe`: NVTX's contract, by which its headers call them. A text is null
/// or ends with a zero, and attributes are null or a structure of the size that they state;
/// both stay as they are during the call.
#[derive(Clone, Copy)]
pub enum Function {
    Ex(unsafe extern "C" fn(*const Attributes)),
    ExInt(unsafe extern "C" fn(*const Attributes) -> c_int),
    ExId(unsafe extern "C" fn(*const Attributes) -> u64),
    Bytes(unsafe extern "C" fn(*const c_char)),
    BytesInt(unsafe extern "C" fn(*const c_char) -> c_int),
    BytesId(unsafe extern "C" fn(*const c_char) -> u64),
    BytesHandle(unsafe extern "C" fn(*const c_char) -> Domain),
    Wide(unsafe extern "C" fn(*const u32)),
    WideInt(unsafe extern "C" fn(*const u32) -> c_int),
    WideId(unsafe extern "C" fn(*const u32) -> u64),
    WideHandle(unsafe extern "C" fn(*const u32) -> Domain),
    NumberBytes(unsafe extern "C" fn(u32, *const c_char)),
    NumberWide(unsafe extern "C" fn(u32, *const u32)),
    Id(extern "C" fn(u64)),
    Nothing(extern "C" fn() -> c_int),
    In(extern "C" fn(Domain) -> c_int),
    InEx(unsafe extern "C" fn(Domain, *const Attributes)),
    InExInt(unsafe extern "C" fn(Domain, *const Attributes) -> c_int),
    InExId(unsafe extern "C" fn(Domain, *const Attributes) -> u64),
    InId(extern "C" fn(Domain, u64)),
    InBytesHandle(unsafe extern "C" fn(Domain, *const c_char) -> Domain),
    InWideHandle(unsafe extern "C" fn(Domain, *const u32) -> Domain),
    InNumberBytes(unsafe extern "C" fn(Domain, u32, *const c_char)),
    InNumberWide(unsafe extern "C" fn(Domain, u32, *const u32)),
}

impl Function {
    /// Where it is.
    pub fn address(self) -> usize {
        use Function::*;
        match self {
            Ex(f) => f as usize,
            ExInt(f) => f as usize,
            ExId(f) => f as usize,
            Bytes(f) => f as usize,
            BytesInt(f) => f as usize,
            BytesId(f) => f as usize,
            BytesHandle(f) => f as usize,
            Wide(f) => f as usize,
            WideInt(f) => f as usize,
            WideId(f) => f as usize,
            WideHandle(f) => f as usize,
            NumberBytes(f) => f as usize,
            NumberWide(f) => f as usize,
            Id(f) => f as usize,
            Nothing(f) => f as usize,
            In(f) => f as usize,
            InEx(f) => f as usize,
            InExInt(f) => f as usize,
            InExId(f) => f as usize,
            InId(f) => f as usize,
            InBytesHandle(f) => f as usize,
            InWideHandle(f) => f as usize,
            InNumberBytes(f) => f as usize,
            InNumberWide(f) => f as usize,
        }
    }
}

/// Functions of NVTX's module `CORE`, by its numbers.
pub const CORE: &[(u32, Function)] = &[
    (1, Function::Ex(mark_ex)),
    (2, Function::Bytes(mark_bytes)),
    (3, Function::Wide(mark_wide)),
    (4, Function::ExId(start_ex)),
    (5, Function::BytesId(start_bytes)),
    (6, Function::WideId(start_wide)),
    (7, Function::Id(end)),
    (8, Function::ExInt(push_ex)),
    (9, Function::BytesInt(push_bytes)),
    (10, Function::WideInt(push_wide)),
    (11, Function::Nothing(pop)),
    (12, Function::NumberBytes(category_bytes)),
    (13, Function::NumberWide(category_wide)),
    (14, Function::NumberBytes(thread_bytes)),
    (15, Function::NumberWide(thread_wide)),
];

/// Functions of NVTX's module `CORE2`, by its numbers. Left out: resources (6, 7),
/// the end of a domain (14), which keeps its name, and `nvtxInitialize` (15).
pub const DOMAINS: &[(u32, Function)] = &[
    (1, Function::InEx(domain_mark)),
    (2, Function::InExId(domain_start)),
    (3, Function::InId(domain_end)),
    (4, Function::InExInt(domain_push)),
    (5, Function::In(domain_pop)),
    (8, Function::InNumberBytes(domain_category_bytes)),
    (9, Function::InNumberWide(domain_category_wide)),
    (10, Function::InBytesHandle(register_bytes)),
    (11, Function::InWideHandle(register_wide)),
    (12, Function::BytesHandle(create_bytes)),
    (13, Function::WideHandle(create_wide)),
];

/// A range or mark, as the program describes it.
#[derive(Clone, Copy)]
enum RangeText {
    /// By its text.
    Named(Text),
    /// By a structure, in a domain.
    Described(Option<&'static Name>, *const Attributes),
}

impl RangeText {
    /// # Safety
    /// NVTX's contract, see [`Function`], of what it was made of.
    #[inline(always)]
    unsafe fn range(self, thread: &Thread) -> Range {
        // SAFETY: the caller's premise.
        unsafe {
            match self {
                RangeText::Named(text) => event::named(thread, text),
                RangeText::Described(domain, at) => event::described(thread, domain, at),
            }
        }
    }

    /// Hands its name on.
    ///
    /// # Safety
    /// As [`RangeText::range`].
    unsafe fn with_name(self, then: &mut dyn FnMut(&[u8])) {
        // SAFETY: the caller's premise.
        unsafe {
            match self {
                RangeText::Named(text) => event::with(text, then),
                RangeText::Described(_, at) => event::with_message(at, then),
            }
        }
    }
}

/// Set in the numbers of ranges on a thread's stack, as captured ones.
const ON_STACK: u64 = 1 << 63;

/// The number of a range on a thread's stack, as a captured one.
fn on_stack(thread: &Thread, domain: Option<&Name>, level: u64) -> u64 {
    let domain = u64::from(domain.map_or(0, Name::domain)) & 0xffff;
    ON_STACK | u64::from(thread.tid.get()) << 32 | domain << 16 | level & 0xffff
}

/// Whether a range that begins is recorded.
///
/// # Safety
/// As [`RangeText::range`].
#[inline(always)]
unsafe fn is_recorded(thread: &Thread, number: u64, what: RangeText) -> bool {
    // SAFETY: the caller's premise.
    noticed::range_begins(thread, number, |then| unsafe { what.with_name(then) })
}

fn write(thread: &Thread, kind: ExtKind, clock: u64, range: &Range) {
    ring::quick(thread, kind, 0, clock, &range.pack());
}

/// How deep this thread is in a domain, if that is counted.
fn level<'t>(thread: &'t Thread, domain: Option<&Name>) -> Option<&'t Own<u16>> {
    thread.levels.get(domain.map_or(0, Name::domain) as usize)
}

/// # Safety
/// As [`RangeText::range`].
#[inline(always)]
unsafe fn push(domain: Option<&'static Name>, what: RangeText) -> c_int {
    let Some(thread) = gate::recording() else { return NO_TRACKING };
    let level = level(thread, domain).map(|level| {
        let before = level.get();
        level.set(before.saturating_add(1));
        u64::from(before)
    });
    let id = level.unwrap_or(NO_LEVEL);
    // SAFETY: the caller's premise.
    if unsafe { is_recorded(thread, on_stack(thread, domain, id), what) } {
        // SAFETY: the caller's premise.
        let range = Range { id, ..unsafe { what.range(thread) } };
        // After the text was read: what that costs lies outside the range.
        let clock = thread.clock();
        write(thread, ExtKind::RangePush, clock, &range);
    }
    NO_TRACKING
}

fn pop_from(domain: Option<&'static Name>) -> c_int {
    let Some(thread) = gate::recording() else { return NO_TRACKING };
    let clock = thread.clock();
    let id = match level(thread, domain).map(|level| (level, level.get())) {
        // More pops than pushes.
        Some((_, 0)) => return NO_TRACKING,
        Some((level, open)) => {
            level.set(open - 1);
            u64::from(open - 1)
        }
        None => NO_LEVEL,
    };
    let of = domain.map_or(0, |domain| domain.id(thread));
    write(thread, ExtKind::RangePop, clock, &Range { id, domain: of, ..Range::default() });
    noticed::range_ends(on_stack(thread, domain, id));
    NO_TRACKING
}

/// # Safety
/// As [`RangeText::range`].
unsafe fn start(what: RangeText) -> u64 {
    let id = RANGES.fetch_add(1, Relaxed);
    let Some(thread) = gate::recording() else { return id };
    // SAFETY: the caller's premise.
    if unsafe { is_recorded(thread, id, what) } {
        // SAFETY: the caller's premise.
        let range = Range { id, ..unsafe { what.range(thread) } };
        let clock = thread.clock();
        write(thread, ExtKind::RangeStart, clock, &range);
    }
    id
}

extern "C" fn end(id: u64) {
    let Some(thread) = gate::recording() else { return };
    let clock = thread.clock();
    if id != 0 {
        write(thread, ExtKind::RangeEnd, clock, &Range { id, ..Range::default() });
        noticed::range_ends(id);
    }
}

/// # Safety
/// As [`RangeText::range`].
unsafe fn mark(what: RangeText) {
    let Some(thread) = gate::recording() else { return };
    let clock = thread.clock();
    if noticed::is_on(thread) {
        // SAFETY: the caller's premise.
        let range = unsafe { what.range(thread) };
        write(thread, ExtKind::RangeMark, clock, &range);
    }
}

/// A thread's name refers to what comes later: it is written while recording is off, too.
///
/// # Safety
/// As [`event::with`].
unsafe fn name_thread(tid: u32, text: Text) {
    let Some(thread) = gate::recording() else { return };
    // SAFETY: the caller's premise.
    let range = unsafe { event::named(thread, text) };
    let clock = thread.clock();
    let range = Range { id: u64::from(tid), ..range };
    write(thread, ExtKind::RangeThread, clock, &range);
}

/// # Safety
/// As [`event::with`].
unsafe fn name_category(domain: Domain, number: u32, text: Text) {
    let domain = names::of_handle(domain);
    // SAFETY: the caller's premise.
    unsafe { event::with(text, |text| names::name_category(domain, number, text)) };
}

/// A handle for a text; null if there is no more room, as without a tool.
///
/// # Safety
/// As [`event::with`].
unsafe fn handle(of: Of, text: Text) -> Domain {
    // SAFETY: the caller's premise.
    let name = unsafe { event::with(text, |text| names::name(of, text)) };
    name.map_or(core::ptr::null(), core::ptr::from_ref)
}

// What NVTX calls: its own types, with one text as bytes, as `wchar_t`, or in a structure.

unsafe extern "C" fn mark_ex(at: *const Attributes) {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { mark(RangeText::Described(None, at)) };
}
unsafe extern "C" fn mark_bytes(text: *const c_char) {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { mark(RangeText::Named(Text::Bytes(text))) };
}
unsafe extern "C" fn mark_wide(text: *const u32) {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { mark(RangeText::Named(Text::Wide(text))) };
}
unsafe extern "C" fn start_ex(at: *const Attributes) -> u64 {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { start(RangeText::Described(None, at)) }
}
unsafe extern "C" fn start_bytes(text: *const c_char) -> u64 {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { start(RangeText::Named(Text::Bytes(text))) }
}
unsafe extern "C" fn start_wide(text: *const u32) -> u64 {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { start(RangeText::Named(Text::Wide(text))) }
}
unsafe extern "C" fn push_ex(at: *const Attributes) -> c_int {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { push(None, RangeText::Described(None, at)) }
}
unsafe extern "C" fn push_bytes(text: *const c_char) -> c_int {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { push(None, RangeText::Named(Text::Bytes(text))) }
}
unsafe extern "C" fn push_wide(text: *const u32) -> c_int {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { push(None, RangeText::Named(Text::Wide(text))) }
}
extern "C" fn pop() -> c_int {
    pop_from(None)
}
unsafe extern "C" fn category_bytes(number: u32, text: *const c_char) {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { name_category(core::ptr::null(), number, Text::Bytes(text)) };
}
unsafe extern "C" fn category_wide(number: u32, text: *const u32) {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { name_category(core::ptr::null(), number, Text::Wide(text)) };
}
unsafe extern "C" fn thread_bytes(tid: u32, text: *const c_char) {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { name_thread(tid, Text::Bytes(text)) };
}
unsafe extern "C" fn thread_wide(tid: u32, text: *const u32) {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { name_thread(tid, Text::Wide(text)) };
}
unsafe extern "C" fn domain_mark(domain: Domain, at: *const Attributes) {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { mark(RangeText::Described(names::of_handle(domain), at)) };
}
unsafe extern "C" fn domain_start(domain: Domain, at: *const Attributes) -> u64 {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { start(RangeText::Described(names::of_handle(domain), at)) }
}
extern "C" fn domain_end(_: Domain, id: u64) {
    end(id);
}
unsafe extern "C" fn domain_push(domain: Domain, at: *const Attributes) -> c_int {
    let domain = names::of_handle(domain);
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { push(domain, RangeText::Described(domain, at)) }
}
extern "C" fn domain_pop(domain: Domain) -> c_int {
    pop_from(names::of_handle(domain))
}
unsafe extern "C" fn domain_category_bytes(domain: Domain, number: u32, text: *const c_char) {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { name_category(domain, number, Text::Bytes(text)) };
}
unsafe extern "C" fn domain_category_wide(domain: Domain, number: u32, text: *const u32) {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { name_category(domain, number, Text::Wide(text)) };
}
unsafe extern "C" fn register_bytes(_: Domain, text: *const c_char) -> Domain {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { handle(Of::Text, Text::Bytes(text)) }
}
unsafe extern "C" fn register_wide(_: Domain, text: *const u32) -> Domain {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { handle(Of::Text, Text::Wide(text)) }
}
unsafe extern "C" fn create_bytes(text: *const c_char) -> Domain {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { handle(Of::Domain, Text::Bytes(text)) }
}
unsafe extern "C" fn create_wide(text: *const u32) -> Domain {
    // SAFETY: NVTX's contract, see `Function`.
    unsafe { handle(Of::Domain, Text::Wide(text)) }
}
