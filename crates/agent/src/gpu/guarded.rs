//! A value with a spin lock, for values of several words. It is used where CUPTI calls the agent,
//! so that this code takes no lock of the job's.

use core::cell::UnsafeCell;
use tprof_inject::sys;
use tprof_wire::sync::{AtomicBool, Ordering::*};

/// A value that one thread at a time may use, because of a spin lock.
pub struct Guarded<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` lets one thread at a time access the value.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// Wraps this value.
    pub const fn new(value: T) -> Guarded<T> {
        Guarded { is_held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Lets `change` read or change the value. `change` must be short, and must not use this value
    /// again, since that would deadlock.
    pub fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        while self.is_held.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            sys::yield_now();
        }
        // SAFETY: this thread holds the lock, and only code that holds it accesses the value.
        let result = change(unsafe { &mut *self.value.get() });
        self.is_held.store(false, Release);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_never_read_half_written() {
        static PAIR: Guarded<(u64, u64)> = Guarded::new((0, 0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    (0..20_000u64).for_each(|n| PAIR.with(|pair| *pair = (n, n)));
                });
            }
            for _ in 0..20_000 {
                let (one, two) = PAIR.with(|pair| *pair);
                assert_eq!(one, two);
            }
        });
    }
}
