//! Test program whose global allocator takes its memory from the kernel, so that none of its
//! allocations pass libc's `malloc`. It prints the allocations that it requested in `planted`.
//!
//! A test checks that `tprof::Alloc` records each of these allocations, with its stack.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Bump;

static NEXT: AtomicUsize = AtomicUsize::new(0);
const ARENA: usize = 64 << 20;

// SAFETY: blocks do not overlap and are aligned. They stay valid, because `alloc` only moves
// forward and `dealloc` reuses nothing.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if NEXT.load(Relaxed) == 0 {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: the kernel chooses the address of the new mapping, so it replaces no other
            // mapping.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), ARENA, protection, flags, -1, 0) };
            let _ = NEXT.compare_exchange(0, at as usize, Relaxed, Relaxed);
        }
        let bytes = layout.size() + layout.align() + 16;
        let at = NEXT.fetch_add(bytes, Relaxed);
        at.next_multiple_of(layout.align().max(8)) as *mut u8
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: tprof::Alloc<Bump> = tprof::Alloc(Bump);

const TIMES: usize = 1000;

#[inline(never)]
fn planted(kept: &mut Vec<Vec<u8>>) {
    for at in 0..TIMES {
        // Allocates 1,000 bytes and grows them to 3,000, which frees one block and allocates
        // another. Every tenth block is kept.
        let mut block = black_box(Vec::<u8>::with_capacity(1000));
        block.reserve_exact(3000);
        let block = black_box(block);
        if at % 10 == 0 {
            kept.push(block);
        }
    }
}

fn main() {
    let mut kept = Vec::with_capacity(TIMES);
    let scope = tprof::heap_scope();
    {
        let _span = tprof::span!("planted");
        planted(&mut kept);
    }
    let heap = scope.heap().expect("`tprof::Alloc` wraps the allocator");
    println!(
        "allocations {} frees {} bytes {} live {} {} peak {}",
        heap.allocations,
        heap.frees,
        heap.allocated_bytes,
        heap.live_blocks,
        heap.live_bytes,
        heap.peak_bytes,
    );
    std::mem::forget(kept);
    if let Some(heap) = tprof::heap() {
        println!("process {} {}", heap.live_bytes, heap.peak_bytes);
    }
}
