//! Checks that heap assertions in a program's own tests are exact, and the same under `tprof run`.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(feature = "off")))]

use std::alloc::System;
use std::hint::black_box;

#[global_allocator]
static ALLOCATOR: tprof::Alloc<System> = tprof::Alloc(System);

fn doubled(numbers: &[u64]) -> Vec<u64> {
    let mut all = Vec::with_capacity(numbers.len());
    all.extend(numbers.iter().map(|number| number * 2));
    all
}

#[test]
fn one_block_of_the_right_size() {
    let numbers = vec![1_u64; 100];
    let scope = tprof::heap_scope();
    let kept = black_box(doubled(black_box(&numbers)));
    let heap = scope.heap().expect("the allocator is wrapped");
    assert_eq!((heap.allocations, heap.live_blocks, heap.live_bytes), (1, 1, 800));
    drop(kept);
    let heap = scope.heap().expect("the allocator is wrapped");
    assert_eq!((heap.frees, heap.live_blocks, heap.live_bytes, heap.peak_bytes), (1, 0, 0, 800));
}

#[test]
fn scopes_nest_and_each_has_its_own_peak() {
    let outer = tprof::heap_scope();
    drop(black_box(vec![0_u8; 5000]));
    let inner = tprof::heap_scope();
    let kept = black_box(vec![0_u8; 100]);
    assert_eq!(inner.heap().map(|heap| heap.peak_bytes), Some(100));
    drop(inner);
    assert_eq!(outer.heap().map(|heap| heap.peak_bytes), Some(5000));
    let grown = black_box(vec![0_u8; 6000]);
    let heap = outer.heap().expect("the allocator is wrapped");
    assert_eq!((heap.peak_bytes, heap.live_bytes), (6100, 6100));
    drop((kept, grown));
}

#[test]
fn another_thread_is_not_counted() {
    let scope = tprof::heap_scope();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let own = tprof::heap_scope();
            drop(black_box(vec![0_u8; 1 << 20]));
            assert_eq!(own.heap().map(|heap| heap.allocations), Some(1));
        });
    });
    let heap = scope.heap().expect("the allocator is wrapped");
    assert!(heap.peak_bytes < 1 << 20, "{heap:?}");
}

#[test]
fn recording_makes_no_allocation() {
    let scope = tprof::heap_scope();
    for at in 0..100_u64 {
        let span = tprof::span!("span", at = at, text = "text");
        span.record("late", 1.5);
        tprof::mark!("mark");
        tprof::gauge!("gauge").set(at);
        tprof::counter!("counter").add(1);
        tprof::step(at);
        tprof::start("started").end();
    }
    assert_eq!(scope.heap().map(|heap| heap.allocations), Some(0));
}
