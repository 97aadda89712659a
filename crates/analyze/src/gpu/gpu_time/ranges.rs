//! What ranges, operators and Python functions are about, by their names.

use super::cause::IdleCause;

/// Parts of names, in small letters, of ranges that load data: PyTorch's
/// `enumerate(DataLoader)#….__next__` and its Python frames, TensorFlow's
/// iterators, and what people and recommender libraries call their own.
const LOADING: [&str; 8] = [
    "dataloader",
    "data_load",
    "data load",
    "load_data",
    "load_batch",
    "next_batch",
    "get_batch",
    "iteratorgetnext",
];
/// Beginnings of names of ranges in which code is compiled: JAX's and PyTorch's.
const COMPILING: [&str; 6] = [
    "XlaCompile",
    "backend_compile",
    "CompiledFxGraph.compile",
    "_compile.compile_inner",
    "TritonAsyncCompile",
    "async_compile.wait",
];
/// Beginnings of names, in small letters, of ranges that save.
const SAVING: [&str; 5] =
    ["save_checkpoint", "checkpoint_save", "torch.save", "save checkpoint", "dcp.save"];
/// Names of ranges of Python's garbage collector.
const COLLECTING: [&str; 2] = ["Python GC", "gc.collect"];

/// Whether a range is named like one that loads data.
pub(crate) fn loads_data(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    LOADING.iter().any(|part| name.contains(part))
}

/// What a device waits for while its host thread is in a range of this name, whatever is called
/// there; `None` of most names.
pub(super) fn of_all_within(name: &str) -> Option<IdleCause> {
    let lower = || name.to_ascii_lowercase();
    if COMPILING.iter().any(|start| name.starts_with(start)) {
        return Some(IdleCause::Compile);
    }
    SAVING.iter().any(|start| lower().starts_with(start)).then_some(IdleCause::Checkpoint)
}

/// The same, except for calls that block, which are told apart.
pub(super) fn of_rest_within(name: &str) -> Option<IdleCause> {
    if COLLECTING.contains(&name) {
        return Some(IdleCause::Gc);
    }
    loads_data(name).then_some(IdleCause::Data)
}
