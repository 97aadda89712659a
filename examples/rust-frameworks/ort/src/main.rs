//! Inference of a graph of two matrix products by ONNX Runtime on the CPU.

use ort::editor::{Graph, Model, Node, Opset, ONNX_DOMAIN};
use ort::memory::Allocator;
use ort::session::{builder::SessionBuilder, Session};
use ort::value::{Outlet, Shape, SymbolicDimensions, Tensor, TensorElementType, ValueType};

const STEPS: usize = 40;
const BATCH: usize = 256;
const WIDTH: usize = 512;

fn outlet(name: &str) -> Outlet {
    let shape = Shape::new([BATCH as i64, WIDTH as i64]);
    let dimension_symbols = SymbolicDimensions::empty(2);
    Outlet::new(name, ValueType::Tensor { ty: TensorElementType::Float32, shape, dimension_symbols })
}

/// `output = relu(input × first) × second`, built here: no file of a model is needed.
fn model() -> ort::Result<Model> {
    let mut graph = Graph::new()?;
    graph.set_inputs([outlet("input")])?;
    graph.set_outputs([outlet("output")])?;
    graph.add_node(Node::new("MatMul", ONNX_DOMAIN, "first", ["input", "w1"], ["hidden"], [])?)?;
    graph.add_node(Node::new("Relu", ONNX_DOMAIN, "relu", ["hidden"], ["active"], [])?)?;
    graph.add_node(Node::new("MatMul", ONNX_DOMAIN, "second", ["active", "w2"], ["output"], [])?)?;
    for name in ["w1", "w2"] {
        let mut weights = Tensor::<f32>::new(&Allocator::default(), [WIDTH as i64, WIDTH as i64])?;
        for (at, weight) in weights.extract_tensor_mut().1.iter_mut().enumerate() {
            *weight = (at % 89) as f32 / 89.0 - 0.5;
        }
        graph.add_initializer(name, weights, false)?;
    }
    let mut model = Model::new([Opset::new(ONNX_DOMAIN, 22)?])?;
    model.set_graph(graph)?;
    Ok(model)
}

/// The numbers of one batch: a block of `BATCH * WIDTH * 4` bytes.
#[inline(never)]
fn load(step: usize) -> Vec<f32> {
    let mut numbers = Vec::with_capacity(BATCH * WIDTH);
    numbers.extend((0..BATCH * WIDTH).map(|at| ((at * 31 + step * 17) % 97) as f32 / 97.0));
    numbers
}

fn infer(session: &mut Session, batch: Tensor<f32>) -> ort::Result<f32> {
    #[cfg(feature = "spans")]
    let _infer = tprof::span!("infer", batch = BATCH);
    let outputs = session.run(ort::inputs![batch])?;
    Ok(outputs["output"].try_extract_tensor::<f32>()?.1[0])
}

fn main() -> ort::Result<()> {
    let environment = ort::init().build()?;
    let mut session = model()?.into_session(&SessionBuilder::new(&environment)?)?;
    for step in 0..STEPS {
        #[cfg(feature = "spans")]
        tprof::step(step as u64);
        let batch = Tensor::from_array(([BATCH, WIDTH], load(step)))?;
        let _first = infer(&mut session, batch)?;
        #[cfg(feature = "spans")]
        tprof::gauge!("first").set(_first);
    }
    println!("ran {STEPS} steps");
    Ok(())
}
