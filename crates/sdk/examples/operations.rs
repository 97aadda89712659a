//! Operations with categories, times and memory, as in axonml-profile's README. Here each takes one
//! line, and the reports are tprof's.
//!
//! ```sh
//! cargo build --release -p tprof --example operations
//! tprof run -- target/release/examples/operations
//! tprof report spans && tprof report counters && tprof export --to chrome
//! ```

use std::hint::black_box;
use std::time::{Duration, Instant};
use tprof::{Category, Dtype};

const SIZE: usize = 64;
const BYTES: usize = SIZE * SIZE * 4;

/// Does the same as `start_op`, `end_op` and `ComputeStats.flops`. Allocates one block of `BYTES`.
fn matmul(a: &[f32], b: &[f32]) -> Vec<f32> {
    let _op = tprof::span!(category: Category::Compute, "matmul", m = SIZE, n = SIZE, k = SIZE);
    tprof::work(2 * (SIZE * SIZE * SIZE) as u64, Dtype::F32);
    let mut out = vec![0.0; SIZE * SIZE];
    for row in 0..SIZE {
        for at in 0..SIZE {
            for column in 0..SIZE {
                out[row * SIZE + column] += a[row * SIZE + at] * b[at * SIZE + column];
            }
        }
    }
    out
}

/// Calls itself: each of its spans has its own end.
fn visit(depth: u32) -> u32 {
    let _visit = tprof::span!("visit", depth = depth);
    if depth == 0 {
        0
    } else {
        1 + visit(depth - 1)
    }
}

fn main() {
    // This does the same as `begin_event("load", EventCategory::DataLoad)` with metadata.
    let numbers = {
        let load = tprof::span!(category: Category::DataLoad, "load", bytes = BYTES);
        load.record("source", "memory");
        vec![0.5_f32; SIZE * SIZE]
    };
    // This does the same as `track_allocation(size, Device::Cuda(0))`, for memory that no allocator
    // here hands out.
    let device = tprof::pool!("device 0");
    device.took(1_u64, BYTES);
    device.took(2_u64, 2 * BYTES);
    let mut out = numbers.clone();
    for _ in 0..10 {
        out = matmul(&out, &numbers);
    }
    device.gave(1_u64);
    // This does the same as `record_op(name, duration)`, for a time that something else has
    // measured.
    let ended = Instant::now();
    tprof::complete("transfer", ended - Duration::from_millis(2), ended);
    // Another thread ends this operation.
    let write = tprof::start("write");
    std::thread::spawn(move || write.end()).join().expect("no panic");
    // This does the same as `time_op(name, closure)`.
    let sum: f32 = tprof::time("sum", || black_box(&out).iter().sum());
    let depth = visit(3);
    tprof::mark!("done");
    println!("sum {sum}, depth {depth}, recorded: {}", tprof::is_recording());
}
