//! Derives causes of idle time from the names and categories of ranges, operators and Python
//! functions.

use tprof_rank::SpanPurpose;

use super::cause::IdleCause;

/// Beginnings of the names of ranges in which JAX or PyTorch compiles code.
const COMPILING: [&str; 6] = [
    "XlaCompile",
    "backend_compile",
    "CompiledFxGraph.compile",
    "_compile.compile_inner",
    "TritonAsyncCompile",
    "async_compile.wait",
];
/// Beginnings of the names, in lower case, of ranges that save a checkpoint.
const SAVING: [&str; 5] =
    ["save_checkpoint", "checkpoint_save", "torch.save", "save checkpoint", "dcp.save"];
/// Names of the ranges in which Python's garbage collector runs.
const COLLECTING: [&str; 2] = ["Python GC", "gc.collect"];

/// Returns the cause for the whole time in a range of this name, including all calls in it; `None`
/// for most names.
pub(super) fn of_all_within(name: &str, stated: Option<SpanPurpose>) -> Option<IdleCause> {
    let lower = || name.to_ascii_lowercase();
    if stated == Some(SpanPurpose::Compile) || COMPILING.iter().any(|start| name.starts_with(start))
    {
        return Some(IdleCause::Compile);
    }
    SAVING.iter().any(|start| lower().starts_with(start)).then_some(IdleCause::Checkpoint)
}

/// Returns the cause for the time in a range of this name, except for calls that block: these have
/// causes of their own.
pub(super) fn of_rest_within(name: &str, stated: Option<SpanPurpose>) -> Option<IdleCause> {
    if COLLECTING.contains(&name) {
        return Some(IdleCause::Gc);
    }
    Some(match stated? {
        SpanPurpose::DataLoad => IdleCause::Data,
        SpanPurpose::Sync => IdleCause::Sync,
        SpanPurpose::Memory => IdleCause::Allocation,
        SpanPurpose::Communication => IdleCause::Collective,
        // The program may launch work in such a range, as in a forward pass, so the range has no
        // single cause.
        SpanPurpose::Compute | SpanPurpose::Io | SpanPurpose::Compile => return None,
    })
}
