//! A training loop like the one in torsh-profiler's README: steps and their phases, memory,
//! operations, regions, values. The reports are tprof's.
//!
//! ```sh
//! cargo build --release -p tprof --example training
//! tprof run -- target/release/examples/training
//! tprof report steps && tprof report spans && tprof report memory && tprof report counters
//! cargo test -p tprof --example training    # asserts on its heap
//! ```

use std::hint::black_box;
use tprof::{Category, Dtype};

/// The allocations of this allocator are recorded. Any other allocator may take the place of
/// `System`.
#[global_allocator]
static ALLOCATOR: tprof::Alloc<std::alloc::System> = tprof::Alloc(std::alloc::System);

const STEPS: u64 = 20;
const BATCH: usize = 32;
const WIDTH: usize = 256;
const TENSORS: usize = 1000;

/// Allocates one block of `BATCH * WIDTH * 4` bytes.
fn load(step: u64) -> Vec<f32> {
    let _load = tprof::span!(category: Category::DataLoad, "data_loading", step = step);
    let mut batch = Vec::with_capacity(BATCH * WIDTH);
    batch.extend((0..BATCH * WIDTH).map(|at| ((at as u64 ^ step) % 7) as f32));
    batch
}

/// Allocates one block of `BATCH * 4` bytes.
fn forward(batch: &[f32], weights: &[f32]) -> Vec<f32> {
    let _forward =
        tprof::span!(category: Category::Compute, "forward", m = BATCH, n = 1, k = WIDTH);
    tprof::work(2 * (BATCH * WIDTH) as u64, Dtype::F32);
    let dot = |row: &[f32]| row.iter().zip(weights).map(|(x, w)| x * w).sum();
    let mut outputs = Vec::with_capacity(BATCH);
    outputs.extend(batch.chunks(WIDTH).map(dot).map(|output: f32| output - 1.0));
    outputs
}

fn criterion(errors: &[f32]) -> f32 {
    tprof::time("loss", || errors.iter().map(|error| error * error).sum::<f32>() / BATCH as f32)
}

fn backward(batch: &[f32], errors: &[f32], weights: &mut [f32]) {
    let _backward = tprof::span!(category: Category::Compute, "backward");
    tprof::work(2 * (BATCH * WIDTH) as u64, Dtype::F32);
    for (row, error) in batch.chunks(WIDTH).zip(errors) {
        weights.iter_mut().zip(row).for_each(|(w, x)| *w -= 1e-6 * error * x);
    }
}

/// Allocates a thousand blocks of 4 KiB, and the list of them.
fn tensors() -> Vec<Vec<f32>> {
    let _tensors = tprof::span!("tensors");
    let mut all = Vec::with_capacity(TENSORS);
    all.extend((0..TENSORS).map(|_| vec![1.0_f32; 1024]));
    all
}

fn main() {
    let mut weights = vec![0.0_f32; WIDTH];
    for step in 0..STEPS {
        tprof::step(step);
        let batch = load(step);
        let errors = forward(&batch, &weights);
        let loss = criterion(&errors);
        backward(&batch, &errors, &mut weights);
        tprof::gauge!("loss").set(loss);
        tprof::counter!("samples").add(BATCH);
    }
    let mut all = tensors();
    let sum: f32 = tprof::time("data_preprocessing", || all.iter().flatten().sum());
    let critical = tprof::span!("critical_section");
    critical.record("sum", sum);
    drop(critical);
    // One tensor is never freed: `tprof report memory` lists it as live, with its stack.
    std::mem::forget(black_box(all.pop()));
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn each_phase_allocates_what_it_returns() {
        let weights = vec![0.0; WIDTH];
        let scope = tprof::heap_scope();
        let batch = black_box(load(0));
        let errors = black_box(forward(&batch, &weights));
        black_box(criterion(&errors));
        let heap = scope.heap().expect("the allocator is wrapped");
        assert_eq!((heap.allocations, heap.live_blocks), (2, 2));
        assert_eq!(heap.allocated_bytes as usize, BATCH * WIDTH * 4 + BATCH * 4);
    }

    /// Checks the heap of the whole process, under `tprof run`.
    #[test]
    fn the_process_holds_a_thousand_tensors() {
        assert_eq!(tprof::heap().is_some(), tprof::is_recording());
        let all = black_box(tensors());
        if let Some(heap) = tprof::heap() {
            assert!(heap.live_bytes as usize >= TENSORS * 4096 - (64 << 10), "{heap:?}");
            assert!(heap.peak_bytes >= heap.live_bytes);
        }
        drop(all);
    }
}
