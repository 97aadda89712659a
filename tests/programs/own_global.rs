// A Rust program with a global allocator that takes its memory from the kernel: 50 blocks of 1 MiB,
// which it keeps.
//
// Proves: an allocator with an unknown name is reported as well.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Bump;

static NEXT: AtomicUsize = AtomicUsize::new(0);
const ARENA: usize = 256 << 20;

unsafe extern "C" {
    fn mmap(at: usize, bytes: usize, prot: i32, flags: i32, fd: i32, offset: i64) -> usize;
}

// SAFETY: blocks do not overlap and are aligned. They stay valid, because nothing is handed out
// twice.
unsafe impl GlobalAlloc for Bump {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if NEXT.load(Relaxed) == 0 {
            // Flags: readable and writable, private and anonymous.
            // SAFETY: the kernel chooses the address of the new mapping, so it replaces no other
            // mapping.
            let arena = unsafe { mmap(0, ARENA, 3, 0x22, -1, 0) };
            let _ = NEXT.compare_exchange(0, arena, Relaxed, Relaxed);
        }
        let room = layout.size() + layout.align();
        NEXT.fetch_add(room, Relaxed).next_multiple_of(layout.align()) as *mut u8
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Bump = Bump;

fn main() {
    let held: Vec<Vec<u8>> = (0..50).map(|i| vec![i as u8; 1 << 20]).collect();
    println!("held {}", held.iter().map(|block| block[9] as usize).sum::<usize>());
}
