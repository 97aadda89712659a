//! Operations with categories, times and memory, as a profiler within a program has them: here
//! each is one line, and the reports are `tprof`'s.
//!
//! ```sh
//! cargo build --release -p tprof --example operations
//! tprof run -- target/release/examples/operations && tprof report spans
//! ```

use std::hint::black_box;
use std::time::Instant;
use tprof::{Category, Dtype};

const SIZE: usize = 64;

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

fn main() {
    let numbers = {
        let bytes = SIZE * SIZE * 4;
        let _load = tprof::span!(category: Category::DataLoad, "load", bytes = bytes);
        vec![0.5_f32; SIZE * SIZE]
    };
    let mut out = numbers.clone();
    for _ in 0..10 {
        out = matmul(&out, &numbers);
    }
    // A time that something else has measured.
    let began = Instant::now();
    let sum: f32 = black_box(&out).iter().sum();
    tprof::complete("sum", began, Instant::now());
    // One that another thread ends.
    let write = tprof::start("write");
    std::thread::spawn(move || write.end()).join().expect("no panic");
    tprof::mark!("done");
    println!("sum {sum}, recorded: {}", tprof::is_recording());
}
