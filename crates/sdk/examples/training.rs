//! A training loop with steps, spans, work and values.
//!
//! ```sh
//! cargo build --release -p tprof --example training
//! tprof run -- target/release/examples/training
//! tprof report steps && tprof report spans && tprof report counters
//! ```

use tprof::{Category, Dtype};

/// Its allocations are recorded, whatever stands in for `System`.
#[global_allocator]
static ALLOCATOR: tprof::Alloc<std::alloc::System> = tprof::Alloc(std::alloc::System);

const BATCH: usize = 32;
const WIDTH: usize = 256;

fn load(step: u64) -> Vec<f32> {
    let _load = tprof::span!(category: Category::DataLoad, "load", step = step);
    (0..BATCH * WIDTH).map(|at| ((at as u64 ^ step) % 7) as f32).collect()
}

fn forward(batch: &[f32], weights: &[f32]) -> Vec<f32> {
    let _forward = tprof::span!(category: Category::Compute, "forward");
    tprof::work(2 * (BATCH * WIDTH) as u64, Dtype::F32);
    let dot = |row: &[f32]| row.iter().zip(weights).map(|(x, w)| x * w).sum();
    batch.chunks(WIDTH).map(dot).collect()
}

fn backward(batch: &[f32], errors: &[f32], weights: &mut [f32]) {
    let _backward = tprof::span!(category: Category::Compute, "backward");
    tprof::work(2 * (BATCH * WIDTH) as u64, Dtype::F32);
    for (row, error) in batch.chunks(WIDTH).zip(errors) {
        weights.iter_mut().zip(row).for_each(|(w, x)| *w -= 1e-6 * error * x);
    }
}

fn main() {
    let mut weights = vec![0.0_f32; WIDTH];
    for step in 0..20 {
        tprof::step(step);
        let batch = load(step);
        let errors: Vec<f32> = forward(&batch, &weights).iter().map(|out| out - 1.0).collect();
        backward(&batch, &errors, &mut weights);
        let loss = errors.iter().map(|error| error * error).sum::<f32>() / BATCH as f32;
        tprof::gauge!("loss").set(loss);
        tprof::counter!("samples").add(BATCH);
    }
}
