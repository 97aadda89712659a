//! Counts what a thread allocates through [`Alloc`](crate::Alloc) while a scope is open.

pub(crate) use thread::*;

/// Allocation counts of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub allocations: u64,
    pub frees: u64,
    pub allocated_bytes: u64,
    pub freed_bytes: u64,
    /// Highest value of allocated minus freed bytes, which may be below 0.
    pub peak_bytes: i64,
}

impl Counts {
    /// Returns allocated minus freed bytes.
    pub fn live_bytes(&self) -> i64 {
        self.allocated_bytes.wrapping_sub(self.freed_bytes) as i64
    }
}

// Only on this platform: here, accessing a thread-local variable doesn't allocate, which would
// recurse.
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(feature = "off")))]
mod thread {
    use super::Counts;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Number of open scopes of all threads.
    static SCOPES: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static COUNTS: Cell<Counts> = const {
            Cell::new(Counts {
                allocations: 0,
                frees: 0,
                allocated_bytes: 0,
                freed_bytes: 0,
                peak_bytes: 0,
            })
        };
    }

    #[inline(always)]
    pub(crate) fn allocated(bytes: usize) {
        if SCOPES.load(Relaxed) != 0 {
            change(|counts| {
                counts.allocations += 1;
                counts.allocated_bytes = counts.allocated_bytes.wrapping_add(bytes as u64);
                counts.peak_bytes = counts.peak_bytes.max(counts.live_bytes());
            });
        }
    }

    #[inline(always)]
    pub(crate) fn freed(bytes: usize) {
        if SCOPES.load(Relaxed) != 0 {
            change(|counts| {
                counts.frees += 1;
                counts.freed_bytes = counts.freed_bytes.wrapping_add(bytes as u64);
            });
        }
    }

    #[cold]
    fn change(by: impl FnOnce(&mut Counts)) {
        COUNTS.with(|cell| {
            let mut counts = cell.get();
            by(&mut counts);
            cell.set(counts);
        });
    }

    /// Begins a scope: starts counting with a new peak. Returns the counts so far.
    pub(crate) fn begin() -> Counts {
        SCOPES.fetch_add(1, Relaxed);
        COUNTS.with(|cell| {
            let before = cell.get();
            cell.set(Counts { peak_bytes: before.live_bytes(), ..before });
            before
        })
    }

    /// Returns the current counts.
    pub(crate) fn now() -> Counts {
        COUNTS.with(Cell::get)
    }

    /// Ends a scope that began with these counts.
    pub(crate) fn end(before: &Counts) {
        SCOPES.fetch_sub(1, Relaxed);
        change(|counts| counts.peak_bytes = counts.peak_bytes.max(before.peak_bytes));
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", not(feature = "off"))))]
mod thread {
    use super::Counts;

    pub(crate) fn allocated(_: usize) {}
    pub(crate) fn freed(_: usize) {}
    pub(crate) fn begin() -> Counts {
        Counts::default()
    }
    pub(crate) fn now() -> Counts {
        Counts::default()
    }
    pub(crate) fn end(_: &Counts) {}
}
