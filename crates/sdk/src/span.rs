//! Spans: on a thread's stack, from thread to thread, or measured elsewhere.

#![allow(unsafe_code)]

use crate::abi::RawValue;
use crate::name::Name;
use crate::table::table;
use crate::value::Value;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// A span of this thread, which lasts until it is dropped: see [`span!`](crate::span!).
///
/// Spans may be dropped in any order. One that is dropped before spans that began after it, and
/// one deeper than 64, lies within no other: what was allocated in it is not known.
#[must_use = "a span lasts until it is dropped: `let _span = tprof::span!(…)`"]
#[derive(Debug)]
pub struct Span {
    id: u64,
    /// It ends on its own thread.
    of_one_thread: PhantomData<*mut ()>,
}

impl Span {
    /// Begins one: what [`span!`](crate::span!) calls.
    #[inline(always)]
    pub fn enter(name: &'static Name) -> Span {
        Span::of(name)
    }

    #[inline(always)]
    fn of(name: &Name) -> Span {
        let id = match table() {
            // SAFETY: a name that outlives the call.
            Some(table) => unsafe { (table.open)(name) },
            None => 0,
        };
        Span { id, of_one_thread: PhantomData }
    }

    /// One that is not recorded.
    #[inline(always)]
    pub const fn none() -> Span {
        Span { id: 0, of_one_thread: PhantomData }
    }

    /// Whether it is recorded.
    #[inline(always)]
    pub fn is_recorded(&self) -> bool {
        self.id != 0
    }

    /// Adds arguments, at most four: what [`span!`](crate::span!) calls.
    #[inline(always)]
    pub fn describe(&self, keys: &'static Name, values: &[Value<'_>]) {
        describe(self.id, keys, values);
    }

    /// Adds an argument that is known only now; a later one of the same key takes its place. Of one
    /// span 16 are kept.
    pub fn record<'a>(&self, key: &str, value: impl Into<Value<'a>>) {
        record(self.id, key, value.into());
    }
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        if self.id != 0 {
            if let Some(table) = table() {
                // SAFETY: what `open` returned, on the same thread.
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
        // The same type: `Value` has no other field.
        let values = values.iter().map(|value| value.raw);
        let mut all = [RawValue { kind: 0, bits: 0, bytes: 0 }; 4];
        let mut count = 0;
        for (to, value) in all.iter_mut().zip(values) {
            *to = value;
            count += 1;
        }
        // SAFETY: a name and so many values that outlive the call.
        unsafe { (table.describe)(id, keys, all.as_ptr(), count) };
    }
}

fn record(id: u64, key: &str, value: Value<'_>) {
    if id != 0 {
        describe(id, &Name::for_a_call(key), &[value]);
    }
}

/// A span of a name that is made at run time. [`span!`](crate::span!) costs less.
///
/// Different names count against the 1,048,576 that a run keeps of a process; of a name 3,800
/// bytes are kept.
#[inline]
pub fn span(name: &str) -> Span {
    Span::of(&Name::for_a_call(name))
}

/// Calls a function within a span; returns what it does.
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

/// A span that any thread may end, by [`end`](OpenSpan::end) or by dropping it. It lies within no
/// other.
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
        // SAFETY: a name that outlives the call.
        Some(table) => unsafe { (table.start)(&Name::for_a_call(name)) },
        None => 0,
    };
    OpenSpan { id }
}

impl OpenSpan {
    /// Ends it.
    pub fn end(self) {}

    /// Whether it is recorded.
    pub fn is_recorded(&self) -> bool {
        self.id != 0
    }

    /// Adds an argument, as [`Span::record`].
    pub fn record<'a>(&self, key: &str, value: impl Into<Value<'a>>) {
        record(self.id, key, value.into());
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if self.id != 0 {
            if let Some(table) = table() {
                // SAFETY: what `start` returned.
                unsafe { (table.end)(self.id) };
            }
        }
    }
}

/// A span that was measured elsewhere. It lies within no other; a moment that has not come yet
/// counts as now.
///
/// ```
/// let began = std::time::Instant::now();
/// tprof::complete("decode", began, std::time::Instant::now());
/// ```
pub fn complete(name: &str, began: Instant, ended: Instant) {
    if let Some(table) = table() {
        let now = Instant::now();
        let ago = |then| nanoseconds(now.saturating_duration_since(then));
        // SAFETY: a name that outlives the call.
        unsafe { (table.complete)(&Name::for_a_call(name), ago(began), ago(ended)) };
    }
}

fn nanoseconds(of: Duration) -> u64 {
    u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)
}
