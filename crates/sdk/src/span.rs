//! Spans on a thread's stack, spans that move between threads, and spans measured elsewhere.

#![allow(unsafe_code)]

use crate::abi::RawValue;
use crate::name::Name;
use crate::table::table;
use crate::value::Value;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// A span of this thread, which lasts until it is dropped: see [`span!`](crate::span!).
///
/// Spans may be dropped in any order. A span that is dropped before spans that began after it, or
/// that is nested deeper than 64, does not count as nested, and its allocations are unknown.
#[must_use = "a span lasts until it is dropped: `let _span = tprof::span!(…)`"]
#[derive(Debug)]
pub struct Span {
    id: u64,
    /// Makes the type neither `Send` nor `Sync`, because a span must end on the thread on which it
    /// began.
    of_one_thread: PhantomData<*mut ()>,
}

impl Span {
    /// Begins a span. [`span!`](crate::span!) calls it.
    #[inline(always)]
    pub fn enter(name: &'static Name) -> Span {
        Span::of(name)
    }

    #[inline(always)]
    fn of(name: &Name) -> Span {
        let id = match table() {
            // SAFETY: the reference keeps the name and its text alive during the call.
            Some(table) => unsafe { (table.open)(name) },
            None => 0,
        };
        Span { id, of_one_thread: PhantomData }
    }

    /// Returns a span that is not recorded.
    #[inline(always)]
    pub const fn none() -> Span {
        Span { id: 0, of_one_thread: PhantomData }
    }

    /// Whether the span is recorded.
    #[inline(always)]
    pub fn is_recorded(&self) -> bool {
        self.id != 0
    }

    /// Adds at most four arguments. [`span!`](crate::span!) calls it.
    #[inline(always)]
    pub fn describe(&self, keys: &'static Name, values: &[Value<'_>]) {
        describe(self.id, keys, values);
    }

    /// Adds an argument whose value is known only now. A later argument with the same key replaces
    /// it. A span keeps 16 such arguments.
    pub fn record<'a>(&self, key: &str, value: impl Into<Value<'a>>) {
        record(self.id, key, value.into());
    }
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        if self.id != 0 {
            if let Some(table) = table() {
                // SAFETY: `id` is what `open` returned. A `Span` is not `Send`, so this is the same
                // thread.
                unsafe { (table.close)(self.id) };
            }
        }
    }
}

#[inline(always)]
fn describe(id: u64, keys: &Name, values: &[Value<'_>]) {
    if id == 0 {
        return;
    }
    if let Some(table) = table() {
        let values = values.iter().map(|value| value.raw);
        let mut all = [RawValue { kind: 0, bits: 0, bytes: 0 }; 4];
        let mut count = 0;
        for (to, value) in all.iter_mut().zip(values) {
            *to = value;
            count += 1;
        }
        // SAFETY: `keys` and the first `count` elements of `all` outlive the call. Texts of values
        // are borrowed by `values`, so they do, too.
        unsafe { (table.describe)(id, keys, all.as_ptr(), count) };
    }
}

fn record(id: u64, key: &str, value: Value<'_>) {
    if id != 0 {
        describe(id, &Name::for_a_call(key), &[value]);
    }
}

/// Begins a span whose name is created at run time. [`span!`](crate::span!) costs less.
///
/// Distinct names count against the 1,048,576 that a run keeps per process, and 3,800 bytes of a
/// name are kept.
#[inline]
pub fn span(name: &str) -> Span {
    Span::of(&Name::for_a_call(name))
}

/// Calls a function within a span, and returns its result.
///
/// ```
/// let sum: u64 = tprof::time("sum", || (0..10).sum());
/// assert_eq!(sum, 45);
/// ```
#[inline]
pub fn time<T>(name: &str, call: impl FnOnce() -> T) -> T {
    let _span = span(name);
    call()
}

/// A span that any thread may end, by [`end`](OpenSpan::end) or by dropping it. It is not nested in
/// other spans.
#[must_use = "a span lasts until it is dropped"]
#[derive(Debug)]
pub struct OpenSpan {
    id: u64,
}

/// Begins a span that any thread may end.
///
/// ```
/// let upload = tprof::start("upload");
/// std::thread::spawn(move || upload.end()).join().unwrap();
/// ```
pub fn start(name: &str) -> OpenSpan {
    let id = match table() {
        // SAFETY: the name and `name`, its text, live until the call returns.
        Some(table) => unsafe { (table.start)(&Name::for_a_call(name)) },
        None => 0,
    };
    OpenSpan { id }
}

impl OpenSpan {
    /// Ends the span.
    pub fn end(self) {}

    /// Whether the span is recorded.
    pub fn is_recorded(&self) -> bool {
        self.id != 0
    }

    /// Adds an argument, like [`Span::record`].
    pub fn record<'a>(&self, key: &str, value: impl Into<Value<'a>>) {
        record(self.id, key, value.into());
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if self.id != 0 {
            if let Some(table) = table() {
                // SAFETY: `id` is what `start` returned. Any thread may end the span.
                unsafe { (table.end)(self.id) };
            }
        }
    }
}

/// Records a span that was measured elsewhere. It is not nested in other spans. A moment in the
/// future counts as now.
///
/// ```
/// let began = std::time::Instant::now();
/// tprof::complete("decode", began, std::time::Instant::now());
/// ```
pub fn complete(name: &str, began: Instant, ended: Instant) {
    if let Some(table) = table() {
        let now = Instant::now();
        let ago = |then| nanoseconds(now.saturating_duration_since(then));
        // SAFETY: the name and `name`, its text, live until the call returns.
        unsafe { (table.complete)(&Name::for_a_call(name), ago(began), ago(ended)) };
    }
}

fn nanoseconds(of: Duration) -> u64 {
    u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)
}
