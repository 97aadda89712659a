//! Runs work on many rank files at once.
//!
//! At most as many files are open as there are cores, however many ranks there are.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Cores that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Applies `work` to every item, on all cores; results keep the items' order.
pub fn each<I: Sync, T: Send>(items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    each_on(cores(), items, work)
}

/// Like [`each`], on at most `cores` threads. With one, the work runs on the caller's thread.
pub fn each_on<I: Sync, T: Send>(
    cores: usize,
    items: &[I],
    work: impl Fn(&I) -> T + Sync,
) -> Vec<T> {
    if cores <= 1 || items.len() <= 1 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let work = || {
        while let Some((index, item)) = take(items, &next) {
            let result = work(item);
            // A poisoned lock means that a worker panicked. The scope passes the panic on, so the
            // result does not matter.
            if let Ok(mut done) = done.lock() {
                done.push((index, result));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..cores.min(items.len()) {
            // If the thread can't be started, the calling thread does all of the work.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Calls two functions, in parallel if there are at least two cores, and returns both results.
pub fn both<A, B: Send>(
    cores: usize,
    first: impl FnOnce() -> A,
    second: impl FnOnce() -> B + Send,
) -> (A, B) {
    if cores <= 1 {
        return (first(), second());
    }
    // `second` is stored outside of the thread's closure, so that the caller can still run it if
    // the thread fails to start.
    let second = Mutex::new(Some(second));
    let take = || second.lock().ok()?.take();
    let (first, done) = thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, || take().map(|work| work()));
        let first = first();
        let done = thread.ok().and_then(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        (first, done)
    });
    let done = done.or_else(|| take().map(|work| work()));
    (first, done.expect("either the thread or the caller has run the second function"))
}

fn take<'a, I>(items: &'a [I], next: &AtomicUsize) -> Option<(usize, &'a I)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    Some((index, items.get(index)?))
}

#[cfg(test)]
mod tests {
    use super::{each, each_on};

    #[test]
    fn results_keep_the_order_of_the_items() {
        let items: Vec<u64> = (0..1000).collect();
        let doubled: Vec<u64> = (0..2000).step_by(2).collect();
        assert_eq!(each(&items, |item| item * 2), doubled);
        for cores in [0, 1, 3] {
            assert_eq!(each_on(cores, &items, |item| item * 2), doubled);
        }
        assert!(each(&[] as &[u64], |item| *item).is_empty());
    }
}
