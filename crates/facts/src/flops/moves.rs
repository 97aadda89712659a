//! Counts the work of copies, fills and selections, which move bytes without arithmetic, of sums of
//! selected rows, and of optimizers.

use super::call::{Call, TOO_LARGE, Tensor, product};
use super::element::ElementType;
use super::pointwise::{broadcast, bytes, joined};
use super::why::WhyUncounted;
use super::work::{Family, Work};

/// Operators that neither compute nor move elements.
#[rustfmt::skip]
const NO_WORK: &[&str] = &[
    "view", "_unsafe_view", "reshape", "_reshape_alias", "as_strided", "as_strided_", "t", "t_",
    "transpose", "transpose_", "permute", "expand", "expand_as", "squeeze", "squeeze_", "unsqueeze",
    "unsqueeze_", "slice", "narrow", "select", "split", "split_with_sizes", "chunk", "unbind",
    "detach", "detach_", "alias", "view_as", "flatten", "unflatten", "ravel", "unfold", "diagonal",
    "movedim", "swapaxes", "lift_fresh", "resolve_conj", "resolve_neg", "empty", "empty_strided",
    "empty_like", "new_empty", "new_empty_strided", "set_", "resize_", "is_same_size", "size", "T", "mT", "is_nonzero", "result_type", "can_cast", "set_data", "data", "requires_grad_",
    "_fused_sdp_choice", "_has_compatible_shallow_copy_type", "record_stream", "is_pinned", "view_as_real",
    "view_as_complex", "real", "imag", "tensor_split", "hsplit", "vsplit", "output_nr", "_version",
    "is_leaf", "stride", "sym_size", "numel", "dim", "conj", "_conj", "_neg_view", "split_copy",
    "adjoint", "mH", "_nnpack_available", "resize_as_", "scalar_tensor", "_backward", "retain_grad", "broadcast_to", "broadcast_tensors", "atleast_1d", "atleast_2d", "sym_numel",
];

/// Operators that only call others, which count instead. Some of them, such as `contiguous`, call
/// no other operator if there is nothing to do.
#[rustfmt::skip]
const CALLERS: &[&str] = &[
    "matmul", "einsum", "to", "_to_copy", "type_as", "contiguous", "item", "_local_scalar_dense", "zeros",
    "ones", "zeros_like", "ones_like", "full", "full_like", "new_zeros", "new_ones", "new_full",
    "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm", "_batch_norm_impl_index",
    "_batch_norm_impl_index_backward", "softmax", "log_softmax", "dropout", "dropout_", "cross_entropy_loss",
    "nll_loss", "nll_loss_nd", "nll_loss2d", "scaled_dot_product_attention",
    "_scaled_dot_product_attention_math", "numpy_T", "embedding_bag", "slice_backward", "select_backward",
    "adaptive_avg_pool2d", "one_hot", "square_", "pad", "repeat", "repeat_interleave", "value_selecting_reduction_backward",
    "max_pool2d_dispatch", "_nested_tensor_from_mask", "lift", "cpu", "cuda", "tile", "sum_to_size", "outer",
];

/// Whether an operator does no work except on the host; `name` is without `aten::`.
pub(super) fn is_free(name: &str) -> bool {
    NO_WORK.contains(&name) || CALLERS.contains(&name)
}

/// Returns the work of an operator if this module has its formula; `name` is without `aten::`.
pub(super) fn of(name: &str, call: &Call) -> Option<Result<Work, WhyUncounted>> {
    Some(match name {
        "copy_" | "_copy_from" | "_copy_from_and_resize" => copy(call),
        "clone" | "flip" | "roll" | "triu" | "tril" | "triu_" | "tril_" => one(call, true),
        "fill_" | "zero_" | "normal_" | "uniform_" | "random_" | "exponential_" | "bernoulli_" => {
            one(call, false)
        }
        "cat" | "stack" | "_cat" => joined_list(call),
        "where" | "_s_where" => selected(call, 3),
        "masked_fill" | "masked_fill_" => masked(call),
        "index_select" => index_select(call),
        "gather" => gather(call, 2),
        "embedding" => embedding(call),
        "embedding_dense_backward" | "embedding_backward" => embedding_backward(call),
        "_embedding_bag" | "_embedding_bag_forward_only" => embedding_bag(call),
        "index_add_" => added(call, 3, 2),
        "scatter_add_" => added(call, 3, 2),
        "index_copy_" | "scatter_" => {
            added(call, 3, 2).map(|work| Work { family: Family::Copy, flops: 0, needed: 0, ..work })
        }
        "_foreach_copy_" => lists(call, true),
        "_foreach_zero_" => lists(call, false),
        "_fused_adam_" | "_fused_adamw_" => adam(call),
        "_fused_sgd_" => sgd(call),
        "_fused_adagrad_" => adagrad(call),
        "_foreach_norm" => foreach_norm(call),
        "_amp_foreach_non_finite_check_and_unscale_" => unscale(call),
        _ => return None,
    })
}

fn moved(read: Option<u64>, written: Option<u64>) -> Result<Work, WhyUncounted> {
    Ok(Work::new(Family::Copy, 0).moves(read, written))
}

fn copy(call: &Call) -> Result<Work, WhyUncounted> {
    let (to, from) = (call.tensor(0)?, call.tensor(1)?);
    if broadcast(&[to, from])? != to.dims {
        return Err(WhyUncounted::Unfit("sizes of what is copied and of its place differ"));
    }
    Ok(moved(from.bytes(), to.bytes())?.of(to.of))
}

fn one(call: &Call, reads: bool) -> Result<Work, WhyUncounted> {
    let tensor = call.tensor(0)?;
    tensor.count()?;
    let read = if reads { tensor.bytes() } else { Some(0) };
    Ok(moved(read, tensor.bytes())?.of(tensor.of))
}

fn joined_list(call: &Call) -> Result<Work, WhyUncounted> {
    let list = call.tensors(0)?;
    for tensor in list {
        tensor.count()?;
    }
    let all = bytes(list.iter());
    Ok(moved(all, all)?.of(list[0].of))
}

fn selected(call: &Call, most: usize) -> Result<Work, WhyUncounted> {
    let tensors = call.first_tensors(most);
    let out = product(&broadcast(&tensors)?)?;
    let of = joined(tensors.get(1..).unwrap_or_default());
    let written = of.and_then(|of| out.checked_mul(of.bytes()));
    Ok(moved(bytes(tensors.into_iter()), written)?.of(of))
}

fn masked(call: &Call) -> Result<Work, WhyUncounted> {
    let (x, mask) = (call.tensor(0)?, call.tensor(1)?);
    let out = product(&broadcast(&[x, mask])?)?;
    let written = x.of.and_then(|of| out.checked_mul(of.bytes()));
    Ok(moved(bytes([x, mask].into_iter()), written)?.of(x.of))
}

/// An index selection reads only the selected elements.
fn index_select(call: &Call) -> Result<Work, WhyUncounted> {
    let (x, index) = (call.tensor(0)?, call.tensor(2)?);
    let dim = call.number(1).ok_or(WhyUncounted::Unfit("its dimension was not recorded"))?;
    let dim = if dim < 0 { dim + x.dims.len() as i64 } else { dim };
    let mut out = x.dims.clone();
    let place = usize::try_from(dim).ok().and_then(|dim| out.get_mut(dim));
    *place.ok_or(WhyUncounted::Unfit("it has no such dimension"))? = index.count()?;
    let bytes = x.of.and_then(|of| product(&out).ok()?.checked_mul(of.bytes()));
    let read = bytes.zip(index.bytes()).and_then(|(a, b)| a.checked_add(b));
    Ok(moved(read, bytes)?.of(x.of))
}

fn gather(call: &Call, at: usize) -> Result<Work, WhyUncounted> {
    let (x, index) = (call.tensor(0)?, call.tensor(at)?);
    let count = index.count()?;
    let bytes = x.of.and_then(|of| count.checked_mul(of.bytes()));
    let read = bytes.zip(index.bytes()).and_then(|(a, b)| a.checked_add(b));
    Ok(moved(read, bytes)?.of(x.of))
}

/// Returns the number of elements in the rows of a table that the indices select.
fn rows(table: &Tensor, indices: &Tensor) -> Result<u64, WhyUncounted> {
    let [_, width] = table.dims[..] else {
        return Err(WhyUncounted::Unfit("its table has another number of sizes"));
    };
    indices.count()?.checked_mul(width).ok_or(TOO_LARGE)
}

fn embedding(call: &Call) -> Result<Work, WhyUncounted> {
    let (table, indices) = (call.tensor(0)?, call.tensor(1)?);
    let count = rows(table, indices)?;
    let bytes = table.of.and_then(|of| count.checked_mul(of.bytes()));
    let read = bytes.zip(indices.bytes()).and_then(|(a, b)| a.checked_add(b));
    Ok(moved(read, bytes)?.of(table.of))
}

/// The backward pass of an embedding adds each gradient to a row, and writes the whole table.
fn embedding_backward(call: &Call) -> Result<Work, WhyUncounted> {
    let (grad, indices) = (call.tensor(0)?, call.tensor(1)?);
    let width = *grad.dims.last().ok_or(WhyUncounted::Unfit("its gradient has no sizes"))?;
    let table = call.number(2).and_then(|rows| u64::try_from(rows).ok()?.checked_mul(width));
    let written = table.and_then(|count| count.checked_mul(grad.of?.bytes()));
    let work = Work::new(Family::Embedding, grad.count()?).of(grad.of);
    Ok(work.moves(bytes([grad, indices].into_iter()), written))
}

fn embedding_bag(call: &Call) -> Result<Work, WhyUncounted> {
    let (table, indices, offsets) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let count = rows(table, indices)?;
    let bags = rows(table, offsets)?;
    let of = |count: u64| table.of.and_then(|of| count.checked_mul(of.bytes()));
    let both = bytes([indices, offsets].into_iter());
    let read = of(count).zip(both).and_then(|(a, b)| a.checked_add(b));
    Ok(Work::new(Family::Embedding, count).of(table.of).moves(read, of(bags)))
}

/// The operator adds a source to selected elements, which it reads and writes.
fn added(call: &Call, source: usize, index: usize) -> Result<Work, WhyUncounted> {
    let (source, index) = (call.tensor(source)?, call.tensor(index)?);
    let bytes = source.bytes();
    let read = bytes.zip(index.bytes()).and_then(|(a, b)| a.checked_mul(2)?.checked_add(b));
    Ok(Work::new(Family::Embedding, source.count()?).of(source.of).moves(read, bytes))
}

/// Returns the number of elements in a list of tensors.
fn elements(list: &[Tensor]) -> Result<u64, WhyUncounted> {
    let add = |sum: u64, tensor: &Tensor| sum.checked_add(tensor.count()?).ok_or(TOO_LARGE);
    list.iter().try_fold(0_u64, add)
}

fn lists(call: &Call, reads: bool) -> Result<Work, WhyUncounted> {
    let first = call.tensors(0)?;
    elements(first)?;
    let read = if reads { bytes(call.tensors(1)?.iter()) } else { Some(0) };
    Ok(moved(read, bytes(first.iter()))?.of(first[0].of))
}

/// An optimizer's update of parameters, with these states. It reads the gradients but doesn't write
/// them.
fn update(call: &Call, states: &[usize], flops: u64) -> Result<Work, WhyUncounted> {
    let (own, grads) = (call.tensors(0)?, call.tensors(1)?);
    let count = elements(own)?;
    if elements(grads)? != count {
        return Err(WhyUncounted::Unfit("sizes of parameters and gradients differ"));
    }
    let mut both = bytes(own.iter());
    for at in states {
        both = both.zip(bytes(call.tensors(*at)?.iter())).and_then(|(a, b)| a.checked_add(b));
    }
    let read = both.zip(bytes(grads.iter())).and_then(|(a, b)| a.checked_add(b));
    let flops = count.checked_mul(flops).ok_or(TOO_LARGE)?;
    Ok(Work::new(Family::Optimizer, flops).of(own[0].of).moves(read, both))
}

/// Operations for each parameter: 3 and 4 for the moments; 3 for the root, its correction and the
/// least value; 3 for the step. amsgrad also compares with the largest second moments.
fn adam(call: &Call) -> Result<Work, WhyUncounted> {
    match call.tensors(4) {
        Ok(_) => update(call, &[2, 3, 4], 14),
        Err(_) => update(call, &[2, 3], 13),
    }
}

/// Operations for each parameter: a product and a difference; with momentum twice that.
fn sgd(call: &Call) -> Result<Work, WhyUncounted> {
    match call.tensors(2) {
        Ok(_) => update(call, &[2], 4),
        Err(_) => update(call, &[], 2),
    }
}

/// Operations for each parameter: 2 to add a square; a root, a sum, a quotient, a product, a
/// difference.
fn adagrad(call: &Call) -> Result<Work, WhyUncounted> {
    update(call, &[2], 7)
}

/// The operator sums the squares of each tensor. Each tensor has one result.
fn foreach_norm(call: &Call) -> Result<Work, WhyUncounted> {
    let list = call.tensors(0)?;
    let flops = elements(list)?.checked_mul(2).ok_or(TOO_LARGE)?;
    let of = list[0].of;
    let written = of.map(|of: ElementType| list.len() as u64 * of.bytes());
    Ok(Work::new(Family::Reduction, flops).of(of).moves(bytes(list.iter()), written))
}

fn unscale(call: &Call) -> Result<Work, WhyUncounted> {
    let list = call.tensors(0)?;
    let all = bytes(list.iter());
    let flops = elements(list)?.checked_mul(2).ok_or(TOO_LARGE)?;
    Ok(Work::new(Family::Optimizer, flops).of(list[0].of).moves(all, all))
}
