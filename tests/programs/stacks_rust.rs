//! Names from the Rust compiler that need demangling.
//!
//! Proves: a report shows Rust names as they were written, without hashes.

use std::hint::black_box;

mod victim_module {
    pub trait Takes {
        fn victim_method(&self) -> Vec<u64>;
    }
    impl Takes for u64 {
        #[inline(never)]
        fn victim_method(&self) -> Vec<u64> {
            let taken: Vec<u64> = Vec::with_capacity(std::hint::black_box(*self as usize));
            std::hint::black_box(taken)
        }
    }
}

#[inline(never)]
fn victim_generic<T: victim_module::Takes>(value: T) -> usize {
    let taken = black_box(value.victim_method());
    taken.capacity()
}

fn main() {
    let sum: usize = (0..100).map(|_| black_box(victim_generic(125u64))).sum();
    println!("{sum}");
}
