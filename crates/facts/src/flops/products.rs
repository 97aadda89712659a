//! Counts the work of products of matrices: 2 m n k operations.

use super::call::{Call, TOO_LARGE, Tensor};
use super::why::WhyUncounted;
use super::work::{Family, Work};

const INNER: WhyUncounted = WhyUncounted::Unfit("inner sizes differ");
const BATCHES: WhyUncounted = WhyUncounted::Unfit("numbers of matrices differ");
const RANKS: WhyUncounted = WhyUncounted::Unfit("a matrix has another number of sizes");

/// Returns the work of an operator if it is a product; `name` is without `aten::`.
pub(super) fn of(name: &str, call: &Call) -> Option<Result<Work, WhyUncounted>> {
    Some(match name {
        "mm" | "_int_mm" | "mm_out" => two(call, 0, None, Scaled::No),
        "addmm" | "_addmm_activation" | "addmm_" => two(call, 1, Some(0), Scaled::No),
        "_scaled_mm" => two(call, 0, Some(4), Scaled::By { out_type: 6 }),
        "bmm" => three(call, 0, None),
        "baddbmm" | "baddbmm_" => three(call, 1, Some(0)),
        "addbmm" | "addbmm_" => three(call, 1, Some(0)).and_then(|work| summed(work, call)),
        "_grouped_mm" => grouped(call, 3, 4),
        "_scaled_grouped_mm" => grouped(call, 5, 7),
        "linear" | "mkldnn_linear" | "_mkl_linear" | "mkldnn_linear_pointwise" => linear(call),
        "mv" => vector(call, 0, None),
        "addmv" | "addmv_" => vector(call, 1, Some(0)),
        "dot" | "vdot" => dot(call),
        "addr" | "addr_" => outer(call),
        _ => return None,
    })
}

/// Sizes of a batch of products of m x k and k x n matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductSizes {
    /// Number of products in the batch.
    pub batch: u64,
    /// Rows of the first matrix and of the result.
    pub m: u64,
    /// Columns of the second matrix and of the result.
    pub n: u64,
    /// Columns of the first matrix and rows of the second.
    pub k: u64,
}

/// Returns the sizes of a product of matrices; `None` for other operators.
pub(super) fn sizes(name: &str, call: &Call) -> Option<ProductSizes> {
    let at = match name {
        "mm" | "bmm" | "_scaled_mm" => 0,
        "addmm" | "baddbmm" | "_addmm_activation" => 1,
        _ => return None,
    };
    let (a, b) = (call.tensor(at).ok()?, call.tensor(at + 1).ok()?);
    match (a.dims.as_slice(), b.dims.as_slice()) {
        ([m, k], [k2, n]) if k == k2 => Some(ProductSizes { batch: 1, m: *m, n: *n, k: *k }),
        ([batch, m, k], [batch2, k2, n]) if k == k2 && batch == batch2 => {
            Some(ProductSizes { batch: *batch, m: *m, n: *n, k: *k })
        }
        _ => None,
    }
}

/// Whether the operator takes the type of the result as an argument.
#[derive(Clone, Copy)]
enum Scaled {
    No,
    By { out_type: usize },
}

fn matrix(tensor: &Tensor) -> Result<[u64; 2], WhyUncounted> {
    tensor.dims.as_slice().try_into().map_err(|_| RANKS)
}

fn matrices(tensor: &Tensor) -> Result<[u64; 3], WhyUncounted> {
    tensor.dims.as_slice().try_into().map_err(|_| RANKS)
}

/// Returns the operations of a batch of products: 2 m n k for each.
pub(super) fn flops(batch: u64, m: u64, n: u64, k: u64) -> Result<u64, WhyUncounted> {
    let all = [batch, m, n, k].into_iter().try_fold(2_u64, |all, one| all.checked_mul(one));
    all.ok_or(TOO_LARGE)
}

/// Returns the bytes of both matrices, and of the added tensor if there is one.
fn read(a: &Tensor, b: &Tensor, added: Option<&Tensor>) -> Option<u64> {
    let both = a.bytes()?.checked_add(b.bytes()?)?;
    both.checked_add(added.map_or(Some(0), Tensor::bytes)?)
}

fn gemm(
    a: &Tensor,
    b: &Tensor,
    added: Option<&Tensor>,
    [batch, m, n, k]: [u64; 4],
) -> Result<Work, WhyUncounted> {
    let out = [batch, m, n].into_iter().try_fold(1_u64, |all, one| all.checked_mul(one));
    let written = out.ok_or(TOO_LARGE)?.checked_mul(a.of.map_or(0, |of| of.bytes()));
    let work = Work::new(Family::Gemm, flops(batch, m, n, k)?);
    Ok(work.of(a.of).moves(read(a, b, added), written.filter(|_| a.of.is_some())))
}

fn two(call: &Call, at: usize, added: Option<usize>, scaled: Scaled) -> Result<Work, WhyUncounted> {
    let (a, b) = (call.tensor(at)?, call.tensor(at + 1)?);
    let ([m, k], [k2, n]) = (matrix(a)?, matrix(b)?);
    if k != k2 {
        return Err(INNER);
    }
    let work = gemm(a, b, added.and_then(|at| call.maybe(at)), [1, m, n, k])?;
    let Scaled::By { out_type } = scaled else { return Ok(work) };
    // If this argument was not recorded, the type of the result is unknown.
    let of = call.number(out_type).and_then(super::element::ElementType::of_number);
    let written = of.and_then(|of| m.checked_mul(n)?.checked_mul(of.bytes()));
    Ok(Work { written, ..work })
}

fn three(call: &Call, at: usize, added: Option<usize>) -> Result<Work, WhyUncounted> {
    let (a, b) = (call.tensor(at)?, call.tensor(at + 1)?);
    let ([batch, m, k], [batch2, k2, n]) = (matrices(a)?, matrices(b)?);
    if k != k2 {
        return Err(INNER);
    }
    if batch != batch2 {
        return Err(BATCHES);
    }
    gemm(a, b, added.and_then(|at| call.maybe(at)), [batch, m, n, k])
}

/// Changes the work of a batch of products to that of their sum, which has one result.
fn summed(work: Work, call: &Call) -> Result<Work, WhyUncounted> {
    let batch = matrices(call.tensor(1)?)?[0];
    Ok(Work { written: work.written.and_then(|bytes| bytes.checked_div(batch)), ..work })
}

/// The work of a product whose rows, columns or inner dimension are divided into groups. Each row
/// counts once, in its own group.
fn grouped(call: &Call, bias: usize, out_type: usize) -> Result<Work, WhyUncounted> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    // A one-dimensional tensor has the offsets at which groups begin; its size is the number of
    // groups.
    let groups = || (2..call.len()).filter_map(|at| call.maybe(at)).find(|t| t.dims.len() == 1);
    let [batch, m, n, k, results] = match (a.dims.as_slice(), b.dims.as_slice()) {
        ([m, k], [_, k2, n]) if k == k2 => [1, *m, *n, *k, 1],
        ([_, m, k], [k2, n]) if k == k2 => [1, *m, *n, *k, 1],
        ([batch, m, k], [batch2, k2, n]) if k == k2 && batch == batch2 => [*batch, *m, *n, *k, 1],
        ([m, k], [k2, n]) if k == k2 => {
            [1, *m, *n, *k, groups().map_or(0, |offsets| offsets.dims[0])]
        }
        ([_, _] | [_, _, _], [_, _] | [_, _, _]) => return Err(INNER),
        _ => return Err(RANKS),
    };
    let work = gemm(a, b, call.maybe(bias), [batch, m, n, k])?;
    let of = match call.number(out_type) {
        Some(number) => super::element::ElementType::of_number(number),
        None => a.of.filter(|of| of.bytes() > 1),
    };
    let elements = [batch, m, n, results].into_iter().try_fold(1_u64, |all, n| all.checked_mul(n));
    let written = elements.filter(|_| results > 0).and_then(|n| n.checked_mul(of?.bytes()));
    Ok(Work { written, ..work })
}

fn linear(call: &Call) -> Result<Work, WhyUncounted> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let ((k, rows), [n, k2]) = (a.dims.split_last().ok_or(RANKS)?, matrix(b)?);
    if *k != k2 {
        return Err(INNER);
    }
    gemm(a, b, call.maybe(2), [1, super::call::product(rows)?, n, *k])
}

fn vector(call: &Call, at: usize, added: Option<usize>) -> Result<Work, WhyUncounted> {
    let (a, b) = (call.tensor(at)?, call.tensor(at + 1)?);
    let ([m, k], &[k2]) = (matrix(a)?, b.dims.as_slice()) else { return Err(RANKS) };
    if k != k2 {
        return Err(INNER);
    }
    gemm(a, b, added.and_then(|at| call.maybe(at)), [1, m, 1, k])
}

fn dot(call: &Call) -> Result<Work, WhyUncounted> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let (&[k], &[k2]) = (a.dims.as_slice(), b.dims.as_slice()) else { return Err(RANKS) };
    if k != k2 {
        return Err(INNER);
    }
    gemm(a, b, None, [1, 1, 1, k])
}

fn outer(call: &Call) -> Result<Work, WhyUncounted> {
    let (a, b) = (call.tensor(1)?, call.tensor(2)?);
    let (&[m], &[n]) = (a.dims.as_slice(), b.dims.as_slice()) else { return Err(RANKS) };
    gemm(a, b, call.maybe(0), [1, m, n, 1])
}
