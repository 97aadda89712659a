//! A classifier of burn's layers, trained on random numbers on the CPU.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::{GradientsParams, SgdConfig};
use burn::prelude::*;
use burn::tensor::TensorData;

const STEPS: usize = 40;
const BATCH: usize = 256;
const WIDTH: usize = 512;
const CLASSES: usize = 16;

#[derive(Module, Debug)]
struct Model {
    hidden: Linear,
    activation: Relu,
    output: Linear,
}

impl Model {
    fn new(device: &Device) -> Model {
        Model {
            hidden: LinearConfig::new(WIDTH, WIDTH).init(device),
            activation: Relu::new(),
            output: LinearConfig::new(WIDTH, CLASSES).init(device),
        }
    }

    fn forward(&self, batch: Tensor<2>) -> Tensor<2> {
        #[cfg(feature = "spans")]
        let _forward = tprof::span!("forward", batch = BATCH);
        self.output.forward(self.activation.forward(self.hidden.forward(batch)))
    }
}

/// The numbers of one batch: a block of `BATCH * WIDTH * 4` bytes.
#[inline(never)]
fn load(step: usize) -> Vec<f32> {
    let mut numbers = Vec::with_capacity(BATCH * WIDTH);
    numbers.extend((0..BATCH * WIDTH).map(|at| ((at * 31 + step * 17) % 97) as f32 / 97.0));
    numbers
}

fn main() {
    let device = Device::flex().autodiff();
    let mut model = Model::new(&device);
    let mut optimizer = SgdConfig::new().init();
    let cross_entropy = CrossEntropyLossConfig::new().init(&device);
    let classes: Vec<i32> = (0..BATCH).map(|at| (at % CLASSES) as i32).collect();
    let classes = Tensor::<1, Int>::from_data(TensorData::new(classes, [BATCH]), &device);
    for step in 0..STEPS {
        #[cfg(feature = "spans")]
        tprof::step(step as u64);
        let batch = Tensor::from_data(TensorData::new(load(step), [BATCH, WIDTH]), &device);
        let loss = cross_entropy.forward(model.forward(batch), classes.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.1, model, gradients);
        #[cfg(feature = "spans")]
        tprof::gauge!("loss").set(loss.into_scalar::<f32>());
    }
    println!("trained {STEPS} steps");
}
