//! Futures whose polls are spans.

#![allow(unsafe_code)]

use crate::name::Name;
use crate::span::Span;
use crate::value::Value;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

/// Number of calls so far that were polled while recording.
static TASKS: AtomicU64 = AtomicU64::new(0);

/// A future whose polls are spans, with the number of the future as the argument `task`.
/// [`instrument`](crate::instrument) wraps the body of an `async fn` in it.
#[derive(Debug)]
pub struct Polled<F> {
    name: &'static Name,
    task: u64,
    future: F,
}

impl<F> Polled<F> {
    /// Wraps a future.
    pub fn new(future: F, name: &'static Name) -> Polled<F> {
        Polled { name, task: 0, future }
    }
}

impl<F: Future> Future for Polled<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        static TASK: Name = Name::new("task");
        // SAFETY: `self` is pinned, and neither `self` nor its future is moved: only other fields
        // are changed through `this`.
        let this = unsafe { self.get_unchecked_mut() };
        let span = Span::enter(this.name);
        if span.is_recorded() {
            if this.task == 0 {
                this.task = TASKS.fetch_add(1, Relaxed) + 1;
            }
            span.describe(&TASK, &[Value::from(this.task)]);
        }
        // SAFETY: the future is a field of the pinned `self`. It is never moved, and it is dropped
        // in place with `self`.
        unsafe { Pin::new_unchecked(&mut this.future) }.poll(context)
    }
}
