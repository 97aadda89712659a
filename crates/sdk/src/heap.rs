//! What is allocated, for assertions in tests.

#![allow(unsafe_code)]

use crate::abi::RawHeap;
use crate::allocation_counts::{self, Counts};
use crate::table::own_table;
use std::marker::PhantomData;

/// What a process has allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessHeap {
    /// Usable bytes of all blocks that are live.
    pub live_bytes: u64,
    /// The most that were.
    pub peak_bytes: u64,
}

/// What the process has allocated since it began, by every allocator that tprof records, to within
/// 64 KiB a thread. `None` where that is not counted: unless `tprof run --mem sampled`, which is
/// the default, records it at this moment.
pub fn heap() -> Option<ProcessHeap> {
    let mut heap = RawHeap::default();
    // SAFETY: one to write to.
    let is_known = own_table().is_some_and(|table| unsafe { (table.heap)(&mut heap) != 0 });
    let RawHeap { live_bytes, peak_bytes } = heap;
    is_known.then_some(ProcessHeap { live_bytes, peak_bytes })
}

/// What this thread has allocated and freed in a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heap {
    /// Blocks that were allocated; one that was resized counts as freed and allocated.
    pub allocations: u64,
    /// Blocks that were freed, whoever allocated them.
    pub frees: u64,
    /// Bytes that were asked for.
    pub allocated_bytes: u64,
    /// Blocks that were allocated and not freed; below 0 where older ones were freed.
    pub live_blocks: i64,
    /// Their bytes.
    pub live_bytes: i64,
    /// The most of `live_bytes` so far, 0 at least.
    pub peak_bytes: u64,
}

/// A part of a program of which allocations are counted: see [`heap_scope`].
#[must_use = "a scope counts until it is dropped"]
#[derive(Debug)]
pub struct HeapScope {
    before: Counts,
    is_counted: bool,
    of_one_thread: PhantomData<*mut ()>,
}

/// Counts what this thread allocates from here on, exactly, with or without tprof. It takes
/// [`Alloc`](crate::Alloc) as the program's global allocator. Scopes nest; drop them in reverse
/// order.
///
/// ```
/// # #[global_allocator]
/// # static ALLOCATOR: tprof::Alloc<std::alloc::System> = tprof::Alloc(std::alloc::System);
/// let scope = tprof::heap_scope();
/// let kept = std::hint::black_box(vec![0_u8; 1000]);
/// drop(std::hint::black_box(vec![0_u8; 500]));
/// if let Some(heap) = scope.heap() {
///     assert_eq!((heap.allocations, heap.live_blocks), (2, 1));
///     assert_eq!((heap.live_bytes, heap.peak_bytes), (1000, 1500));
/// }
/// # drop(kept);
/// ```
pub fn heap_scope() -> HeapScope {
    let before = allocation_counts::begin();
    // Whether allocations come here at all.
    drop(std::hint::black_box(Box::new(std::hint::black_box(0_u8))));
    let is_counted = allocation_counts::now().allocations != before.allocations;
    allocation_counts::end(&before);
    HeapScope { before: allocation_counts::begin(), is_counted, of_one_thread: PhantomData }
}

impl HeapScope {
    /// What was counted so far; `None` where [`Alloc`](crate::Alloc) is not the global allocator,
    /// and elsewhere than on Linux on x86-64.
    pub fn heap(&self) -> Option<Heap> {
        let (now, before) = (allocation_counts::now(), &self.before);
        let allocations = now.allocations.wrapping_sub(before.allocations);
        let frees = now.frees.wrapping_sub(before.frees);
        let peak_bytes = now.peak_bytes.wrapping_sub(before.live_bytes());
        self.is_counted.then(|| Heap {
            allocations,
            frees,
            allocated_bytes: now.allocated_bytes.wrapping_sub(before.allocated_bytes),
            live_blocks: allocations.wrapping_sub(frees) as i64,
            live_bytes: now.live_bytes().wrapping_sub(before.live_bytes()),
            peak_bytes: u64::try_from(peak_bytes).unwrap_or(0),
        })
    }
}

impl Drop for HeapScope {
    fn drop(&mut self) {
        allocation_counts::end(&self.before);
    }
}
