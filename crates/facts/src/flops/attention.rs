//! Counts the work of attention operators. Attention has two matrix products in the forward pass,
//! and five in the backward pass, one of which recomputes the scores.

use super::call::{Call, TOO_LARGE, Tensor, product};
use super::element::ElementType;
use super::products::flops;
use super::why::WhyUncounted;
use super::work::{Family, Work};

const RANKS: WhyUncounted = WhyUncounted::Unfit("query, key and value are not of four sizes");
const DIFFER: WhyUncounted = WhyUncounted::Unfit("sizes of query, key and value do not fit");
const HEADS: WhyUncounted =
    WhyUncounted::Unfit("heads of the query are no multiple of those of the key");
const RAGGED: WhyUncounted =
    WhyUncounted::Unfit("lengths of its sequences lie in a tensor, which is not recorded");

/// The positions of an operator's arguments.
#[derive(Clone, Copy)]
struct AttentionInputs {
    /// The query; the key and the value follow it. In a backward pass, the gradient of the result
    /// comes before it.
    query: usize,
    backward: bool,
    /// The tensor that is added to the scores.
    bias: Option<usize>,
    /// The offsets at which sequences begin, if one tensor holds several sequences.
    offsets: Option<usize>,
    causal: Causal,
    /// Whether the length comes before the heads.
    length_first: bool,
}

#[derive(Clone, Copy)]
enum Causal {
    /// The argument at this position is a boolean.
    At(usize),
    /// The argument at this position is a number, which is not 0 if the mask is causal.
    Mask(usize),
}
use Causal::*;

#[rustfmt::skip]
fn places(name: &str) -> Option<AttentionInputs> {
    let places = |query, bias, offsets, causal, length_first| {
        Some(AttentionInputs { query, backward: query == 1, bias, offsets, causal, length_first })
    };
    match name {
        "aten::_scaled_dot_product_flash_attention" => places(0, None, None, At(4), false),
        "aten::_scaled_dot_product_flash_attention_for_cpu" => places(0, Some(5), None, At(4), false),
        "aten::_scaled_dot_product_efficient_attention" => places(0, Some(3), None, At(6), false),
        "aten::_scaled_dot_product_cudnn_attention" => places(0, Some(3), None, At(6), false),
        "aten::_scaled_dot_product_fused_attention_overrideable" =>
            places(0, Some(3), None, At(5), false),
        "aten::_flash_attention_forward" => places(0, None, Some(3), At(8), true),
        "aten::_efficient_attention_forward" => places(0, Some(3), Some(4), Mask(9), true),
        "aten::_cudnn_attention_forward" => places(0, Some(3), Some(4), At(10), false),
        "flash_attn::_flash_attn_forward" => places(0, None, None, At(5), true),
        "aten::_scaled_dot_product_flash_attention_backward" =>
            places(1, None, Some(6), At(11), false),
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward" =>
            places(1, Some(8), None, At(7), false),
        "aten::_scaled_dot_product_efficient_attention_backward" =>
            places(1, Some(4), None, At(11), false),
        "aten::_scaled_dot_product_cudnn_attention_backward" =>
            places(1, Some(8), Some(9), At(14), false),
        "aten::_flash_attention_backward" => places(1, None, Some(6), At(11), true),
        "aten::_efficient_attention_backward" => places(1, Some(4), Some(6), Mask(14), true),
        "flash_attn::_flash_attn_backward" => places(1, None, None, At(11), true),
        "flash_attn::_flash_attn_varlen_forward" | "flash_attn::_flash_attn_varlen_backward"
        | "torch_attn::_varlen_attn" | "torch_attn::_varlen_attn_backward" =>
            places(0, None, Some(3), At(8), true),
        _ => None,
    }
}

/// Returns the work of an operator if it is attention; `name` includes its namespace.
pub(super) fn of(name: &str, call: &Call) -> Option<Result<Work, WhyUncounted>> {
    let places = places(name)?;
    Some(if name.contains("varlen") { Err(RAGGED) } else { attention(call, places) })
}

fn attention(call: &Call, places: AttentionInputs) -> Result<Work, WhyUncounted> {
    // In a backward pass, the tensor of offsets may be present but empty.
    let has = |at: usize| call.maybe(at).is_some_and(|offsets| offsets.dims != [0]);
    if places.offsets.is_some_and(has) {
        return Err(RAGGED);
    }
    let of = |at: usize| {
        let tensor = call.tensor(at)?;
        let dims: [u64; 4] = tensor.dims.as_slice().try_into().map_err(|_| RANKS)?;
        let [b, one, other, d] = dims;
        Ok((if places.length_first { [b, other, one, d] } else { dims }, tensor))
    };
    let (q, query) = of(places.query)?;
    let (k, key) = of(places.query + 1)?;
    let (v, value) = of(places.query + 2)?;
    let [batch, heads, length, size] = q;
    let [_, key_heads, key_length, _] = k;
    let value_size = v[3];
    if k[0] != batch || v[0] != batch || v[1] != k[1] || k[3] != size || v[2] != k[2] {
        return Err(DIFFER);
    }
    if key_heads == 0 || heads % key_heads != 0 {
        return Err(HEADS);
    }
    if places.backward {
        let (grad, _) = of(0)?;
        if grad != [batch, heads, length, value_size] {
            return Err(DIFFER);
        }
    }
    let matrices = batch.checked_mul(heads).ok_or(TOO_LARGE)?;
    let scores = flops(matrices, length, key_length, size)?;
    let values = flops(matrices, length, key_length, value_size)?;
    let (of_scores, of_values) = if places.backward { (3, 2) } else { (1, 1) };
    let sum = scores.checked_mul(of_scores).zip(values.checked_mul(of_values));
    let all = sum.and_then(|(a, b)| a.checked_add(b)).ok_or(TOO_LARGE)?;
    let causal = match places.causal {
        At(at) => call.flag(at),
        Mask(at) => call.number(at).map(|mask| mask != 0),
    };
    // If the lengths of query and key differ, the position of a causal mask depends on PyTorch's
    // version, so all pairs count.
    let needed = match causal {
        Some(true) if length == key_length && length > 0 => {
            (u128::from(all) * (u128::from(length) + 1) / (2 * u128::from(length))) as u64
        }
        _ => all,
    };
    let out = product(&[matrices, length, value_size])?;
    let sums = product(&[matrices, length, ElementType::Float32.bytes()])?;
    let out = query.of.and_then(|of| out.checked_mul(of.bytes()));
    let inputs = add([query.bytes(), key.bytes(), value.bytes()]);
    let bias = places.bias.and_then(|at| call.maybe(at)).map_or(Some(0), Tensor::bytes);
    let (read, written) = match places.backward {
        false => (add([inputs, bias]), add([out, Some(sums)])),
        // A backward pass also reads the result, its gradient, and the sum of each row.
        true => (add([inputs, bias, out, out, Some(sums)]), inputs),
    };
    let work = Work::new(Family::Attention, all).of(query.of).moves(read, written);
    Ok(Work { needed, ..work })
}

fn add<const N: usize>(parts: [Option<u64>; N]) -> Option<u64> {
    parts.into_iter().try_fold(0_u64, |sum, part| sum.checked_add(part?))
}
