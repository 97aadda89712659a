//! Counts the work of convolutions in the forward and the backward pass.
//!
//! The count is that of `torch.utils.flop_counter`. Each point of the result takes two operations
//! for each position of the filter and each pair of channels that the filter joins. For a
//! transposed convolution, the points are those of the input.

use super::call::{Call, TOO_LARGE, Tensor, product};
use super::why::WhyUncounted;
use super::work::{Family, Work};

const RANKS: WhyUncounted = WhyUncounted::Unfit("input and weight have different numbers of sizes");
const CHANNELS: WhyUncounted = WhyUncounted::Unfit("channels of input and weight do not fit");
const UNRECORDED: WhyUncounted = WhyUncounted::Unfit(
    "its stride and padding were not recorded, so that the result's size is not known",
);
const LARGER: WhyUncounted = WhyUncounted::Unfit("the filter is larger than the padded input");
const MASK: WhyUncounted = WhyUncounted::Unfit("which gradients were asked for was not recorded");

/// The positions of an operator's arguments.
struct ConvolutionInputs {
    bias: Option<usize>,
    stride: usize,
    padding: usize,
    dilation: Option<usize>,
    /// Whether the convolution is transposed, or the position of the argument that says so.
    transposed: Transposed,
    output_padding: Option<usize>,
}

#[derive(Clone, Copy)]
enum Transposed {
    No,
    Yes,
    At(usize),
}
use Transposed::*;

#[rustfmt::skip]
fn places(name: &str) -> Option<ConvolutionInputs> {
    let places = |bias, stride, padding, dilation, transposed, output_padding| {
        Some(ConvolutionInputs { bias, stride, padding, dilation, transposed, output_padding })
    };
    match name {
        "conv1d" | "conv2d" | "conv3d" => places(Some(2), 3, 4, Some(5), No, None),
        "conv_transpose1d" | "conv_transpose2d" | "conv_transpose3d" =>
            places(Some(2), 3, 4, Some(7), Yes, Some(5)),
        "convolution" | "_convolution" | "convolution_overrideable" =>
            places(Some(2), 3, 4, Some(5), At(6), Some(7)),
        "cudnn_convolution" => places(None, 3, 2, Some(4), No, None),
        "cudnn_convolution_transpose" => places(None, 4, 2, Some(5), Yes, Some(3)),
        "cudnn_convolution_relu" => places(Some(2), 3, 4, Some(5), No, None),
        "cudnn_convolution_add_relu" => places(Some(4), 5, 6, Some(7), No, None),
        "miopen_convolution" | "miopen_depthwise_convolution" | "mkldnn_convolution"
        | "_mkldnn_convolution" => places(Some(2), 4, 3, Some(5), No, None),
        "miopen_convolution_transpose" => places(Some(2), 5, 3, Some(6), Yes, Some(4)),
        "thnn_conv2d" | "_slow_conv2d_forward" | "slow_conv3d" | "slow_conv3d_forward" =>
            places(Some(3), 4, 5, None, No, None),
        "slow_conv_dilated2d" | "slow_conv_dilated3d" | "_conv_depthwise2d" | "conv_depthwise3d" =>
            places(Some(3), 4, 5, Some(6), No, None),
        "slow_conv_transpose2d" | "slow_conv_transpose3d" =>
            places(Some(3), 4, 5, Some(7), Yes, Some(6)),
        _ => None,
    }
}

/// Returns the work of an operator if it is a convolution; `name` is without `aten::`.
pub(super) fn of(name: &str, call: &Call) -> Option<Result<Work, WhyUncounted>> {
    match name {
        "convolution_backward" | "convolution_backward_overrideable" => Some(backward(call)),
        _ => places(name).map(|places| forward(call, &places)),
    }
}

fn forward(call: &Call, places: &ConvolutionInputs) -> Result<Work, WhyUncounted> {
    let (x, w) = (call.tensor(0)?, call.tensor(1)?);
    let transposed = match places.transposed {
        No => false,
        Yes => true,
        At(at) => call.flag(at).ok_or(UNRECORDED)?,
    };
    fits(x, w, transposed)?;
    let out = out_dims(call, places, x, w, transposed);
    let (at, out) = match (transposed, out) {
        // For a transposed convolution, the operations follow from the input's points, so the
        // result's sizes may be unknown.
        (true, out) => (&x.dims[2..], out.ok()),
        (false, out) => (&out.clone()?[2..], out.ok()),
    };
    let flops = flops(x.dims[0], &w.dims, at)?;
    let written = out.and_then(|out| product(&out).ok()?.checked_mul(x.of?.bytes()));
    let bias = places.bias.and_then(|at| call.maybe(at)).map_or(Some(0), Tensor::bytes);
    let read = || x.bytes()?.checked_add(w.bytes()?)?.checked_add(bias?);
    Ok(Work::new(Family::Convolution, flops).of(x.of).moves(read(), written))
}

fn backward(call: &Call) -> Result<Work, WhyUncounted> {
    let (grad, x, w) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let transposed = call.flag(7).ok_or(UNRECORDED)?;
    let mask = call.flags(10).ok_or(MASK)?;
    let &[of_input, of_weight, of_bias] = mask.as_slice() else { return Err(MASK) };
    fits(x, w, transposed)?;
    if grad.dims.len() != x.dims.len() || grad.dims[0] != x.dims[0] {
        return Err(RANKS);
    }
    let points = product(if transposed { &x.dims[2..] } else { &grad.dims[2..] })?;
    let filter = product(&w.dims[2..])?;
    let joined = points.checked_mul(filter).and_then(|all| all.checked_mul(x.dims[0]));
    let pairs = |a: u64, b: u64| {
        let all = joined.and_then(|all| all.checked_mul(a)?.checked_mul(b)?.checked_mul(2));
        all.ok_or(TOO_LARGE)
    };
    let one = pairs(w.dims[0], w.dims[1])?;
    let input = if of_input { one } else { 0 };
    // Torch's counter pairs every channel of the input with every channel of the result, even if
    // they are in different groups.
    let weight = if of_weight { pairs(x.dims[1], grad.dims[1])? } else { 0 };
    let needed = input.checked_add(if of_weight { one } else { 0 }).ok_or(TOO_LARGE)?;
    let flops = input.checked_add(weight).ok_or(TOO_LARGE)?;
    let read = || {
        let of_input = if of_input { w.bytes()? } else { 0 };
        let of_weight = if of_weight { x.bytes()? } else { 0 };
        grad.bytes()?.checked_add(of_input)?.checked_add(of_weight)
    };
    let written = || {
        let of_input = if of_input { x.bytes()? } else { 0 };
        let of_weight = if of_weight { w.bytes()? } else { 0 };
        let of_bias = if of_bias { grad.dims[1].checked_mul(grad.of?.bytes())? } else { 0 };
        of_input.checked_add(of_weight)?.checked_add(of_bias)
    };
    let work = Work::new(Family::Convolution, flops).of(grad.of).moves(read(), written());
    Ok(Work { needed, ..work })
}

fn fits(x: &Tensor, w: &Tensor, transposed: bool) -> Result<(), WhyUncounted> {
    if x.dims.len() != w.dims.len() || x.dims.len() < 3 {
        return Err(RANKS);
    }
    let (channels, of_weight) = (x.dims[1], w.dims[usize::from(!transposed)]);
    let fits =
        if transposed { channels == of_weight } else { of_weight > 0 && channels % of_weight == 0 };
    if fits { Ok(()) } else { Err(CHANNELS) }
}

/// Counts 2 operations for each of these points, each position of the filter and each pair of
/// channels that the filter joins.
fn flops(batch: u64, w: &[u64], points: &[u64]) -> Result<u64, WhyUncounted> {
    let (points, filter) = (product(points)?, product(w)?);
    let all = [batch, points, filter].into_iter().try_fold(2_u64, |all, one| all.checked_mul(one));
    all.ok_or(TOO_LARGE)
}

/// Computes the sizes of the result.
fn out_dims(
    call: &Call,
    places: &ConvolutionInputs,
    x: &Tensor,
    w: &Tensor,
    transposed: bool,
) -> Result<Vec<u64>, WhyUncounted> {
    let dims = x.dims.len() - 2;
    // A single number stands for all dimensions.
    let each = |numbers: Vec<i64>| -> Result<Vec<i64>, WhyUncounted> {
        match numbers.as_slice() {
            [one] => Ok(vec![*one; dims]),
            all if all.len() == dims => Ok(all.to_vec()),
            _ => Err(WhyUncounted::Unfit("its stride or padding has another number of sizes")),
        }
    };
    let stride = each(call.numbers(places.stride).ok_or(UNRECORDED)?)?;
    let padding = each(call.numbers(places.padding).ok_or(UNRECORDED)?)?;
    let dilation = match places.dilation {
        Some(at) => each(call.numbers(at).ok_or(UNRECORDED)?)?,
        None => vec![1; dims],
    };
    let beyond = match places.output_padding.filter(|_| transposed) {
        Some(at) => each(call.numbers(at).ok_or(UNRECORDED)?)?,
        None => vec![0; dims],
    };
    let groups = if transposed { None } else { Some(w.dims[0]) };
    // The weight of a transposed convolution has only the result's channels of one group. So the
    // sizes don't show the number of groups, and it must be read from an argument.
    let groups_at = places.output_padding.map(|at| match places.transposed {
        Yes if at == 5 => 6,
        Yes => at + 3,
        _ => at + 1,
    });
    let channels = match groups {
        Some(channels) => channels,
        None => {
            let groups = groups_at.and_then(|at| call.number(at)).unwrap_or(0);
            w.dims[1].checked_mul(u64::try_from(groups).unwrap_or(0)).ok_or(TOO_LARGE)?
        }
    };
    if channels == 0 {
        return Err(UNRECORDED);
    }
    let mut out = vec![x.dims[0], channels];
    for at in 0..dims {
        let (size, filter) = (i128::from(x.dims[at + 2]), i128::from(w.dims[at + 2]));
        let (stride, padding) = (i128::from(stride[at]), i128::from(padding[at]));
        let reach = i128::from(dilation[at]) * (filter - 1);
        if stride <= 0 || padding < 0 || reach < 0 {
            return Err(WhyUncounted::Unfit("its stride, padding or dilation makes no sense"));
        }
        let size = match transposed {
            true => (size - 1) * stride - 2 * padding + reach + i128::from(beyond[at]) + 1,
            false => {
                let room = size + 2 * padding - reach - 1;
                if room < 0 {
                    return Err(LARGER);
                }
                room / stride + 1
            }
        };
        out.push(u64::try_from(size).map_err(|_| LARGER)?);
    }
    Ok(out)
}
