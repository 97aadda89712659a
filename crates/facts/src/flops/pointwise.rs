//! Counts the work of operators with one result for each element: functions, arithmetic, and
//! operators on lists of tensors (`_foreach_…`).
//!
//! A simple function counts as one operation per element, however many instructions the device
//! needs for it. A function that consists of several simple ones counts as that many operations.

use super::call::{Call, TOO_LARGE, Tensor, product};
use super::element::ElementType;
use super::why::WhyUncounted;
use super::work::{Family, Work};

const SIZES: WhyUncounted = WhyUncounted::Unfit("sizes of its tensors do not fit each other");
const NONE: WhyUncounted = WhyUncounted::Unfit("a tensor's sizes were not recorded");

/// Type of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ResultType {
    /// The type that the inputs' types are promoted to.
    Joined,
    /// The promoted type, or `float` if that is an integer type.
    Float,
    Bool,
}
use ResultType::*;

/// Returns the largest number of input tensors, the operations for each element, and the type of
/// the result.
#[rustfmt::skip]
fn function(name: &str) -> Option<(usize, u64, ResultType)> {
    Some(match name {
        "neg" | "abs" | "sign" | "sgn" | "floor" | "ceil" | "round" | "trunc" | "frac" | "square"
        | "relu" | "relu6" | "nan_to_num" | "bitwise_not" | "clamp_min" | "clamp_max" | "threshold"
        | "leaky_relu" | "positive" | "hardtanh" => (1, 1, Joined),
        "clamp" | "clip" => (3, 2, Joined),
        "sqrt" | "rsqrt" | "exp" | "exp2" | "expm1" | "log" | "log2" | "log10" | "log1p" | "sin"
        | "cos" | "tan" | "asin" | "acos" | "atan" | "sinh" | "cosh" | "tanh" | "sigmoid"
        | "reciprocal" | "erf" | "erfc" | "erfinv" | "logit" | "elu" | "gelu" | "silu" | "mish"
        | "softplus" | "celu" | "hardswish" | "hardsigmoid" | "log_sigmoid_forward" | "digamma"
        | "lgamma" => (1, 1, Float),
        "isnan" | "isinf" | "isneginf" | "isposinf" | "isfinite" | "logical_not" => (1, 1, Bool),
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "logical_and" | "logical_or" | "logical_xor" =>
            (2, 1, Bool),
        "add" | "sub" | "rsub" | "mul" | "maximum" | "minimum" | "fmax" | "fmin" | "remainder"
        | "fmod" | "floor_divide" | "pow" | "bitwise_and" | "bitwise_or" | "bitwise_xor" | "__and__"
        | "__or__" | "__xor__" | "__lshift__" | "__rshift__" | "copysign" | "heaviside" | "prelu"
        | "_prelu_kernel" | "subtract" | "multiply" => (2, 1, Joined),
        "div" | "divide" | "true_divide" | "atan2" | "hypot" | "xlogy" | "logaddexp" => (2, 1, Float),
        "addcmul" | "addcdiv" => (3, 3, Joined),
        "lerp" => (3, 3, Joined),
        "threshold_backward" => (2, 1, Joined),
        "sigmoid_backward" | "tanh_backward" => (2, 3, Joined),
        "gelu_backward" | "silu_backward" | "mish_backward" | "elu_backward" | "softplus_backward"
        | "leaky_relu_backward" | "hardtanh_backward" | "hardswish_backward" | "logit_backward"
        | "hardsigmoid_backward" | "log_sigmoid_backward" => (2, 2, Joined),
        "binary_cross_entropy_with_logits" => (2, 5, Joined),
        _ => return None,
    })
}

/// Returns the work of an operator if this module has its formula; `name` is without `aten::`.
pub(super) fn of(name: &str, call: &Call) -> Option<Result<Work, WhyUncounted>> {
    if let Some(name) = name.strip_prefix("_foreach_") {
        let (_, flops, makes) = function(name.strip_suffix('_').unwrap_or(name))?;
        return Some(foreach(call, flops, makes));
    }
    if name == "native_dropout" {
        return Some(dropout(call));
    }
    if name == "native_dropout_backward" {
        return Some(elementwise(call, 2, 2, Joined));
    }
    let found = function(name).or_else(|| function(name.strip_suffix('_')?));
    found.map(|(tensors, flops, makes)| match name.ends_with('_') && !name.ends_with("__") {
        true => in_place(call, tensors, flops),
        false => elementwise(call, tensors, flops, makes),
    })
}

fn elementwise(
    call: &Call,
    most: usize,
    flops: u64,
    makes: ResultType,
) -> Result<Work, WhyUncounted> {
    let tensors = call.first_tensors(most);
    let out = product(&broadcast(&tensors)?)?;
    let of = joined(&tensors);
    let made = of.map(|of| match makes {
        Joined => of,
        Float if of.is_whole() => ElementType::Float32,
        Float => of,
        Bool => ElementType::Bool,
    });
    let written = made.and_then(|made| out.checked_mul(made.bytes()));
    let flops = out.checked_mul(flops).ok_or(TOO_LARGE)?;
    let work = Work::new(Family::Elementwise, flops);
    Ok(work.of(of).moves(bytes(tensors.into_iter()), written))
}

/// The work of an operator whose result replaces its first tensor.
fn in_place(call: &Call, most: usize, flops: u64) -> Result<Work, WhyUncounted> {
    let tensors = call.first_tensors(most);
    let first = *tensors.first().ok_or(NONE)?;
    if broadcast(&tensors)? != first.dims {
        return Err(SIZES);
    }
    let flops = first.count()?.checked_mul(flops).ok_or(TOO_LARGE)?;
    let work = Work::new(Family::Elementwise, flops).of(first.of);
    Ok(work.moves(bytes(tensors.iter().copied()), first.bytes()))
}

fn dropout(call: &Call) -> Result<Work, WhyUncounted> {
    let x = call.tensor(0)?;
    let count = x.count()?;
    // Dropout compares and multiplies. Besides the result, it writes which elements it kept.
    let flops = count.checked_mul(2).ok_or(TOO_LARGE)?;
    let written = x.bytes().and_then(|bytes| bytes.checked_add(count));
    Ok(Work::new(Family::Elementwise, flops).of(x.of).moves(x.bytes(), written))
}

fn foreach(call: &Call, flops: u64, makes: ResultType) -> Result<Work, WhyUncounted> {
    let first = call.tensors(0)?;
    let mut elements = 0_u64;
    for tensor in first {
        elements = elements.checked_add(tensor.count()?).ok_or(TOO_LARGE)?;
    }
    if call.lists().any(|list| list.len() != first.len()) {
        return Err(WhyUncounted::Unfit("its lists of tensors have different lengths"));
    }
    let read = bytes(call.lists().flatten());
    let written = bytes(first.iter()).filter(|_| makes != Bool);
    let flops = elements.checked_mul(flops).ok_or(TOO_LARGE)?;
    Ok(Work::new(Family::Optimizer, flops).of(first[0].of).moves(read, written))
}

/// Returns the sizes of the result for tensors with these sizes.
pub(super) fn broadcast(tensors: &[&Tensor]) -> Result<Vec<u64>, WhyUncounted> {
    let dims = tensors.iter().map(|tensor| tensor.dims.len()).max().ok_or(NONE)?;
    let mut out = vec![1; dims];
    for tensor in tensors {
        for (size, of) in out.iter_mut().rev().zip(tensor.dims.iter().rev()) {
            *size = match (*size, *of) {
                (1, of) => of,
                (size, of) if of == 1 || of == size => size,
                _ => return Err(SIZES),
            };
        }
    }
    Ok(out)
}

/// Returns the type to which these tensors are promoted.
pub(super) fn joined(tensors: &[&Tensor]) -> Option<ElementType> {
    let of = |has_dims: bool| {
        let wanted = tensors.iter().filter(move |tensor| tensor.dims.is_empty() != has_dims);
        wanted.map(|tensor| tensor.of).collect::<Option<Vec<ElementType>>>()
    };
    ElementType::joined(&of(true)?, &of(false)?)
}

/// Returns the total size of these tensors in bytes; `None` if the size of one is unknown.
pub(super) fn bytes<'t>(tensors: impl Iterator<Item = &'t Tensor>) -> Option<u64> {
    let mut tensors = tensors;
    tensors.try_fold(0_u64, |sum, tensor| sum.checked_add(tensor.bytes()?))
}
