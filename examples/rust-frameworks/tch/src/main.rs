//! Trains a classifier that is made of libtorch's layers, on made-up numbers and on the CPU.

use tch::nn::{self, Module, OptimizerConfig};
use tch::{Device, Kind, TchError, Tensor};

const STEPS: usize = 40;
const BATCH: usize = 256;
const WIDTH: usize = 512;
const CLASSES: usize = 16;

fn forward(model: &impl Module, batch: &Tensor) -> Tensor {
    #[cfg(feature = "spans")]
    let _forward = tprof::span!("forward", batch = BATCH);
    model.forward(batch)
}

/// Returns the numbers of one batch, in a block of `BATCH * WIDTH * 4` bytes.
#[inline(never)]
fn load(step: usize) -> Vec<f32> {
    let mut numbers = Vec::with_capacity(BATCH * WIDTH);
    numbers.extend((0..BATCH * WIDTH).map(|at| ((at * 31 + step * 17) % 97) as f32 / 97.0));
    numbers
}

fn main() -> Result<(), TchError> {
    let variables = nn::VarStore::new(Device::Cpu);
    let (path, (width, classes)) = (variables.root(), (WIDTH as i64, CLASSES as i64));
    let model = nn::seq()
        .add(nn::linear(&path / "hidden", width, width, Default::default()))
        .add_fn(|hidden| hidden.relu())
        .add(nn::linear(&path / "output", width, classes, Default::default()));
    let mut optimizer = nn::Sgd::default().build(&variables, 0.1)?;
    let classes = Tensor::arange(BATCH as i64, (Kind::Int64, Device::Cpu)).remainder(classes);
    for step in 0..STEPS {
        #[cfg(feature = "spans")]
        tprof::step(step as u64);
        let batch = Tensor::from_slice(&load(step)).reshape([BATCH as i64, width]);
        let loss = forward(&model, &batch).cross_entropy_for_logits(&classes);
        optimizer.backward_step(&loss);
        #[cfg(feature = "spans")]
        tprof::gauge!("loss").set(loss.double_value(&[]));
    }
    println!("trained {STEPS} steps");
    Ok(())
}
