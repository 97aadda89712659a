//! Records spans, steps, instants and values that a program declares itself, through the table
//! `tprof_abi`.
//!
//! The beginning of a span is recorded only while recording is on. The end of a recorded span is
//! always recorded. The records of a push and its pop contain their depth, so that a lost record
//! doesn't shift the others.

use crate::block::Thread;
use crate::loss::count_missed;
use crate::schedule::{self, Source};
use crate::{capture, gate, interned, ring, state};
use tprof_wire::capture::CaptureTrigger;
use tprof_wire::record::ExtKind;
use tprof_wire::region::off;
use tprof_wire::schedule::is_epoch;
use tprof_wire::spans::{ARGUMENTS, Arguments, BY_DEPTH, MAX_ARGUMENTS, OnStack, Place, value};
use tprof_wire::sync::{AtomicU64, Ordering::*};

/// Number of depths for which the thread stores whether the span was recorded. Deeper spans count
/// as recorded.
const KNOWN_DEPTHS: u16 = 64;
/// The name of a span that the program did not name.
const NO_NAME: &[u8] = b"(no name)";
/// Used in place of an empty text, which would have no id. It is the unit separator.
const NO_TEXT: &[u8] = &[ARGUMENTS];
/// Argument of the record of a span's end if the span was the innermost one. [`NOT_INNERMOST`] is
/// for the other case.
const INNERMOST: u32 = 0;
const NOT_INNERMOST: u32 = 1;
/// Passed instead of the number of a step if it has none. Then the count of steps is its number.
pub const NO_NUMBER: u64 = u64::MAX;

/// Bits in the numbers by which `--capture-range` identifies spans: `ON_STACK` for a span on a
/// thread's stack, `STARTED` for one that any thread may end. A range of PyTorch is identified by
/// its address, which has neither bit.
const ON_STACK: u64 = 1 << 63;
const STARTED: u64 = 1 << 62;

/// Number of the next span that any thread may end. A forked child continues these numbers.
static NUMBERS: AtomicU64 = AtomicU64::new(1);
/// Number of steps that this process has begun. A forked child continues the count.
static STEPS: AtomicU64 = AtomicU64::new(0);

/// A name that a program stores for one place in its code, with its cached id: `struct tprof_name`.
#[repr(C)]
pub struct SpanName {
    text: *const u8,
    bytes: usize,
    /// The process's generation when `id` was assigned.
    generation: AtomicU64,
    id: AtomicU64,
}

impl SpanName {
    /// Makes a name for one use. Its text of `bytes` bytes must outlive that use.
    #[inline(always)]
    pub const fn of(text: *const u8, bytes: usize) -> SpanName {
        SpanName { text, bytes, generation: AtomicU64::new(0), id: AtomicU64::new(0) }
    }

    /// The name's id in this process. Except for the first use, this costs two loads.
    #[inline(always)]
    fn id(&self, thread: &Thread) -> u32 {
        if self.generation.load(Acquire) == state::WIPED.generation.load(Relaxed) {
            return self.id.load(Relaxed) as u32;
        }
        self.define(thread)
    }

    #[cold]
    #[inline(never)]
    fn define(&self, thread: &Thread) -> u32 {
        let text = match self.text.is_null() || self.bytes == 0 {
            true => NO_NAME,
            // SAFETY: the program passed a text of `bytes` bytes, which stays valid while the name
            // is used.
            false => unsafe { core::slice::from_raw_parts(self.text, self.bytes) },
        };
        let id = interned::id(thread, ExtKind::Name, text);
        if id != 0 {
            self.id.store(u64::from(id), Relaxed);
            self.generation.store(state::WIPED.generation.load(Relaxed), Release);
        }
        id
    }
}

/// The id of a name that a program passed; the id of [`NO_NAME`] for a null pointer.
///
/// # Safety
/// `name` is null, or points at a name that outlives the call together with its text.
#[inline(always)]
unsafe fn named(thread: &Thread, name: *const SpanName) -> u32 {
    // SAFETY: the caller guarantees null or a valid name.
    match unsafe { name.as_ref() } {
        Some(name) => name.id(thread),
        None => interned::id(thread, ExtKind::Name, NO_NAME),
    }
}

#[inline(always)]
fn thread() -> Option<&'static Thread> {
    let thread = gate::recording();
    if thread.is_none() {
        count_missed();
    }
    thread
}

/// This thread's block, if recording is on.
#[inline(always)]
fn recording() -> Option<&'static Thread> {
    thread().filter(|thread| thread.is_on())
}

/// Begins a span on this thread.
///
/// # Safety
/// `name` is null, or points at a name that outlives the call together with its text.
#[inline(always)]
pub unsafe fn push(name: *const SpanName) {
    if let Some(thread) = thread() {
        // SAFETY: the caller guarantees null or a valid name.
        unsafe { push_on(thread, name) };
    }
}

/// Implements [`push`]. Returns the number of spans around the new one.
///
/// # Safety
/// The same premises as [`push`].
#[inline(always)]
unsafe fn push_on(thread: &Thread, name: *const SpanName) -> u16 {
    let depth = thread.spans.get();
    thread.spans.set(depth.saturating_add(1));
    if schedule::follows_epochs() || capture::is_opened_by(CaptureTrigger::Range) {
        // SAFETY: the caller guarantees null or a valid name.
        unsafe { followed(thread, name, on_stack(thread, depth)) };
    }
    let is_on = thread.is_on();
    if depth < KNOWN_DEPTHS {
        let bit = 1 << depth;
        let others = thread.spans_recorded.get() & !bit;
        thread.spans_recorded.set(if is_on { others | bit } else { others });
    }
    if is_on {
        // SAFETY: the caller guarantees null or a valid name.
        let name = unsafe { named(thread, name) };
        ring::quick(
            thread,
            ExtKind::SpanPush,
            name,
            thread.clock(),
            &counted(thread, depth).pack(),
        );
    }
    depth
}

/// Ends the innermost span of this thread.
#[inline(always)]
pub fn pop() {
    let Some(thread) = thread() else { return };
    // The program called pop more often than push.
    let Some(depth) = thread.spans.get().checked_sub(1) else { return };
    pop_on(thread, depth);
}

/// Ends the innermost span, which has this depth.
#[inline(always)]
fn pop_on(thread: &Thread, depth: u16) {
    ends(thread, depth, INNERMOST);
    // The depth changes last. A signal handler that runs before the record is written then pushes
    // at a greater depth, so that its span doesn't take this one's place.
    thread.spans.set(depth);
    if thread.spans_over.get() != 0 {
        settle(thread);
    }
}

/// Records the end of a span.
#[inline(always)]
fn ends(thread: &Thread, depth: u16, argument: u32) {
    if depth >= KNOWN_DEPTHS || thread.spans_recorded.get() >> depth & 1 != 0 {
        let counted = counted(thread, depth).pack();
        ring::quick(thread, ExtKind::SpanPop, argument, thread.clock(), &counted);
    }
    if capture::is_opened_by(CaptureTrigger::Range) {
        capture::ends(thread, on_stack(thread, depth));
    }
}

/// Removes those innermost spans from the stack that have ended already, before spans within them.
#[cold]
fn settle(thread: &Thread) {
    while let Some(depth) = thread.spans.get().checked_sub(1)
        && depth < KNOWN_DEPTHS
        && thread.spans_over.get() >> depth & 1 != 0
    {
        thread.spans_over.set(thread.spans_over.get() & !(1 << depth));
        thread.spans.set(depth);
    }
}

/// Begins a span on this thread, like [`push`]. Returns the number to pass to [`close`], or 0 if
/// the span isn't recorded. A span at a depth of 64 or more is recorded as if [`start`] had begun
/// it, so it isn't within another span.
///
/// # Safety
/// The same premises as [`push`].
#[inline(always)]
pub unsafe fn open(name: *const SpanName) -> u64 {
    let Some(thread) = thread() else { return 0 };
    if !thread.is_on()
        && !schedule::follows_epochs()
        && !capture::is_opened_by(CaptureTrigger::Range)
    {
        return 0;
    }
    if thread.spans.get() >= KNOWN_DEPTHS {
        // SAFETY: the caller guarantees null or a valid name.
        return unsafe { start(name) };
    }
    // SAFETY: the caller guarantees null or a valid name.
    BY_DEPTH | u64::from(unsafe { push_on(thread, name) })
}

/// Ends a span that [`open`] began on this thread, or that [`start`] began on any thread. Spans
/// that began later on this thread stay open.
#[inline(always)]
pub fn close(span: u64) {
    if span & BY_DEPTH == 0 {
        return end(span);
    }
    let depth = span as u16;
    let Some(thread) = thread() else { return };
    match thread.spans.get().checked_sub(1) {
        Some(innermost) if innermost == depth => pop_on(thread, depth),
        Some(innermost) if innermost > depth => close_around(thread, depth),
        _ => {}
    }
}

/// Ends a span while spans within it stay open.
#[cold]
fn close_around(thread: &Thread, depth: u16) {
    if depth < KNOWN_DEPTHS && thread.spans_over.get() >> depth & 1 == 0 {
        thread.spans_over.set(thread.spans_over.get() | 1 << depth);
        ends(thread, depth, NOT_INNERMOST);
    }
}

/// An argument of a span, as a program passes it: `struct tprof_value`.
#[repr(C)]
pub struct SpanValue {
    /// The value's type, from [`value`].
    kind: u64,
    /// The value's bits, according to its kind; for a text, its address.
    bits: u64,
    /// Number of bytes of a text.
    bytes: u64,
}

/// Adds arguments to a span. The span must have begun by [`open`] on this thread and not have
/// ended, or by [`start`] on any thread. `values` has `count` values, of which at most four are
/// recorded. `keys` has their keys, separated by unit separators.
///
/// # Safety
/// `keys` is null, or points at a name that outlives the call together with its text. `values` is
/// null or points at `count` values, in which the address of each text is null or that of its
/// number of bytes.
pub unsafe fn describe(span: u64, keys: *const SpanName, values: *const SpanValue, count: usize) {
    if span == 0 || values.is_null() {
        return;
    }
    let Some(thread) = thread() else { return };
    let depth = span as u16;
    let is_recorded = depth < KNOWN_DEPTHS && thread.spans_recorded.get() >> depth & 1 != 0;
    if span & BY_DEPTH != 0 && !(is_recorded && depth < thread.spans.get()) {
        return;
    }
    let count = count.min(MAX_ARGUMENTS);
    let mut all = Arguments { span, count: count as u8, ..Arguments::default() };
    // SAFETY: the caller guarantees at least `count` values, and `values` isn't null.
    let values = unsafe { core::slice::from_raw_parts(values, count) };
    for ((one, kind), bits) in values.iter().zip(&mut all.kinds).zip(&mut all.bits) {
        *kind = one.kind as u8;
        *bits = if one.kind == u64::from(value::TEXT) {
            // SAFETY: the caller guarantees that a text is null or has its number of bytes.
            u64::from(unsafe { text_id(thread, one) })
        } else {
            one.bits
        };
    }
    // SAFETY: the caller guarantees null or a valid name.
    let keys = unsafe { named(thread, keys) };
    let clock = thread.clock();
    let [place, kinds, first, second, ..] = all.pack();
    match count {
        0..=2 => {
            ring::quick(thread, ExtKind::SpanArguments, keys, clock, &[place, kinds, first, second])
        }
        _ => ring::quick(thread, ExtKind::SpanArguments, keys, clock, &all.pack()),
    };
}

/// The id of a text; the id of [`NO_TEXT`] if the text is empty.
///
/// # Safety
/// The text's address is null or that of its number of bytes.
unsafe fn text_id(thread: &Thread, one: &SpanValue) -> u32 {
    if one.bits == 0 || one.bytes == 0 {
        return interned::id(thread, ExtKind::Name, NO_TEXT);
    }
    // SAFETY: the caller guarantees this number of bytes, and the address isn't null.
    let text = unsafe { core::slice::from_raw_parts(one.bits as *const u8, one.bytes as usize) };
    interned::id(thread, ExtKind::Name, text)
}

/// Records a span that the program measured itself. The program says how many nanoseconds ago it
/// began and ended. The span is not within another one.
///
/// # Safety
/// The same premises as [`push`].
pub unsafe fn complete(name: *const SpanName, began_ago_ns: u64, ended_ago_ns: u64) {
    let Some(thread) = recording() else { return };
    let clock = thread.clock();
    // SAFETY: the caller guarantees null or a valid name.
    let name = unsafe { named(thread, name) };
    ring::quick(thread, ExtKind::SpanComplete, name, clock, &[began_ago_ns, ended_ago_ns]);
}

/// The thread's counters at this moment. Under `--mem sampled` they count its allocations exactly.
#[inline(always)]
fn counted(thread: &Thread, depth: u16) -> OnStack {
    let slot = thread.slot();
    let (allocations, allocated_bytes) =
        (slot.allocations.load(Relaxed), slot.allocated_bytes.load(Relaxed));
    OnStack { depth, allocations, allocated_bytes }
}

/// The number by which `--capture-range` identifies a thread's span at a depth.
fn on_stack(thread: &Thread, depth: u16) -> u64 {
    u64::from(thread.tid.get()) << 32 | u64::from(depth) | ON_STACK
}

/// The part of a text that precedes a span's arguments.
fn without_arguments(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == ARGUMENTS).next().unwrap_or_default()
}

/// If the span is an epoch, counts it; if it is the captured range, opens the capture.
///
/// # Safety
/// The same premises as [`push`].
#[cold]
unsafe fn followed(thread: &Thread, name: *const SpanName, number: u64) {
    // SAFETY: the caller guarantees null or a valid name with its text.
    let text = unsafe { name.as_ref() }
        .filter(|name| !name.text.is_null())
        .map(|name| unsafe { core::slice::from_raw_parts(name.text, name.bytes) });
    let Some(text) = text.map(without_arguments) else { return };
    if is_epoch(text) {
        schedule::step_begins(thread, Source::Epoch, 0);
    }
    capture::begins(thread, CaptureTrigger::Range, text, number);
}

/// Begins a span that any thread of the process may end. Returns its number, or 0 if it isn't
/// recorded.
///
/// # Safety
/// The same premises as [`push`].
pub unsafe fn start(name: *const SpanName) -> u64 {
    let Some(thread) = thread() else { return 0 };
    let captured = capture::is_opened_by(CaptureTrigger::Range) || schedule::follows_epochs();
    if !captured && !thread.is_on() {
        return 0;
    }
    let number = NUMBERS.fetch_add(1, Relaxed);
    if captured {
        // SAFETY: the caller guarantees null or a valid name.
        unsafe { followed(thread, name, number | STARTED) };
        if !thread.is_on() {
            return 0;
        }
    }
    // SAFETY: the caller guarantees null or a valid name.
    let name = unsafe { named(thread, name) };
    ring::quick(thread, ExtKind::SpanStart, name, thread.clock(), &Place { number }.pack());
    number
}

/// Ends the span with this number.
pub fn end(number: u64) {
    if number != 0
        && let Some(thread) = thread()
    {
        ring::quick(thread, ExtKind::SpanEnd, 0, thread.clock(), &Place { number }.pack());
        if capture::is_opened_by(CaptureTrigger::Range) {
            capture::ends(thread, number | STARTED);
        }
    }
}

/// Records an instant.
///
/// # Safety
/// The same premises as [`push`].
pub unsafe fn mark(name: *const SpanName) {
    let Some(thread) = recording() else { return };
    // SAFETY: the caller guarantees null or a valid name.
    let name = unsafe { named(thread, name) };
    ring::quick(thread, ExtKind::SpanMark, name, thread.clock(), &[0, 0]);
}

/// Begins a training step with this number. If it is [`NO_NUMBER`], the step has no number of its
/// own.
pub fn step(number: u64) {
    let count = STEPS.fetch_add(1, Relaxed);
    let Some(thread) = thread() else { return };
    let is_given = number != NO_NUMBER;
    let payload = [if is_given { number } else { count }, u64::from(is_given)];
    let write = || ring::quick(thread, ExtKind::Step, 0, thread.clock(), &payload);
    // The step is recorded even if the schedule switches recording off here, since its record is
    // the end of the step before.
    let was_on = thread.is_on();
    if was_on {
        write();
    }
    schedule::step_begins(thread, Source::Program, 0);
    if !was_on && thread.is_on() {
        write();
    }
}

/// Records the current value of a gauge.
///
/// # Safety
/// The same premises as [`push`].
pub unsafe fn counter(name: *const SpanName, value: f64) {
    // SAFETY: the caller guarantees null or a valid name.
    unsafe { value_of(name, [value.to_bits(), 0]) };
}

/// Adds a value to the sum of the counter with this name. The sum begins at 0.
///
/// # Safety
/// The same premises as [`push`].
pub unsafe fn add(name: *const SpanName, value: f64) {
    // SAFETY: the caller guarantees null or a valid name.
    unsafe { value_of(name, [value.to_bits(), 1]) };
}

/// # Safety
/// The same premises as [`push`].
#[inline(always)]
unsafe fn value_of(name: *const SpanName, payload: [u64; 2]) {
    let Some(thread) = recording() else { return };
    // SAFETY: the caller guarantees null or a valid name.
    let name = unsafe { named(thread, name) };
    ring::quick(thread, ExtKind::CounterValue, name, thread.clock(), &payload);
}

/// Adds floating-point operations to the innermost span of this thread. `dtype` is their type, from
/// [`tprof_wire::spans::dtype`].
pub fn work(count: u64, dtype: u32) {
    let Some(thread) = recording() else { return };
    let Some(depth) = thread.spans.get().checked_sub(1) else { return };
    ring::quick(thread, ExtKind::Flops, dtype, thread.clock(), &[count, u64::from(depth)]);
}

/// Records that a memory pool of the program's own handed out a block.
///
/// # Safety
/// The same premises as [`push`].
pub unsafe fn took(pool: *const SpanName, block: u64, bytes: u64) {
    let Some(thread) = recording() else { return };
    // SAFETY: the caller guarantees null or a valid name.
    let pool = unsafe { named(thread, pool) };
    ring::quick(thread, ExtKind::PoolTook, pool, thread.clock(), &[block, bytes]);
}

/// Records that the pool took a block back, even while recording is off, since it isn't known here
/// whether the block was recorded when the pool handed it out.
///
/// # Safety
/// The same premises as [`push`].
pub unsafe fn gave(pool: *const SpanName, block: u64) {
    let Some(thread) = thread() else { return };
    // SAFETY: the caller guarantees null or a valid name.
    let pool = unsafe { named(thread, pool) };
    ring::quick(thread, ExtKind::PoolGave, pool, thread.clock(), &[block, 0]);
}

/// Whether this process is recording now.
pub fn is_recording() -> bool {
    recording().is_some()
}

/// Switches this process's recording on (true) or off, without delay. Returns whether the process
/// records afterwards: if something else has switched recording off, it stays off.
pub fn record(on: bool) -> bool {
    let Some(thread) = thread() else { return false };
    let Some(header) = state::header() else { return false };
    let before = match on {
        true => header.off.fetch_and(!off::PROGRAM, AcqRel),
        false => header.off.fetch_or(off::PROGRAM, AcqRel),
    };
    let now = if on { before & !off::PROGRAM } else { before | off::PROGRAM };
    if now != before {
        schedule::write_switch(thread, now, before, None);
    }
    now == 0
}

#[cfg(test)]
mod tests;
