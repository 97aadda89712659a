//! Heap figures, for assertions in tests.

#![allow(unsafe_code)]

use crate::abi::RawHeap;
use crate::allocation_counts::{self, Counts};
use crate::table::own_table;
use std::marker::PhantomData;

/// Live heap of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessHeap {
    /// Usable bytes of all live blocks.
    pub live_bytes: u64,
    /// The highest value of `live_bytes` so far.
    pub peak_bytes: u64,
}

/// Returns what the process has allocated since it began, by every allocator that tprof records, to
/// within 64 KiB per thread. Returns `None` if that is not counted: it is counted only while `tprof
/// run --mem sampled`, which is the default, records the process.
pub fn heap() -> Option<ProcessHeap> {
    let mut heap = RawHeap::default();
    // SAFETY: `heap` is a local variable with the layout of `struct tprof_heap`, which the function
    // fills.
    let is_known = own_table().is_some_and(|table| unsafe { (table.heap)(&mut heap) != 0 });
    let RawHeap { live_bytes, peak_bytes } = heap;
    is_known.then_some(ProcessHeap { live_bytes, peak_bytes })
}

/// Allocations and frees of this thread within a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heap {
    /// Number of blocks allocated. A resized block counts as freed and allocated.
    pub allocations: u64,
    /// Number of blocks freed, whoever allocated them.
    pub frees: u64,
    /// Number of bytes requested.
    pub allocated_bytes: u64,
    /// Number of blocks allocated and not freed; below 0 if older blocks were freed.
    pub live_blocks: i64,
    /// Number of bytes of these blocks.
    pub live_bytes: i64,
    /// The highest value of `live_bytes` so far, at least 0.
    pub peak_bytes: u64,
}

/// A part of a program whose allocations are counted: see [`heap_scope`].
#[must_use = "a scope counts until it is dropped"]
#[derive(Debug)]
pub struct HeapScope {
    before: Counts,
    is_counted: bool,
    of_one_thread: PhantomData<*mut ()>,
}

/// Counts exactly what this thread allocates from here on, with or without tprof. It needs
/// [`Alloc`](crate::Alloc) as the program's global allocator. Scopes can be nested; drop them in
/// reverse order.
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
    // The box shows whether `Alloc` is the global allocator: if it is, it counts this allocation.
    drop(std::hint::black_box(Box::new(std::hint::black_box(0_u8))));
    let is_counted = allocation_counts::now().allocations != before.allocations;
    allocation_counts::end(&before);
    HeapScope { before: allocation_counts::begin(), is_counted, of_one_thread: PhantomData }
}

impl HeapScope {
    /// Returns the counts so far. Returns `None` if [`Alloc`](crate::Alloc) is not the global
    /// allocator, and on other platforms than Linux on x86-64.
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
