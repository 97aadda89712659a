// A Rust program with a global allocator that counts blocks and calls the system's allocator.
//
// Proves: an allocator that calls malloc is recorded.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all of the work and satisfies the trait's contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: the caller of `alloc` guarantees a valid layout.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller passes a block of `alloc`, which came from the system's allocator,
        // with its layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let held: Vec<Vec<u8>> = (0..50).map(|i| vec![i as u8; 1 << 20]).collect();
    assert!(CALLS.load(Relaxed) >= 50);
    println!("held {}", held.iter().map(|block| block[9] as usize).sum::<usize>());
}
