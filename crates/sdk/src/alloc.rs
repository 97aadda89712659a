//! A global allocator that reports its calls to tprof, whichever allocator does the work.

#![allow(unsafe_code)]

use crate::allocation_counts;
use crate::table::own_table;
use std::alloc::{GlobalAlloc, Layout};

/// Wraps a global allocator, so that tprof records its calls as it records libc's `malloc`: with
/// stacks, and in order with the thread's spans. Without the wrapper, tprof doesn't see the
/// allocations of a statically linked mimalloc or jemalloc.
///
/// Memory that the allocator itself requests from libc is not recorded again, so with
/// `Alloc(System)` each allocation counts once. A block's size is the number of bytes requested.
/// Without tprof and without a [`heap_scope`](crate::heap_scope), a call costs two more loads.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: tprof::Alloc<std::alloc::System> = tprof::Alloc(std::alloc::System);
/// # fn main() {}
/// ```
#[derive(Debug, Default)]
pub struct Alloc<A>(pub A);

// SAFETY: every call is forwarded to the wrapped allocator with the same arguments, and returns its
// result, so this type upholds the same contract.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Alloc<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller of `alloc` promises a layout of nonzero size, which is passed on
        // unchanged.
        unsafe { allocate(layout, || self.0.alloc(layout)) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller of `alloc_zeroed` promises a layout of nonzero size, which is passed
        // on unchanged.
        unsafe { allocate(layout, || self.0.alloc_zeroed(layout)) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        allocation_counts::freed(layout.size());
        match own_table() {
            // SAFETY: the caller promises a live block of this allocator with this layout. All
            // blocks come from the wrapped allocator.
            None => unsafe { self.0.dealloc(block, layout) },
            Some(table) => {
                // SAFETY: `tprof.h` requires only that the call precedes a free on this thread. The
                // function doesn't dereference the block.
                let call = unsafe { (table.freeing)(block, layout.size()) };
                // SAFETY: the same as without a table: the caller promises a live block with this
                // layout.
                unsafe { self.0.dealloc(block, layout) };
                // SAFETY: `call` is what `freeing` returned for this free, on the same thread.
                unsafe { (table.freed)(call) };
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let to = match own_table() {
            // SAFETY: the caller promises a live block of this allocator with this layout, and a
            // valid new size. All blocks come from the wrapped allocator.
            None => unsafe { self.0.realloc(block, layout, bytes) },
            Some(table) => {
                // SAFETY: `tprof.h` requires only that the call precedes a reallocation on this
                // thread. The function doesn't dereference the block.
                let call = unsafe { (table.reallocating)(block, layout.size()) };
                // SAFETY: the caller promises a live block of this allocator with this layout, and
                // a valid new size. The two calls of `table` do not touch the block.
                let to = unsafe { self.0.realloc(block, layout, bytes) };
                // SAFETY: `call` is what `reallocating` returned for this reallocation, on the same
                // thread. The function reads two sizes, and doesn't dereference the blocks.
                unsafe { (table.reallocated)(call, block, to, &[layout.size(), bytes]) };
                to
            }
        };
        if !to.is_null() {
            allocation_counts::freed(layout.size());
            allocation_counts::allocated(bytes);
        }
        to
    }
}

#[inline(always)]
unsafe fn allocate(layout: Layout, call: impl FnOnce() -> *mut u8) -> *mut u8 {
    leave_note();
    let block = match own_table() {
        None => call(),
        Some(table) => {
            // SAFETY: the function has no arguments, and any thread may call it.
            let began = unsafe { (table.allocating)() };
            let block = call();
            // SAFETY: `began` is what `allocating` returned for this allocation, on the same
            // thread. The function doesn't dereference the block.
            unsafe { (table.allocated)(began, block, layout.size()) };
            block
        }
    };
    if !block.is_null() {
        allocation_counts::allocated(layout.size());
    }
    block
}

/// Puts an ELF note into the executable, by which tprof knows before the first call that this
/// allocator reports its calls. The function is called by the methods of [`Alloc`], so that only
/// programs which use `Alloc` contain the note.
#[inline(always)]
fn leave_note() {
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(feature = "off"), not(miri)))]
    // SAFETY: the assembly contains no instructions. It only adds a section to the object file.
    unsafe {
        std::arch::asm!(
            ".pushsection .note.tprof.alloc, \"a\", @note",
            ".balign 4",
            ".long 6, 0, 1",
            ".asciz \"tprof\"",
            ".balign 4",
            ".popsection",
            options(nomem, nostack, preserves_flags)
        );
    }
}
