//! A classifier of candle's layers, trained on random numbers on the CPU.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{linear, loss, Linear, Module, Optimizer, VarBuilder, VarMap, SGD};

const STEPS: usize = 40;
const BATCH: usize = 256;
const WIDTH: usize = 512;
const CLASSES: usize = 16;

struct Model {
    hidden: Linear,
    output: Linear,
}

impl Model {
    fn new(parameters: VarBuilder) -> Result<Model> {
        let hidden = linear(WIDTH, WIDTH, parameters.pp("hidden"))?;
        Ok(Model { hidden, output: linear(WIDTH, CLASSES, parameters.pp("output"))? })
    }

    fn forward(&self, batch: &Tensor) -> Result<Tensor> {
        #[cfg(feature = "spans")]
        let _forward = tprof::span!("forward", batch = BATCH);
        self.output.forward(&self.hidden.forward(batch)?.relu()?)
    }
}

/// The numbers of one batch: a block of `BATCH * WIDTH * 4` bytes.
#[inline(never)]
fn load(step: usize) -> Vec<f32> {
    let mut numbers = Vec::with_capacity(BATCH * WIDTH);
    numbers.extend((0..BATCH * WIDTH).map(|at| ((at * 31 + step * 17) % 97) as f32 / 97.0));
    numbers
}

fn main() -> Result<()> {
    let device = Device::Cpu;
    let variables = VarMap::new();
    let model = Model::new(VarBuilder::from_varmap(&variables, DType::F32, &device))?;
    let mut optimizer = SGD::new(variables.all_vars(), 0.1)?;
    let classes = Tensor::from_vec((0..BATCH as u32).map(|at| at % CLASSES as u32).collect(), BATCH, &device)?;
    for step in 0..STEPS {
        #[cfg(feature = "spans")]
        tprof::step(step as u64);
        let batch = Tensor::from_vec(load(step), (BATCH, WIDTH), &device)?;
        let loss = loss::cross_entropy(&model.forward(&batch)?, &classes)?;
        optimizer.backward_step(&loss)?;
        #[cfg(feature = "spans")]
        tprof::gauge!("loss").set(loss.to_scalar::<f32>()?);
    }
    println!("trained {STEPS} steps");
    Ok(())
}
