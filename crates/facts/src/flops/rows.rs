//! Counts the work of operators over rows or channels: norms, softmax, sums, pooling, losses.

use super::call::{Call, TOO_LARGE, Tensor};
use super::element::ElementType;
use super::pointwise::{broadcast, bytes};
use super::why::WhyUncounted;
use super::work::{Family, Work};

/// Returns the work of an operator if this module has its formula; `name` is without `aten::`.
pub(super) fn of(name: &str, call: &Call) -> Option<Result<Work, WhyUncounted>> {
    Some(match name {
        "native_layer_norm" => norm(call, &[2, 3]),
        "native_group_norm" => norm(call, &[1, 2]),
        "_fused_rms_norm" => rms_norm(call),
        "native_batch_norm"
        | "cudnn_batch_norm"
        | "miopen_batch_norm"
        | "_native_batch_norm_legit"
        | "_batch_norm_with_update" => batch_norm(call),
        "native_layer_norm_backward" | "_fused_rms_norm_backward" => norm_backward(call, 0, 1),
        "native_group_norm_backward" => norm_backward(call, 0, 1),
        "native_batch_norm_backward" | "batch_norm_backward" => norm_backward(call, 0, 1),
        "cudnn_batch_norm_backward" | "miopen_batch_norm_backward" => norm_backward(call, 1, 0),
        // Operations: the maximum, differences, powers, their sum, quotients.
        "_softmax" | "_log_softmax" | "_masked_softmax" => softmax(call),
        // Operations: products with the result, their sum, a difference, a product.
        "_softmax_backward_data" | "_log_softmax_backward_data" => {
            same(call, Family::Softmax, 2, 4)
        }
        "cumsum" | "cumprod" | "cummax" | "cummin" | "logcumsumexp" => {
            same(call, Family::Reduction, 1, 1)
        }
        "sum" | "nansum" | "mean" | "prod" | "amax" | "amin" => reduce(call, 1, 1, None),
        "any" | "all" => reduce(call, 1, 1, Some(ElementType::Bool)),
        "argmax" | "argmin" => reduce(call, 1, 1, Some(ElementType::Int64)),
        // With a second tensor, these operators are elementwise.
        "max" | "min" if call.len() > 1 && call.tensor(1).is_ok() => two(call),
        "max" | "min" => reduce(call, 1, 1, None),
        "linalg_vector_norm" => reduce(call, 2, 2, None),
        "norm" => reduce(call, 2, 2, None),
        "logsumexp" => reduce(call, 1, 4, None),
        // Operations: a mean, differences, squares, their sum.
        "var" | "std" => reduce(call, 1, 4, None),
        "var_mean" | "std_mean" => {
            reduce(call, 1, 4, None).map(|work| Work { written: None, ..work })
        }
        "mse_loss" | "smooth_l1_loss" | "huber_loss" | "l1_loss" => loss(call, 3),
        "mse_loss_backward" | "smooth_l1_loss_backward" | "huber_loss_backward" => {
            same(call, Family::Elementwise, 3, 3)
        }
        "binary_cross_entropy" => loss(call, 6),
        "nll_loss_forward" | "nll_loss2d_forward" => nll(call),
        "max_pool2d_with_indices" | "max_pool2d" | "mkldnn_max_pool2d" | "avg_pool2d" => {
            pool(call, name == "max_pool2d_with_indices")
        }
        "max_pool2d_with_indices_backward" => pool_backward(call, true),
        "avg_pool2d_backward" | "_adaptive_avg_pool2d_backward" => pool_backward(call, false),
        "_adaptive_avg_pool2d" | "adaptive_avg_pool2d_out" => adaptive_pool(call),
        _ => return None,
    })
}

fn times(count: u64, flops: u64) -> Result<u64, WhyUncounted> {
    count.checked_mul(flops).ok_or(TOO_LARGE)
}

/// Returns the bytes of the tensors at these positions, as far as there are any.
fn optional(call: &Call, places: &[usize]) -> Option<u64> {
    bytes(places.iter().filter_map(|at| call.maybe(*at)))
}

/// The work of a norm. Operations for each element: a mean, differences, squares, their sum,
/// products with the deviation. If there are a weight and a bias, it also multiplies by the weight
/// and adds the bias.
fn norm(call: &Call, affine: &[usize]) -> Result<Work, WhyUncounted> {
    let x = call.tensor(0)?;
    let own = affine.iter().filter(|at| call.maybe(**at).is_some()).count() as u64;
    let read = x.bytes().zip(optional(call, affine)).and_then(|(a, b)| a.checked_add(b));
    let flops = times(x.count()?, 5 + own)?;
    Ok(Work::new(Family::Norm, flops).of(x.of).moves(read, x.bytes()))
}

/// Operations for each element: squares, their sum, products with the deviation, and with the
/// weight if there is one.
fn rms_norm(call: &Call) -> Result<Work, WhyUncounted> {
    let x = call.tensor(0)?;
    let own = u64::from(call.maybe(2).is_some());
    let read = x.bytes().zip(optional(call, &[2])).and_then(|(a, b)| a.checked_add(b));
    Ok(Work::new(Family::Norm, times(x.count()?, 3 + own)?).of(x.of).moves(read, x.bytes()))
}

/// The work of a norm. Outside of training it uses recorded statistics, so it doesn't compute them.
fn batch_norm(call: &Call) -> Result<Work, WhyUncounted> {
    let work = norm(call, &[1, 2])?;
    if call.flag(5) != Some(false) {
        return Ok(work);
    }
    let flops = work.flops - times(call.tensor(0)?.count()?, 3)?;
    Ok(Work { flops, needed: flops, ..work })
}

/// Operations for each element: two for the normalised input, two sums of products, and five for
/// the gradient of the input, plus one with the weight.
fn norm_backward(call: &Call, grad: usize, input: usize) -> Result<Work, WhyUncounted> {
    let (grad, x) = (call.tensor(grad)?, call.tensor(input)?);
    let (of_grad, of_input) = (grad.count()?, x.count()?);
    if of_grad != of_input {
        return Err(WhyUncounted::Unfit("sizes of the input and of the gradient differ"));
    }
    let read = bytes([grad, x].into_iter());
    Ok(Work::new(Family::Norm, times(of_input, 10)?).of(x.of).moves(read, x.bytes()))
}

fn softmax(call: &Call) -> Result<Work, WhyUncounted> {
    let x = call.tensor(0)?;
    // `half_to_float`: the elements of the result have four bytes.
    let made = match call.flag(2) {
        Some(true) => Some(ElementType::Float32),
        _ => x.of,
    };
    let written = made.and_then(|made| x.count().ok()?.checked_mul(made.bytes()));
    let work = Work::new(Family::Softmax, times(x.count()?, 5)?);
    Ok(work.of(x.of).moves(x.bytes(), written))
}

/// The work of an operator that reads this many tensors and whose result has the sizes of the first
/// one.
fn same(call: &Call, family: Family, tensors: usize, flops: u64) -> Result<Work, WhyUncounted> {
    let first = call.tensor(0)?;
    let read = bytes(call.first_tensors(tensors).into_iter());
    Ok(Work::new(family, times(first.count()?, flops)?).of(first.of).moves(read, first.bytes()))
}

/// The work of a reduction with `flops` operations for each element of the input. The argument at
/// `dims_at` has the dimensions to reduce.
fn reduce(
    call: &Call,
    dims_at: usize,
    flops: u64,
    makes: Option<ElementType>,
) -> Result<Work, WhyUncounted> {
    let x = call.tensor(0)?;
    let made = makes.or(x.of.map(|of| if of.is_whole() { ElementType::Int64 } else { of }));
    let written = results(call, x, dims_at).and_then(|out| out.checked_mul(made?.bytes()));
    let work = Work::new(Family::Reduction, times(x.count()?, flops)?);
    Ok(work.of(x.of).moves(x.bytes(), written))
}

/// Returns the number of elements in the result of a reduction; `None` if the dimensions were not
/// recorded.
fn results(call: &Call, x: &Tensor, dims_at: usize) -> Option<u64> {
    // `sum(x)` and `sum(x, dtype)` reduce all dimensions.
    if call.len() <= 2 && dims_at == 1 {
        return (call.number(1).is_none() && call.numbers(1).is_none()).then_some(1);
    }
    let dims = call.numbers(dims_at).or_else(|| call.number(dims_at).map(|dim| vec![dim]))?;
    if dims.is_empty() {
        return Some(1);
    }
    let mut out = x.dims.clone();
    for dim in dims {
        let at = if dim < 0 { dim + out.len() as i64 } else { dim };
        *out.get_mut(usize::try_from(at).ok()?)? = 1;
    }
    out.iter().try_fold(1_u64, |all, size| all.checked_mul(*size))
}

fn two(call: &Call) -> Result<Work, WhyUncounted> {
    let tensors = call.first_tensors(2);
    let dims = broadcast(&tensors)?;
    let out = super::call::product(&dims)?;
    let of = super::pointwise::joined(&tensors);
    let written = of.and_then(|of| out.checked_mul(of.bytes()));
    let work = Work::new(Family::Elementwise, out).of(of);
    Ok(work.moves(bytes(tensors.into_iter()), written))
}

/// The work of a loss with `flops` operations for each element. It has one result, unless the call
/// asks for all.
fn loss(call: &Call, flops: u64) -> Result<Work, WhyUncounted> {
    let (x, target) = (call.tensor(0)?, call.tensor(1)?);
    let written = (2..call.len()).find_map(|at| call.number(at)).and_then(|reduction| {
        let of = x.of?.bytes();
        if reduction == 0 { x.bytes() } else { Some(of) }
    });
    let work = Work::new(Family::Reduction, times(x.count()?, flops)?);
    Ok(work.of(x.of).moves(bytes([x, target].into_iter()), written))
}

/// The negative log likelihood reads one element of each row.
fn nll(call: &Call) -> Result<Work, WhyUncounted> {
    let (x, target) = (call.tensor(0)?, call.tensor(1)?);
    let rows = target.count()?;
    let of_rows = x.of.and_then(|of| rows.checked_mul(of.bytes()));
    let read = of_rows.zip(target.bytes()).and_then(|(a, b)| a.checked_add(b));
    Ok(Work::new(Family::Reduction, times(rows, 2)?).of(x.of).moves(read, None))
}

const POOLS: WhyUncounted = WhyUncounted::Unfit("its window and stride were not recorded");

/// The work of pooling, which reduces a window for each element of the result.
fn pool(call: &Call, with_places: bool) -> Result<Work, WhyUncounted> {
    let x = call.tensor(0)?;
    let pair = |at: usize| match call.numbers(at)?.as_slice() {
        [one] => Some([*one; 2]),
        [a, b] => Some([*a, *b]),
        _ => None,
    };
    let window = pair(1).ok_or(POOLS)?;
    // Without a stride, windows lie side by side.
    let stride = pair(2).unwrap_or(window);
    let padding = pair(3).ok_or(POOLS)?;
    if call.flag(5).or_else(|| call.flag(4)) == Some(true) {
        return Err(WhyUncounted::Unfit("its result is rounded up"));
    }
    let rank = x.dims.len();
    if rank < 3 {
        return Err(WhyUncounted::Unfit("its input has too few sizes"));
    }
    let mut out = super::call::product(&x.dims[..rank - 2])?;
    for at in 0..2 {
        let size = i128::from(x.dims[rank - 2 + at]) + 2 * i128::from(padding[at]);
        let (window, stride) = (i128::from(window[at]), i128::from(stride[at]));
        if stride <= 0 || window <= 0 || size < window || padding[at] < 0 {
            return Err(WhyUncounted::Unfit("its window or stride makes no sense"));
        }
        let points = u64::try_from((size - window) / stride + 1).map_err(|_| TOO_LARGE)?;
        out = out.checked_mul(points).ok_or(TOO_LARGE)?;
    }
    let of_window = window.iter().product::<i64>() as u64;
    let each = x.of.map(|of| of.bytes() + if with_places { 8 } else { 0 });
    let written = each.and_then(|each| out.checked_mul(each));
    let work = Work::new(Family::Pooling, times(out, of_window)?);
    Ok(work.of(x.of).moves(x.bytes(), written))
}

/// The backward pass of pooling adds each gradient to one element of the input, or to all elements
/// of a window.
fn pool_backward(call: &Call, with_places: bool) -> Result<Work, WhyUncounted> {
    let (grad, x) = (call.tensor(0)?, call.tensor(1)?);
    let count = grad.count()?;
    let places = if with_places { count.checked_mul(8) } else { Some(0) };
    let read = grad.bytes().zip(places).and_then(|(a, b)| a.checked_add(b));
    // The windows of a mean cover every element of the input; a maximum has only one element for
    // each result.
    let flops = if with_places { count } else { x.count()? };
    Ok(Work::new(Family::Pooling, flops).of(grad.of).moves(read, x.bytes()))
}

/// Adaptive pooling averages all input elements that belong to an element of the result.
fn adaptive_pool(call: &Call) -> Result<Work, WhyUncounted> {
    let x = call.tensor(0)?;
    let rank = x.dims.len();
    let written = call.numbers(1).and_then(|out| {
        let mut all = super::call::product(x.dims.get(..rank.checked_sub(2)?)?).ok()?;
        for size in out {
            all = all.checked_mul(u64::try_from(size).ok()?)?;
        }
        all.checked_mul(x.of?.bytes())
    });
    Ok(Work::new(Family::Pooling, x.count()?).of(x.of).moves(x.bytes(), written))
}
